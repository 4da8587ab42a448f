"""Defences of a gradient or a federated update, and a comparison of an attack with and without each of them.

    Defence.none()
    Defence.clipping(private_gradient(loss, clip=1.0))             each record's gradient is clipped
    Defence.noise(private_gradient(loss, clip=1.0), rho("0.5"))    and noise is added to the sum: one step of DP-SGD
    Defence.noise(1.0, rho("0.5"))                                 the whole update is clipped, and noise is added
    Defence.secure_sum(clients=10)                                 only the sum over clients is seen
    Defence.larger_lot(64)                                         a client sums the gradients of more records

Clipping and noise are not written again here: the object that `learn.deep.private_gradient` returns is handed in.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from cloister.attack.finding import Finding
from cloister.privacy.errors import BadInput, BadLoss, BadNumber
from cloister.privacy.loss import Loss
from cloister.privacy.noise import Source

__all__ = ["ClippedSums", "Defence", "Progress", "Victim", "compare_defences"]

Progress = Callable[[float, str], object]
"""Called with the share that is done and a sentence."""


class ClippedSums(Protocol):
    """Sums of clipped gradients on an integer grid, such as `learn.deep.PrivateGradient`."""

    @property
    def clip(self) -> float:
        """The norm that one record's gradient may have."""

    @property
    def clipping(self) -> str:
        """The kind of clipping."""

    def sums(self, params: Any, rows: Any) -> Any:
        """Return the sum of the rows' clipped gradients, as integers."""

    def mechanism(self, spend: Loss) -> Any:
        """Return the noise for one sum at this loss."""

    def tree(self, integers: Any, params: Any) -> Any:
        """Return integers as a tree like params."""


@dataclass(frozen=True, slots=True, eq=False)
class Defence:
    """A defence: what happens to a gradient or an update before the attacker sees it.

    Attributes:
        name: its name in findings.
        clients: clients whose updates are summed before anybody sees them.
        lot: records whose gradients a client sums; 0 for the victim's own alone.
        gradient: clips each record's gradient; None for none.
        clip: the norm to which a whole update is clipped; None for none.
        spend: the loss of one update, which fixes the noise; None for no noise.
    """

    name: str
    clients: int = 1
    lot: int = 0
    gradient: ClippedSums | None = None
    clip: float | None = None
    spend: Loss | None = None

    def __post_init__(self) -> None:
        if isinstance(self.clients, bool) or not isinstance(self.clients, int) or self.clients < 1:
            raise BadNumber(f"clients is a whole number of at least 1, got {self.clients!r:.40}.")
        if isinstance(self.lot, bool) or not isinstance(self.lot, int) or self.lot < 0:
            raise BadNumber(f"lot is a whole number of records, or 0 for the victim's own, got {self.lot!r:.40}.")
        if self.gradient is not None and self.clip is not None:
            raise BadInput("clip each record's gradient or the whole update, not both.")
        if self.clip is not None and not (isinstance(self.clip, int | float) and 0 < self.clip < 1e20):
            raise BadNumber(f"clip is the norm that an update may have, above 0, got {self.clip!r:.40}.")
        if self.spend is None:
            return
        if self.gradient is None and self.clip is None:
            raise BadInput("noise needs clipping: without a bound on each record, no noise hides it.")
        if not isinstance(self.spend, Loss) or not (self.spend.measure == "rho" or self.spend.delta):
            raise BadLoss("the noise is Gaussian: spend=cl.rho('0.5'), or an epsilon with a delta.")

    @classmethod
    def none(cls) -> "Defence":
        """Return no defence: the attacker sees the mean gradient, or the client's update, as it is."""
        return cls("undefended")

    @classmethod
    def clipping(cls, how: ClippedSums | float) -> "Defence":
        """Return clipping alone.

        Args:
            how: a `private_gradient(loss, clip=…)`, which clips each record; or the norm of a whole update.
        """
        gradient, clip = _read(how)
        return cls(f"clipped to norm {_norm(gradient, clip):g}", gradient=gradient, clip=clip)

    @classmethod
    def noise(cls, how: ClippedSums | float, spend: Loss) -> "Defence":
        """Return clipping and noise.

        Args:
            how: a `private_gradient(loss, clip=…)`, which clips each record; or the norm of a whole update.
            spend: the loss of this one update. Noise of one clipping norm is rho 0.5.
        """
        gradient, clip = _read(how)
        name = f"clipped to norm {_norm(gradient, clip):g}, noise for {spend}"
        return cls(name, gradient=gradient, clip=clip, spend=spend)

    @classmethod
    def secure_sum(cls, clients: int) -> "Defence":
        """Return secure aggregation: only the sum over this many clients is seen."""
        return cls(f"sum over {clients} clients", clients=clients)

    @classmethod
    def larger_lot(cls, records: int) -> "Defence":
        """Return a lot of this many records."""
        return cls(f"lot of {records} records", lot=records)


class Victim(Protocol):
    """A client whose update is attacked: `GradientStep` or `LocalTraining`."""

    @property
    def rows(self) -> tuple[Any, ...]:
        """The client's records: one array for each argument of the loss after params."""

    def observe(self, defence: Defence, *, source: Source | None = None) -> Any:
        """Return what the attacker sees."""


def compare_defences(
    victims: Victim | Sequence[Victim],
    attack: Callable[[list[Any], list[Any]], Finding],
    defences: Sequence[Defence] = (),
    *,
    source: Source | None = None,
    progress: Progress | None = None,
) -> list[Finding]:
    """Run an attack without a defence and against each defence.

    Args:
        victims: one or several clients; more give narrower intervals.
        attack: a function of updates and victims, such as `partial(image_leak, shape=(28, 28))`.
        defences: the defences.
        source: random bits of the defences' noise; the operating system's unless given.
        progress: called before each run with the share done and the defence's name.

    Returns:
        One finding without a defence, then one for each defence.

    >>> from cloister.attack.updates import GradientStep, dense_network, record_leak
    >>> import numpy as np
    >>> network = dense_network([3, 2])
    >>> victim = GradientStep(network.loss, network.params, (np.array([[0.2, 0.7, 0.1]]), np.array([1])))
    >>> [finding.success for finding in compare_defences(victim, record_leak)]
    [1.0]
    """
    listed: list[Any] = list(victims) if isinstance(victims, list | tuple) else [victims]
    if not listed:
        raise BadInput("name at least one victim: a GradientStep or a LocalTraining.")
    for victim in listed:
        if not callable(getattr(victim, "observe", None)):
            raise BadInput(f"a victim is a GradientStep or a LocalTraining, not {type(victim).__name__}.")
    runs = [Defence.none(), *defences]
    found = []
    for place, defence in enumerate(runs):
        if progress is not None:
            progress(place / len(runs), defence.name)
        found.append(attack([victim.observe(defence, source=source) for victim in listed], listed))
    if progress is not None:
        progress(1.0, "done")
    return found


def _read(how: ClippedSums | float) -> tuple[ClippedSums | None, float | None]:
    if isinstance(how, bool):
        raise BadNumber("clipping is a private_gradient(…), or the norm of a whole update.")
    if isinstance(how, int | float):
        return None, float(how)
    if not all(hasattr(how, part) for part in ("sums", "mechanism", "tree", "clip")):
        raise BadInput(f"clipping is a private_gradient(…), or the norm of a whole update, not {type(how).__name__}.")
    return how, None


def _norm(gradient: ClippedSums | None, clip: float | None) -> float:
    return float(gradient.clip if gradient is not None else clip or 0.0)
