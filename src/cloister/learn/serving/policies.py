"""Output policies: what a served model shows of each answer.

    label only     the class                              weakest attacks; extraction takes many queries
    top k          the k likeliest classes, in order
    rounded d      probabilities with d decimals; numbers with d significant digits
    full           all that the model computes            a linear model of n features is copied in n + 1 queries

A policy lowers what an attacker gains from one answer. It is no privacy guarantee: with a private model the guarantee
is the model's, whatever is shown, and with any other model there is none.

Falls to: `attack.steal` and `attack.inversion` for what is shown of probabilities; `attack.membership` with labels only
for labels.
"""

from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput, OutputRefused

__all__ = ["OutputPolicy", "full", "label_only", "rounded", "top_k"]

Kind = Literal["label", "top", "rounded", "full"]
_MOST_DIGITS, _MOST_CLASSES = 6, 1000


@dataclass(frozen=True, slots=True)
class OutputPolicy:
    """What is shown of each answer.

    Attributes:
        kind: "label", "top", "rounded" or "full".
        amount: number of classes for "top", of digits for "rounded"; otherwise 0.

    >>> OutputPolicy.parse("rounded 2"), str(top_k(3))
    (OutputPolicy(kind='rounded', amount=2), 'top 3')
    """

    kind: Kind
    amount: int = 0

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise BadInput(f"a policy is label, top k, rounded d or full, got {self.kind!r:.40}.")
        least, most = {"top": (1, _MOST_CLASSES), "rounded": (0, _MOST_DIGITS)}.get(self.kind, (0, 0))
        whole = isinstance(self.amount, int) and not isinstance(self.amount, bool)
        if not (whole and least <= self.amount <= most):
            raise BadInput(f"the number of a policy {self.kind} is a whole number from {least} to {most}.")

    @classmethod
    def parse(cls, text: str) -> "OutputPolicy":
        """Read a policy: "label", "top 3", "rounded 2" or "full"."""
        words = text.split() if isinstance(text, str) else []
        numbered = len(words) == 2 and words[0] in ("top", "rounded") and words[1].isascii() and words[1].isdigit()
        if numbered and len(words[1]) < 5:
            return cls(cast(Kind, words[0]), int(words[1]))
        if len(words) == 1 and words[0] in ("label", "full"):
            return cls(cast(Kind, words[0]))
        raise BadInput(f"{text!r:.40} is no output policy. Write 'label', 'top 3', 'rounded 2' or 'full'.")

    def __str__(self) -> str:
        return f"{self.kind} {self.amount}" if self.kind in ("top", "rounded") else self.kind

    def check(self, model: Any) -> None:
        """Refuse a model whose answers this policy does not fit."""
        classes = hasattr(model, "classes_")
        if not hasattr(model, "predict"):
            raise BadInput(f"a {type(model).__name__:.60} does not predict, so there is nothing to serve.")
        if not classes and self.kind in ("label", "top"):
            raise BadInput(
                f"the policy {self} is for classes, and this model predicts numbers. Use 'rounded 2' or 'full'."
            )
        if classes and self.kind in ("top", "rounded") and not hasattr(model, "predict_proba"):
            raise BadInput(f"the policy {self} needs probabilities, and this model has none. Use 'label'.")

    def shows(self, verb: str) -> bool:
        """Return True if this kind of answer is shown."""
        return (
            verb
            in {
                "label": ("predict",),
                "top": ("predict", "top"),
                "rounded": ("predict", "top", "predict_proba"),
                "full": ("predict", "top", "predict_proba", "decision_function"),
            }[self.kind]
        )

    def answer(self, model: Any, rows: Any, verb: str) -> NDArray[Any]:
        """Return what is shown of a model's answer to rows.

        Args:
            model: fitted; checked by `check`.
            rows: as the model takes them.
            verb: "predict", "top", "predict_proba" or "decision_function".

        Privacy: no cost for a private model: post-processing. None is promised for any other.
        """
        if not self.shows(verb):
            raise OutputRefused(f"the policy of this model is {self}: {verb} is not shown. Ask for predict.")
        if verb == "decision_function":
            return np.asarray(model.decision_function(rows))
        if not hasattr(model, "classes_"):
            numbers = np.asarray(model.predict(rows), dtype=np.float64)
            return numbers if self.kind == "full" else significant(numbers, max(self.amount, 1))
        if self.kind == "label" or (self.kind == "full" and verb == "predict"):
            return np.asarray(model.predict(rows))
        shown = self._probabilities(model, rows)
        if verb == "predict_proba":
            return shown
        # From what is shown: the order of rounded probabilities, not of those behind them.
        order = np.argsort(-shown, axis=1, kind="stable")
        named = np.asarray(model.classes_)[order]
        most = self.amount if self.kind == "top" else shown.shape[1]
        return np.asarray(named[:, 0] if verb == "predict" else named[:, :most])

    def _probabilities(self, model: Any, rows: Any) -> NDArray[np.float64]:
        told = np.asarray(model.predict_proba(rows), dtype=np.float64)
        return np.round(told, self.amount) if self.kind == "rounded" else told


def significant(numbers: NDArray[np.float64], digits: int) -> NDArray[np.float64]:
    """Round numbers to significant digits.

    >>> significant(np.array([1234.0, -0.00567, 0.0]), 2).tolist()
    [1200.0, -0.0057, 0.0]
    """
    return np.array([float(f"{number:.{digits - 1}e}") for number in numbers.ravel()]).reshape(numbers.shape)


def label_only() -> OutputPolicy:
    """Return the policy that shows the class alone."""
    return OutputPolicy("label")


def top_k(classes: int) -> OutputPolicy:
    """Return the policy that shows the likeliest classes in order, without their probabilities."""
    return OutputPolicy("top", classes)


def rounded(digits: int) -> OutputPolicy:
    """Return the policy that shows probabilities with this many decimals, numbers with as many significant digits."""
    return OutputPolicy("rounded", digits)


def full() -> OutputPolicy:
    """Return the policy that shows all that the model computes."""
    return OutputPolicy("full")
