"""Read arrays and frames. Shapes, names, types, scales and classes are public and given.

    table = read_table(X, fill)      before the charge: shape, names and types of the columns, but no cells
    rows = complete(table.numbers()) inside a step: every cell as `cells.py` reads it

No value makes a fit fail. An infinity is clipped to its bound. A cell that is missing or not a number is replaced by
the public `fill`; without one its row is left out. Rows with labels that are not listed are left out too.
"""

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from functools import lru_cache
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.cells import Categories, numbers_in
from cloister.learn.base.containers import column_values, frame_names, is_table, read_column, read_rows
from cloister.privacy.errors import BadBounds, BadInput, BadSchema, TextbookOnly

if TYPE_CHECKING:
    from cloister.data.private_data import PrivateData

__all__ = [
    "Box",
    "InputTable",
    "check_asked",
    "check_ends",
    "check_fill",
    "check_method",
    "check_norm",
    "check_numbers",
    "check_parameters",
    "codes",
    "complete",
    "complete_rows",
    "is_dataset",
    "keep_features",
    "read_answers",
    "read_box",
    "read_classes",
    "read_goal",
    "read_labels",
    "read_list",
    "read_numbers",
    "read_table",
    "read_values",
    "wants_bounds",
]

Floats = NDArray[np.float64]
_LEAST, _MOST = 1e-100, 1e100  # squares and ratios of public numbers stay within the range of floats
_NARROWEST = 2.0**-40  # width relative to the bounds; above it, rounding of the bounds is far below a grid step


@dataclass(frozen=True, slots=True)
class Box:
    """Public bounds of every feature."""

    low: Floats
    high: Floats

    def clip(self, rows: Floats) -> Floats:
        """Clip rows to the bounds."""
        return np.clip(rows, self.low, self.high)

    def to_unit(self, rows: Floats) -> Floats:
        """Clip and scale rows so that the bounds become 0 and 1."""
        return (self.clip(rows) - self.low) / (self.high - self.low)

    def settle(self, rows: Floats) -> Floats:
        """Prepare rows to predict: infinities become the bounds, a missing number their midpoint."""
        if np.isfinite(rows).all():
            return rows
        filled = np.where(np.isnan(rows), (self.low + self.high) / 2, rows)
        return np.where(np.isinf(filled), np.where(filled > 0, self.high, self.low), filled)


def check_ends(low: Any, high: Any, what: str = "bounds") -> None:
    """Refuse public bounds whose width, square or ratio is beyond the range of floats."""
    low, high = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise BadBounds("every lower bound must be below its upper bound, and both finite.")
    largest = np.maximum(np.abs(low), np.abs(high))
    if not ((largest <= _MOST).all() and (high - low >= np.maximum(_LEAST, _NARROWEST * largest)).all()):
        raise BadBounds(
            f"{what:.60} lie within {_MOST:g} of zero, and are at least {_LEAST:g} and 2^-40 of their size apart. "
            "Give the column in another unit, or shift it."
        )


def check_norm(data_norm: Any) -> float:
    """Return the public norm of rows; refuse one beyond the range of the arithmetic."""
    if not _LEAST <= _plain(data_norm) <= _MOST:
        raise BadBounds(
            f"data_norm is a positive public number, the longest a row may be: from {_LEAST:g} to {_MOST:g}."
        )
    return float(data_norm)


def check_fill(fill: Any) -> float | None:
    """Return the number that replaces missing ones, or None; refuse anything but one number within range.

    A list would be broadcast over the missing cells, and fail or not depending on their number.
    """
    if fill is None:
        return None
    if not abs(_plain(fill)) <= _MOST:
        raise BadInput(
            f"fill is one public number that stands for what is missing, within {_MOST:g} of zero, or None to leave "
            "such rows out."
        )
    return float(fill)


def check_parameters(told: Mapping[str, Any]) -> None:
    """Refuse public parameters of an estimator by type, finiteness and range. Called first in every `fit`.

    Parameters that depend on the input (bounds, categories, bins, n_components) are checked together with it.
    """
    for name, value in told.items():
        if name in _CHECKS:
            _CHECKS[name](name, value)


