"""A served model: answers under an output policy, within query limits, with a log.

    rows ──► names checked ──► counted (refused beyond the limit) ──► the model ──► what the policy shows ──► log

Rows are counted before the model sees them, under a lock, so that callers in several threads never get more than the
limit together. The log has neither rows nor answers.
"""

import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.containers import as_table, frame_names, is_frame, read_rows
from cloister.learn.serving.guard import check_export
from cloister.learn.serving.policies import OutputPolicy, label_only
from cloister.learn.serving.private_votes import PrivateVotes, TeacherEnsemble
from cloister.privacy.errors import BadInput, CloisterError, OutputRefused

__all__ = ["LogEntry", "ModelService", "serve"]

_LOGGED = 10_000
_MOST_ROWS = 100_000


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One call of a served model.

    Attributes:
        at: when, in UTC.
        caller: who asked, as the server says.
        verb: what was asked: "predict", "top", "predict_proba" or "decision_function".
        rows: number of rows.
        answered: False if it was refused or failed.
    """

    at: datetime
    caller: str
    verb: str
    rows: int
    answered: bool


class ModelService:
    """A model behind an output policy. Made by `serve`; safe to share between threads.

    Attributes:
        policy: what is shown.
        features: the names of the features as callers know them; None for a model without names.
        classes: the classes; None for numbers.

    Privacy: see `serve`.
    """

    __slots__ = (
        "_answer",
        "_callers",
        "_each",
        "_left",
        "_lock",
        "_log",
        "_names",
        "_width",
        "classes",
        "features",
        "policy",
    )

    def __init__(
        self,
        answer: Callable[[Any, str], NDArray[Any]],
        policy: OutputPolicy | PrivateVotes,
        *,
        names: Sequence[str] | None,
        served: Sequence[str] | None,
        classes: Any,
        width: int,
        queries: int | None,
        queries_each: int | None,
    ) -> None:
        self._answer, self.policy, self._names, self._width = answer, policy, names, width
        self.features = None if served is None else tuple(served)
        self.classes = None if classes is None else np.asarray(classes).copy()
        self._left, self._each = queries, queries_each
        self._callers: Counter[str] = Counter()
        self._log: deque[LogEntry] = deque(maxlen=_LOGGED)
        self._lock = threading.Lock()

    def predict(self, rows: Any, *, caller: str = "") -> NDArray[Any]:
        """Return the class of each row, or its number as the policy shows it."""
        return self._ask(rows, "predict", caller)

    def top(self, rows: Any, *, caller: str = "") -> NDArray[Any]:
        """Return the likeliest classes of each row in order, as many as the policy shows."""
        return self._ask(rows, "top", caller)

    def predict_proba(self, rows: Any, *, caller: str = "") -> NDArray[Any]:
        """Return the probability of each class as the policy shows it."""
        return self._ask(rows, "predict_proba", caller)

    def decision_function(self, rows: Any, *, caller: str = "") -> NDArray[Any]:
        """Return the model's scores, if the policy is full."""
        return self._ask(rows, "decision_function", caller)

    @property
    def left(self) -> int | None:
        """Return the number of rows that may still be asked about; None without a limit."""
        with self._lock:
            return self._left

    @property
    def log(self) -> tuple[LogEntry, ...]:
        """Return the last ten thousand calls, oldest first."""
        with self._lock:
            return tuple(self._log)

    def __repr__(self) -> str:
        return (
            f"<ModelService: policy {self.policy}, {self.left if self.left is not None else 'any number of'} rows left>"
        )

    def __reduce__(self) -> Any:
        raise OutputRefused("a service is not pickled: a copy would have query limits of its own. Save the model.")

    def _ask(self, rows: Any, verb: str, caller: str) -> NDArray[Any]:
        answered, count = False, 0
        if not isinstance(caller, str):
            raise BadInput("caller is a text.")
        try:
            if isinstance(self.policy, OutputPolicy | PrivateVotes) and not self.policy.shows(verb):
                raise OutputRefused(f"the policy of this model is {self.policy}: {verb} is not shown. Ask for predict.")
            table, count = self._read(rows)
            self._count(count, caller)
            told = self._told(table, verb)
            answered = True
            return told
        finally:
            with self._lock:
                self._log.append(LogEntry(datetime.now(UTC), caller[:200], verb, count, answered))

    def _told(self, table: Any, verb: str) -> NDArray[Any]:
        try:
            return self._answer(table, verb)
        except (CloisterError, Warning):
            raise
        except Exception as error:
            raise BadInput(f"the model cannot answer these rows ({type(error).__name__}). Check their types.") from None

    def _read(self, rows: Any) -> tuple[Any, int]:
        """Return the rows under the names that the model knows, and their number."""
        columns, array = read_rows(rows)
        if len(columns) != self._width:
            raise BadInput(f"rows have {len(columns)} features, and this model takes {self._width}.")
        count = len(columns[0])
        if count > _MOST_ROWS:
            raise BadInput(f"at most {_MOST_ROWS} rows at once.")
        names = frame_names(rows)
        if names is None or self.features is None:
            return (rows if array is None else array), count
        if list(names) != list(self.features):
            raise BadInput(f"the features are, in this order: {', '.join(self.features[:50])}.")
        return _renamed(rows, self.features, self._names), count

    def _count(self, rows: int, caller: str) -> None:
        """Count rows before they are answered; refuse beyond a limit, which then counts nothing."""
        with self._lock:
            if self._left is not None and rows > self._left:
                raise OutputRefused(f"{self._left} more rows may be asked about, and these are {rows}.")
            if self._each is not None and self._callers[caller] + rows > self._each:
                left = self._each - self._callers[caller]
                raise OutputRefused(f"{left} more rows may be asked about by this caller, and these are {rows}.")
            if self._left is not None:
                self._left -= rows
            self._callers[caller] += rows


