"""Training: a rehearsal on empty tables, then one charge that pays for the model and for its evaluation."""

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from cloister.data.private_data import PrivateData
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import Progress
from cloister.hub.jobs.job_types.train.form import HELD_BACK, TrainingRequest
from cloister.learn.base.payer import BudgetPart, DryRun
from cloister.learn.model_selection.candidates import fit_within
from cloister.learn.model_selection.evaluation import SURE, Evaluation, Trial, evaluate, expected_error
from cloister.learn.model_selection.holdout import nobody, sides
from cloister.privacy.accountant.planned import NoiseSteps, PlannedRelease
from cloister.privacy.errors import BadInput
from cloister.privacy.filter import BudgetShare, PrivacyFilter, release_steps
from cloister.privacy.loss import Loss
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release

__all__ = ["carry_out", "expected", "rehearse", "steps_of"]


class _Noted(DryRun):
    """Rehearsal that records the noise of each step."""

    def __init__(self) -> None:
        super().__init__()
        self.laws: list[Any] = []

    def release(self, look: Any, mechanism: Any) -> Any:
        """Run one step on empty tables."""
        self.laws.append(mechanism)
        return super().release(look, mechanism)


@dataclass(slots=True)
class _Watched(BudgetPart):
    """Meter that reports each finished step."""

    told: Callable[[], None] = lambda: None

    def release(self, look: Any, mechanism: Any) -> Any:
        """Run one step.

        Privacy: as the meter behind it.
        """
        if isinstance(mechanism, PlannedRelease):
            return BudgetPart.release(self, lambda: _reporting(look(), self.told), mechanism)
        value = BudgetPart.release(self, look, mechanism)
        self.told()
        return value


@dataclass(slots=True)
class _WatchedNoise(NoiseSteps):
    """Noise of a planned release that reports each step it was used for."""

    told: Callable[[], None] = lambda: None

    def release(self, integers: Any) -> Any:
        """Return the integers with the noise of the next step."""
        value = NoiseSteps.release(self, integers)
        self.told()
        return value


def _reporting(statistic: Callable[[Any], Any], told: Callable[[], None]) -> Callable[[NoiseSteps], Any]:
    """Return the steps of a planned release, each of which is reported: their number is public."""
    return lambda noise: statistic(_WatchedNoise(noise.steps, noise.source, noise.done, told))


def steps_of(laws: list[Any]) -> int:
    """Return the number of noisy steps of a rehearsal; a planned release has many."""
    return sum(sum(times for _, times in law.steps) if isinstance(law, PlannedRelease) else 1 for law in laws)


def rehearse(data: Dataset, asked: TrainingRequest) -> list[Any]:
    """Run all steps on empty tables, so that every problem with the request is reported before a charge.

    Returns:
        the noise of every step, in order; those of an evaluation last.

    Privacy: no row is read: the engine has none, and no access to any.
    """
    meter, empty = _Noted(), nobody(data)
    model = fit_within(meter, asked.offer.make(asked.training, asked.parts), empty, **asked.fit)
    if asked.share:
        if _trial(empty, asked).relation.max_rows is None:
            raise BadInput(
                "here every row is a unit of its own, and no row can be held back the same way twice. "
                "Leave the evaluation out."
            )
        evaluate(meter, asked.evaluation, model, _trial(empty, asked))  # type: ignore[arg-type]
    return meter.laws


def carry_out(
    data: Dataset, asked: TrainingRequest, steps: int, progress: Progress
) -> tuple[Any, Evaluation | None, Receipt]:
    """Charge, fit, and evaluate the model on the units held out.

    Args:
        steps: the approximate number of steps, from the rehearsal.

    Privacy: the spend, for the unit of the dataset, charged to the dataset and to the user in one entry. Units held
        out are not used for the fit, and all others are not used for the evaluation.
    """
    learned, held_out = sides(data, HELD_BACK) if asked.share else (data, None)
    done = itertools.count(1)

    def told() -> None:
        now = next(done)
        progress(0.05 + 0.9 * min(now / max(steps, 1), 1.0), f"training: {now} of about {max(steps, now)} steps done")

    def all_steps(meter: PrivacyFilter) -> tuple[Any, Evaluation | None]:
        watched = _Watched.of(meter, asked.budget.loss)
        watched.told = told  # type: ignore[attr-defined]
        model = fit_within(watched, asked.offer.make(asked.training, asked.parts), learned, **asked.fit)
        if held_out is None:
            return model, None
        return model, evaluate(watched, asked.evaluation, model, _trial(held_out, asked))

    (model, evaluation), receipt = release_steps(
        all_steps,
        accounts=[data.account, *([] if data.reader is None else [data.reader.account])],
        spend=asked.budget.loss,
        request=_request(data, asked),
        unit=data.unit,
        data_version=data.version,
    )
    # What the file keeps: the receipt and the loss of all of it.
    loss = Loss.from_json(receipt.body["loss"])
    model.release_ = Release(
        f"a {asked.offer.name}",
        loss,
        data.unit,
        receipt.body["mechanism"],
        model.release_.parameters,
        private=True,
        receipt=receipt,
    )
    model.loss_ = replace(model.loss_, amount=asked.budget.loss.amount)
    return model, evaluation, receipt


