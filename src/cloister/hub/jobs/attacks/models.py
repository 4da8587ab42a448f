"""Attacks on a model that a job has trained.

hidden values   of people whose other columns the attacker knows; guessing imputes them from other people
stealing        a copy of the model from its answers
membership      asked of twins that were trained in the same way on random halves of the rows: see `halves.py`
"""

import base64
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.attack.finding import Finding
from cloister.attack.models.attribute import attribute
from cloister.attack.models.calibrated import lira_scores
from cloister.attack.models.membership_finding import blind_guess, membership_of_scores
from cloister.attack.models.rows import encode, generator
from cloister.attack.models.shadows import Signals
from cloister.attack.models.stealing import steal
from cloister.attack.models.target import Target
from cloister.data.private_data import PrivateData
from cloister.data.schema import Column
from cloister.hub.approvals.visibility import result_of
from cloister.hub.core.models import Job
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs.attacks.halves import Half, one_row_each, salts, unrecorded
from cloister.hub.jobs.attacks.sources import opened, view_of
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.job_types.train.form import HELD_BACK, TrainingRequest, read
from cloister.hub.policy import versions
from cloister.privacy.errors import CloisterError, NotNow
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from collections.abc import Callable

    from cloister.hub.core.hub import Hub
    from cloister.hub.jobs.job_types.job_type import Progress

__all__ = ["Known", "attack_model", "membership_in_twins"]

MOST_ASKED = 8_000  # people who are asked about, drawn by chance
_MOST_HIDDEN, _TARGETS = 3, 1_500  # columns that are hidden, and people whose values are guessed
_BINS = 10  # into which a hidden number is cut
_MOST_SHADOWS, _FEWEST_SHADOWS = 8, 4  # further twins, for scores that are calibrated to each person
_SHARE = 0.6  # of the time that twins may take
_FEWEST = 200  # people: fewer say nothing
_HALVES = (
    "it attacks twins of the model: made in the same way, with the same settings and at the same spend, each from a "
    "random half of the people. The model itself has learned from all of them, so nobody is left to compare with",
    "a twin learns from half as many people, so it tends to remember each of them rather more than the model does",
)


@dataclass(frozen=True, slots=True, eq=False)
class Known:
    """People, one row of each, as a model takes them.

    Attributes:
        columns: the values of each feature.
        facts: the public facts of the columns.
        rows: the features as the model's matrix.
        labels: the class or number of each.
        units: the unit of each; None where the row is the unit.
    """

    columns: Mapping[str, NDArray[Any]]
    facts: Mapping[str, Column]
    rows: NDArray[Any]
    labels: NDArray[Any]
    units: pa.Array | None

    def take(self, places: NDArray[Any]) -> "Known":
        """Return some of the people."""
        columns = {name: values[places] for name, values in self.columns.items()}
        units = None if self.units is None else self.units.take(pa.array(places))
        return Known(columns, self.facts, self.rows[places], self.labels[places], units)

    def table(self) -> NDArray[Any]:
        """Return the columns beside each other, in the order of their names."""
        found = np.empty((len(self.labels), len(self.columns)), dtype=object)
        for place, values in enumerate(self.columns.values()):
            found[:, place] = values.tolist()
        return found


def attack_model(
    hub: "Hub", pool: DatasetPool, job: Job, title: str, progress: "Progress"
) -> tuple[list[Finding], dict[str, str]]:
    """Return the findings of all attacks on a model, and those that were not run, each with the reason.

    Raises:
        NotNow: the model is no longer kept, or the tables were replaced since.
    """
    from cloister.learn.model_selection.holdout import sides
    from cloister.learn.persistence import unpack

    with hub.database.reading() as session:
        version = newest(hub, session, job.dataset)
        result = result_of(session, session.get_one(Job, job.id))
        schema = pool.get(job.dataset, version, job.dataset.owner).data.schema
        view = view_of(hub, session, job, schema, version, title)
        shown = versions.current(hub, session, job.dataset)[0].predictions.show
    if not result or not result.get("target"):
        raise NotNow(f"the result of {title} is no longer kept. Attack one that is.")
    model = unpack(base64.b64decode(result["model"]), hub.key.public, title)
    draw = generator(None)
    with opened(hub, pool, job, version, view) as data:
        asked = read(data, str(result["table"]), job.parameters)
        base = sides(data, HELD_BACK)[0] if asked.share else data
        progress(0.02, "reading the people that it learned from")
        known = _known(base, asked, model, draw)
        if len(known.labels) < _FEWEST:
            raise NotNow(f"fewer than {_FEWEST} rows can be attacked, which says nothing. Attack a larger model.")
        findings: list[Finding] = []
        skipped: dict[str, str] = {}

        def train(salt: str, second: bool) -> tuple[Any, NDArray[np.bool_]]:
            half = Half(base, salt, second=second)
            return _twin(half, asked), half.has(asked.table, asked.target, known.units)

        if known.units is None:
            skipped["membership"] = "every row is a unit here, and equal rows cannot be drawn into different halves."
        else:
            until = time.monotonic() + _SHARE * hub.settings.job_seconds
            try:
                findings += membership_in_twins(
                    train, known, asked.training, title, draw, until=until, progress=progress
                )
            except CloisterError as error:  # a twin cannot be trained, and the model can still be asked
                skipped["membership"] = str(error).removeprefix(f"{error.code}: ")
    progress(0.75, "guessing hidden values")
    more = (f"it asks for whole answers; the policy shows others {shown} at most",) if shown else ()
    for name, attack, nothing in _ALONE:
        try:
            found = attack(model, known, asked, title, more, draw, progress)
        except CloisterError as error:  # these rows do not suit the attack
            skipped[name] = str(error).removeprefix(f"{error.code}: ")
        else:
            findings += found
            skipped |= {} if found else {name: nothing}
    return findings, skipped


