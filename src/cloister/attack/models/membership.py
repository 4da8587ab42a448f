"""Membership inference: was a record among the training rows of a model?

    from cloister import attack
    found = attack.membership(model, members=(X, y), others=(X2, y2), method="lira", fit=MLPClassifier())
    print(found)                                             # success, curve, bound on epsilon, risk, remedies
    findings = attack.membership_suite(model, members=…, others=…, fit=…)     # all methods, shadow models once

    method          the attacker has                          paper
    loss            the loss of a record                      Yeom et al. 2018
    quantile        also other records                        Bertran et al. 2023
    shadow          also models like the target               Shokri et al. 2017
    lira            also models with and without the record   Carlini et al. 2022
    lira-offline    only models without the record            Carlini et al. 2022
    rmia            models of either kind                     Zarifzadeh et al. 2024
    labels          labels alone                              Choquette-Choo et al. 2021
    gradient        the parameters (access="white box")       Nasr et al. 2019
    disturbance     the parameters

Parameters are no more than outputs to the best attack on membership (Sablayrolles et al. 2019); the two that read them
(white_box.py) need no shadow models. Scores that were computed elsewhere are judged by `membership_of_scores`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.attack.finding import Access, Finding
from cloister.attack.intervals import Floats
from cloister.attack.models.calibrated import lira_scores, quantile_scores, rmia_offline_a, rmia_scores
from cloister.attack.models.membership_finding import blind_guess, claimed, membership_of_scores
from cloister.attack.models.rows import (
    Marginals,
    check_whole,
    encode,
    generator,
    join,
    joined_labels,
    perturb,
    read_pair,
)
from cloister.attack.models.shadows import (
    Progress,
    Shadows,
    Signals,
    as_fit,
    made_up_rows,
    score_by_classifier,
    train_shadows,
)
from cloister.attack.models.target import Target, rows_of
from cloister.privacy.errors import BadInput, MissingExtra
from cloister.privacy.loss import Loss

__all__ = ["METHODS", "membership", "membership_suite"]

_SHADOWS_LEAST, _SHADOWS_MOST = 2, 1_024
_SIZES = (0.05, 0.15, 0.4)  # standard deviations of perturbations: near, middle, far
_NAMES = {
    "loss": "loss threshold",
    "quantile": "quantile regression",
    "shadow": "shadow models",
    "lira": "LiRA",
    "lira-offline": "LiRA, offline",
    "rmia": "RMIA",
    "labels": "labels under perturbation",
}
METHODS = tuple(_NAMES)
_SAME = 0.5  # share of wrong rows or labels from which no comparison is left
_OF_SHADOWS = ("shadow", "lira", "lira-offline", "rmia")


@dataclass(eq=False)
class _Case:
    """A target, the records asked about, and what was computed for several methods.

    Attributes:
        target: the model under attack.
        rows, labels: members, then others, then records of the population.
        members, others: how many there are of each.
        made_up: rows for shadow models with their labels; None if they are fitted to the records themselves.
        source: what shadow models are fitted to, in words.
    """

    target: Target
    rows: Any
    labels: NDArray[Any]
    members: int
    others: int
    draw: np.random.Generator
    made_up: tuple[Any, NDArray[Any]] | None
    source: str
    fit: Any
    count: int
    changes: int
    progress: Progress | None
    _signals: Signals | None = None
    _shadows: tuple[Shadows, Shadows, NDArray[Any]] | None = None

    @property
    def asked(self) -> int:
        """Number of records asked about: members and others."""
        return self.members + self.others

    @property
    def signals(self) -> Signals:
        """Outputs of the target on all records, asked once."""
        if self._signals is None:
            self._signals = Signals.of(self.target, self.rows, self.labels)
            self.check_classes()
        return self._signals

    def check_classes(self) -> None:
        """Refuse labels of members that the model does not know: it would look as if it told nothing."""
        unknown = self.unknown
        if unknown > _SAME * self.members:
            raise BadInput(
                f"the labels of {unknown:,} of {self.members:,} members are none of the classes of {self.target.name}, "
                "and a model knows the labels that it was trained with. Pass classes=, in the order of its columns."
            )

    @property
    def unknown(self) -> int:
        """Number of members whose label is none of the model's classes."""
        if self.target.classes is None:
            return 0
        known = set(self.target.classes.tolist())
        return sum(label not in known for label in self.labels[: self.members].tolist())

    @property
    def codes(self) -> NDArray[np.intp]:
        """Labels as numbers."""
        return _codes(self.labels)

    def shadows(self) -> tuple[Shadows, Shadows, NDArray[Any]]:
        """Return shadow models on the records asked about, on their own rows, and the labels of those rows."""
        if self._shadows is None:
            fit, rows, labels, eligible = as_fit(self.fit, self.target), self.rows, self.labels, None
            if self.made_up is not None:
                rows = join([rows_of(rows, slice(0, self.asked)), self.made_up[0]])
                labels = joined_labels([labels[: self.asked], self.made_up[1]])
                eligible = np.arange(len(labels)) >= self.asked
            scale = None
            if self.target.answers_numbers:
                scale = float(np.mean(self.target.losses(self.rows, self.labels)))
            trained = train_shadows(
                fit, rows, labels, shadows=self.count, draw=self.draw, eligible=eligible, scale=scale,
                classes=self.target.classes, progress=self.progress,
            )  # fmt: skip
            own = slice(None) if eligible is None else slice(self.asked, None)
            self._shadows = trained.part(slice(0, self.asked)), trained.part(own), labels[own]
        return self._shadows