def _request(data: Dataset, request: TrainingRequest) -> str:
    text = f"train {request.offer.name} {request.fit!r}, parts {request.parts or 'usual'}"
    if request.share:
        text += f", {request.share} of the spend for an evaluation by {request.group or 'nothing'}"
    return text if data.reader is None else data.reader.request(text)


def _trial(data: PrivateData, request: TrainingRequest) -> Trial:
    names = tuple(dict.fromkeys((*request.features, request.target, *([request.group] if request.group else []))))
    term = request.terms[request.target]
    ends = (float(term.low or 0), float(term.high or 0)) if request.offer.predicts == "number" else None
    groups = tuple(request.terms[request.group].domain() or ()) if request.group else ()
    return Trial(data.relation(request.table, names), request.features, request.target, request.group, groups, ends)


# What can be said beforehand


def expected(data: Dataset, asked: TrainingRequest, laws: list[Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """Return the errors expected in theory, at 95 %, and notes."""
    relation = data.relation(asked.table, asked.features)
    hint = data.schema.tables[asked.table].rows
    rows = None if hint is None else hint * (1 - 1 / HELD_BACK if asked.share else 1)
    errors: list[tuple[str, str]] = []
    notes: list[str] = []
    name = asked.offer.name
    if name in ("MixedNB", "CategoricalNB", "GaussianNB"):
        scale = 2**15 if name == "GaussianNB" else 1
        errors.append(("rows of a class", _plus_minus(laws[0].standard_error / (scale * relation.whole))))
    elif asked.offer.coefficients and rows:
        errors += _coefficients(asked, laws, rows, relation.whole)
        notes.append(
            f"Errors of coefficients are those of the noise alone, if {rows:,.0f} rows spread evenly over their bounds."
        )
    notes += _unknown(asked, rows)
    if asked.offer.by_row and relation.rows_each > 1:
        each = BudgetShare(asked.training).of_a_row(relation.rows_each).loss
        notes.append(
            f"{name} protects single rows. One {data.unit.name} has up to {relation.rows_each}: each may cost {each}."
        )
    if asked.share:
        held_out = f"one {data.unit.name} in {HELD_BACK}"
        notes.append(f"The model learns from all but {held_out}; those it is tried on. Who is held back never changes.")
        if hint and asked.offer.predicts == "class":
            margin = 100 * SURE * expected_error(asked.evaluation, relation, hint / HELD_BACK, _compared(asked))
            errors.append(("accuracy of the evaluation, noise alone", f"± {margin:.2g} percentage points"))
    left = [name for name in asked.terms if name not in asked.features and name != asked.target]
    if left and not asked.given:
        notes.append(f"Not among the features, since they have no public bounds or may be missing: {_and(left)}.")
    return errors, notes


def _unknown(request: TrainingRequest, rows: float | None) -> list[str]:
    """Return what no theory says beforehand."""
    name = request.offer.name
    if not request.offer.predicts:
        return [f"No theory says beforehand how far a {name} is off."]
    if not request.offer.coefficients:
        return [f"No theory says how accurate a {name} will be. An evaluation does, for a share of the spend."]
    return [] if rows else ["How far coefficients are off depends on the number of rows, which is not public here."]


def _compared(request: TrainingRequest) -> int:
    """Return the number of counts in the evaluation of a classifier."""
    target = request.terms[request.target]
    classes = len(target.domain() or ()) - target.nullable
    groups = len(request.terms[request.group].domain() or ()) if request.group else 1
    return groups * (4 if classes == 2 else 2)


def _coefficients(request: TrainingRequest, laws: list[Any], rows: float, row_weight: int) -> list[tuple[str, str]]:
    """Return the effect of noise on X'y on each coefficient: noise / (rows · variance), in the units of the data."""
    from cloister.learn.linear_model.engine_moments import ONE

    goal = request.terms[request.target]
    height = float(goal.high or 0) - float(goal.low or 0)
    noise = float(laws[1].standard_error) / (ONE**2 * row_weight)
    errors = []
    for name in request.features:
        term = request.terms[name]
        values = term.values if term.type != "boolean" else (False, True)
        if values is None:
            width = float(term.high or 0) - float(term.low or 0)
            errors.append((name, _plus_minus(height / width * noise / (rows / 12))))
        else:
            share = 1 / len(values)
            errors.append((f"{name}=…", _plus_minus(height * noise / (rows * share * (1 - share)))))
    return errors


def _plus_minus(error: float) -> str:
    return f"± {SURE * error:,.3g}" if math.isfinite(error) else "unknown"


def _and(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
