"""What an attacker reaches of a model: probabilities, labels, losses, and how often each was asked.

    target = Target.of(model)                                # a scikit-learn estimator or a pipeline
    target = Target.of(lambda rows: apply(params, rows))     # a function, such as a JAX network
    target = Target.of("http://127.0.0.1:8080/predict")      # an endpoint that answers JSON

Attacks take anything of these. Every row that is asked is counted, so that a finding states the queries it needed.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Any
from urllib.parse import urlparse
from urllib.request import HTTPRedirectHandler, Request, build_opener

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cloister.attack.finding import FOREIGN_ERRORS, Access
from cloister.attack.intervals import Floats
from cloister.privacy.errors import BadInput, CloisterError, PeerLost

__all__ = ["LEAST_SCORE", "Target", "named", "rows_of"]

LEAST_SCORE = 1e-12  # the least probability that a loss is computed from
_PART = 10_000  # rows of one request to an endpoint
_ANSWER_BYTES = 1 << 28
_TIMEOUT_S = 60
_ROUNDING = 1e-6  # by which a probability of single precision may miss 0 or 1
_PROBABILITIES = "must answer probabilities, one row for each row that is asked and one column for each class"


@dataclass(eq=False, kw_only=True)
class Target:
    """A model as an attacker sees it. Made by `Target.of`.

    Attributes:
        name: the model's name in findings.
        access: what the attacker reaches.
        classes: the classes in the order of the probabilities; None for a model of numbers.
        model: the model itself, for attacks with full access; None for an endpoint.
        queries: number of rows that were asked so far.
    """

    name: str
    access: Access
    classes: NDArray[Any] | None
    model: Any = field(default=None, repr=False)
    queries: int = 0
    _scores: Callable[[Any], Any] | None = field(default=None, repr=False)
    _labels: Callable[[Any], Any] | None = field(default=None, repr=False)
    _names: Any = field(default=None, repr=False)  # that an estimator was fitted with, if it is asked itself

    @classmethod
    def of(cls, model: Any, *, classes: Sequence[Any] | None = None, labels_only: bool = False) -> "Target":
        """Wrap a model.

        Args:
            model: a fitted estimator with `predict_proba`, `decision_function` or `predict`; a served model; a function
                of rows that returns a matrix of probabilities; the http address of an endpoint that takes
                `{"rows": [[…], …]}` and answers `{"probabilities": [[…], …]}` or `{"labels": […]}`; or a `Target`.
            classes: the classes of a function or an endpoint, in the order of its columns; 0, 1, … unless given.
            labels_only: hide the probabilities from the attacker.
        """
        if isinstance(model, Target):
            return model
        if isinstance(model, str):
            target = cls._endpoint(model, classes)
        elif hasattr(model, "predict"):
            target = cls._estimator(model)
        elif callable(model):
            target = cls(
                name=getattr(model, "__name__", type(model).__name__),
                access="black box",
                classes=None if classes is None else np.asarray(classes),
                model=model,
                _scores=model,
            )
        else:
            raise BadInput(
                f"a target is an estimator, a function, an http address or a Target, not {type(model).__name__}."
            )
        if labels_only:
            target.access = "labels only"
        return target

    @property
    def answers_numbers(self) -> bool:
        """Return True if the model predicts numbers, so that there are no classes."""
        return self._scores is None and self.classes is None

    @classmethod
    def _estimator(cls, model: Any) -> "Target":
        found = getattr(model, "classes_", getattr(model, "classes", None))
        scores = getattr(model, "predict_proba", None)
        if scores is None and found is not None and hasattr(model, "decision_function"):
            scores = lambda rows: _of_margins(model.decision_function(rows))  # noqa: E731
        return cls(
            name=type(model).__name__,
            access="black box" if scores is not None or found is None else "labels only",
            classes=None if found is None else np.asarray(found),
            model=model,
            _scores=scores if found is not None else None,
            _labels=model.predict,
            _names=getattr(model, "feature_names_in_", None),
        )

    @classmethod
    def _endpoint(cls, address: str, classes: Sequence[Any] | None) -> "Target":
        if urlparse(address).scheme not in ("http", "https"):
            raise BadInput(f"an endpoint's address begins with http:// or https://, got {address[:40]!r}.")
        return cls(
            name=address,
            access="black box",
            classes=None if classes is None else np.asarray(classes),
            _scores=lambda rows: _probabilities_of(address, _post(address, rows)),
            _labels=lambda rows: _labels_of(_post(address, rows), classes),
        )

    def probabilities(self, rows: Any) -> Floats:
        """Return the probability of each class for each row."""
        if self.answers_numbers:
            raise BadInput(f"{self.name} predicts numbers, so there are no probabilities.")
        if self._scores is None or self.access == "labels only":
            raise BadInput(f"{self.name} shows labels only. Use an attack on labels, such as method='labels'.")
        return self._ask(rows)

    def _ask(self, rows: Any) -> Floats:
        """Return probabilities, whatever the attacker is shown of them."""
        assert self._scores is not None
        answered = self._called(self._scores, rows)
        try:
            found = np.asarray(answered, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadInput(f"{self.name} {_PROBABILITIES}, and its answer is no matrix of numbers.") from None
        if found.ndim == 1:  # a function that returns the probability of the second of two classes
            found = np.column_stack((1 - found, found))
        asked = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        if found.ndim != 2 or len(found) != asked or not found.shape[1]:
            raise BadInput(f"{self.name} {_PROBABILITIES}, got the shape {found.shape} for {asked:,} rows.")
        self.queries += len(found)
        if not ((found >= -_ROUNDING) & (found <= 1 + _ROUNDING)).all():
            raise BadInput(
                f"{self.name} {_PROBABILITIES}, and some numbers are not from 0 to 1. Apply softmax to scores."
            )
        if self.classes is None:
            self.classes = np.arange(found.shape[1])
        if len(self.classes) != found.shape[1]:
            raise BadInput(f"{self.name} has {len(self.classes)} classes and answers {found.shape[1]} probabilities.")
        return np.clip(found, 0, 1)

    def _called(self, function: Callable[[Any], Any], rows: Any) -> Any:
        """Return the model's answer, or refuse in a sentence what it cannot read."""
        try:
            return function(rows if self._names is None else named(self.model, rows))
        except CloisterError:
            raise
        except FOREIGN_ERRORS as error:
            if type(error).__name__ == "NotFittedError":
                raise BadInput(f"{self.name} is not fitted. Fit it to its training rows first.") from error
            shape: tuple[int, ...] = getattr(rows, "shape", ())
            of = f" of {shape[1]:,} columns" if len(shape) == 2 else ""
            raise BadInput(
                f"{self.name} failed on rows{of} ({type(error).__name__}). Pass the columns that it was fitted to, in "
                "their order and without the label."
            ) from error

    def labels(self, rows: Any) -> NDArray[Any]:
        """Return the predicted class of each row, or the predicted number."""
        if self._labels is None:
            found = self._ask(rows)
            assert self.classes is not None
            return np.asarray(self.classes[found.argmax(axis=1)])
        answered = self._called(self._labels, rows)
        try:
            found = np.asarray(answered)
        except ValueError:  # lists of different lengths
            raise BadInput(f"{self.name} must answer one label for each row, and some are lists.") from None
        asked = rows.shape[0] if hasattr(rows, "shape") else len(rows)
        if found.ndim == 2 and found.shape[1] == 1:
            found = found[:, 0]
        if found.ndim != 1 or len(found) != asked:
            raise BadInput(f"{self.name} must answer one label for each row, got the shape {found.shape}.")
        self.queries += len(found)
        return found

    def codes(self, labels: ArrayLike) -> NDArray[np.intp]:
        """Return the column of each label."""
        if self.classes is None:
            raise BadInput(f"the classes of {self.name} are not known. Pass classes=, in the order of its columns.")
        places = {value: place for place, value in enumerate(self.classes.tolist())}
        try:
            return np.array([places[value] for value in np.asarray(labels).tolist()], dtype=np.intp)
        except KeyError:
            raise BadInput(f"a label is none of the classes of {self.name}.") from None

    def losses(self, rows: Any, labels: ArrayLike) -> Floats:
        """Return the loss of each row: -log of the label's probability, or the squared error of a number."""
        if self.answers_numbers:
            return np.asarray((np.asarray(self.labels(rows), dtype=np.float64) - np.asarray(labels, float)) ** 2)
        return -np.log(np.maximum(self.confidences(rows, labels), LEAST_SCORE))

    def confidences(self, rows: Any, labels: ArrayLike) -> Floats:
        """Return the probability of each row's own label."""
        found = self.probabilities(rows)
        return np.asarray(found[np.arange(len(found)), self.codes(labels)])

    def logits(self, rows: Any, labels: ArrayLike) -> Floats:
        """Return log(p / (1 - p)) of each row's own label, which is nearly normal over models (Carlini et al. 2022)."""
        found = self.probabilities(rows)
        places = np.arange(len(found)), self.codes(labels)
        own = found[places]
        rest = found.sum(axis=1) - own  # steadier than 1 - own where the label's probability is next to 1
        return np.asarray(np.log(np.maximum(own, LEAST_SCORE)) - np.log(np.maximum(rest, LEAST_SCORE)))