def _check_classes(name: str, value: Any) -> None:
    if value is not None and read_values(value) is None:
        raise BadSchema(f"{name} is a list of numbers, or of words.")


def _check_bounds(name: str, value: Any) -> None:
    if not _may_be_bounds(value):
        raise BadBounds(f"{name} are a list, tuple or array of two, not a {type(value).__name__:.60}: {name}=(0, 1).")


def _check_whole(name: str, value: Any) -> None:
    most, optional = _WHOLE[name], name in _OPTIONAL
    valid = isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= most
    if not valid and not (optional and value is None):
        raise BadInput(f"{name} is a public whole number from 1 to {most}{', or None' if optional else ''}.")


def _check_real(name: str, value: Any) -> None:
    holds, rule = _REAL[name]
    if not holds(_plain(value)):
        raise BadInput(f"{name} is {rule}.")


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool | np.bool_):
        raise BadInput(f"{name} is True or False.")


def _check_word(name: str, value: Any) -> None:
    if not isinstance(value, str):
        raise BadInput(f"{name} is a word, one of those that the documentation of the estimator lists.")


def check_method(estimator: Any, *methods: str) -> None:
    """Refuse a method that an estimator does not offer; a textbook method is refused with the place it is taught."""
    method, name = estimator.method, type(estimator).__name__
    if method in methods:
        return
    if method in _LESSONS:
        raise TextbookOnly(
            f"{name} by {method!r} rests on continuous noise and is for lessons: "
            f"cloister.lessons.{name}(method={method!r}). For people leave the method out."
        )
    raise BadInput(f"method is one of {', '.join(methods)}.")


def check_asked(told: Mapping[str, Any]) -> None:
    """Refuse invalid names of columns and tables. Called first in every `fit`, with its arguments."""
    for name in ("target", "table"):
        if told.get(name) is not None and not (isinstance(told[name], str) and told[name]):
            raise BadInput(f"{name} is a name of the schema: {name}='visits'.")
    features = told.get("features")
    if features is None:
        return
    # The order of the features is that of the list: a set has none, and an iterator can be read only once.
    if not isinstance(features, list | tuple) or not all(isinstance(name, str) for name in features):
        raise BadInput("features is a list of names: features=['age', 'stay_days'].")


_WHOLE = {
    "rows": 2**53,
    "max_depth": 12,
    "n_estimators": 1000,
    "rounds": 1000,
    "n_clusters": 10_000,
    "max_iter": 10_000,
}
_OPTIONAL = {"rows", "rounds", "max_iter"}
_REAL: dict[str, tuple[Callable[[float], bool], str]] = {
    "alpha": (lambda value: 0 <= value <= _MOST, f"a public number that is not negative, and at most {_MOST:g}"),
    "var_smoothing": (lambda value: _LEAST <= value <= 0.25, f"a public number from {_LEAST:g} to 0.25"),
    "max_features": (lambda value: 0 < value <= 1, "a share of the features: above 0, at most 1"),
}
_CHECKS: dict[str, Callable[[str, Any], object]] = {
    "fill": lambda _name, value: check_fill(value),
    "data_norm": lambda _name, value: None if value is None else check_norm(value),
    "classes": _check_classes,
    **dict.fromkeys(("bounds", "target_bounds"), _check_bounds),
    **dict.fromkeys(("calibrate", "progress"), _check_flag),
    **dict.fromkeys(_WHOLE, _check_whole),
    **dict.fromkeys(_REAL, _check_real),
    **dict.fromkeys(("method", "variance", "output_distribution"), _check_word),
}
_LESSONS = {"output", "objective", "input", "lloyd", "sulq", "subspace"}  # methods that only cloister.lessons has


