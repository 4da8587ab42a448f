"""The textbook's pipeline for synthetic data: stages, what each stage may access, and recorded verdicts.

    outliers → one range → model → rows → test          (and, if the test fails, rows again)

    run = Pipeline(synth.mst, [within_loss(epsilon(1)), k_anonymous(["ward", "age"], 5)], tries=3).run(ds, spend=…)
    run.passed, run.verdicts, run.table, run.representation()

Gaps in the textbook's pipeline, and how they are closed here:

- Outliers found by density, and ranges taken from the rows, are facts about people. Here both come from the schema:
  values beyond public bounds are clipped, and impossible combinations are left out.
- Privacy is a property of the mechanism and cannot be seen in its output. A test of privacy therefore reads the
  release: its loss, its receipt, and whether its noise was real. Tests of rows (k-anonymity, no rare combination)
  concern something else.
- A test that reads real rows, repeated until a table passes, leaks: the failures reveal something about the rows.
  Tests here therefore see released values only. Rows are sampled again from the released model, which is
  post-processing. A charge stands whatever the verdict is. (The owner's own attacks on a table are `synth.gate`;
  `synth.choose` selects among several tables by their score, with a charge of its own.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.errors import BadInput, CloisterError
from cloister.privacy.loss import Loss
from cloister.synth.domain.axis import Axis, Cells
from cloister.synth.generators.two_tables import two_tables
from cloister.synth.options import check_names, check_whole
from cloister.synth.output.table import SyntheticTable

__all__ = ["Pipeline", "PipelineRun", "PrivacyTest", "Stage", "TestVerdict", "k_anonymous", "within_loss"]

_MOST_TRIES = 10_000


@dataclass(frozen=True, slots=True)
class PrivacyTest:
    """A test of a released table.

    Attributes:
        name: the property that is tested.
        check: takes a synthetic table and returns whether it passes, and why.
        of_rows: whether other rows of the same model could pass where these fail.
    """

    name: str
    check: Callable[[SyntheticTable], tuple[bool, str]]
    of_rows: bool = True


@dataclass(frozen=True, slots=True)
class TestVerdict:
    """Verdict of a test on one sample of rows.

    Attributes:
        test: name of the test.
        draw: number of the sample, from 1.
        passed: whether it passed.
        reason: why, in a sentence about released values.
    """

    __test__ = False  # not a test of ours, although pytest would collect the name

    test: str
    draw: int
    passed: bool
    reason: str


@dataclass(frozen=True, slots=True)
class Stage:
    """Action of a stage, and the information it used.

    Attributes:
        name: name of the stage.
        did: what the stage did, in words.
        knew: "public facts", "rows, paid for", or "released values".
    """

    name: str
    did: str
    knew: str


@dataclass(frozen=True)
class PipelineRun:
    """Result of a pipeline run.

    Attributes:
        table: the last sample, whether it passed or not.
        stages: the stages, in order.
        verdicts: verdicts of every test on every sample, in order. None is omitted.
    """

    table: SyntheticTable
    stages: tuple[Stage, ...]
    verdicts: tuple[TestVerdict, ...]

    @property
    def passed(self) -> bool:
        """Return True if the last sample passed every test."""
        last = max((verdict.draw for verdict in self.verdicts), default=0)
        return all(verdict.passed for verdict in self.verdicts if verdict.draw == last)

    def representation(self) -> list[dict[str, Any]]:
        """Return the noisy counts that the rows were sampled from: a form of release without rows.

        Each has a label for every cell of every column; where cells were counted together, it names them all.
        """
        domain = self.table.domain
        return [
            {
                "columns": list(domain.words(marginal.positions)),
                "cells": [_labels(domain.modelled[column], marginal.merge(column)) for column in marginal.positions],
                "counts": marginal.counts.tolist(),
                "standard error": np.asarray(marginal.sigma).tolist(),
                "why": marginal.why,
            }
            for marginal in self.table.made.measured
        ]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, for a file beside the table."""
        return {
            "passed": self.passed,
            "loss": self.table.loss.to_json(),
            "stages": [{"stage": stage.name, "did": stage.did, "knew": stage.knew} for stage in self.stages],
            "verdicts": [
                {"test": verdict.test, "draw": verdict.draw, "passed": verdict.passed, "reason": verdict.reason}
                for verdict in self.verdicts
            ],
            "note": "a verdict is about released values; the charge stands whatever it says",
        }

    def __str__(self) -> str:
        lines = [f"{stage.name:<10} {stage.did} ({stage.knew})" for stage in self.stages]
        lines += [
            f"draw {verdict.draw}     {'passed' if verdict.passed else 'FAILED'}: {verdict.test}: {verdict.reason}"
            for verdict in self.verdicts
        ]
        return "\n".join(lines)