def rows_of(rows: Any, places: Any) -> Any:
    """Return some rows of an array or a frame."""
    return rows.iloc[places] if hasattr(rows, "iloc") else rows[places]


def named(model: Any, rows: Any) -> Any:
    """Return rows under the names of columns that an estimator was fitted with, or refuse other columns."""
    names = getattr(model, "feature_names_in_", None)
    if names is None or hasattr(rows, "tocsr") or len(getattr(rows, "shape", ())) != 2:
        return rows
    wanted = [str(name) for name in names]
    if hasattr(rows, "iloc"):
        given = [str(name) for name in rows.columns]
        if set(wanted) - set(given) or (set(given) - set(wanted) and not hasattr(model, "steps")):
            raise BadInput(
                f"{type(model).__name__} was fitted with the columns {_listing(wanted)}, and is asked about rows with "
                f"{_listing(given)}. Pass the former, without the label."
            )
        return rows
    if rows.shape[1] != len(wanted):
        raise BadInput(
            f"{type(model).__name__} was fitted with {len(wanted):,} columns, {_listing(wanted)}, and is asked about "
            f"rows of {rows.shape[1]:,}. Pass the former, without the label."
        )
    try:
        import pandas as pd  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        return rows
    return pd.DataFrame(rows, columns=names)


