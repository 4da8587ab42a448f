"""From a query to its answer: plan, charge, read once, add noise, estimate, arrange.

Rows are read in `_look` and, where groups must be found, in `discovery.keys_in`; nowhere else.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.data.engines.engine import Engine
from cloister.privacy.errors import BadLoss, BadProbability, CloisterError, OverBudget, QueryRefused
from cloister.privacy.ledger import Account
from cloister.privacy.loss import Loss, check_loss
from cloister.privacy.measure import measure_all
from cloister.privacy.noise import SYSTEM, Source
from cloister.privacy.number import Number, rational, show
from cloister.privacy.receipt import Receipt
from cloister.query.aggregate import Aggregate
from cloister.query.analyst import Analyst, Payers
from cloister.query.answer import Answer
from cloister.query.answer_cache import AnswerCache, Snapshot, made_release
from cloister.query.catalog import Catalog, Found
from cloister.query.discovery import find_groups, fitting, keys_sql
from cloister.query.estimate import FAN_OUT, Estimate, Noisy, Tree
from cloister.query.explain import cheapest
from cloister.query.plan import Measurement, Plan, as_noise, plan_question
from cloister.query.postprocess import arrange, check_arrangement, consistent

__all__ = ["answer_plan", "nothing_found", "plan_sql", "rehearse", "run_plan"]


_LEAST_RISK = 1e-9  # of a confidence and of its complement
_SMALL_DELTA = Fraction(1, 10**9)


def plan_sql(
    sql: str,
    catalog: Catalog,
    account: Account,
    record: AnswerCache,
    *,
    spend: Loss | None,
    within: Number | None,
    confidence: Number,
) -> Plan:
    """Return the plan of a query that may cost `spend`, or may err by `within`. It costs nothing and reads no row."""
    record.refresh()
    if spend is not None:
        check_loss(spend)
    question = catalog.ask(sql)
    check_arrangement(question)
    share = float(rational(confidence, "confidence"))
    if not _LEAST_RISK <= share <= 1 - _LEAST_RISK:  # before the charge, not after
        raise BadProbability(f"confidence must lie between 1e-9 and 1 - 1e-9, got {share!r}. Write '0.95'.")

    def plan_at(loss: Loss) -> Plan:
        return plan_question(question, loss, catalog, record.snapshot(), share)

    if spend is not None and within is None:
        plan = plan_at(spend)
        rehearse(plan)
        account.price(plan.spend)  # a pure account cannot pay in rho: refuse before anything is asked
        return plan
    if spend is not None or within is None:
        raise BadLoss(
            "say what the answer may cost (spend=rho('0.01')) or how wrong it may be (within=5), one of them."
        )
    plan = cheapest(plan_at, float(rational(within, "within")), account.kind == "pure")
    rehearse(plan)
    return plan


def answer_plan(
    plan: Plan, catalog: Catalog, payers: Payers, record: AnswerCache, *, source: Source | None = None
) -> Answer:
    """Run a plan on the tables it was made for: make it again if the record has grown, charge, read, add noise.

    Args:
        plan: made by `plan_question` for the same catalog.
        catalog: the tables.
        payers: the accounts that are charged.
        record: the releases so far; new ones are entered.
        source: the source of random bits.

    Privacy: the plan's loss; none if all it needs was released before.
    """
    if not isinstance(plan, Plan):
        raise QueryRefused("run takes a plan. Write ds.run(ds.plan(sql, spend=rho('0.01'))), or ds.sql(sql, spend=…).")
    if plan.origin != catalog.origin:  # its statements contain the rows, unit and caps of the dataset it was made for
        raise QueryRefused(
            "this plan was made for another dataset, another view of it, or another reader. Plan the question here."
        )
    record.refresh()
    snapshot = record.snapshot()  # price and answer come from this one snapshot, whatever other threads enter
    if plan.basis != (snapshot.number, id(plan.question)):  # the record has grown since, or the question changed
        plan = _again(plan, catalog, snapshot)
    rehearse(plan)  # its question may have been replaced, or its groups found, since it was made
    terms = [plan.question.groups[find.group].term for find in plan.finds]
    searches = [keys_sql(plan.question.rows, term, catalog.unit, "...", catalog.dialect) for term in terms]
    for statement in (*searches, *plan.statements()):  # one that the engine rejects costs nothing
        catalog.engine.prepare(statement)
    if plan.finds:
        return _find_then_run(plan, catalog, payers, record, source)
    try:
        return run_plan(
            plan,
            catalog.engine,
            payers.account,
            reader=payers.reader,
            version=catalog.version,
            source=source,
            record=snapshot.values,
            keep=record.keep,
        )
    except OverBudget as error:
        raise _explained(error, payers.account, plan.spend) from None


def _again(plan: Plan, catalog: Catalog, snapshot: Snapshot) -> Plan:
    if plan.finds:  # it was laid out for a placeholder: start again from the original question
        assert plan.loss is not None
        return plan_question(catalog.ask(plan.question.text), plan.loss, catalog, snapshot, plan.confidence)
    again = plan_question(plan.question, plan.spend, catalog, snapshot, plan.confidence)
    return replace(again, notes=tuple(dict.fromkeys([*again.notes, *plan.notes])))


def _find_then_run(plan: Plan, catalog: Catalog, payers: Payers, record: AnswerCache, source: Source | None) -> Answer:
    """Find a query's groups, then count in them. Two charges: the second read depends on the first answer."""
    question, notes, receipts, found_groups = plan.question, list[str](), list[Receipt](), dict[int, Found]()
    assert plan.loss is not None
    for account in payers.accounts:  # do not start a search whose result could not be used
        payers.account.book.balance(account.rules.key).add(account.price(plan.loss))
    for find in plan.finds:
        release = find_groups(question, find, catalog, payers, source)
        found_groups[find.group] = release.value
        if release.private and release.value:
            catalog.keep_groups(question, find.group, release.value)
        assert release.receipt is not None
        receipts.append(release.receipt)
        entry = release.receipt.body["ledger"]["entry"]
        notes.append(f"{find} (entry {entry} of the ledger); rows of other groups are left out")
    if not all(found_groups.values()):
        return nothing_found(plan, notes, receipts)
    for i, group in enumerate(question.groups):  # groups known before count towards the same limit
        values = None if group.complete else catalog.groups(question, i)
        found_groups |= {} if values is None else {i: values}
    question, left_out = fitting(question, found_groups)
    notes += left_out
    then = plan_question(question, plan.spend, catalog, record.snapshot(), plan.confidence)
    answer = answer_plan(then, catalog, payers, record, source=source)
    loss = sum((find.mechanism.loss for find in plan.finds), start=answer.loss)
    return replace(answer, loss=loss, notes=(*notes, *answer.notes), search=tuple(receipts))