def _known(base: PrivateData, asked: TrainingRequest, model: Any, draw: np.random.Generator) -> Known:
    """Return people of those that a model has learned from, with what it predicts for them in truth."""
    from cloister.learn.base.cells import Categories
    from cloister.learn.model_selection.evaluation import column_values
    from cloister.learn.preprocessing.encode_features import prepare

    names = (*asked.features, asked.target)
    table, units = one_row_each(base, asked.table, names, MOST_ASKED, draw)
    facts = base.relation(asked.table, names).columns
    columns = {name: column_values(_whole(table.column(name)), facts[name]) for name in names}
    labels = columns.pop(asked.target)
    if asked.offer.predicts == "class":
        codes = Categories(list(model.classes_), exact=True).codes(labels)
        good, labels = codes >= 0, np.asarray(model.classes_)[np.maximum(codes, 0)]
    else:
        labels = labels.astype(np.float64)
        good = ~np.isnan(labels)
    rows = prepare(model, columns)
    if rows.dtype != object and not asked.offer.missing:
        good &= ~np.isnan(rows).any(axis=1)
    return Known(columns, facts, rows, labels, units).take(np.flatnonzero(good))


def _whole(column: Any) -> Any:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


# Membership


def _twin(half: Half, asked: TrainingRequest) -> Any:
    """Return a model that was trained like the attacked one, on half of the people; it charges nothing."""
    from cloister.learn.model_selection.candidates import fit_within

    meter = unrecorded(half.account, asked.training)
    return fit_within(meter, asked.offer.make(asked.training, asked.parts), half, **asked.fit)


