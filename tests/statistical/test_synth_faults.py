"""Thirteen ways to get a synthetic table wrong. Each broken twin is caught; the right one passes the same check."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.attack.report.interval import Interval
from cloister.data.private_table import PrivateTable
from cloister.privacy.filter import budget_share, noise_for, release_steps
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Exponential
from cloister.synth import run
from cloister.synth.domain import domain
from cloister.synth.domain.resolution import Resolution
from cloister.synth.generators import aim, mggm, mst
from cloister.synth.measure import marginals
from cloister.synth.model import full_joint
from cloister.synth.output.table import SyntheticTable
from cloister.synth.scoring import publishable
from cloister.synth.scoring.utility.workload import RowCount

from ..unit.synth.transcripts import Transcript, moved, recorded, replayed
from .synth_runs import Generator, Tables, evidence

pytestmark = pytest.mark.statistical

SPEND = cl.rho("0.5")
Patch = pytest.MonkeyPatch
COLUMNS = {
    "ward": {"type": "text", "categories": ["a", "b", "c"], "nullable": False},
    "age": {"type": "integer", "bounds": [0, 9], "nullable": False},
    "cost": {"type": "integer", "bounds": [0, 9], "nullable": False},
}
# Cost follows age, but for one person with another ward: who makes the ward follow both.
FEW = {"person": list(range(8)), "ward": ["a"] * 4 + ["b"] * 4, "age": [0, 0, 3, 3] * 2, "cost": [0, 0, 3, 3] * 2}
ONE = {"person": [99] * 6, "ward": ["c"] * 6, "age": [9] * 6, "cost": [0] * 6}
MORE = {name: [*FEW[name], *ONE[name]] for name in FEW}
SYNTHETIC = {"ward": ["a", "b", "c"], "age": [0, 3, 9], "cost": [0, 3, 0]}


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tables]:
    made = Tables.opened(tmp_path_factory.mktemp("faults"), (FEW, MORE), COLUMNS)
    yield made
    made.close()


class Now:
    """The dataset that is looked at, for twins that look where they must not; and whether a step is being paid for."""

    data: Any = None
    paid = False


def exact(*names: str) -> Any:
    """True counts, for nothing."""
    relation = Now.data.relation("visits", list(names))
    axes = [domain.read_axis(relation.columns[name], 10) for name in names]
    counts = relation.sums([axis.key() for axis in axes]).run(relation.engine)[0]
    return np.asarray(counts, dtype=float).reshape([axis.size for axis in axes]) / relation.whole


@dataclass(frozen=True)
class Fault:
    """What is made, how to break it, and which check must notice."""

    makes: Callable[[Any], Any]
    breaks: Callable[[Patch], None]
    noticed: str


def made_by(name: str, **told: Any) -> Callable[[Any], Any]:
    return lambda data: getattr(synth, name)(data, spend=SPEND, random_state=1, **told)


def scored(data: Any) -> Any:
    return synth.publishable_score(data, pa.table(SYNTHETIC), spend=SPEND, released=True, random_state=1)


# 1. A selection that is not charged


def free_selection(patch: Patch) -> None:
    def strongest(survey: Any, model: Any, _loss: Any, _tell: Any) -> Any:
        gaps = {pair: np.abs(survey.exact(pair) - model.marginal(pair)).sum() for pair in [(0, 1), (0, 2), (1, 2)]}
        return sorted(gaps, key=lambda pair: -gaps[pair])[:2]

    patch.setattr(mst, "choose_tree", strongest)


# 2. A domain that is read from the data


def observed_domain(patch: Patch) -> None:
    read = domain.read_domain

    def observing(data: Any, **asked: Any) -> Any:
        found, relation = read(data, **asked)
        seen = exact("ward") > 0
        kept = tuple(value for value, there in zip("abc", seen, strict=True) if there)
        return replace(found, axes=(replace(found.axes[0], values=kept), *found.axes[1:])), relation

    patch.setattr(run, "read_domain", observing)
    patch.setattr(full_joint, "read_domain", observing)


# 3. Clustering on raw data


def raw_sets(patch: Patch) -> None:
    def strong(*_: Any) -> Any:
        joint = exact("age", "cost")
        together = joint[np.diag_indices(10)].sum() / joint.sum()
        return np.array([[1, 0, 0], [0, 1, float(together == 1)], [0, float(together == 1), 1]])

    patch.setattr(mggm, "correlations", strong)


# 4. The number of rows, read off the table


def true_size(patch: Patch) -> None:
    draw = SyntheticTable.draw_from.__func__  # type: ignore[attr-defined]

    def counting(cls: Any, found: Any, made: Any, decided: Any, release: Any, _rows: Any, generator: Any) -> Any:
        return draw(cls, found, made, decided, release, round(exact("ward").sum()), generator)

    patch.setattr(SyntheticTable, "draw_from", classmethod(counting))


# 5. Levels that are merged by true counts


def true_levels(patch: Patch) -> None:
    of = Resolution.of.__func__  # type: ignore[attr-defined]

    def looking(cls: Any, found: Any, singles: Any, _total: float, least: float) -> Any:
        # With their true total: counts that are held to a noisy one follow its noise, and with it, by chance of the
        # seed, whether the plan shows them. A unit more has an age that nobody else has: one level more to choose from.
        bare = [replace(one, counts=exact(name), sigma=0.1) for one, name in zip(singles, COLUMNS, strict=True)]
        return of(cls, found, bare, float(bare[0].counts.sum()), least)

    patch.setattr(Resolution, "of", classmethod(looking))


# 6. Candidates that are listed by their true counts


def true_candidates(patch: Patch) -> None:
    listed = aim._Run._candidates
    patch.setattr(aim._Run, "_candidates", lambda self, used: listed(self, used)[: 1 + int((exact("ward") > 0).sum())])


# 7. The number of rows of a score, without noise


def true_rows(patch: Patch) -> None:
    def looking(survey: Any, _loss: Any) -> Any:
        rows = int(survey.exact((0,)).sum())
        return RowCount(rows * survey.parts, Interval(rows, rows, rows), 0.0)

    patch.setattr(publishable, "buy_rows", looking)


# 8. Several marginals that are paid for as one


def one_marginal(patch: Patch) -> None:
    patch.setattr(marginals, "root_above", lambda square: int((square / 3) ** 0.5))


# 9. A person who is taken for a row


def one_row(patch: Patch) -> None:
    patch.setattr(PrivateTable, "most", property(lambda self: self.whole))


# 10. Scores that weigh more than their choice was made for


def heavy_scores(patch: Patch) -> None:
    weights = aim._weights
    patch.setattr(aim, "_weights", lambda *asked: {places: 5 * one for places, one in weights(*asked).items()})


# 11. Choices at three times the rate


class WeakChoice:
    """Nearer to the best than was paid for."""

    @staticmethod
    def for_loss(sensitivity: Any, loss: Loss) -> Exponential:
        return Exponential.for_loss(sensitivity, Loss(loss.measure, loss.amount * 9))


FAULTS = {
    "a selection that is not charged": Fault(made_by("mst"), free_selection, "a look that nobody paid"),
    "a domain that is read from the data": Fault(
        made_by("m_way", columns=["ward", "age"]), observed_domain, "another plan"
    ),
    "clustering on raw data": Fault(made_by("mggm", bins=10), raw_sets, "another result"),
    "the number of rows, read off the table": Fault(made_by("independent"), true_size, "another result"),
    "levels that are merged by true counts": Fault(made_by("aim", rounds=2), true_levels, "another plan"),
    "candidates that are listed by true counts": Fault(made_by("aim", rounds=2), true_candidates, "another plan"),
    "the number of rows of a score, without noise": Fault(scored, true_rows, "another result"),
    "several marginals that are paid for as one": Fault(made_by("independent"), one_marginal, "too little noise"),
    "a person who is taken for a row": Fault(made_by("mst"), one_row, "too little noise"),
    "scores that weigh more than was paid for": Fault(made_by("aim", rounds=2), heavy_scores, "too little noise"),
    "choices at three times the rate": Fault(
        made_by("mst"), lambda patch: patch.setattr(marginals, "Exponential", WeakChoice), "another price"
    ),
}


def noticed(fault: Fault, tables: Tables, patch: Patch) -> set[str]:
    """All that is wrong with what is made: on one table, and on its neighbour if that had told the same."""
    found: set[str] = set()
    for seed in range(3):
        runs, results = [], []
        for data in tables.datasets:
            Now.data = data
            with watched(data) as unpaid:
                try:
                    if not runs:
                        made, steps = recorded(patch, lambda data=data: fault.makes(data), f"fault {seed}")  # type: ignore[misc]
                    else:
                        made, steps = replayed(patch, runs[0], lambda data=data: fault.makes(data))  # type: ignore[misc]
                except (AssertionError, IndexError):
                    return found | {"another plan"}
            if unpaid:
                found.add("a look that nobody paid")
            if steps.spent != {"rho": budget_share(SPEND).loss.amount}:
                found.add("another price")
            runs.append(steps)
            results.append(told_by(made))
        if len(runs[0].steps) != len(runs[1].steps):
            found.add("another plan")
        if results[0] != results[1]:
            found.add("another result")
        if any(moved(one, two) > 1 for one, two in zip(runs[0].steps, runs[1].steps, strict=False)):
            found.add("too little noise")
    return found


def told_by(made: Any) -> Any:
    if isinstance(made, SyntheticTable):
        return {**made.side, "receipt": None}, made.rows()
    return made.to_json()


@contextmanager
def watched(data: Any) -> Iterator[list[str]]:
    """Statements that run outside of a step that was paid for."""
    unpaid: list[str] = []
    engine, release = data.tables.engine, Transcript.release
    run_it = engine.run

    def paying(meter: Transcript, look: Callable[[], Any], mechanism: Any) -> Any:
        def paid() -> Any:
            Now.paid = True
            try:
                return look()
            finally:
                Now.paid = False

        return release(meter, paid, mechanism)

    def asked(sql: str) -> Any:
        if not Now.paid:
            unpaid.append(sql)
        return run_it(sql)

    with Patch.context() as patch:
        patch.setattr(Transcript, "release", paying)
        patch.setattr(engine, "run", asked)
        yield unpaid


@pytest.mark.parametrize("name", FAULTS)
def test_the_right_one_passes_and_the_broken_twin_is_caught(name: str, tables: Tables, monkeypatch: Patch) -> None:
    assert noticed(FAULTS[name], tables, monkeypatch) == set()
    FAULTS[name].breaks(monkeypatch)
    assert FAULTS[name].noticed in noticed(FAULTS[name], tables, monkeypatch)


# Noise of the wrong scale: seen by the likelihood of all that is released


def weak_noise(l2: Any, l1: int, loss: Loss) -> Any:
    return noise_for(l2, l1, Loss(loss.measure, loss.amount * 2))


def test_noise_of_the_wrong_scale_is_caught(tmp_path: Any, monkeypatch: Patch) -> None:
    tables, loss = Tables.opened(tmp_path), cl.epsilon(4)
    generator = Generator(mst, "mst")
    assert np.abs(evidence(generator, tables, loss, 40)).max() <= float(loss.amount)
    monkeypatch.setattr(marginals, "noise_for", weak_noise)
    assert np.abs(evidence(generator, tables, loss, 40)).max() > float(loss.amount)
    tables.close()


# A charge after the look: only a ledger shows it


def test_a_charge_after_the_look_is_caught(tables: Tables, monkeypatch: Patch) -> None:
    data = tables.datasets[0]
    order: list[bool] = []
    inner = data.tables.engine.run
    before = data.account.spent

    def asked(sql: str) -> Any:
        order.append(data.account.spent == before + SPEND)
        return inner(sql)

    monkeypatch.setattr(data.tables.engine, "run", asked)
    synth.independent(data, spend=SPEND)
    assert order
    assert all(order)

    def late(steps: Any, **more: Any) -> Any:
        class Free:
            def release(self, look: Any, mechanism: Any) -> Any:
                return mechanism.release(look())

        found = steps(Free())
        return found, release_steps(lambda meter: None, **more)[1]

    monkeypatch.setattr(run, "release_steps", late)
    before = data.account.spent
    order.clear()
    synth.independent(data, spend=SPEND)
    assert not any(order)
