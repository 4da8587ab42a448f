"""Rule of a policy for the predictions of trained models: what is shown of an answer, and of how many rows a day.

    predictions: {show: rounded 2, rows_per_day: 1000}

It holds for users who may `predict` with a model that somebody else has trained on the dataset. Whoever trained a model
holds its file, so no rule about its answers would bind them.

A user may ask for less than the rule shows: label < top k < rounded d < full.
"""

from dataclasses import dataclass

from cloister.privacy.errors import BadInput

__all__ = ["PREDICT", "SHOWN", "PredictionRule", "read_show", "shows"]

PREDICT = "predict"
SHOWN = "label, top 3, rounded 2 or full"  # examples, for messages
_ORDER = ("label", "top", "rounded", "full")
_NUMBERS = {
    "top": (1, 1000),
    "rounded": (0, 6),
}  # those of `learn.serving.OutputPolicy`, which the policy does not load


@dataclass(frozen=True, slots=True)
class PredictionRule:
    """What the policy allows of a model's predictions.

    Attributes:
        show: the most that is shown of an answer: label, top k, rounded d or full.
        rows_per_day: the number of rows that one user may ask one model about in 24 hours; None: the hub's own limit.
    """

    show: str = "label"
    rows_per_day: int | None = None

    @property
    def sentence(self) -> str:
        """Describe the rule.

        >>> PredictionRule("top 3", 1000).sentence
        'answers show at most top 3, for at most 1,000 rows a day'
        """
        rows = "" if self.rows_per_day is None else f", for at most {self.rows_per_day:,} rows a day"
        return f"answers show at most {self.show}{rows}"


def read_show(text: str) -> str:
    """Read what is shown of an answer, and return it as it is written everywhere.

    >>> read_show(" rounded  02 ")
    'rounded 2'
    """
    words = text.split()
    if words in (["label"], ["full"]):
        return words[0]
    if len(words) == 2 and words[0] in _NUMBERS and words[1].isascii() and words[1].isdigit() and len(words[1]) < 5:
        low, high = _NUMBERS[words[0]]
        if low <= int(words[1]) <= high:
            return f"{words[0]} {int(words[1])}"
    raise BadInput(f"{text!r:.40} is nothing that can be shown of an answer. Write {SHOWN}.")


def shows(granted: str, asked: str) -> bool:
    """Return True if a rule that shows `granted` also shows `asked`. Both are as `read_show` returns them.

    >>> shows("rounded 2", "top 5"), shows("rounded 2", "rounded 3")
    (True, False)
    """
    return _rank(asked) <= _rank(granted)


def _rank(show: str) -> tuple[int, int]:
    kind, _, number = show.partition(" ")
    return _ORDER.index(kind), int(number or 0)