def membership_in_twins(
    train: "Callable[[str, bool], tuple[Any, NDArray[np.bool_]]]",
    known: Known,
    claim: Loss,
    title: str,
    draw: np.random.Generator,
    *,
    until: float,
    progress: "Progress",
) -> list[Finding]:
    """Return what twins tell about who was in their half: by the loss, and calibrated to each person if time allows.

    Args:
        train: returns a twin that was trained on the half of a salt (True: on its other half), and who is in it.
        known: people of both halves.
        claim: the loss that each twin, like the model, is stated to cost.
        title: what is attacked.
        draw: the generator of the halves.
        until: when the last twin must have begun, as `time.monotonic` counts.
        progress: called with a share and a sentence.
    """
    signals: list[Signals] = []
    inside: list[NDArray[np.bool_]] = []
    planned, took = 1 + _MOST_SHADOWS, 0.0
    scale: float | None = None
    target, *others = salts(draw, 1 + _MOST_SHADOWS // 2)
    # Each person is in one half of a pair, so as many further twins know them as do not.
    halves = [(target, False), *((salt, second) for salt in others for second in (False, True))]
    while len(signals) < planned and (not signals or time.monotonic() + took < until):
        progress(0.05 + 0.7 * len(signals) / planned, f"training twin {len(signals) + 1} of at most {planned}")
        begun, half = time.monotonic(), halves[len(signals)]
        model, within = train(*half)
        twin = Target.of(model)
        if twin.answers_numbers and scale is None:  # errors of all twins are relative to that of the first
            scale = float(np.mean(twin.losses(known.rows, known.labels)))
        signals.append(Signals.of(twin, known.rows, known.labels, scale=scale))
        inside.append(within)
        took = time.monotonic() - begun
    member = inside[0]
    order = np.concatenate((np.flatnonzero(member), np.flatnonzero(~member)))
    codes = np.unique(known.labels, return_inverse=True)[1].astype(np.float64)
    baseline, uneven = blind_guess(np.column_stack((encode(known.rows), codes))[order], int(member.sum()), draw)
    notes = [*_HALVES, f"one row of each of {len(member):,} people is asked about", *([uneven] if uneven else [])]
    known_to = "the record with its label, and the twin's answer to it"
    methods = {"loss threshold": (signals[0].logit, known_to)}
    shadows = (len(signals) - 1) // 2 * 2
    if shadows >= _FEWEST_SHADOWS:
        logits = np.array([one.logit for one in signals[1 : shadows + 1]])
        scores = lira_scores(signals[0].logit, logits, np.array(inside[1 : shadows + 1]))
        methods["LiRA"] = scores, f"{known_to}; and {shadows} further twins of known halves"
    else:
        notes.append("there was no time for further twins, which would tell what is usual for each person")
    right = signals[0].details[:, -1]
    figures: dict[str, float | int | str] = {"twins": len(signals)}
    if signals[0].details.shape[1] > 1:
        figures["accuracy gap"] = round(float(right[member].mean() - right[~member].mean()), 4)
    # Each bound has its part of the risk that one of them is too large.
    confidence = 1 - 0.05 / len(methods)
    return [
        membership_of_scores(
            scores[member], scores[~member], claim=claim, confidence=confidence, attack=f"membership by {method}",
            target=f"a twin of {title}", knowledge=knowledge, baseline=baseline, figures=figures, notes=notes,
        )
        for method, (scores, knowledge) in reversed(methods.items())
    ]  # fmt: skip


# Hidden values, and a copy


def _hidden(
    model: Any, known: Known, asked: TrainingRequest, title: str, more: Sequence[str], draw: np.random.Generator,
    progress: "Progress",
) -> list[Finding]:  # fmt: skip
    """Guess hidden columns of half of the people; the other half is what the attacker knows of the population."""
    from cloister.learn.preprocessing.encode_features import prepare

    names = list(known.columns)
    inner = Target.of(model)

    def features(rows: Any) -> Any:
        return prepare(model, {name: rows[:, place].tolist() for place, name in enumerate(names)})

    findings = []
    for name in _columns_to_hide(known):
        values = _candidates(known.facts[name])
        listed = known.facts[name].categories is not None or known.facts[name].type == "boolean"
        column = known.columns[name]
        usable = np.isin(column.astype(str), [str(value) for value in values]) if listed else ~_missing(column)
        people = draw.permutation(np.flatnonzero(usable))[: 3 * _TARGETS]
        if len(people) < _FEWEST:
            continue
        third = len(people) // 3
        targets, others = known.take(people[:third]), known.take(people[third:])
        asked_of = Target(
            name=title,
            access=inner.access,
            classes=inner.classes,
            model=model,
            _scores=None if inner.answers_numbers or inner.access == "labels only" else
            (lambda rows: inner.probabilities(features(rows))),
            _labels=lambda rows: inner.labels(features(rows)),
        )  # fmt: skip
        found = attribute(
            asked_of, members=(targets.table(), targets.labels), column=names.index(name), values=values,
            reference=(others.table(), others.labels), labels_only=inner.access == "labels only", claim=asked.training,
        )  # fmt: skip
        notes = (
            "the people whose rows are the attacker's reference were learned from too",
            *(note for note in found.notes if not note.startswith("pass ")),
            *more,
        )
        knowledge = f"each person with their label but without {name}, and the possible values"
        findings.append(replace(found, attack=f"hidden values of {name}", knowledge=knowledge, notes=notes))
    return findings


def _columns_to_hide(known: Known) -> list[str]:
    """Return the sensitive features, if there are any; else the first few with values to guess among."""
    able = [name for name, facts in known.facts.items() if name in known.columns and len(_candidates(facts)) >= 2]
    secret = [name for name in able if str(getattr(known.facts[name], "role", None) or "") == "sensitive"]
    return (secret or able)[:_MOST_HIDDEN]


def _candidates(facts: Column) -> list[Any]:
    """Return the possible values of a column: those of its public list, or the middles of bins between its bounds."""
    if facts.type == "boolean":
        return [False, True]
    if facts.categories is not None:
        return list(facts.categories) if len(facts.categories) <= 20 else []
    if facts.bounds is None or facts.type not in ("integer", "real"):
        return []
    low, high = float(str(facts.bounds[0])), float(str(facts.bounds[1]))
    middles = (low + (high - low) * (np.arange(_BINS) + 0.5) / _BINS).tolist()
    return sorted({round(middle) for middle in middles}) if facts.type == "integer" else middles


def _missing(column: NDArray[Any]) -> NDArray[np.bool_]:
    return np.array([value is None or value != value for value in column.tolist()], dtype=np.bool_)


def _stolen(
    model: Any, known: Known, asked: TrainingRequest, title: str, more: Sequence[str], draw: np.random.Generator,
    progress: "Progress",
) -> list[Finding]:  # fmt: skip
    """Copy the model from its answers about some people, and compare the two on others."""
    if known.rows.dtype == object:
        return []
    order = draw.permutation(len(known.labels))[:2_000]
    test, others = known.take(order[: len(order) // 2]), known.take(order[len(order) // 2 :])
    target = Target.of(model)
    target.name = title
    found = steal(
        target, test=test.rows, rows=others.rows, reference=(others.rows, others.labels),
        progress=lambda share, words: progress(0.85 + 0.1 * share, words),
    )  # fmt: skip
    return [replace(found, notes=(*found.notes, *more))]


# The attacks on the model itself, and why one finds nothing to do.
_ALONE = (
    ("hidden values", _hidden, "no feature has a short public list of values, or bounds, to guess among."),
    ("stealing", _stolen, "the model does not take numbers alone."),
)
