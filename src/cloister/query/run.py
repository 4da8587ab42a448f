"""Execution of a plan: charge, read once, add noise, estimate, arrange. Rows are read in `_look` and nowhere else."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.data.statistics import Engine
from cloister.privacy.errors import CloisterError, QueryRefused
from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss
from cloister.privacy.measure import measure_all
from cloister.privacy.noise import SYSTEM, Source
from cloister.privacy.receipt import Receipt
from cloister.query.aggregate import Aggregate
from cloister.query.analyst import Analyst
from cloister.query.answer import Answer
from cloister.query.answer_cache import made_release
from cloister.query.estimate import FAN_OUT, Estimate, Noisy, Tree
from cloister.query.plan import Measurement, Plan
from cloister.query.postprocess import arrange
from cloister.query.question import Question

__all__ = ["nothing_found", "rehearse", "run_plan"]


# Consistent totals: ROLLUP measures every level separately, and least squares makes them agree. Post-processing.
#
# Hay et al. 2010: going up, a total and the sum of its parts are averaged by their variances; going down, the
# remainder is divided among the parts by theirs. No variance grows. The result has another law, so intervals stay
# around the measured values (`Noisy.limits`). This holds where every row of a total is in one of its parts. Groups that
# were found leave rows out, so a total over them stays as measured.


Floats = NDArray[np.float64]


def consistent(plan: Plan, values: Sequence[list[Any]]) -> list[list[Any]]:
    """Return the values with counts and sums made consistent over nested grouping sets."""
    made = [list(one) for one in values]
    needs = {need for _, need in plan.needs if need.kind in ("rows", "sum")}
    for order in _nested(plan.question):
        for need in needs:
            places = [plan.needs[group_set, need] for group_set in order]
            shapes = [plan.measurements[place].sums.cells for place in places]
            levels = [np.asarray(made[place][0], dtype=np.float64) for place in places]
            variances = [plan.measurements[place].variance for place in places]
            for place, level in zip(places, _least_squares(levels, variances, shapes), strict=True):
                made[place][0] = level
    return made


def _nested(question: Question) -> list[list[int]]:
    """Return chains of two or more grouping sets, from coarse to fine, in which the parts of each group add up to it.

    Each set begins with all keys of the one before, and the further keys have a value for every row. Return None if the
    query's sets are not nested.
    """
    order = sorted(range(len(question.sets)), key=lambda i: len(question.sets[i]))
    chains = [order[:1]]
    for coarse, fine in pairwise(order):
        above, below = question.sets[coarse], question.sets[fine]
        if below[: len(above)] != above or len(below) == len(above):
            return []
        if all(question.groups[i].complete for i in below[len(above) :]):
            chains[-1].append(fine)
        else:
            chains.append([fine])
    return [chain for chain in chains if len(chain) > 1]


def _least_squares(levels: Sequence[Floats], variances: Sequence[float], cells: Sequence[int]) -> list[Floats]:
    best, spread = [levels[-1]], [variances[-1]]
    for level, variance, size in zip(levels[-2::-1], variances[-2::-1], cells[-2::-1], strict=True):
        parts = best[0].reshape(size, -1)
        of_sum = spread[0] * parts.shape[1]
        weight = of_sum / (of_sum + variance)
        best.insert(0, weight * level + (1 - weight) * parts.sum(axis=1))
        spread.insert(0, weight * variance)
    agreed = [best[0]]
    for mine in best[1:]:
        parts = mine.reshape(len(agreed[-1]), -1)
        left_over = (agreed[-1] - parts.sum(axis=1)) / parts.shape[1]
        agreed.append((parts + left_over[:, None]).ravel())
    return agreed


Released = Mapping[str, tuple[Any, ...]]


def rehearse(plan: Plan) -> None:
    """Arrange an answer of made-up numbers as the true one will be. It costs nothing and reads nothing.

    It uses one group of each grouping set and zero for every statistic. An answer that cannot be arranged, because of
    the query or the confidence, is refused here and not after the charge.

    Raises:
        QueryRefused: the answer could not be arranged.
    """
    groups = tuple(replace(one, values=(one.values or ())[-1:]) for one in plan.question.groups)
    short = replace(plan, question=replace(plan.question, groups=groups))
    made = [_made_up(one) for one in plan.measurements]
    try:
        arrange(short, lambda confidence: _estimates(short, made, confidence))
        _estimates(short, made, plan.interval_confidence)  # stricter: it covers all groups that really exist
    except CloisterError:
        raise
    except Exception:  # the numbers were made up, but an engine's message is not for analysts
        raise QueryRefused(
            "the answer could not be arranged as HAVING, ORDER BY and arithmetic over its columns say. Simplify them."
        ) from None


def _made_up(one: Measurement) -> list[Any]:
    """Return a possible release of a measurement for one group."""
    if one.need.kind == "vote":
        return [[0]]
    return [np.zeros((1, size)) for size in one.sizes] or [np.zeros(1)]


def run_plan(
    plan: Plan,
    engine: Engine,
    account: Account,
    *,
    reader: Analyst | None = None,
    version: str = "",
    source: Source | None = None,
    record: Callable[[Measurement], list[Any]] | None = None,
    keep: Callable[[Measurement, list[Any]], None] | None = None,
) -> Answer:
    """Run a plan.

    Args:
        plan: made by `make_plan`.
        engine: holds the rows.
        account: is charged.
        reader: the analyst, if charged too; also for releases of the record that are new to the analyst.
        version: the owner's name for this state of the data.
        source: the source of random bits.
        record: returns the noisy values of a recorded measurement; called before anything is charged.
        keep: enters a new measurement into the record.

    Privacy: the plan's loss, for its unit, add/remove. Audited in tests/statistical/test_query_audits.py.
    """
    # First the values to be returned, then their price: another thread may replace a release in between.
    held = [record(one) if one.reused and record is not None else None for one in plan.measurements]
    noisy, receipt = _measured(plan, engine, account, reader, version, source)
    fresh = iter(noisy)
    values: list[list[Any]] = []
    for one, known in zip(plan.measurements, held, strict=True):
        if known is not None:
            values.append(known)
            continue
        got = [next(fresh) for _ in one.mechanisms]
        values.append(got)
        if keep is not None and (source or SYSTEM).private:  # seeded noise is no release
            keep(one, got)
    if reader is not None:
        reader.received.add(
            one.release or made_release(one, version, got).id
            for one, got in zip(plan.measurements, values, strict=True)
        )
    agreed = consistent(plan, values)
    table, notes = arrange(plan, lambda confidence: _estimates(plan, agreed, confidence, values))
    private = receipt is None or bool(receipt.body["private"])
    reused = ["answered from earlier releases, at no further cost"] if not plan.new else []
    return Answer(
        value=table,
        loss=plan.loss or Loss.nothing(account.cap.measure, account.cap.relation),
        unit=plan.unit,
        mechanism=", ".join(dict.fromkeys(mechanism.name for mechanism in plan.mechanisms)) or "none",
        parameters={},
        private=private,
        receipt=receipt,
        columns=tuple(output.name for output in plan.question.outputs),
        confidence=plan.confidence,
        notes=(*reused, *notes, *plan.notes),
        whole=tuple(
            output.name
            for output in plan.question.outputs
            if output.aggregate is not None and _is_count(plan.question.aggregates[output.aggregate])
        ),
    )


def nothing_found(plan: Plan, notes: Sequence[str], receipts: Sequence[Receipt]) -> Answer:
    """Return the answer when no group has enough people: no rows, and only the search was charged."""
    names = tuple(output.name for output in plan.question.outputs)
    return Answer(
        value=pa.table({name: pa.nulls(0) for name in names}),
        loss=sum((one.mechanism.loss for one in plan.finds[1:]), start=plan.finds[0].mechanism.loss),
        unit=plan.unit,
        mechanism="thresholded",
        parameters={},
        private=bool(receipts[-1].body["private"]),
        receipt=receipts[-1],
        columns=names,
        confidence=plan.confidence,
        search=tuple(receipts[:-1]),
        notes=(*notes, "no group has enough people to be shown"),
    )


def _is_count(aggregate: Aggregate) -> bool:
    return aggregate.text.upper().startswith("COUNT")


def _measured(
    plan: Plan, engine: Engine, account: Account, reader: Analyst | None, version: str, source: Source | None
) -> tuple[list[Any], Receipt | None]:
    request = plan.question.text
    accounts, extra = [account], dict[str, Loss]()
    if reader is not None:
        request = reader.request(request)
        accounts.append(reader.account)
        extra[reader.account.rules.key] = reader.price(reader.news(plan))
    if plan.new:
        return measure_all(
            lambda: _look(plan, engine),
            plan.mechanisms,
            accounts=accounts,
            extra=extra,
            request=request,
            unit=plan.unit,
            data_version=version,
            source=source or SYSTEM,
        )
    if reader is not None and extra[reader.account.rules.key].amount:
        # Before the answer is returned: a reader who cannot pay does not get it.
        reader.account.charge_all([extra[reader.account.rules.key]], request)
    return [], None


def _look(plan: Plan, engine: Engine) -> list[NDArray[Any]]:
    """Return the exact integers behind every mechanism. One statement for all counts and sums of a grouping set."""
    done: dict[int, list[NDArray[Any]]] = {}  # by identity: comparing expressions ignores the case of some text
    statistics = []
    for one in plan.new:
        if id(one.sums) not in done:
            done[id(one.sums)] = one.sums.run(engine)
        whole = done[id(one.sums)][0 if one.index is None else one.index + 1]
        if one.need.kind in ("tree", "vote"):
            assert one.need.extra is not None
            whole = whole.reshape(-1, len(one.need.extra.values))
        statistics += _tree_levels(whole, one.sizes) if one.sizes else [whole]
    return statistics


def _tree_levels(leaves: NDArray[Any], sizes: Sequence[int]) -> list[NDArray[Any]]:
    """Return counts of ever larger nodes, top first."""
    levels = [leaves]
    for size in reversed(sizes[:-1]):
        below = levels[0]
        padded = np.zeros((below.shape[0], size * FAN_OUT), dtype=below.dtype)
        padded[:, : below.shape[1]] = below
        levels.insert(0, padded.reshape(below.shape[0], size, FAN_OUT).sum(axis=2))
    return levels


# Estimates


def _estimates(
    plan: Plan, values: Sequence[list[Any]], confidence: Fraction, measured: Sequence[list[Any]] | None = None
) -> list[list[Estimate]]:
    """Return, for each grouping set, an estimate of each aggregate in every group."""
    return [
        [_estimate(plan, values, group_set, aggregate, confidence, measured) for aggregate in plan.question.aggregates]
        for group_set in range(len(plan.question.sets))
    ]


def _estimate(
    plan: Plan,
    values: Sequence[list[Any]],
    group_set: int,
    aggregate: Any,
    confidence: Fraction,
    measured: Sequence[list[Any]] | None = None,
) -> Estimate:
    """Estimate an aggregate in every group of a grouping set.

    Args:
        values: of each measurement.
        measured: the values before they were made consistent, if they were.
    """
    before = values if measured is None else measured
    places = [plan.needs[group_set, need] for need in aggregate.needs]
    first = plan.measurements[places[0]]
    if first.need.kind == "vote":
        assert first.need.extra is not None
        listed = first.need.extra.values
        chosen = np.array([listed[i] for i in values[places[0]][0]], dtype=object)
        return Estimate(chosen, note=f"{aggregate.text}: {first.behind(confidence)}")
    if first.need.kind == "tree":
        assert first.need.leaves is not None
        levels = tuple(np.asarray(level, dtype=np.float64) * first.unit for level in values[places[0]])
        result: Estimate = aggregate.estimate(Tree(levels, first.mechanisms, first.need.leaves, first.unit), confidence)  # type: ignore[arg-type]
        return result
    noisy = [_noisy(plan.measurements[place], values[place][0], before[place][0]) for place in places]
    answer: Estimate = aggregate.estimate(noisy, confidence)
    return answer


def _noisy(one: Measurement, value: Any, measured: Any) -> Noisy:
    shown, before = (np.asarray(numbers, dtype=np.float64) * one.unit for numbers in (value, measured))
    return Noisy(shown, before, one.mechanisms[0], one.unit)  # type: ignore[arg-type]