def membership(
    model: Any,
    *,
    members: tuple[Any, Any],
    others: tuple[Any, Any],
    method: str = "loss",
    access: Access = "black box",
    fit: Any = None,
    shadows: int = 16,
    reference: tuple[Any, Any] | None = None,
    shadow_data: str | tuple[Any, Any] | None = None,
    marginals: Marginals | Sequence[Any] | None = None,
    perturbations: int = 24,
    classes: Sequence[Any] | None = None,
    claim: Loss | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> Finding:
    """Find out whether a model tells its training rows from others.

    Args:
        model: anything that `Target.of` takes: an estimator, a function of rows, an endpoint.
        members: rows and labels that the model was trained with.
        others: rows and labels of the same population that it was not trained with.
        method: one of "loss", "quantile", "shadow", "lira", "lira-offline", "rmia", "labels"; from parameters
            "gradient" or "disturbance".
        access: "black box" for probabilities, "labels only" for labels, "white box" for parameters: the model is then a
            pair (loss, params) in JAX, or a network or linear classifier of scikit-learn.
        fit: what fits a shadow model: a function of rows and labels, or an estimator; a copy of the target unless
            given. It must not charge an account.
        shadows: number of shadow models.
        reference: rows and labels of the population that the model was not trained with; for shadow models and for
            quantile regression.
        shadow_data: rows for shadow models other than the records: a pair (X, y), "noise" (reference with noise),
            "statistics" (from marginals) or "inversion" (found by climbing on the target's confidences).
        marginals: for "statistics" and "inversion": statistics of the columns; counted in `reference` unless given.
        perturbations: for "labels": changed copies of each record that the target is asked about; for "disturbance":
            sets of parameters with noise.
        classes: the classes of a function or an endpoint, in the order of its columns.
        claim: the loss that the model states; that of a private model of Cloister is read from it.
        delta: the delta of the lower bound on epsilon, if there is no claim.
        confidence: the chance that the bound on epsilon is not above the truth.
        random_state: a seed; None for the operating system's randomness.
        progress: called with a share and a sentence.

    Privacy: none, for the owner. It charges no account. `risk` has one number for each member, then each other record.
    """
    if access == "white box":
        return _of_parameters(
            (method,), model, members, others, copies=perturbations, claim=claim, delta=delta, confidence=confidence,
            random_state=random_state,
        )[0]  # fmt: skip
    if method not in METHODS:
        more = " It needs access='white box'." if method in ("gradient", "disturbance") else ""
        raise BadInput(f"method is one of {', '.join(map(repr, METHODS))}, got {method!r:.40}.{more}")
    return _attack(
        (method,), model, members, others, access=access, fit=fit, shadows=shadows, reference=reference,
        shadow_data=shadow_data, marginals=marginals, perturbations=perturbations, classes=classes, claim=claim,
        delta=delta, confidence=confidence, random_state=random_state, progress=progress,
    )[0]  # fmt: skip


def membership_suite(
    model: Any,
    *,
    members: tuple[Any, Any],
    others: tuple[Any, Any],
    methods: Sequence[str] | None = None,
    access: Access = "black box",
    fit: Any = None,
    shadows: int = 32,
    reference: tuple[Any, Any] | None = None,
    shadow_data: str | tuple[Any, Any] | None = None,
    marginals: Marginals | Sequence[Any] | None = None,
    perturbations: int = 24,
    classes: Sequence[Any] | None = None,
    claim: Loss | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    random_state: int | None = None,
    progress: Progress | None = None,
) -> tuple[Finding, ...]:
    """Run several methods with one set of shadow models; the strongest finding comes first.

    Args:
        methods: the methods; all that fit the access and the shadow data unless given.
        model, members, others: as for `membership`, like all other arguments.

    Privacy: as for `membership`. Each bound on epsilon holds by itself: the largest of several is not at their
        confidence, so divide 1 - confidence by the number of methods to trust the largest.
    """
    if access == "white box":
        found = _of_parameters(
            ("gradient", "disturbance") if methods is None else tuple(methods), model, members, others,
            copies=perturbations, claim=claim, delta=delta, confidence=confidence, random_state=random_state,
        )  # fmt: skip
        return tuple(sorted(found, key=lambda finding: -finding.roc.auc if finding.roc else 0.0))
    if methods is None:
        target = Target.of(model, classes=classes, labels_only=access == "labels only")
        methods = ("labels",) if target.access == "labels only" else METHODS
        if target.answers_numbers:
            methods = tuple(name for name in methods if name != "labels")
        if shadow_data is not None:
            methods = tuple(name for name in methods if name != "lira")
    unknown = [name for name in methods if name not in METHODS] if not isinstance(methods, str) else [methods]
    if unknown or not methods:
        raise BadInput(f"methods are some of {', '.join(map(repr, METHODS))}, got {unknown!r:.60}.")
    found = _attack(
        tuple(methods), model, members, others, access=access, fit=fit, shadows=shadows, reference=reference,
        shadow_data=shadow_data, marginals=marginals, perturbations=perturbations, classes=classes, claim=claim,
        delta=delta, confidence=confidence, random_state=random_state, progress=progress,
    )  # fmt: skip
    return tuple(sorted(found, key=lambda finding: -finding.roc.auc if finding.roc else 0.0))


def _of_parameters(methods: tuple[str, ...], *given: Any, **settings: Any) -> list[Finding]:
    try:
        from cloister.attack.models.white_box import membership_of_parameters
    except ModuleNotFoundError:
        raise MissingExtra("membership from parameters needs jax. Run pip install 'cloister[jax]'.") from None
    return membership_of_parameters(methods, *given, **settings)


def _attack(
    methods: tuple[str, ...], model: Any, members: Any, others: Any, *, access: Access, fit: Any, shadows: int,
    reference: Any, shadow_data: Any, marginals: Any, perturbations: int, classes: Any, claim: Loss | None,
    delta: float, confidence: float, random_state: int | None, progress: Progress | None,
) -> list[Finding]:  # fmt: skip
    if access not in ("black box", "labels only"):
        raise BadInput(
            "membership is inferred from probabilities, labels or parameters: access is 'black box', 'labels only' or "
            f"'white box', got {access!r:.40}."
        )
    target = Target.of(model, classes=classes, labels_only=access == "labels only")
    for method in methods:
        _check_method(method, target, shadow_data)
    draw = generator(random_state)
    count = check_whole(shadows, "shadows", _SHADOWS_LEAST, _SHADOWS_MOST)
    pairs = [read_pair(members, "members"), read_pair(others, "others")]
    sizes = [len(labels) for _, labels in pairs]
    real = None if reference is None else read_pair(reference, "reference")
    pairs += [] if real is None else [real]
    rows, labels = join([pair[0] for pair in pairs]), joined_labels([pair[1] for pair in pairs])
    stated = claimed(target.model, claim)
    made_up, source = _shadow_rows(shadow_data, target, sizes[0] * 2, draw, real, marginals)
    case = _Case(
        target, rows, labels, sizes[0], sizes[1], draw, made_up, source, fit, count,
        check_whole(perturbations, "perturbations", 2, 10_000), progress,
    )  # fmt: skip
    asked = sum(sizes)
    features = np.column_stack((encode(rows_of(rows, slice(0, asked))), case.codes[:asked].astype(np.float64)))
    _check_apart(features, sizes[0])
    baseline, note = blind_guess(features, sizes[0], draw)
    found = []
    for method in methods:
        before = target.queries
        scores = _SCORES[method](case)
        figures = {"queries": max(target.queries - before, asked), **_accuracies(case)}
        if method in _OF_SHADOWS:
            figures["shadow models"] = count
        notes = [] if note is None else [note]
        if case.unknown:
            notes.append(
                f"the labels of {case.unknown:,} of {case.members:,} members are none of the model's classes, and "
                "count as labels of probability 0"
            )
        if method in _OF_SHADOWS:
            notes.append("shadow models share rows, which makes scores slightly dependent")
        found.append(
            membership_of_scores(
                scores[: sizes[0]], scores[sizes[0] :], claim=stated, delta=delta, confidence=confidence,
                attack=f"membership by {_NAMES[method]}", target=target.name,
                access="labels only" if method == "labels" else "black box", knowledge=_knowledge(method, case),
                baseline=baseline, figures=figures, notes=notes,
            )
        )  # fmt: skip
    return found


def _check_apart(features: Floats, members: int) -> None:
    """Refuse others that are members: the attack would compare rows with themselves and find nothing."""
    keys = np.unique(features, axis=0, return_inverse=True)[1].ravel()
    known, asked = keys[:members], keys[members:]
    shared = float(np.isin(asked, known).mean())
    usual = float((np.bincount(known)[known] > 1).mean())  # rows that members share with one another by chance
    if shared >= _SAME and usual < shared / 2:
        raise BadInput(
            f"{shared:.0%} of the rows of others are rows of members too, so the attack would compare rows with "
            "themselves. Pass rows that the model was not trained with."
        )


def _check_method(method: str, target: Target, shadow_data: Any) -> None:
    if target.access == "labels only" and method != "labels":
        raise BadInput(f"{target.name} shows labels only, and method={method!r} needs probabilities: method='labels'.")
    if method == "labels" and target.answers_numbers:
        raise BadInput(f"{target.name} predicts numbers, so there are no labels. Use method='loss'.")
    if method == "lira" and shadow_data is not None:
        raise BadInput(
            "method='lira' compares models with and without each record, and models of other rows are all without. "
            "Use method='lira-offline' or 'rmia'."
        )


def _shadow_rows(
    shadow_data: Any, target: Target, n: int, draw: np.random.Generator, real: Any, marginals: Any
) -> tuple[tuple[Any, NDArray[Any]] | None, str]:
    """Return rows that shadow models are fitted to, and what they are in words."""
    if shadow_data is None:
        return None, "half of the records asked about each, so the attacker has candidates but not their membership"
    if isinstance(shadow_data, str):
        known = marginals if marginals is None or isinstance(marginals, Marginals) else Marginals.published(marginals)
        rows, labels = made_up_rows(shadow_data, target, n, draw, real=real, marginals=known)
        words = {
            "noise": "real rows of the population with noise",
            "statistics": "rows drawn from statistics of single columns, labelled by the target",
            "inversion": "inputs found by climbing on the target's confidences",
        }
        return (rows, labels), f"{words[shadow_data]}"
    return read_pair(shadow_data, "shadow_data"), "rows of the same population"


def _knowledge(method: str, case: _Case) -> str:
    shown = "numbers" if case.target.answers_numbers else "probabilities"
    if method == "loss":
        if case.target.answers_numbers:
            return "the record with its true number, and the model's"
        return "the record with its label, and the model's probability of that label"
    if method == "quantile":
        where = "the reference rows" if len(case.labels) > case.asked else "half of the other records"
        return f"the record, the model's {shown}, and records that are no members: {where}"
    if method == "labels":
        return f"the record, and the model's labels of {case.changes} changed copies of it"
    how = f"the record, the model's {shown}, and how to train such a model"
    return f"{how}; shadow models were fitted to {case.source}"


def _accuracies(case: _Case) -> dict[str, float | int | str]:
    if case.target.answers_numbers or case.target.access == "labels only":
        return {}
    right = case.signals.details[:, -1]
    known, other = float(right[: case.members].mean()), float(right[case.members : case.asked].mean())
    return {
        "accuracy on members": round(known, 4),
        "accuracy on others": round(other, 4),
        "accuracy gap": round(known - other, 4),
    }


def _by_loss(case: _Case) -> Floats:
    return case.signals.logit[: case.asked]


def _by_quantile(case: _Case) -> Floats:
    features = np.column_stack((encode(case.rows), case.codes.astype(np.float64)))
    outside = np.arange(len(case.labels)) >= (case.asked if len(case.labels) > case.asked else case.members)
    return quantile_scores(case.signals.logit, features, outside, draw=case.draw)[: case.asked]


def _by_shadow(case: _Case) -> Floats:
    _, own, labels = case.shadows()
    every = _codes(np.concatenate((case.labels[: case.asked], labels)))
    asked = slice(0, case.asked)
    signals = Signals(case.signals.logit[asked], case.signals.probability[asked], case.signals.details[asked])
    return score_by_classifier(signals, every[asked], own, every[case.asked :])


def _by_lira(case: _Case) -> Floats:
    known, _, _ = case.shadows()
    return lira_scores(case.signals.logit[: case.asked], known.logits, known.inside)


def _by_lira_offline(case: _Case) -> Floats:
    known, _, _ = case.shadows()
    return lira_scores(case.signals.logit[: case.asked], known.logits, known.inside, offline=True)


def _by_rmia(case: _Case) -> Floats:
    known, own, _ = case.shadows()
    asked = case.signals.probability[: case.asked]
    if known.inside.any(axis=0).all():
        return rmia_scores(asked, known.probabilities, known.inside, offline=False)
    a = rmia_offline_a(own.probabilities, own.inside)
    return rmia_scores(asked, known.probabilities, known.inside, offline_a=a)


def _by_labels(case: _Case) -> Floats:
    """Return the share of changed copies that keep the record's label: members lie farther from the boundary."""
    rows, labels = rows_of(case.rows, slice(0, case.asked)), case.labels[: case.asked]
    case.check_classes()
    kept = 2.0 * (np.asarray(case.target.labels(rows)) == labels)
    for number in range(case.changes):
        size = _SIZES[number % len(_SIZES)]
        answered = np.asarray(case.target.labels(perturb(rows, case.draw, size)))
        kept += (answered == labels) * (1 + size)
        if case.progress is not None:
            case.progress((number + 1) / case.changes, f"changed copy {number + 1} of {case.changes}")
    return np.asarray(kept)


def _codes(labels: NDArray[Any]) -> NDArray[np.intp]:
    plain = np.array([str(label) for label in labels]) if labels.dtype == object else labels
    return np.asarray(np.unique(plain, return_inverse=True)[1], dtype=np.intp)


_SCORES: Mapping[str, Any] = {
    "loss": _by_loss,
    "quantile": _by_quantile,
    "shadow": _by_shadow,
    "lira": _by_lira,
    "lira-offline": _by_lira_offline,
    "rmia": _by_rmia,
    "labels": _by_labels,
}
