"""Progress of a training run: steps done, loss spent so far, seconds left. Nothing that rows decide."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from cloister.privacy.errors import BadInput

__all__ = ["Progress", "Reporter"]


@dataclass(frozen=True, slots=True)
class Progress:
    """The state of a run.

    Attributes:
        step, steps: steps done, and in all.
        spent: the loss of the steps so far, in words; the whole spend is charged from the start.
        seconds_left: an estimate.
    """

    step: int
    steps: int
    spent: str
    seconds_left: float


@dataclass(slots=True)
class Reporter:
    """Reports progress to a bar in the terminal (True), to a function, or to nobody (False)."""

    show: bool | Callable[[Progress], object]
    steps: int
    spent: Callable[[int], str]
    first: int = 0
    _began: float = field(default_factory=time.monotonic)
    _bar: Any = None
    _task: Any = None

    def __post_init__(self) -> None:
        if not (isinstance(self.show, bool) or callable(self.show)):
            raise BadInput("progress is True for a bar, or a function that gets a Progress.")

    def __enter__(self) -> "Reporter":
        if self.show is True:
            from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
            from rich.progress import Progress as Bar

            self._bar = Bar(
                TextColumn("training"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[spent]}"),
                TimeRemainingColumn(),
            )  # fmt: skip
            self._bar.start()
            self._task = self._bar.add_task("training", total=self.steps, completed=self.first, spent="")
        return self

    def __exit__(self, *exception: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def done(self, step: int) -> None:
        """Report that this many steps are done."""
        if self.show is False:
            return
        spent = self.spent(step)
        if self._bar is not None:
            self._bar.update(self._task, completed=step, spent=spent)
        elif callable(self.show):
            each = (time.monotonic() - self._began) / max(step - self.first, 1)
            self.show(Progress(step, self.steps, spent, each * (self.steps - step)))
