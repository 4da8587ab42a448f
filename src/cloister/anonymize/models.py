"""Privacy models: what every class of indistinguishable rows of a release must satisfy.

    KAnonymity(5)                                  at least 5 rows
    DistinctDiversity(3, "disease")                at least 3 different diseases
    FrequencyDiversity(3, "disease")               no disease in more than a third of the rows
    EntropyDiversity(3, "disease")                 entropy of the diseases at least log 3
    RecursiveDiversity(2, 3, "disease")            (c, l): the most frequent is below c times the l-th and all rarer
    TCloseness(0.2, "disease")                     diseases distributed as in the whole release, up to 0.2
    AlphaK(0.5, 5, "disease")                      at least 5 rows, no disease in more than half of them
    BetaLikeness(1, "disease")                     no disease more than (1 + beta) times as frequent as in the release
    JointDiversity(2, ("disease", "income"))       at least 2 values of each among rows that agree in the others
    KMap(5), DeltaPresence(0, 0.5)                 against a table of the population

Any combination is one predicate, `Requirement`: the algorithms of this room only ask which classes satisfy it, and how
many rows at least must be suppressed. k^m is about sets of items (`anonymise_sets`), m-invariance about a series of
releases (`republish`): neither is a condition on the classes of one table, and both are refused by name here.
None of these models is differential privacy, and none turns into an epsilon: `attack.tables` shows what each leaves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import numpy as np

from cloister.anonymize.classes import EquivalenceClasses, group
from cloister.anonymize.coded import Array, CodedColumn
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.model import SLACK, Model, excess, refuse_below, refuse_fraction, shares_of
from cloister.privacy.errors import BadInput

__all__ = [
    "AlphaK",
    "BetaLikeness",
    "EquivalenceClasses",
    "DeltaPresence",
    "DistinctDiversity",
    "EntropyDiversity",
    "FrequencyDiversity",
    "JointDiversity",
    "KAnonymity",
    "KMap",
    "Model",
    "RecursiveDiversity",
    "Requirement",
    "TCloseness",
]

Distance = Literal["equal", "ordered", "hierarchical", "total variation", "kl"]


def _exact(number: float) -> str:
    """Return a number as text that reads back as the same number: a rounded label would state another model."""
    return repr(float(number)).removesuffix(".0")


@dataclass(frozen=True)
class KAnonymity(Model):
    """At least k rows in every class. It hides which row is whose, and not what all of them have in common.

    Falls to: `attack.tables.homogeneity` and `attack.tables.background_knowledge`; `attack.tables.intersection` of two
    releases.
    """

    k: int
    column: ClassVar[None] = None  # type: ignore[misc]
    shrinks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_fraction("k", self.k)

    def _words(self) -> str:
        return f"k={self.k}"

    def _sized(self, classes: EquivalenceClasses) -> Array:
        return np.asarray(classes.sizes >= self.k)


@dataclass(frozen=True)
class DistinctDiversity(Model):
    """At least l different sensitive values in every class; a missing value is not counted.

    Falls to: `attack.tables.skewness`, where one value is far more frequent than the others;
    `attack.tables.similarity`.
    """

    l: int  # noqa: E741
    column: str
    shrinks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_fraction("l", self.l)

    def _words(self) -> str:
        return f"l={self.l} ({self.column})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        present = counts[:, :-1] if column.values[-1] is None else counts
        return np.asarray(np.count_nonzero(present, axis=1) >= self.l)


@dataclass(frozen=True)
class FrequencyDiversity(Model):
    """No sensitive value in more than 1/l of a class.

    Falls to: `attack.tables.similarity`, where values differ and mean the same; `attack.tables.background_knowledge`.
    """

    l: float  # noqa: E741
    column: str

    def __post_init__(self) -> None:
        refuse_below("l", self.l, 1)

    def _words(self) -> str:
        return f"frequency l={_exact(self.l)} ({self.column})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        return np.asarray(counts.max(axis=1) * self.l <= counts.sum(axis=1) * (1 + SLACK))

    def _least(self, counts: Array, whole: Array, column: CodedColumn, room: int) -> Array:
        return excess(counts.max(axis=1), counts.sum(axis=1), 1 / self.l)


@dataclass(frozen=True)
class EntropyDiversity(Model):
    """Entropy of the sensitive values in every class at least log l.

    Falls to: `attack.tables.similarity` and `attack.tables.skewness`.
    """

    l: float  # noqa: E741
    column: str

    def __post_init__(self) -> None:
        refuse_below("l", self.l, 1)

    def _words(self) -> str:
        return f"entropy l={_exact(self.l)} ({self.column})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        shares = shares_of(counts)
        with np.errstate(divide="ignore", invalid="ignore"):
            entropy = -np.where(shares > 0, shares * np.log(shares), 0.0).sum(axis=1)
        return np.asarray(entropy >= math.log(self.l) - SLACK)


@dataclass(frozen=True)
class RecursiveDiversity(Model):
    """Recursive (c, l)-diversity: with counts r1 ≥ r2 ≥ …, r1 < c (r_l + r_(l+1) + …) in every class.

    Falls to: `attack.tables.similarity` and `attack.tables.skewness`.
    """

    c: float
    l: int  # noqa: E741
    column: str

    def __post_init__(self) -> None:
        refuse_below("c", self.c, 0)
        refuse_fraction("l", self.l)

    def _words(self) -> str:
        return f"recursive ({_exact(self.c)}, {self.l}) ({self.column})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        ordered = -np.sort(-counts, axis=1)
        return np.asarray(ordered[:, 0] < self.c * ordered[:, self.l - 1 :].sum(axis=1))

    def _least(self, counts: Array, whole: Array, column: CodedColumn, room: int) -> Array:
        ordered = -np.sort(-counts, axis=1)
        # Rows that go never raise what the rarer values sum up to.
        return np.asarray(ordered[:, 0] - self.c * ordered[:, self.l - 1 :].sum(axis=1))


@dataclass(frozen=True)
class TCloseness(Model):
    """Distance between the sensitive values of every class and of the whole release at most t.

    Attributes:
        t: the largest distance.
        distance: `equal` (earth mover, all values equally far; the same as total variation), `ordered` (earth mover on
            the sorted values), `hierarchical` (earth mover in a hierarchy), `total variation`, `kl` (Kullback-Leibler,
            of the class from the release).
        hierarchy: of the sensitive values, for `hierarchical`.

    Falls to: `attack.tables.identification` up to t; `attack.tables.intersection` of two releases.
    """

    t: float
    column: str
    distance: Distance = "equal"
    hierarchy: Hierarchy | None = field(default=None, compare=False, repr=False)
    relative: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_below("t", self.t, 0)
        if self.distance not in ("equal", "ordered", "hierarchical", "total variation", "kl"):
            raise BadInput("distances of t-closeness are equal, ordered, hierarchical, total variation and kl.")
        if (self.distance == "hierarchical") != (self.hierarchy is not None):
            raise BadInput("the hierarchical distance needs hierarchy=…, and no other distance takes one.")

    def _words(self) -> str:
        how = "" if self.distance == "equal" else f", {self.distance}"
        return f"t={_exact(self.t)} ({self.column}{how})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        return np.asarray(self.distances(counts, whole, column) <= self.t + SLACK)

    def strain(self, classes: EquivalenceClasses, kept: Array) -> Array:
        """Return the distance of each class beyond t."""
        whole, beyond = classes.totals(self.column, kept), np.empty(classes.number)
        for part, counts in classes.chunks(self.column):
            beyond[part] = self.distances(counts, whole, classes.sensitive[self.column]) - self.t
        return np.where(beyond > SLACK, beyond, 0.0)

    def _least(self, counts: Array, whole: Array, column: CodedColumn, room: int) -> Array:
        """Return the rows whose loss moves a class near enough.

        All distances but the divergence are at most the total variation. Without a share r of its rows a distribution
        moves by at most r; so does the whole release. The divergence of t is a variation of sqrt(t / 2) (Pinsker).
        """
        total = int(whole.sum())
        if self.distance == "ordered" and (whole[whole > 0] <= room).any():
            return np.zeros(len(counts))  # values may vanish, which changes the scale
        if self.distance == "kl":
            far, most = np.abs(shares_of(counts) - shares_of(whole[None, :])).sum(axis=1) / 2, math.sqrt(self.t / 2)
        else:
            far, most = self.distances(counts, whole, column), self.t
        return np.asarray(counts.sum(axis=1) * (far - most - SLACK - room / max(1, total)))

    def distances(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        """Return the distance of each class from the whole release."""
        shares, total = shares_of(counts), shares_of(whole[None, :])[0]
        if self.distance == "kl":
            with np.errstate(divide="ignore", invalid="ignore"):
                return np.asarray(np.where(shares > 0, shares * np.log(shares / total), 0.0).sum(axis=1))
        difference = shares - total
        if self.distance == "ordered":
            if column.values[-1] is None:  # a missing value comes before all others
                difference, total = np.roll(difference, 1, axis=1), np.roll(total, 1)
            difference = difference[:, total > 0]  # the order is that of the values that are released
            steps = max(1, difference.shape[1] - 1)
            return np.asarray(np.abs(np.cumsum(difference, axis=1)[:, :-1]).sum(axis=1) / steps)
        if self.distance == "hierarchical":
            assert self.hierarchy is not None
            return _tree_distance(difference, self.hierarchy, column)
        return np.asarray(np.abs(difference).sum(axis=1) / 2)


def _tree_distance(difference: Array, hierarchy: Hierarchy, column: CodedColumn) -> Array:
    """Return the earth mover's distance in a tree: what is moved through a node of height h costs h / H."""
    coded = hierarchy.over(column)
    top = coded.height - 1 if hierarchy.rooted else coded.height
    cost, below = np.zeros(len(difference)), difference
    for level in range(1, top + 1):
        step = _parents(coded.maps[level - 1], coded.maps[level if level < top else -1])
        sums = np.zeros((len(step), int(step.max()) + 1))
        sums[np.arange(len(step)), step] = 1.0
        surplus, deficit = np.maximum(below, 0.0) @ sums, np.maximum(-below, 0.0) @ sums
        cost += level / top * np.minimum(surplus, deficit).sum(axis=1)
        below = surplus - deficit
    return cost


