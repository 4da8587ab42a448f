"""Attacks on a synthetic table.

hidden values   of people whose other columns the attacker knows: those of the closest synthetic row; guessing has
                rows of other people instead
membership      copies, closest rows, singling out: asked of a twin that was made in the same way from a random half
                of the people: see `halves.py`. The other half is what is there by chance
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.attack.finding import Finding, clopper_pearson
from cloister.attack.models.rows import generator
from cloister.attack.tables.synthetic.attack_sample import attack
from cloister.attack.tables.synthetic.closeness import encoded
from cloister.attack.tables.synthetic.copies import count_copies
from cloister.attack.tables.synthetic.findings import synthetic_findings
from cloister.data.private_data import PrivateData
from cloister.data.schema import Column, Table
from cloister.hub.approvals.visibility import result_of
from cloister.hub.core.models import Job
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs.attacks.halves import Half, one_row_each, salts
from cloister.hub.jobs.attacks.sources import opened, view_of
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.external_tables.submission import HANDED
from cloister.hub.jobs.job_types.synthesise.form import SynthesisRequest, carry_out, read
from cloister.hub.jobs.sealed_output import rows_of
from cloister.privacy.errors import NotNow
from cloister.privacy.filter import budget_share
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.synth.scoring.rows import ScoreRows, read_rows, sides_of

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.hub.jobs.job_types.job_type import Progress

__all__ = ["attack_table", "hidden_values", "membership_in_a_twin"]

_MOST_ASKED = 20_000  # people, drawn by chance
_MOST_HIDDEN, _TARGETS = 3, 1_500  # columns that are hidden, and people whose values are guessed
_MOST_LISTED = 20  # values that a hidden column has at most
_MOST_RULES = 1_000
_FEWEST = 200  # people: fewer say nothing
_BLOCK = 4_096
_SHARE = 0.5  # of the time that making a twin may take
_HALVES = (
    "it attacks a twin of the table: made in the same way, with the same settings and at the same spend, from a random "
    "half of the people. The table itself was made from all of them, so nobody is left to compare with",
    "a twin is made from half as many people, so each of them weighs rather more in it than in the table",
)


def attack_table(
    hub: "Hub", pool: DatasetPool, job: Job, title: str, progress: "Progress"
) -> tuple[list[Finding], dict[str, str]]:
    """Return the findings of all attacks on a synthetic table, and those that were not run, each with the reason.

    Raises:
        NotNow: the table is no longer kept, or the tables it was made from were replaced since.
    """
    with hub.database.reading() as session:
        version = newest(hub, session, job.dataset)
        result = result_of(session, session.get_one(Job, job.id))
        schema = pool.get(job.dataset, version, job.dataset.owner).data.schema
        view = view_of(hub, session, job, schema, version, title)
    if not result or "file" not in result:
        raise NotNow(f"the result of {title} is no longer kept. Attack one that is.")
    made, table, draw = rows_of(result), str(result["table"]), generator(None)
    with opened(hub, pool, job, version, view) as data:
        names = [name for name in made.column_names if name in data.columns(table)]
        facts = dict(data.relation(table, names).columns)
        names = [name for name in names if _scorable(facts[name])]
        if not names:
            raise NotNow(f"no column of {title} has public values or bounds, so nothing can be compared.")
        progress(0.02, "reading the people that it was made from")
        people, units = one_row_each(data, table, names, _MOST_ASKED, draw)
        sides = _Sides(table, {name: facts[name] for name in names})
        real = sides.read(people)
        if len(real) < _FEWEST:
            raise NotNow(f"fewer than {_FEWEST} rows can be attacked, which says nothing. Attack a larger table.")
        progress(0.1, "guessing hidden values")
        claim = Loss.from_json(job.loss) if job.loss else None
        hidden = hidden_values(real, sides.read(made.select(names)), sides.facts, title, claim, draw)
        findings, skipped = list[Finding](), dict[str, str]()
        if not hidden:
            skipped["hidden values"] = "no column has a short public list of values to guess among."
        why = _no_twin(hub, job, units)
        if why:
            skipped["membership"] = why
        else:
            asked = read(data, table, job.parameters)
            findings += _twins(data, job, asked, sides, people, units, title, draw, progress)
    return [*findings, *hidden], skipped


def _no_twin(hub: "Hub", job: Job, units: Any) -> str:
    """Return why no twin of a table is made; empty if one is."""
    if job.parameters.get(HANDED):
        return "it was made outside this hub, so no twin can be made in the same way. Score it where it was made."
    if units is None:
        return "every row is a unit here, and equal rows cannot be drawn into different halves."
    took = (job.finished or 0.0) - (job.started or 0.0)
    if took > _SHARE * hub.settings.job_seconds:
        return f"making the table took {took:,.0f} seconds, which leaves no time for a twin."
    return ""


def _scorable(facts: Column) -> bool:
    return facts.type == "boolean" or facts.categories is not None or facts.bounds is not None


class _Sides:
    """Columns of a table as public codes."""

    def __init__(self, table: str, facts: Mapping[str, Column]) -> None:
        self.facts = facts
        self._table = Table(table, dict(facts))
        self._sides = sides_of(self._table, list(facts), 32)

    def read(self, rows: Any) -> ScoreRows:
        """Return rows as codes; those that lack a required value are left out."""
        return read_rows(rows, self._table, self._sides)


# Membership


def _twins(
    data: PrivateData, job: Job, asked: SynthesisRequest, sides: _Sides, people: Any, units: Any, title: str,
    draw: np.random.Generator, progress: "Progress",
) -> list[Finding]:  # fmt: skip
    """Return what a twin of the table tells about who was in its half."""
    alone = replace(asked, budget=budget_share(asked.making), share=Fraction(0))
    with _account(Loss.from_json(job.dataset.budget)) as account:
        half = Half(data, salts(draw, 1)[0], account=account)
        twin, _, _ = carry_out(half, alone, lambda share, _: progress(0.2 + 0.5 * share, "making a twin"))  # type: ignore[arg-type]
    progress(0.7, "looking for the people of the twin in it")
    within = half.has(asked.table, next(iter(sides.facts)), units)
    members, others = (sides.read(people.filter(pa.array(which))) for which in (within, ~within))
    made = sides.read(twin.to_arrow().select(list(sides.facts)))

    def told(share: float, words: str) -> None:
        progress(0.7 + 0.25 * share, words)

    return membership_in_a_twin(members, others, made, asked.making, title, draw, told)


def membership_in_a_twin(
    members: ScoreRows, others: ScoreRows, made: ScoreRows, claim: Loss, title: str, draw: np.random.Generator,
    progress: "Progress",
) -> list[Finding]:  # fmt: skip
    """Return the findings of a synthetic table that was made from the members, one row of each, beside others.

    Args:
        members: people that it was made from.
        others: people of the same population that it was not made from.
        made: the synthetic table.
        claim: the loss that it is stated to cost.
        title: what is attacked.
        draw: the generator of the samples.
        progress: called with a share and a sentence.
    """
    copies = count_copies(members, made, others)
    found = attack(members, others, made, _MOST_ASKED, _MOST_RULES, draw, progress)
    left = [f"the table has too many rows for: {', '.join(found.not_tried)}"] if found.not_tried else []
    notes = (*_HALVES, f"one row of each of {len(members) + len(others):,} people is asked about", *left)
    findings = synthetic_findings(copies, found, target=f"a twin of {title}", claim=claim, rows=len(members))
    order = sorted(findings, key=lambda one: not one.attack.startswith("membership"))
    return [replace(one, notes=(*one.notes, *notes)) for one in order]


@contextmanager
def _account(budget: Loss) -> Iterator[Account]:
    """Open an account in a ledger that is thrown away: a generator charges it as any other. It holds no row."""
    with TemporaryDirectory(prefix="twin-ledger-") as folder, Ledger.in_folder(folder) as ledger:
        yield ledger.open_account("twin", budget)


# Hidden values


def hidden_values(
    real: ScoreRows,
    made: ScoreRows,
    facts: Mapping[str, Column],
    title: str,
    claim: Loss | None,
    draw: np.random.Generator,
) -> list[Finding]:
    """Guess columns of people by the closest synthetic row; the best guess without it has rows of other people.

    People of the population look like each other, and a table tells that of all of them. Only what the closest row
    tells beyond rows of other people, and beyond trees that learned from those, is what it tells of these people.
    """
    order = draw.permutation(len(real))
    count = min(_TARGETS, len(real) // 3)
    targets, others = real.take(order[:count]), real.take(order[count:])
    findings = []
    for place in _columns_to_hide(real, facts):
        truth, name = targets.codes[:, place], real.names[place]
        if len(np.unique(truth)) < 2:
            continue
        guessed = made.codes[_nearest(targets, made, place, draw), place]
        hits = int((guessed == truth).sum())
        alike = float((others.codes[_nearest(targets, others, place, draw), place] == truth).mean())
        usual = float((truth == np.bincount(others.codes[:, place]).argmax()).mean())
        learned = _by_trees(targets, others, place)
        baseline = max(alike, usual, learned)
        findings.append(
            Finding(
                attack=f"hidden values of {name}",
                target=title,
                access="release",
                knowledge=f"the synthetic table, and each person without {name}",
                measure="hidden values that are guessed",
                success=hits / count,
                interval=clopper_pearson(hits, count),
                baseline=baseline,
                attempts=count,
                claim=claim,
                figures={
                    "by the closest row of somebody else": round(alike, 4),
                    "by trees on rows of others": round(learned, 4),
                    "by the most frequent value": round(usual, 4),
                },
                remedies=_REMEDIES if clopper_pearson(hits, count)[0] > baseline else (),
                notes=(
                    f"the best guess without the table has {len(others):,} rows of other people of these tables",
                    f"{count:,} people are asked about, one row of each",
                ),
            )
        )
    return findings


_REMEDIES = (
    "Make the table with a smaller privacy loss: it bounds what it tells of any one person.",
    "Give columns fewer values or wider bins.",
)


def _columns_to_hide(rows: ScoreRows, facts: Mapping[str, Column]) -> Sequence[int]:
    """Return the sensitive columns with a short list of values, if there are any; else the first few such columns."""
    if len(rows.sides) < 2:
        return ()
    able = [place for place, side in enumerate(rows.sides) if 2 <= len(side.labels) <= _MOST_LISTED]
    secret = [place for place in able if str(facts[rows.names[place]].role or "") == "sensitive"]
    return (secret or able)[:_MOST_HIDDEN]


def _nearest(targets: ScoreRows, rows: ScoreRows, hidden: int, draw: np.random.Generator) -> NDArray[np.int64]:
    """Return for each target the closest of some rows by all columns but one; ties by chance."""
    order = draw.permutation(len(rows))
    one, other = _without(targets, hidden), _without(rows.take(order), hidden)
    left = encoded(one, slice(0, len(one)))
    best, place = np.full(len(one), -np.inf), np.zeros(len(one), dtype=np.int64)
    for start in range(0, len(other), _BLOCK):
        products = left @ encoded(other, slice(start, start + _BLOCK), mirrored=True).T
        highest = products.max(axis=1)
        better = highest > best
        best[better], place[better] = highest[better], start + products[better].argmax(axis=1)
    return np.asarray(order[place], dtype=np.int64)


def _without(rows: ScoreRows, hidden: int) -> ScoreRows:
    kept = [place for place in range(len(rows.sides)) if place != hidden]
    sides = tuple(rows.sides[place] for place in kept)
    return ScoreRows(sides, np.asfortranarray(rows.codes[:, kept]), np.asfortranarray(rows.points[:, kept]))


def _by_trees(targets: ScoreRows, others: ScoreRows, hidden: int) -> float:
    """Return how often trees that learned from other people guess the hidden value."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    known, asked = _without(others, hidden).points, _without(targets, hidden).points
    labels = others.codes[:, hidden]
    if len(np.unique(labels)) < 2:
        return 0.0
    trees = HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8, early_stopping=False, random_state=0)
    return float((trees.fit(known, labels).predict(asked) == targets.codes[:, hidden]).mean())
