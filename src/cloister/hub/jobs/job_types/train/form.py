"""Form for a model: the estimators that a hub offers, and a request read against public facts of visible tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

from cloister.client import wire
from cloister.dataset import Dataset
from cloister.hub.jobs.job_types.job_type import column_named
from cloister.privacy.errors import BadSchema
from cloister.privacy.filter import BudgetShare, budget_share
from cloister.privacy.loss import Loss, Unit
from cloister.privacy.number import rational
from cloister.query.expression import Expression

__all__ = ["HELD_BACK", "OFFERS", "Offer", "TrainingRequest", "read"]


@dataclass(frozen=True, slots=True)
class Offer:
    """An estimator that a hub offers, and what it needs. scikit-learn is not loaded for it.

    Attributes:
        name: its class in `cloister.learn`.
        about: a short description.
        predicts: the type of prediction, a class, a number, or nothing.
        takes: columns that can be features: all, numbers, or those with a list of values.
        missing: True if it accepts missing numbers.
        by_row: True if the method protects one row, so that a unit with more rows pays for each (group privacy).
        coefficients: True if the errors of its coefficients can be told beforehand.
        parts: the parameter for the number of clusters or components.
        layers: the sizes of hidden layers, for a network.
    """

    name: str
    about: str
    predicts: Literal["class", "number", ""]
    takes: Literal["all", "numbers", "values"] = "all"
    missing: bool = False
    by_row: bool = False
    coefficients: bool = False
    parts: str = ""
    layers: tuple[int, ...] = ()

    def make(self, spend: Any, parts: str = "") -> Any:
        """Return the estimator, not fitted."""
        from cloister import learn

        more: dict[str, Any] = {self.parts: int(parts)} if self.parts and parts else {}
        if self.layers:
            more["hidden_layer_sizes"] = self.layers
        return getattr(learn, self.name)(spend, **more)


_OFFERED = (
    Offer("LogisticRegression", "linear, for classes", "class"),
    Offer("MixedNB", "naive Bayes on counts, for classes", "class", missing=True),
    Offer("GaussianNB", "naive Bayes on numbers, for classes", "class", "numbers"),
    Offer("CategoricalNB", "naive Bayes on categories, for classes", "class", "values", missing=True),
    Offer("LinearSVC", "linear, with a margin, for classes", "class", by_row=True),
    Offer("DecisionTreeClassifier", "one tree, for classes", "class", by_row=True),
    Offer("RandomForestClassifier", "many trees, for classes", "class", by_row=True),
    Offer("GradientBoostingClassifier", "one shape for each feature, for classes", "class", by_row=True),
    Offer("LinearRegression", "least squares, with standard errors", "number", coefficients=True),
    Offer("Ridge", "least squares with a penalty", "number", coefficients=True),
    Offer("GradientBoostingRegressor", "one shape for each feature, for numbers", "number", by_row=True),
    Offer("NeuralNetworkClassifier", "a network with one hidden layer, for classes", "class", layers=(32,)),
    Offer("NeuralNetworkRegressor", "a network with one hidden layer, for numbers", "number", layers=(32,)),
    Offer("PCA", "principal components", "", "numbers", parts="n_components"),
    Offer("KMeans", "clusters", "", by_row=True, parts="n_clusters"),
)
OFFERS: Mapping[str, Offer] = MappingProxyType({one.name: one for one in _OFFERED})
HELD_BACK = 5  # one unit in this many is held out if there is an evaluation
_MOST_VALUES = 64


@dataclass(frozen=True, slots=True)
class TrainingRequest:
    """Request for a model.

    Attributes:
        offer: the estimator.
        table, target, features: names as the schema spells them; no target for clusters and components.
        budget: the whole spend, in the measure of the noise.
        share: the part of the spend that pays for the evaluation; 0 for none.
        group: the column whose groups are compared; "" for none.
        parts: the number of clusters or components.
        terms: the public facts of the columns.
        given: True if the user named the features.
    """

    offer: Offer
    table: str
    target: str
    features: tuple[str, ...]
    budget: BudgetShare
    share: Fraction
    group: str
    parts: str
    terms: Mapping[str, Expression]
    given: bool

    @property
    def training(self) -> Loss:
        """Loss of the fit."""
        return self.budget.part(1 - self.share)

    @property
    def evaluation(self) -> Loss:
        """Loss of the evaluation."""
        return self.budget.part(self.share)

    @property
    def fit(self) -> dict[str, Any]:
        """Return the arguments of `fit` besides the data."""
        named: dict[str, Any] = {"features": list(self.features), "table": self.table}
        return {**named, "target": self.target} if self.target else named

    def lines(self, unit: Unit) -> list[str]:
        """Return the plan in words."""
        pairs = [("train", f"{self.offer.name}: {self.offer.about}")]
        if self.target:
            pairs.append(("target", self.target))
        pairs += [("features", ", ".join(self.features)), ("table", f"{self.table}; protects {unit}")]
        pairs.append(("cost", str(self.budget.loss)))
        if self.share:
            pairs += [("  model", str(self.training)), ("  evaluation", f" {self.evaluation}")]
        return [f"{word:<11}{text}" for word, text in pairs]


def read(data: Dataset, table: str, parameters: Mapping[str, Any]) -> TrainingRequest:
    """Read parameters. Refuse what cannot be learned, from public facts alone, with the way out."""
    offer = OFFERS[parameters["estimator"]]
    terms = {name: term for name, term in data.columns(table).items() if not term.unit}
    target = column_named(terms, parameters["target"], table) if offer.predicts else ""
    wanted = [part.strip() for part in parameters["features"].split(",") if part.strip()]
    if wanted:
        features = tuple(column_named(terms, name, table) for name in wanted)
    else:
        features = tuple(name for name, term in terms.items() if name != target and _fits(offer, term))
    if target in features or not features:
        raise BadSchema(f"features are columns of {table} other than the target, at least one.")
    _check_target(offer, terms, target)
    group = column_named(terms, parameters["group"], table) if parameters["group"] else ""
    if group and not _listed(terms[group]):
        raise BadSchema(f"{group} has no public list of values, so there are no groups of it to compare.")
    share = Fraction(rational(parameters["evaluate"], "evaluate")) if parameters["evaluate"] else Fraction(0)
    spend = budget_share(wire.parse_loss(parameters["spend"]))
    return TrainingRequest(
        offer, table, target, features, spend, share, group, parameters["parts"], terms, bool(wanted)
    )


def _check_target(offer: Offer, terms: Mapping[str, Expression], target: str) -> None:
    """Refuse a target that the estimator cannot predict, and name those that it can."""
    if not offer.predicts:
        return
    possible, message = _TARGETS[offer.predicts]
    if possible(terms[target]):
        return
    others = [name for name, term in terms.items() if possible(term)]
    hint = f"Choose {_or(others)}, or ask its owner" if others else "Ask its owner"
    raise BadSchema(message.format(target=target, hint=hint))


def _number(term: Expression) -> bool:
    return term.type in ("integer", "real") and term.values is None and term.bounded and term.low != term.high


def _listed(term: Expression) -> bool:
    """Return True if it has a short public list of values: categories, yes and no, or few whole numbers."""
    if term.type not in ("text", "integer", "boolean"):
        return False
    values = term.domain() or ()
    return 2 <= len(values) - term.nullable <= _MOST_VALUES


def _fits(offer: Offer, term: Expression) -> bool:
    """Return True if a column is a feature by default."""
    if _number(term):
        return offer.takes != "values" and (offer.missing or not term.nullable)
    return offer.takes != "numbers" and _listed(term)


def _or(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} or {names[-1]}"


# What a target must be, and the message if it is not.
_TARGETS: Mapping[str, tuple[Callable[[Expression], bool], str]] = {
    "class": (
        _listed,
        "{target} has no public list of values to tell apart. {hint} to give it categories.",
    ),
    "number": (
        lambda term: _number(term) and not term.nullable,
        "{target} is no number with public bounds that is always there. {hint} to give it bounds, and "
        "'nullable: false'.",
    ),
}