@dataclass(frozen=True)
class Pipeline:
    """Pipeline of stages around a generator.

    Attributes:
        generator: `synth.mst`, `synth.aim` or any other with the common signature.
        tests: tests that a table must pass; see `PrivacyTest`.
        tries: maximum number of samples, all from one released model.
        options: further options of the generator.
    """

    generator: Callable[..., SyntheticTable]
    tests: Sequence[PrivacyTest] = ()
    tries: int = 1
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_whole("tries", self.tries, most=_MOST_TRIES)
        tests = isinstance(self.tests, list | tuple) and all(isinstance(test, PrivacyTest) for test in self.tests)
        if not callable(self.generator) or not tests or not isinstance(self.options, dict):
            raise BadInput("a pipeline has a generator, a list of tests such as within_loss(…), and a dict of options.")
        if cast(Any, self.generator) is two_tables:  # here, before the charge
            raise BadInput("a pipeline makes one table, and two_tables makes two. Call it by itself.")

    def run(self, ds: PrivateData, *, spend: Loss, rows: int | None = None) -> PipelineRun:
        """Run all stages.

        What was paid for is returned whatever happens later: a test that raises has failed, and if rows cannot be
        sampled there are fewer, or none, and the table's `left_out` says why.

        Privacy: the spend, charged once, whatever the verdicts. Tests see released values only, and rows are sampled
            again from the released model only: the verdicts and their number are post-processing.
        """
        table = self.generator(ds, spend=spend, rows=rows, **self.options)
        domain = table.domain
        verdicts: list[TestVerdict] = []
        draws = 0
        while True:
            draws += 1
            now = [_verdict(test, draws, table) for test in self.tests]
            verdicts += now
            failed = [test for test, verdict in zip(self.tests, now, strict=True) if not verdict.passed]
            if draws >= self.tries or not failed or not all(test.of_rows for test in failed):
                break
            table = table.redraw(rows)
        method, drawn = table.parameters["method"], f"{len(table):,} rows, drawn {draws} times."
        stages = (
            Stage(
                "outliers", f"values beyond bounds clipped, {len(domain.never)} impossible combinations", "public facts"
            ),
            Stage("range", f"{len(domain.modelled)} columns as cells between public bounds", "public facts"),
            Stage("model", f"{method}: {len(table.made.measured)} releases for {table.loss}", "rows, paid for"),
            Stage("rows", " ".join(filter(None, [drawn, table.left_out])), "released values"),
            Stage("test", f"{len(self.tests)} tests", "released values"),
        )
        return PipelineRun(table, stages, tuple(verdicts))


def _verdict(test: PrivacyTest, draw: int, table: SyntheticTable) -> TestVerdict:
    """Return the verdict of a test on a sample; a test that raises has failed, as the table is already paid for."""
    try:
        passed, reason = test.check(table)
    except Exception as error:
        passed, reason = False, f"the test could not be carried out: {type(error).__name__}: {error}"
    return TestVerdict(test.name, draw, bool(passed), reason)


def _labels(axis: Axis, merge: Cells | None) -> list[str]:
    """Return the label of each counted cell of a column."""
    labels = axis.labels()
    if merge is None:
        return labels
    members: list[list[str]] = [[] for _ in range(int(merge.max()) + 1)]
    for label, cell in zip(labels, merge.tolist(), strict=True):
        members[cell].append(label)
    return [" or ".join(names) for names in members]


def within_loss(limit: Loss, key: Any = None) -> PrivacyTest:
    """Require that the release states a loss within a limit and used real noise.

    Args:
        limit: the largest accepted loss, in the measure of the release.
        key: the owner's public key; if given, the receipt must be valid under it.
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
    """Require that every combination of some columns among the synthetic rows occurs at least k times.

    This says nothing about real people, as synthetic rows belong to no one. It keeps rare combinations out of a file.
    """
    check_names("columns", columns)
    if isinstance(k, bool) or not isinstance(k, int) or k < 1 or not columns:
        raise BadInput("k-anonymity needs columns and a k of at least 1.")

    def check(table: SyntheticTable) -> tuple[bool, str]:
        missing = sorted(set(columns) - set(table.to_arrow().column_names))
        if missing:  # a verdict, not an error: the charge is already made
            return False, f"the table has no column {missing[0]:.60}"
        if not len(table):
            return False, "the table has no rows"
        counted = table.to_arrow().group_by(list(columns)).aggregate([([], "count_all")])
        least = min(counted["count_all"].to_pylist())
        return least >= k, f"the rarest combination occurs {least} times"

    return PrivacyTest(f"{k}-anonymous rows by {', '.join(columns)}", check)