def _parents(lower: Array, upper: Array) -> Array:
    """Return for each label of a level the label above it."""
    parents = np.zeros(int(lower.max()) + 1, np.int64)
    parents[lower] = upper
    return parents


@dataclass(frozen=True)
class AlphaK(Model):
    """At least k rows in every class, and no sensitive value (or none of those named) in more than alpha of them.

    Falls to: `attack.tables.skewness` up to alpha, and `attack.tables.similarity`.
    """

    alpha: float
    k: int
    column: str
    values: tuple[Any, ...] | None = None

    def __post_init__(self) -> None:
        refuse_below("alpha", self.alpha, 0)
        refuse_fraction("k", self.k)

    def _words(self) -> str:
        named = "" if self.values is None else f": {', '.join(map(str, self.values))}"
        return f"alpha={_exact(self.alpha)}, k={self.k} ({self.column}{named})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        sizes, most = counts.sum(axis=1), self._most(counts, column)
        return np.asarray((sizes >= self.k) & (most <= self.alpha * sizes * (1 + SLACK)))

    def _most(self, counts: Array, column: CodedColumn) -> Array:
        """Return how often the most frequent of the values named occurs in each class."""
        if self.values is not None:
            counts = counts[:, [column.place_of(value) for value in self.values]]
        return np.asarray(counts.max(axis=1, initial=0))

    def _least(self, counts: Array, whole: Array, column: CodedColumn, room: int) -> Array:
        sizes = counts.sum(axis=1)
        return np.where(sizes < self.k, sizes, excess(self._most(counts, column), sizes, self.alpha))