def _listing(names: list[str]) -> str:
    return ", ".join(names[:8]) + (", …" if len(names) > 8 else "")


def _of_margins(margins: ArrayLike) -> Floats:
    found = np.asarray(margins, dtype=np.float64)
    if found.ndim == 1:
        found = np.column_stack((-found / 2, found / 2))
    shifted = np.exp(found - found.max(axis=1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=1, keepdims=True))


def _probabilities_of(address: str, answer: dict[str, Any]) -> Any:
    if "probabilities" not in answer:
        raise BadInput(f"{address} shows labels only. Use an attack on labels, such as method='labels'.")
    return answer["probabilities"]


def _labels_of(answer: dict[str, Any], classes: Sequence[Any] | None) -> Any:
    if "labels" in answer:
        return answer["labels"]
    try:
        places = np.asarray(answer["probabilities"], dtype=np.float64).argmax(axis=1)
        return places if classes is None else np.asarray(classes)[places]
    except (ValueError, TypeError, IndexError):
        raise BadInput(f"the endpoint {_PROBABILITIES}.") from None


class _Stay(HTTPRedirectHandler):
    """Follows no redirect: an answer of another host is none of the model that was named."""

    def redirect_request(self, *_: Any) -> None:
        """Return nothing, so that a redirect is an error."""


def _post(address: str, rows: Any) -> dict[str, Any]:
    table = np.asarray(rows.todense()) if hasattr(rows, "todense") else np.asarray(rows)
    answers = dict[str, list[Any]]()
    for start in range(0, len(table), _PART):
        try:
            body = json.dumps({"rows": table[start : start + _PART].tolist()}).encode()
        except TypeError:
            raise BadInput("an endpoint is asked in JSON: its rows hold numbers and text.") from None
        request = Request(address, data=body, headers={"Content-Type": "application/json"})  # noqa: S310 (http only)
        try:
            with build_opener(_Stay).open(request, timeout=_TIMEOUT_S) as response:
                part = json.loads(response.read(_ANSWER_BYTES))
        except (OSError, HTTPException, ValueError, RecursionError) as error:
            raise PeerLost(f"the endpoint {address} gave no answer in JSON ({type(error).__name__}).") from error
        if not isinstance(part, dict) or not {"probabilities", "labels"} & part.keys():
            raise BadInput(f"the endpoint {address} must answer an object with `probabilities` or `labels`.")
        if any(not isinstance(part.get(name, []), list) for name in ("probabilities", "labels")):
            raise BadInput(f"the endpoint {address} must answer lists, one entry for each row.")
        for name in {"probabilities", "labels"} & part.keys():
            answers.setdefault(name, []).extend(part[name])
    return answers