def _plain(value: Any) -> int | float:
    """Convert a number of any type to a Python number; return NaN, which is in no range, for anything else."""
    if isinstance(value, np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else math.nan


# Public lists and pairs. Their types are those that can be read again, in one order, with one meaning. An iterator can
# be read only once, a set has the order of its hashes, and reading a dict, a text or a frame gives its keys, characters
# or names.


def read_list(given: Any) -> list[Any] | None:
    """Return a public list as a list; None for anything else.

    Args:
        given: a list, tuple, range, array of one dimension, or column of pandas, polars or pyarrow.
    """
    if isinstance(given, list | tuple | range):
        return list(given)
    if isinstance(given, np.ndarray):
        return given.tolist() if given.ndim == 1 and not isinstance(given, np.ma.MaskedArray) else None
    return column_values(given)


def read_values(given: Any) -> list[Any] | None:
    """Return a public list of single values (classes, categories) as a list; None for anything else."""
    listed = read_list(given)
    try:
        single = listed is not None and not any(
            isinstance(value, Iterable) for value in {*listed} if not _is_text(value)
        )
    except TypeError:  # a value that cannot be hashed
        return None
    return listed if single else None


def _is_text(value: Any) -> bool:
    return isinstance(value, str | bytes)


def read_numbers(given: Any) -> Floats | None:
    """Return a public list of numbers as an array; None for anything else, and for a list with anything else in it."""
    listed = read_list(given)
    numbers = [] if listed is None else [_real(value) for value in listed]
    return None if listed is None or None in numbers else np.array(numbers, dtype=np.float64)


def _real(value: Any) -> float | None:
    """Return a real number of any type as a float; None for anything else, truths and words too."""
    if isinstance(value, bool) or not isinstance(value, Real | Decimal):
        return None
    try:
        return float(value)
    except (OverflowError, ValueError):
        return None


def _may_be_bounds(bounds: Any) -> bool:
    """Return True if the type is one that bounds can have in some estimator; `read_box` reads what is in it."""
    return bounds is None or wants_bounds(bounds) or isinstance(bounds, list | tuple | np.ndarray | Mapping)


def wants_bounds(bounds: Any) -> bool:
    """Return True if bounds are to be found: bounds="find"."""
    return isinstance(bounds, str) and bounds == "find"


def read_box(bounds: Any, features: int) -> Box:
    """Read bounds: (low, high) for all features, or (lows, highs) with one number for each feature.

    Args:
        bounds: a list, tuple or array of two. Each of them is a number, or a list of them as in `read_list`.
        features: the number of features.
    """
    if bounds is None:
        raise BadBounds(
            "bounds are public and must be given: bounds=(0, 1) for all features, or bounds=(lows, highs). "
            "Deriving them from the data would leak; bounds='find' pays for finding them."
        )
    pair = isinstance(bounds, list | tuple | np.ndarray) and not isinstance(bounds, np.ma.MaskedArray)
    ends = [_end(end, features) for end in bounds] if pair and _length(bounds) == 2 else []
    if len(ends) != 2 or ends[0] is None or ends[1] is None:
        dicts = " A dict is for trees, boosting and MixedNB." if isinstance(bounds, Mapping) else ""
        raise BadBounds(_form_of_bounds(features) + dicts)
    lows, highs = ends[0], ends[1]
    if any(_real(end) is None for end in bounds) and not (lows < highs).all():
        raise BadBounds(
            f"every lower bound must be below its upper bound, and both finite. {_form_of_bounds(features)}"
        )
    check_ends(lows, highs)
    return Box(lows, highs)


def _length(bounds: Any) -> int:
    return 0 if isinstance(bounds, np.ndarray) and not bounds.ndim else len(bounds)


def _end(end: Any, features: int) -> Floats | None:
    """Return one end of the bounds for each feature; None if it is neither a number nor as many numbers."""
    number = _real(end[()] if isinstance(end, np.ndarray) and not end.ndim else end)
    if number is not None:
        return np.full(features, number)
    listed = read_numbers(end)
    return listed if listed is not None and len(listed) == features else None  # another length is not broadcast


def _form_of_bounds(features: int) -> str:
    return (
        f"Bounds are (low, high) for all features, or (lows, highs) with {features} numbers each; not a pair for each "
        "feature: bounds=([18, 0], [90, 100_000]) for an age and an income."
    )


# Tables


@dataclass(slots=True)
class InputTable:
    """Input X as given. Names, width and types are public; length and cells are not.

    Attributes:
        columns: one array per column.
        names: names of a frame's columns, text or whole numbers; None for an array (see `frame_names`).
        fill: replaces a missing number; None to leave its row out.
    """

    columns: tuple[NDArray[Any], ...]
    names: tuple[str | int, ...] | None
    fill: float | None = None
    _whole: NDArray[Any] | None = field(default=None, repr=False)

    @property
    def width(self) -> int:
        """Return the number of columns."""
        return len(self.columns)

    @property
    def length(self) -> int:
        """Return the private number of rows."""
        return len(self.columns[0])

    def column(self, place: int) -> Floats:
        """Read a column of numbers; NaN where one is missing and there is no fill. Call it inside a step."""
        values = numbers_in(self.columns[place])
        return values if self.fill is None else _filled(values, self.fill)

    def numbers(self) -> Floats:
        """Read all columns as numbers. Call it inside a step."""
        if self._whole is not None and self._whole.dtype == np.float64:
            return self._whole if self.fill is None else _filled(self._whole, self.fill)
        return np.column_stack([self.column(index) for index in range(self.width)])


def _filled(numbers: Floats, fill: float) -> Floats:
    return np.where(np.isnan(numbers), fill, numbers)


def read_table(rows: Any, fill: float | None = None, *, numbers: bool = True) -> InputTable:
    """Read the columns of an array or frame, checked by shape and type alone.

    Args:
        rows: an array, a list of rows, or a frame of pandas, polars or pyarrow (learn/base/containers.py).
        fill: replaces a missing number.
        numbers: True if all columns must have a type that can hold numbers.
    """
    fill = check_fill(fill)
    columns, array = read_rows(rows)
    names = frame_names(rows)
    if not columns:
        raise BadInput("Found array with 0 feature(s) while a minimum of 1 is required.")
    if any(column.dtype.kind == "c" for column in columns):
        raise BadInput("Complex data not supported: give real and imaginary parts as columns of their own.")
    if numbers:
        check_numbers(columns)
    return InputTable(tuple(columns), names, fill, array)


def check_numbers(columns: Iterable[NDArray[Any]]) -> None:
    """Refuse columns whose type cannot hold numbers."""
    if any(column.dtype.kind in "mMV" for column in columns):
        raise BadInput("X has a column of dates or times where a number is expected. Turn it into a number first.")


def complete(*parts: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Drop the rows with a missing number from arrays of one length. Call it inside a step."""
    missing = np.zeros(len(parts[0]), dtype=bool)
    for part in parts:
        if part.dtype.kind == "f":
            missing |= np.isnan(part) if part.ndim == 1 else np.isnan(part).any(axis=1)
    return tuple(part[~missing] for part in parts)


def complete_rows(look: Callable[[], Floats]) -> Callable[[], Floats]:
    """Wrap `look` to drop rows with a missing number; rows are read once, inside the first step."""
    return lru_cache(maxsize=1)(lambda: complete(look())[0])


# Labels and targets


def codes(labels: Any, classes: Sequence[Any]) -> NDArray[np.int64]:
    """Return the index of each label in the public list of classes; -1 for a label that is not listed."""
    return Categories(classes, "y").codes(read_column(labels))


def read_classes(classes: Any) -> NDArray[Any]:
    """Read the public list of classes."""
    if classes is None:
        raise BadSchema(
            "the classes are public and must be given: classes=[0, 1]. Reading them off y would tell which occur."
        )
    if read_values(classes) is None:
        raise BadSchema("classes is a list of numbers, or of words.")
    try:
        listed = np.unique(np.asarray(classes))
    except (TypeError, ValueError):
        raise BadSchema("classes is a list of numbers, or of words.") from None
    if listed.ndim != 1 or len(listed) < 2:
        raise BadSchema("classes is a list of at least two different labels.")
    Categories(listed.tolist(), "y")
    return listed


def read_labels(y: Any, classes: NDArray[Any], length: int) -> NDArray[Any]:
    """Return a column of labels as long as the rows, unchanged; checked by shape and type alone."""
    labels = _read_column(y, "labels", length)
    if labels.dtype.kind in "iufb" and not Categories(classes.tolist(), "y").numeric:
        raise BadInput(
            "y is a column of numbers and the classes are words: every row would be left out. Write them alike, "
            "classes=[0, 1] for a y of 0 and 1."
        )
    return labels


def read_goal(y: Any, length: int) -> NDArray[Any]:
    """Return a column of targets as long as the rows, unchanged; checked by shape and type alone."""
    targets = _read_column(y, "numbers", length)
    if targets.dtype.kind in "cmMV":
        raise BadInput("Unknown label type: y must be one column of numbers. Complex data not supported.")
    return targets


def _read_column(y: Any, kind: str, length: int) -> NDArray[Any]:
    if y is None:
        raise BadInput(f"y is one column of {kind}, as long as X; requires y to be passed, but the target y is None.")
    column = read_column(y)
    if len(column) != length:
        raise BadInput(f"y is one column of {kind}, as long as X.")
    if is_table(y):
        from sklearn.exceptions import DataConversionWarning

        warnings.warn(
            "A column-vector y was passed when a 1d array was expected: use y.ravel().",
            DataConversionWarning,
            stacklevel=4,
        )
    return column


# Fitted attributes about the input


def keep_features(estimator: Any, width: int, names: Sequence[str | int] | None, parts: Any = None) -> None:
    """Store the number of features, and their names if they have any, as scikit-learn does.

    Args:
        estimator: the one that was fitted.
        width, names: the number and the names of its features.
        parts: for a dataset: column, value (None for the column itself) and type of each feature, for `learn.prepare`.
    """
    estimator.n_features_in_, estimator._of_dataset = width, parts is not None
    estimator._features = None if parts is None else list(parts)
    if names is not None:
        estimator.feature_names_in_ = np.array(list(names), dtype=object)
    elif hasattr(estimator, "feature_names_in_"):  # from an earlier fit
        del estimator.feature_names_in_


def read_answers(estimator: Any, rows: Any, fill: float | None = None, *, numbers: bool = True) -> InputTable:
    """Read rows to predict; refuse those without the features that the estimator was fitted on."""
    from sklearn.utils.validation import check_is_fitted

    check_is_fitted(estimator, "n_features_in_")
    table = read_table(rows, fill, numbers=numbers)
    # Rows for a model from a dataset come from `prepare`, as an array in the right order.
    if not (table.names is None and getattr(estimator, "_of_dataset", False)):
        _check_names(estimator, table.names)
    if table.width != estimator.n_features_in_:
        raise BadInput(
            f"X has {table.width} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_} "
            f"features as input.{_prepare_first(estimator)}"
        )
    return table


def _check_names(estimator: Any, names: tuple[str | int, ...] | None) -> None:
    """Refuse names other than those of the fit, or in another order; warn where only one side has names.

    As scikit-learn does, in its words, but for every kind of frame and for names that are whole numbers. A model
    without names takes columns by their place, so numbers that are no places are refused.
    """
    kind, fitted_names = type(estimator).__name__, getattr(estimator, "feature_names_in_", None)
    if fitted_names is None and names is not None:
        if not isinstance(names[0], str):
            raise BadInput(f"X has numbered columns in another order, but {kind} was fitted without feature names.")
        warnings.warn(f"X has feature names, but {kind} was fitted without feature names", stacklevel=4)
    elif fitted_names is not None and names is None:
        warnings.warn(f"X does not have valid feature names, but {kind} was fitted with feature names", stacklevel=4)
    elif fitted_names is not None and names is not None and list(fitted_names) != list(names):
        lines = ["The feature names should match those that were passed during fit."]
        lines += _some_names("Feature names unseen at fit time:", set(names) - set(fitted_names))
        lines += _some_names("Feature names seen at fit time, yet now missing:", set(fitted_names) - set(names))
        if len(lines) == 1:
            lines.append("Feature names must be in the same order as they were in fit.")
        raise BadInput("\n".join(lines) + _prepare_first(estimator))


def _some_names(title: str, names: set[Any]) -> list[str]:
    listed = sorted(map(str, names))
    return [title, *(f"- {name}" for name in listed[:5]), *(["- ..."] if len(listed) > 5 else [])] if listed else []


def _prepare_first(estimator: Any) -> str:
    if not getattr(estimator, "_of_dataset", False):
        return ""
    return " It was fitted on a dataset: bring rows into its form first, model.predict(learn.prepare(model, rows))."


def is_dataset(thing: object) -> "TypeGuard[PrivateData]":
    """Return True if it is a Cloister dataset. Its class decides: a frame has any attribute that names a column."""
    return callable(getattr(type(thing), "relation", None))