def _explained(error: OverBudget, account: Account, spend: Loss) -> OverBudget:
    """Return the refusal, with a hint if a pure epsilon was to be paid by an account that adds rho."""
    if account.kind == "pure" or spend.measure != "epsilon" or spend.delta:
        return error
    message = str(error).removeprefix(f"{error.code}: ")
    message += f" This account adds up in rho, and a pure {spend} costs much of it."
    if account.left.delta > _SMALL_DELTA:
        with_delta = Loss("epsilon", spend.amount, _SMALL_DELTA, spend.relation)
        message += (
            f" With a delta it costs {as_noise(with_delta)[0]}: write 'epsilon {show(spend.amount)}, delta 1e-9'."
        )
    explained = OverBudget(message)
    explained.decision = error.decision
    return explained


def rehearse(plan: Plan) -> None:
    """Arrange an answer of made-up numbers as the true one will be. It costs nothing and reads nothing.

    It uses one group of each grouping set and zero for every statistic. An answer that cannot be arranged, because of
    the query or the confidence, is refused here and not after the charge.

    Raises:
        QueryRefused: the answer could not be arranged.
    """
    groups = tuple(replace(group, values=(group.values or ())[-1:]) for group in plan.question.groups)
    short = replace(plan, question=replace(plan.question, groups=groups))
    zeros = [_made_up(measurement) for measurement in plan.measurements]
    try:
        arrange(short, lambda confidence: _estimates(short, zeros, confidence))
        _estimates(short, zeros, plan.interval_confidence)  # stricter: it covers all groups that really exist
    except CloisterError:
        raise
    except Exception:  # the numbers were made up, but an engine's message is not for analysts
        raise QueryRefused(
            "the answer could not be arranged as HAVING, ORDER BY and arithmetic over its columns say. Simplify them."
        ) from None


def _made_up(measurement: Measurement) -> list[Any]:
    """Return a possible release of a measurement for one group."""
    if measurement.need.kind == "vote":
        return [[0]]
    return [np.zeros((1, size)) for size in measurement.sizes] or [np.zeros(1)]


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
    recorded = [
        record(measurement) if measurement.reused and record is not None else None for measurement in plan.measurements
    ]
    noisy, receipt = _measured(plan, engine, account, reader, version, source)
    fresh = iter(noisy)
    values: list[list[Any]] = []
    for measurement, old_values in zip(plan.measurements, recorded, strict=True):
        if old_values is not None:
            values.append(old_values)
            continue
        got = [next(fresh) for _ in measurement.mechanisms]
        values.append(got)
        if keep is not None and (source or SYSTEM).private:  # seeded noise is no release
            keep(measurement, got)
    if reader is not None:
        reader.received.add(
            measurement.release or made_release(measurement, version, got).id
            for measurement, got in zip(plan.measurements, values, strict=True)
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
        loss=sum((find.mechanism.loss for find in plan.finds[1:]), start=plan.finds[0].mechanism.loss),
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
    for measurement in plan.new:
        if id(measurement.sums) not in done:
            done[id(measurement.sums)] = measurement.sums.run(engine)
        integers = done[id(measurement.sums)][0 if measurement.index is None else measurement.index + 1]
        if measurement.need.kind in ("tree", "vote"):
            assert measurement.need.extra is not None
            integers = integers.reshape(-1, len(measurement.need.extra.values))
        statistics += _tree_levels(integers, measurement.sizes) if measurement.sizes else [integers]
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
        return Estimate(chosen, note=f"{aggregate.text}: {plan.closeness(first)}")
    if first.need.kind == "tree":
        assert first.need.leaves is not None
        levels = tuple(np.asarray(level, dtype=np.float64) * first.unit for level in values[places[0]])
        result: Estimate = aggregate.estimate(Tree(levels, first.mechanisms, first.need.leaves, first.unit), confidence)  # type: ignore[arg-type]
        return result
    noisy = [_noisy(plan.measurements[index], values[index][0], before[index][0], plan.size_hint) for index in places]
    answer: Estimate = aggregate.estimate(noisy, confidence)
    return answer


def _noisy(measurement: Measurement, value: Any, measured: Any, rows: int | None) -> Noisy:
    """Return a measured statistic for the estimators.

    Args:
        rows: the public number of rows of the smallest private table; each of its units counts for so many at most.
    """
    after, before = (np.asarray(numbers, dtype=np.float64) * measurement.unit for numbers in (value, measured))
    return Noisy(
        after,
        before,
        measurement.mechanisms[0],  # type: ignore[arg-type]
        measurement.unit,
        measurement.need.rounding,
        measurement.most_rows(rows),
    )
