"""The result of a private call: a value, its error, its loss, and its receipt.

Anything computed from a release is post-processing and has no further loss.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np

from cloister.privacy.loss import Loss, Unit
from cloister.privacy.number import Number, rational
from cloister.privacy.receipt import Receipt

__all__ = ["Release"]


@dataclass(frozen=True, slots=True)
class Release:
    """A private answer.

    Attributes:
        value: the number, array or choice.
        loss: the privacy loss.
        unit: the unit of privacy.
        mechanism: the name of the mechanism.
        parameters: its public, exact parameters.
        standard_error: the standard error of each number, due to the noise; None for a choice.
        private: False if the noise came from a seeded source, which gives no protection.
        receipt: the signed proof; None outside a ledger.

    Privacy: the loss, for the unit and the relation the loss states. Post-processing of `value` keeps it.
    """

    value: Any
    loss: Loss
    unit: Unit
    mechanism: str
    parameters: dict[str, str]
    standard_error: Any = None
    private: bool = True
    receipt: Receipt | None = None
    _margin: Callable[[Number], Any] | None = field(default=None, repr=False, compare=False)

    def margin(self, confidence: Number = "0.95") -> Any:
        """Return a bound on the noise of each number that holds with at least this confidence."""
        if self._margin is None:
            raise TypeError("a choice has no margin: its error is a probability, not a distance.")
        return self._margin(confidence)

    def interval(self, confidence: Number = "0.95") -> tuple[Any, Any]:
        """Return limits that contain the statistic without noise, each number with at least this confidence."""
        margin = self.margin(confidence)
        return self.value - margin, self.value + margin

    def __str__(self) -> str:
        lines = [self._value_text()]
        if not self.private:
            lines.insert(0, "NOT PRIVATE: the noise came from a seeded source")
        lines.append(f"  cost      {self._cost_text()}")
        lines.append(f"  protects  {self.unit}, {self.loss.relation} neighbours")
        lines.append(f"  noise     {self.mechanism}")
        if self.receipt is not None:
            lines.append(f"  receipt   entry {self.receipt.body['ledger']['entry']} of the ledger")
        return "\n".join(lines)

    def _cost_text(self) -> str:
        return str(self.loss)

    def _value_text(self, confidence: Number = "0.95") -> str:
        if self._margin is None:
            return str(self.value)
        percent = f"{float(100 * rational(confidence)):g} %"
        margin = self.margin(confidence)
        if np.ndim(self.value) == 0:
            return f"{short(self.value, margin)} ± {short(margin, margin)} ({percent})"
        numbers = ", ".join(short(number, margin) for number in np.ravel(self.value)[:8])
        more = ", …" if np.size(self.value) > 8 else ""
        return f"[{numbers}{more}] ± {short(margin, margin)} ({percent}, each)"

    def _repr_html_(self) -> str:
        facts = [
            ("cost", self._cost_text()),
            ("protects", f"{self.unit}, {self.loss.relation}"),
            ("noise", self.mechanism),
        ]
        if not self.private:
            facts.insert(0, ("warning", "not private: seeded source"))
        rows = "".join(f"<tr><th>{escape(str(k))}</th><td>{escape(str(v))}</td></tr>" for k, v in facts)
        return f"<div><strong>{escape(self._value_text())}</strong><table>{rows}</table></div>"


def short(value: Any, margin: Any) -> str:
    """Format a number to two significant digits of its margin."""
    if isinstance(value, int | np.integer):
        return f"{int(value):,}"
    size = float(np.max(np.abs(margin)))
    places = max(0, min(12, 1 - int(np.floor(np.log10(size))))) if size > 0 else 6
    return f"{float(value):,.{places}f}"