def _renamed(rows: Any, served: Sequence[str], names: Sequence[str] | None) -> Any:
    """Return a frame under the names of the fit."""
    if names is None or list(served) == list(names):
        return rows
    assert is_frame(rows)
    table = as_table(rows)
    if hasattr(table, "rename_columns"):
        return table.rename_columns(list(names))
    told = dict(zip(served, names, strict=True))
    return table.rename(columns=told) if hasattr(table, "iloc") else table.rename(told)


def serve(
    model: Any,
    policy: OutputPolicy | PrivateVotes | str | None = None,
    *,
    queries: int | None = None,
    queries_each: int | None = None,
    names: str | Mapping[str, str] | None = None,
    training_rows: int | None = None,
) -> ModelService:
    """Serve a model under an output policy.

    Args:
        model: a private model of Cloister, a parametric one of scikit-learn, or a pipeline of them; what carries
            training rows is refused (learn/serving/guard.py). For `serving.private`, a `serving.TeacherEnsemble`.
        policy: what is shown: `serving.label_only()` (the default), `top_k`, `rounded`, `full`, or the same in words
            ("rounded 2"); `serving.private(each, account)` for an ensemble.
        queries: rows that may be asked about in all; None for no limit.
        queries_each: rows that each caller may ask about.
        names: names of the features for callers: "plain" for f0, f1, …, or a dict from the model's names; None keeps
            them.
        training_rows: number of training rows where it is known, for the guard.

    Privacy: of a private model every answer is post-processing, at no cost. Of any other model nothing is promised: a
        policy makes membership inference and extraction harder, not impossible
        (tests/unit/learn/test_serving_attacks.py).
        Under `serving.private` every answer is charged (learn/serving/private_votes.py).
    """
    for name, value in (("queries", queries), ("queries_each", queries_each)):
        if value is not None and not (isinstance(value, int) and not isinstance(value, bool) and value >= 0):
            raise BadInput(f"{name} is a whole number of rows, or None.")
    chosen = OutputPolicy.parse(policy) if isinstance(policy, str) else label_only() if policy is None else policy
    if isinstance(chosen, PrivateVotes):
        return _serve_votes(model, chosen, queries, queries_each, names)
    if not isinstance(chosen, OutputPolicy):
        raise BadInput("policy is one of serving.label_only(), top_k, rounded, full and private, or 'rounded 2'.")
    if isinstance(model, TeacherEnsemble):
        raise OutputRefused(
            "teachers without noise reveal rows. Serve them with policy=serving.private(each, account)."
        )
    check_export(model, rows=training_rows)
    chosen.check(model)
    known = _known_names(model)
    return ModelService(
        lambda rows, verb: chosen.answer(model, rows, verb),
        chosen,
        names=known,
        served=_served_names(known, names),
        classes=getattr(model, "classes_", None),
        width=_width(model),
        queries=queries,
        queries_each=queries_each,
    )


def _serve_votes(
    model: Any, policy: PrivateVotes, queries: int | None, queries_each: int | None, names: Any
) -> ModelService:
    if not isinstance(model, TeacherEnsemble):
        raise OutputRefused(
            f"a {type(model).__name__:.60} has no private prediction. Noise on an answer is private only if one person "
            "moves it by a known amount: use serving.TeacherEnsemble, or a private model with another policy."
        )
    known, classes, width = model.facts()
    return ModelService(
        lambda rows, _verb: model.answer(rows, policy),
        policy,
        names=known,
        served=_served_names(known, names),
        classes=classes,
        width=width,
        queries=queries,
        queries_each=queries_each,
    )


def _known_names(model: Any) -> list[str] | None:
    names = getattr(model, "feature_names_in_", None)
    return None if names is None else [str(name) for name in names]


def _width(model: Any) -> int:
    if not hasattr(model, "n_features_in_"):
        raise BadInput("the model is not fitted: it does not know its features.")
    return int(model.n_features_in_)


def _served_names(known: Sequence[str] | None, names: Any) -> list[str] | None:
    """Return the names that callers know the features by."""
    if known is None or names is None:
        if isinstance(names, Mapping):
            raise BadInput("the model does not know the names of its features, so there are none to replace.")
        return None if known is None else list(known)
    if names == "plain":
        return [f"f{index}" for index in range(len(known))]
    if not isinstance(names, Mapping) or set(names) - set(known):
        raise BadInput("names is 'plain', or a dict from names of the model's features to those that callers use.")
    served = [str(names.get(name, name)) for name in known]
    if len(set(served)) < len(served):
        raise BadInput("two features would have one name. Give each its own.")
    return served