@dataclass(frozen=True)
class BetaLikeness(Model):
    """No sensitive value gains more than beta, relatively: (share in a class - share in the release) / the latter.

    The enhanced form also keeps shares below 1 for frequent values: the gain is at most min(beta, -ln share).

    Falls to: `attack.tables.identification` up to beta; `attack.tables.intersection` of two releases.
    """

    beta: float
    column: str
    enhanced: bool = True
    relative: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_below("beta", self.beta, 0)

    def _words(self) -> str:
        return f"{'' if self.enhanced else 'basic '}beta={_exact(self.beta)} ({self.column})"

    def _judge(self, counts: Array, whole: Array, column: CodedColumn) -> Array:
        return np.asarray(self._beyond(counts, whole) <= SLACK)

    def strain(self, classes: EquivalenceClasses, kept: Array) -> Array:
        """Return by how much the largest gain of each class exceeds its bound."""
        whole, beyond = classes.totals(self.column, kept), np.empty(classes.number)
        for part, counts in classes.chunks(self.column):
            beyond[part] = self._beyond(counts, whole)
        return np.where(beyond > SLACK, beyond, 0.0)

    def _bound(self, shares: Array) -> Array:
        """Return the largest gain of values with these shares of the release."""
        if not self.enhanced:
            return np.full(len(shares), self.beta)
        with np.errstate(divide="ignore"):
            return np.minimum(self.beta, -np.log(shares))

    def _beyond(self, counts: Array, whole: Array) -> Array:
        shares, total = shares_of(counts), shares_of(whole[None, :])[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            gain = np.where(total > 0, shares / total - 1 - self._bound(total), -np.inf)
        return np.asarray(gain.max(axis=1))

    def _least(self, counts: Array, whole: Array, column: CodedColumn, room: int) -> Array:
        # A value is most frequent in the release if all rows that are suppressed have others, and the largest share
        # that is allowed in a class, x (1 + bound(x)), grows with its share x of the release.
        share = np.minimum(whole / max(1, int(whole.sum()) - room), 1.0)
        with np.errstate(invalid="ignore"):
            allowed = np.where(share > 0, share * (1 + self._bound(share)), 0.0)
        return np.asarray(excess(counts, counts.sum(axis=1, keepdims=True), allowed[None, :] + SLACK).max(axis=1))


@dataclass(frozen=True)
class JointDiversity(Model):
    """At least l values of each sensitive column among the rows of a class that agree in all other sensitive columns.

    Machanavajjhala et al. (2007), several sensitive attributes: who knows some of them learns no other. A missing value
    is not counted.

    Falls to: `attack.tables.skewness` and `attack.tables.similarity` within each column.
    """

    l: int  # noqa: E741
    among: tuple[str, ...]
    column: ClassVar[None] = None  # type: ignore[misc]

    def __post_init__(self) -> None:
        refuse_fraction("l", self.l)
        if not isinstance(self.among, tuple) or len(self.among) < 2 or len(set(self.among)) < len(self.among):
            raise BadInput("joint diversity is about two sensitive columns or more: ('disease', 'income').")

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the sensitive columns that it is about."""
        return tuple(self.among)

    def _words(self) -> str:
        return f"joint l={self.l} ({'; '.join(self.among)})"

    def _sized(self, classes: EquivalenceClasses) -> Array:
        rows = np.arange(len(classes.of_row)) if classes.weights is None else np.flatnonzero(classes.weights)
        fails = np.zeros(classes.number, bool)
        held = {name: classes.sensitive[name] for name in self.among}
        for name, column in held.items():
            others = [other for other in held if other != name]
            of_row, number = group(
                [classes.of_row[rows], *(held[other].codes[rows] for other in others)],
                [classes.number, *(len(held[other].values) for other in others)],
            )
            owner = np.empty(number, np.int64)
            owner[of_row] = classes.of_row[rows]
            pairs = np.unique(of_row * len(column.values) + column.codes[rows])
            if column.values[-1] is None:
                pairs = pairs[pairs % len(column.values) != len(column.values) - 1]
            distinct = np.bincount(pairs // len(column.values), minlength=number)
            fails[owner[distinct < self.l]] = True
        return ~fails


@dataclass(frozen=True)
class KMap(Model):
    """At least k people of the population in every class of the release.

    Falls to: `attack.tables.identification` by whoever knows that a person is in the release;
    `attack.tables.homogeneity`.
    """

    k: int
    column: ClassVar[None] = None  # type: ignore[misc]
    shrinks: ClassVar[bool] = True

    def __post_init__(self) -> None:
        refuse_fraction("k", self.k)

    def _words(self) -> str:
        return f"k-map={self.k}"

    def _sized(self, classes: EquivalenceClasses) -> Array:
        return np.asarray(classes.population_sizes >= self.k)


@dataclass(frozen=True)
class DeltaPresence(Model):
    """Share of the population of every class that is in the release, between low and high.

    Falls to: `attack.tables.homogeneity`: it bounds who is in the release, and not what is learned there.
    """

    low: float
    high: float
    column: ClassVar[None] = None  # type: ignore[misc]
    shrinks: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.low <= self.high <= 1:
            raise BadInput("delta-presence needs 0 ≤ low ≤ high ≤ 1.")

    def _words(self) -> str:
        return f"delta-presence={_exact(self.low)}..{_exact(self.high)}"

    def _sized(self, classes: EquivalenceClasses) -> Array:
        share = classes.sizes / np.maximum(classes.population_sizes, 1)
        return np.asarray((share >= self.low - SLACK) & (share <= self.high + SLACK) & (classes.population_sizes > 0))

    def needed(self, classes: EquivalenceClasses) -> Array:
        """Return the classes that cannot be suppressed: with a lower bound, every class of the population is there."""
        return np.asarray((classes.population_sizes > 0) & (self.low > 0))

    def least_removed(self, classes: EquivalenceClasses, room: int) -> Array:
        """Return the rows above the upper bound; more than there are where people of the population are missing."""
        own, everyone = classes.sizes, classes.population_sizes
        least = np.ceil(np.clip(own - (self.high + SLACK) * everyone - 1e-6, 0, None)).astype(np.int64)
        missing = self.needed(classes) & (own < (self.low - SLACK) * everyone)
        fails = ~self._sized(classes) & (own > 0)
        return np.where(missing, int(own.sum()) + 1, np.where(fails, np.maximum(least, 1), 0))


@dataclass(frozen=True)
class Requirement:
    """Several models as one predicate.

    Attributes:
        models: all of which every class must satisfy.
    """

    models: tuple[Model, ...]

    @staticmethod
    def of(models: "Model | Sequence[Model] | Requirement") -> "Requirement":
        """Return the requirement of one or several models.

        Raises:
            BadInput: there is none, or an object is no model.
        """
        if isinstance(models, Requirement):
            return models
        several = tuple(models) if isinstance(models, Sequence) else (models,)
        if not several or not all(isinstance(model, Model) for model in several):
            raise BadInput("say what a release must satisfy: require=[KAnonymity(5), DistinctDiversity(3, 'disease')].")
        return Requirement(several)

    @property
    def label(self) -> str:
        """Return the label of a release that satisfies it."""
        return f"{', '.join(model.label for model in self.models)}: not differentially private"

    @property
    def columns(self) -> tuple[str, ...]:
        """Return the sensitive columns."""
        return tuple(dict.fromkeys(name for model in self.models for name in model.columns))

    @property
    def smallest(self) -> int:
        """Return the number of rows below which no class can satisfy the requirement."""
        sizes = [getattr(model, "k", 1) for model in self.models if not isinstance(model, KMap)]
        return max([1, *sizes, *(math.ceil(getattr(model, "l", 1)) for model in self.models)])

    @property
    def needs_population(self) -> bool:
        """Return True if a model compares the release with a population."""
        return any(isinstance(model, KMap | DeltaPresence) for model in self.models)

    @property
    def relative(self) -> tuple[Model, ...]:
        """Return the models that compare a class with the whole release."""
        return tuple(model for model in self.models if model.relative)

    def bound(self, columns: Mapping[str, CodedColumn]) -> "Requirement":
        """Return the same requirement with trees of the sensitive values in place of rules that make labels.

        The tree lists the values in these columns and no others: it is published, and a verifier needs nothing else.
        """
        return Requirement(
            tuple(
                replace(model, hierarchy=model.hierarchy.listed(columns[model.column]))
                if isinstance(model, TCloseness) and model.hierarchy is not None
                else model
                for model in self.models
            )
        )

    def holds(self, classes: EquivalenceClasses, kept: Array | None = None) -> Array:
        """Return for each class whether it satisfies all models, if only the classes `kept` are released."""
        released = np.ones(classes.number, bool) if kept is None else kept
        verdict = np.ones(classes.number, bool)
        for model in self.models:
            verdict &= model.holds(classes, released)
        return verdict

    def least_removed(self, classes: EquivalenceClasses, room: int) -> Array:
        """Return how many rows of each class are suppressed at least, in any release that suppresses at most `room`."""
        least = np.zeros(classes.number, np.int64)
        for model in self.models:
            np.maximum(least, model.least_removed(classes, room), out=least)
        return least

    def needed(self, classes: EquivalenceClasses) -> Array:
        """Return the classes that cannot be suppressed."""
        needed = np.zeros(classes.number, bool)
        for model in self.models:
            if isinstance(model, DeltaPresence):
                needed |= model.needed(classes)
        return needed

    def describe(self) -> list[dict[str, Any]]:
        """Return the models and their parameters, for a file beside a release."""
        return [
            {"model": type(model).__name__} | {item.name: _plain(getattr(model, item.name)) for item in fields(model)}  # type: ignore[arg-type]
            for model in self.models
        ]


def _plain(value: Any) -> Any:
    return value.to_root if isinstance(value, Hierarchy) else value
