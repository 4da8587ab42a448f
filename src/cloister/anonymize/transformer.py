"""A scikit-learn transformer: generalise training rows so that they satisfy models, and new rows in the same way.

    pipeline = make_pipeline(
        Anonymizer(require="k=10", quasi=["age", "zip"]), OneHotEncoder(handle_unknown="ignore"), LogisticRegression()
    )
    pipeline.fit(rows, labels)

What `fit` keeps: for `recode`, the level of each column and the labels that occur in the release; for `mondrian`, the
box of each class. It keeps no row and no value of a class that fails. The training rows out of `fit_transform` satisfy
the models and are verified. New rows out of `transform` are written with the same labels; by themselves they satisfy
nothing, and a model that was trained on these rows is not differentially private.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.coded import Array, CodedColumn, CodedTable
from cloister.anonymize.hierarchy import ALL, Hierarchy, automatic, value_text
from cloister.anonymize.models import Model, Requirement
from cloister.anonymize.planning.request import parse_models
from cloister.anonymize.release import mondrian, recode
from cloister.anonymize.table import AnonymizedTable
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput, MissingExtra

try:
    from sklearn.base import BaseEstimator, TransformerMixin
    from sklearn.utils.validation import check_is_fitted
except ImportError:
    raise MissingExtra("the transformer needs scikit-learn: pip install 'cloister[learn]'.") from None

__all__ = ["Anonymizer"]

_CHUNK = 4_000_000  # cells of a table of distances, at most


class Anonymizer(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Generalise quasi-identifiers so that the training rows satisfy anonymity models.

    No row is removed, so that rows stay beside their labels. A generalised column is text; others are as they were. A
    column without a role is refused if its name suggests that it identifies people.

    Args:
        require: models, or text in the form of a label, such as "k=5, l=3".
        quasi: the quasi-identifiers, by name or, for an array, by position.
        sensitive: columns of models that name none.
        identifiers: columns that are dropped.
        plain: columns that are kept whatever their names suggest.
        hierarchies: of quasi-identifiers, for `recode`.
        method: "recode" or "mondrian".
        numbers: "label" writes generalised numbers as text such as 30-39; "middle" writes the middle of the training
            values with that label, so that the column stays a number.

    Attributes:
        label_: what the training rows satisfy.
        loss_: their certainty penalty, between 0 and 1.
        levels_: of the hierarchies, for `recode`.
        feature_names_in_, n_features_in_: the columns of the training rows.
    """

    def __init__(
        self,
        require: str | Model | Sequence[Model] = "k=5",
        quasi: Sequence[str | int] = (),
        sensitive: Sequence[str | int] = (),
        identifiers: Sequence[str | int] = (),
        plain: Sequence[str | int] = (),
        hierarchies: Mapping[str, Hierarchy] | None = None,
        method: str = "recode",
        numbers: str = "label",
    ) -> None:
        self.require = require
        self.quasi = quasi
        self.sensitive = sensitive
        self.identifiers = identifiers
        self.plain = plain
        self.hierarchies = hierarchies
        self.method = method
        self.numbers = numbers

    def fit(self, X: Any, y: Any = None) -> "Anonymizer":  # noqa: N803
        """Learn the levels or classes with which the rows satisfy the models.

        Raises:
            BadInput: a column is missing, or nothing satisfies the models.
            NotPrivate: the verifier does not confirm the training rows.
        """
        self._learn(X)
        return self

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:  # noqa: N803
        """Return the training rows, generalised: the same as `fit`, then `transform` of the same rows."""
        released = self._learn(X).rows
        return self._like(X, self._numbered(released))

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Return rows with the labels that were learned; a value that no label stands for becomes `*`."""
        check_is_fitted(self, "label_")
        table = _table(X)
        missing = [name for name in self.feature_names_in_ if name not in table.column_names]
        if missing:
            raise BadInput(f"the rows lack the column {missing[0]}, which was there in fit.")
        labels = self._mapping(table)
        kept = [str(name) for name in self.get_feature_names_out()]
        return self._like(X, self._numbered(pa.table({name: labels.get(name, table.column(name)) for name in kept})))

    def get_feature_names_out(self, input_features: Any = None) -> Array:
        """Return the names of the columns: those of the training rows without identifiers."""
        check_is_fitted(self, "label_")
        dropped = set(self._names(self.identifiers))
        return np.array([name for name in self.feature_names_in_ if name not in dropped], object)

    def _learn(self, rows: Any) -> AnonymizedTable:
        if self.numbers not in ("label", "middle"):
            raise BadInput("numbers is 'label' or 'middle'.")
        table = _table(rows)
        self.feature_names_in_ = np.array(table.column_names, object)
        self.n_features_in_ = len(table.column_names)
        quasi, sensitive = self._names(self.quasi), self._names(self.sensitive)
        require = self.require
        several = parse_models(require, sensitive) if isinstance(require, str) else Requirement.of(require).models
        roles: dict[str, Any] = {
            "require": several,
            "quasi": quasi,
            "sensitive": sensitive,
            "identifiers": self._names(self.identifiers),
            "plain": self._names(self.plain),
        }
        if self.method == "mondrian":
            if self.hierarchies:
                raise BadInput("mondrian takes no hierarchies. Leave them out, or choose method='recode'.")
            release = mondrian(table, **roles)
            self._mapping: Callable[[pa.Table], dict[str, Any]] = _Boxes.of(table, release)
        elif self.method == "recode":
            coded = CodedTable.of(table, quasi)
            given = self.hierarchies or {}
            ladders = {
                name: (given.get(name) or automatic(column)).fitted(column) for name, column in coded.columns.items()
            }
            release = recode(table, hierarchies=ladders, **roles)
            self._mapping = _Levels.of(release, ladders)
        else:
            raise BadInput(f"there is no method {self.method!s:.40} here. Choose 'recode' or 'mondrian'.")
        release.verify()
        self.label_, self.levels_ = release.label, dict(release.levels)
        self.loss_ = release.utility.certainty_penalty
        self._middles = _middles(table, release) if self.numbers == "middle" else {}
        return release

    def _numbered(self, table: pa.Table) -> pa.Table:
        """Return a table with the middle of each label in place of labels of numbers."""
        for name, middles in self._middles.items():
            column = CodedColumn.of(name, table.column(name).combine_chunks())
            numbers = [None if word is None else middles.get(value_text(word), middles[ALL]) for word in column.values]
            cells = pa.array(numbers, pa.float64()).take(pa.array(column.codes))
            table = table.set_column(table.column_names.index(name), name, cells)
        return table

    def _names(self, columns: Sequence[str | int]) -> list[str]:
        if isinstance(columns, str):
            raise BadInput("columns are a list: quasi=['age'].")
        known = [str(name) for name in self.feature_names_in_]
        numbers = [column for column in columns if isinstance(column, int | np.integer)]
        if any(not 0 <= number < len(known) for number in numbers):
            raise BadInput(f"the rows have {len(known)} columns, counted from 0. Give one of them.")
        return [known[column] if isinstance(column, int | np.integer) else str(column) for column in columns]

    def _like(self, rows: Any, table: pa.Table) -> Any:
        """Return a table as the kind of the rows that came in."""
        module = type(rows).__module__.partition(".")[0]
        if module == "numpy":
            cells = np.empty((table.num_rows, table.num_columns), object)
            for place, column in enumerate(table.columns):
                cells[:, place] = column.to_pylist()
            return cells
        if module == "pandas":
            frame = table.to_pandas()
            frame.index = rows.index
            return frame
        if module == "polars":
            import polars

            return polars.from_arrow(table)
        return table.to_pydict() if isinstance(rows, Mapping) else table


def _table(rows: Any) -> pa.Table:
    if isinstance(rows, np.ndarray):
        if rows.ndim != 2:
            raise BadInput("rows are a table: an array with two axes.")
        return to_arrow({f"x{place}": rows[:, place].tolist() for place in range(rows.shape[1])})
    return to_arrow(rows)


def _middles(rows: pa.Table, release: AnonymizedTable) -> dict[str, dict[str, float]]:
    """Return for each label of a column of numbers the middle of its training values; `*` has that of all of them."""
    middles = {}
    for column in CodedTable.of(rows, release.roles.quasi).columns.values():
        if column.numeric:
            labels = CodedColumn.of(column.name, release.rows.column(column.name).combine_chunks())
            places = _places(column)
            low, high = np.full(len(labels.values), np.inf), np.full(len(labels.values), -np.inf)
            np.fmin.at(low, labels.codes, places[column.codes])
            np.fmax.at(high, labels.codes, places[column.codes])
            known = zip(labels.values, low.tolist(), high.tolist(), strict=True)
            words = {value_text(word): (least + most) / 2 for word, least, most in known if least <= most}
            middles[column.name] = {ALL: float(np.nanmin(places) + np.nanmax(places)) / 2, **words}
    return middles


@dataclass(frozen=True)
class _Levels:
    """The learned level of each column: how a value becomes a label, and which labels the release has."""

    labels: Mapping[str, Callable[[Any], str]]
    known: Mapping[str, frozenset[str | None]]
    unchanged: frozenset[str]

    @staticmethod
    def of(release: AnonymizedTable, hierarchies: Mapping[str, Hierarchy]) -> "_Levels":
        labels = {name: _label(hierarchies[name], level) for name, level in release.levels.items()}
        known = {name: _texts(release.rows.column(name)) for name in release.levels}
        same = [name for name in release.levels if not pa.types.is_string(release.rows.schema.field(name).type)]
        return _Levels(labels, known, frozenset(same))

    def __call__(self, rows: pa.Table) -> dict[str, Any]:
        released = {}
        for name, label in self.labels.items():
            column = CodedColumn.of(name, rows.column(name).combine_chunks())
            words = [self._word(name, label, value) for value in column.values]
            if name in self.unchanged and ALL not in words:
                released[name] = rows.column(name)
            else:
                released[name] = pa.array(words, pa.string()).take(pa.array(column.codes))
        return released

    def _word(self, name: str, label: Callable[[Any], str], value: Any) -> str | None:
        try:
            word = None if value is None else label(value)
        except (KeyError, TypeError, ValueError, AttributeError):
            return ALL
        return word if word in self.known[name] else ALL


def _label(hierarchy: Hierarchy, level: int) -> Callable[[Any], str]:
    if level == 0:
        return value_text
    return _star if level == hierarchy.height else hierarchy.levels[level - 1]


def _star(value: Any) -> str:
    return ALL


def _texts(column: pa.ChunkedArray) -> frozenset[str | None]:
    return frozenset(None if value is None else value_text(value) for value in pc.unique(column).to_pylist())


@dataclass(frozen=True)
class _Boxes:
    """The learned classes: for each, the range or the set of values of each column, and its labels.

    Labels are text, or values of the column's type if it was not generalised.
    """

    ranges: Mapping[str, tuple[Array, Array, Array]]
    sets: Mapping[str, tuple[Mapping[Any, int], Array]]
    labels: Mapping[str, pa.Array]

    @staticmethod
    def of(rows: pa.Table, release: AnonymizedTable) -> "_Boxes":
        quasi = list(release.roles.quasi)
        words = release.rows.select(quasi)
        numbered = words.append_column("_row", pa.array(np.arange(rows.num_rows)))
        first = numbered.group_by(quasi).aggregate([("_row", "min")])
        starts = first.column("_row_min").to_numpy()
        of_row = _numbers(words, quasi, starts)
        ranges, sets = {}, {}
        for column in CodedTable.of(rows, quasi).columns.values():
            if _is_ordered(column):
                low, high = np.full(len(starts), np.inf), np.full(len(starts), -np.inf)
                places = _places(column)
                np.minimum.at(low, of_row, np.nan_to_num(places, nan=np.inf)[column.codes])
                np.maximum.at(high, of_row, np.nan_to_num(places, nan=-np.inf)[column.codes])
                missing = np.zeros(len(starts), bool)
                missing[of_row[np.isnan(places)[column.codes]]] = True
                ranges[column.name] = (low, high, missing)
            else:
                inside = np.zeros((len(starts), len(column.values)), bool)
                inside[of_row, column.codes] = True
                sets[column.name] = ({value_text(v) if v is not None else None: i for i, v in enumerate(column.values)},
                                     inside)  # fmt: skip
        rows_of_classes = pa.array(starts)
        labels = {name: words.column(name).take(rows_of_classes).combine_chunks() for name in quasi}
        return _Boxes(ranges, sets, labels)

    def __call__(self, rows: pa.Table) -> dict[str, Any]:
        columns = CodedTable.of(rows, self.labels).columns
        number = len(next(iter(self.labels.values())))
        nearest = np.empty(rows.num_rows, np.int64)
        parts = {name: self._distances(column) for name, column in columns.items()}
        step = max(1, _CHUNK // number)
        for start in range(0, rows.num_rows, step):
            part = slice(start, start + step)
            total = sum(parts[name][column.codes[part]] for name, column in columns.items())
            nearest[part] = np.argmin(total, axis=1)
        released = {}
        for name, column in columns.items():
            words = self.labels[name].take(pa.array(nearest))
            unknown = self._unknown(column)[column.codes]
            if unknown.any() or pa.types.is_string(words.type):  # a column that was not generalised keeps its type
                texts = [None if word is None else value_text(word) for word in words.to_pylist()]
                words = pc.if_else(pa.array(unknown), ALL, pa.array(texts, pa.string()))
            released[name] = words
        return released

    def _distances(self, column: CodedColumn) -> Array:
        """Return how far each value of a column is from each class: 0 inside of its box."""
        if column.name in self.sets:
            codes, inside = self.sets[column.name]
            places = [codes.get(None if value is None else value_text(value), -1) for value in column.values]
            outside = np.vstack([~inside.T, np.zeros(len(inside), bool)])  # an unknown value is equally far from all
            return np.asarray(outside[places], np.float64)
        low, high, missing = self.ranges[column.name]
        least, most = np.min(low, initial=np.inf), np.max(high, initial=-np.inf)
        at = _places(column)[:, None]
        # A value beyond all classes is as far from each as the outermost value that was learned.
        inner = np.clip(at, least, most) if least <= most else at
        with np.errstate(invalid="ignore"):
            gap = np.maximum(np.maximum(low - inner, inner - high), 0.0) / ((most - least) or 1.0)
        return np.where(np.isnan(at), ~missing, np.minimum(gap, 2.0))

    def _unknown(self, column: CodedColumn) -> Array:
        if column.name not in self.sets:
            return np.isnan(_places(column)) & ~self.ranges[column.name][2].any()
        codes = self.sets[column.name][0]
        return np.array([(None if v is None else value_text(v)) not in codes for v in column.values], bool)


def _numbers(words: pa.Table, names: Sequence[str], starts: Array) -> Array:
    """Return the class of each row, numbered as the first rows of the classes."""
    key, firsts = np.zeros(words.num_rows, np.int64), np.asarray(starts)
    for name in names:
        codes = CodedColumn.of(name, words.column(name).combine_chunks()).codes
        _, key = np.unique(key * (int(codes.max()) + 1) + codes, return_inverse=True)
    number = np.empty(len(firsts), np.int64)
    number[key[firsts]] = np.arange(len(firsts))
    return number[key]


def _is_ordered(column: CodedColumn) -> bool:
    return column.numeric or (bool(column.values) and hasattr(column.values[0], "toordinal"))


def _places(column: CodedColumn) -> Array:
    """Return the position of each value on a line; NaN for a missing value."""
    positions = np.asarray(column.positions, np.float64).copy()
    if column.values and column.values[-1] is None:
        positions[-1] = np.nan
    return positions
