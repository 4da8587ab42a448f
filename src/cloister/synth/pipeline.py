"""The textbook's pipeline for synthetic data, stage by stage, with what each stage may know and a recorded verdict.

    outliers → one range → model → rows → test          (and, if the test fails, rows again)

    run = Pipeline(synth.mst, [within_loss(epsilon(1)), k_anonymous(["ward", "age"], 5)], tries=3).run(ds, spend=…)
    run.passed, run.verdicts, run.table, run.representation()

What the textbook leaves out, and what is done about it here:

- Outliers found by density, and ranges read off the rows, are facts about people. Here both come from the schema:
  values beyond public bounds are clipped, combinations that can never be are left out.
- Privacy is a property of the mechanism and cannot be seen in its output. So a test of it reads the release: its loss,
  its receipt, whether its noise was real. Tests of rows (k-anonymity, no rare combination) are about something else.
- A test that looks at real rows, and a table that is made anew until it passes, leak: which tables failed says
  something about the rows. So tests here see released values alone; rows are drawn again from the released model, which
  is post-processing; and a charge stands whatever the verdict is. (The owner's own attacks on a table are `synth.gate`;
  choosing among several tables by their score is `synth.choose`, which is paid for.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from cloister.privacy.errors import BadInput, CloisterError
from cloister.privacy.loss import Loss
from cloister.synth.options import check_names, check_whole
from cloister.synth.output.table import SyntheticTable

__all__ = ["Pipeline", "PipelineRun", "PrivacyTest", "Stage", "TestVerdict", "k_anonymous", "within_loss"]

_MOST_TRIES = 10_000


@dataclass(frozen=True, slots=True)
class PrivacyTest:
    """A test of a released table.

    Attributes:
        name: what it asks.
        check: is given a synthetic table and says whether it passes, and why.
        of_rows: whether other rows of the same model could pass where these do not.
    """

    name: str
    check: Callable[[SyntheticTable], tuple[bool, str]]
    of_rows: bool = True


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """What a test said of one draw of rows.

    Attributes:
        test: its name.
        draw: the number of the draw, from 1.
        passed: whether it passed.
        reason: why, in a sentence about released values.
    """

    __test__ = False  # no test of ours, whatever pytest thinks of its name

    test: str
    draw: int
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Stage:
    """What a stage did, and what it knew.

    Attributes:
        name: of the stage.
        did: in words.
        knew: "public facts", "rows, paid for", or "released values".
    """

    name: str
    did: str
    knew: str


@dataclass(frozen=True)
class PipelineRun:
    """A pipeline that was carried out.

    Attributes:
        table: the last draw, whether it passed or not.
        stages: in order.
        verdicts: of every test and draw, in order. None is ever left out.
    """

    table: SyntheticTable
    stages: tuple[Stage, ...]
    verdicts: tuple[TestVerdict, ...]

    @property
    def passed(self) -> bool:
        """Whether the last draw passed every test."""
        last = max((one.draw for one in self.verdicts), default=0)
        return all(one.passed for one in self.verdicts if one.draw == last)

    def representation(self) -> list[dict[str, Any]]:
        """The other thing that can be shared: not rows, but the noisy counts that they were drawn from."""
        domain = self.table.domain
        return [
            {
                "columns": list(domain.words(one.places)),
                "cells": [domain.modelled[place].labels() for place in one.places] if not any(one.merges) else None,
                "counts": one.counts.tolist(),
                "standard error": float(one.sigma) if isinstance(one.sigma, float) else one.sigma.tolist(),
                "why": one.why,
            }
            for one in self.table.made.measured
        ]

    def to_json(self) -> dict[str, Any]:
        """Plain values, for a file beside the table."""
        return {
            "passed": self.passed,
            "loss": self.table.loss.to_json(),
            "stages": [{"stage": one.name, "did": one.did, "knew": one.knew} for one in self.stages],
            "verdicts": [
                {"test": one.test, "draw": one.draw, "passed": one.passed, "reason": one.reason}
                for one in self.verdicts
            ],
            "note": "a verdict is about released values; the charge stands whatever it says",
        }

    def __str__(self) -> str:
        lines = [f"{one.name:<10} {one.did} ({one.knew})" for one in self.stages]
        lines += [
            f"draw {one.draw}     {'passed' if one.passed else 'FAILED'}: {one.test}: {one.reason}"
            for one in self.verdicts
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Pipeline:
    """Stages around a generator.

    Attributes:
        generator: `synth.mst`, `synth.aim` or any other with the one signature.
        tests: what a table must pass; see `PrivacyTest`.
        tries: how often rows are drawn, at most, all from one released model.
        options: further ones, for the generator.
    """

    generator: Callable[..., SyntheticTable]
    tests: Sequence[PrivacyTest] = ()
    tries: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("tries", self.tries, most=_MOST_TRIES)
        tests = isinstance(self.tests, list | tuple) and all(isinstance(one, PrivacyTest) for one in self.tests)
        if not callable(self.generator) or not tests or not isinstance(self.options, dict):
            raise BadInput("a pipeline has a generator, a list of tests such as within_loss(…), and a dict of options.")

    def run(self, ds: Any, *, spend: Loss, rows: int | None = None) -> PipelineRun:
        """Carry all stages out.

        Privacy: the spend, charged once, whatever the tests say. They see released values alone, and rows are drawn
            again from the released model only: verdicts and their number are post-processing.
        """
        table = self.generator(ds, spend=spend, rows=rows, **self.options)
        domain = table.domain
        verdicts: list[TestVerdict] = []
        draws = 0
        while True:
            draws += 1
            now = [TestVerdict(test.name, draws, *test.check(table)) for test in self.tests]
            verdicts += now
            failed = [test for test, one in zip(self.tests, now, strict=True) if not one.passed]
            if draws >= self.tries or not failed or not all(test.of_rows for test in failed):
                break
            table = replace(table, value=table.sample(len(table)))
        method = table.parameters["method"]
        stages = (
            Stage(
                "outliers", f"values beyond bounds clipped, {len(domain.never)} impossible combinations", "public facts"
            ),
            Stage("range", f"{len(domain.modelled)} columns as cells between public bounds", "public facts"),
            Stage("model", f"{method}: {len(table.made.measured)} releases for {table.loss}", "rows, paid for"),
            Stage("rows", f"{len(table):,} rows, drawn {draws} times", "released values"),
            Stage("test", f"{len(self.tests)} tests", "released values"),
        )
        return PipelineRun(table, stages, tuple(verdicts))


def within_loss(limit: Loss, key: Any = None) -> PrivacyTest:
    """The test of differential privacy that there is: that the release states a loss within a limit, with real noise.

    Args:
        limit: the largest loss that is accepted, in the measure of the release.
        key: the owner's public key; the receipt must hold under it if given.
    """
    if not isinstance(limit, Loss):
        raise BadInput("a limit is a loss: within_loss(cl.epsilon(1)).")

    def check(table: SyntheticTable) -> tuple[bool, str]:
        if not table.private:
            return False, "the noise came from a seed, which protects nobody"
        loss = table.loss
        if loss.measure != limit.measure:
            return False, f"it states a {loss.measure} and the limit is a {limit.measure}"
        if loss.amount > limit.amount or loss.delta > limit.delta:
            return False, f"it costs {loss} and the limit is {limit}"
        if key is not None:
            try:
                if table.receipt is None:
                    return False, "it has no receipt"
                table.receipt.verify(key)
            except CloisterError:
                return False, "its receipt does not hold"
        return True, f"it costs {loss}"

    return PrivacyTest(f"loss within {limit}", check, of_rows=False)


def k_anonymous(columns: Sequence[str], k: int) -> PrivacyTest:
    """That every combination of some columns that occurs among the synthetic rows occurs at least k times.

    It says nothing about real people: synthetic rows are nobody's. It keeps rare combinations out of a published file.
    """
    check_names("columns", columns)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1 or not columns:
        raise BadInput("k-anonymity needs columns and a k of at least 1.")

    def check(table: SyntheticTable) -> tuple[bool, str]:
        missing = sorted(set(columns) - set(table.to_arrow().column_names))
        if missing:  # a verdict: the table is paid for already
            return False, f"the table has no column {missing[0]:.60}"
        counted = table.to_arrow().group_by(list(columns)).aggregate([([], "count_all")])
        least = min(counted["count_all"].to_pylist())
        return least >= k, f"the rarest combination occurs {least} times"

    return PrivacyTest(f"{k}-anonymous rows by {', '.join(columns)}", check)
