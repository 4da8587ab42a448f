"""Any release path on a table, and again on a neighbour with the same releases put in.

    first = record(lambda: model.fit(X, y))
    second = replay(first, lambda: model.fit(X_more, y_more))
    assert not differences(first, second)

Everything that reads rows ends in a mechanism: what it is handed is the statistic, what it returns is the release. A
recording keeps both. A replay hands out the releases of the recording, whatever the rows are, so that an adaptive
method takes the same path on both tables. Then all that a unit may move is each statistic, by at most its mechanism's
sensitivity, in that mechanism's own norm. All else must be equal: the mechanisms and their order, shapes, what follows
from the releases, the charge and its wording, errors, warnings, log records and printed text.

The product runs as it is: its ledger, its meter, its checks. Only three things are put in its place: where a mechanism
draws noise, chance that is not noise (which is the same on both sides), and nothing else.
"""

import contextlib
import dataclasses
import io
import logging
import math
import random
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from cloister.learn.trees.splits import Apart
from cloister.privacy import measure
from cloister.privacy.accountant.planned import NoiseSteps, PlannedRelease
from cloister.privacy.errors import CloisterError
from cloister.privacy.filter import PrivacyFilter
from cloister.privacy.ledger import Ledger
from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Exponential, NoisyMax, PermuteAndFlip
from cloister.privacy.noise import SeededSource, SystemSource, discrete_gaussian, uniform
from cloister.query.discovery import Thresholded
from cloister.query.plan import EachGroup

__all__ = ["NORMS", "Run", "Step", "differences", "face", "reach", "record", "replay", "used"]


@dataclass
class Step:
    """One look: the mechanism, the statistic it was handed, and what it released."""

    mechanism: Any
    seen: Any
    told: Any


@dataclass
class Run:
    """All that a release path did, and all that its caller can see of it.

    Attributes:
        seed: of the noise and of public chance.
        steps: every look, in order.
        charges: what was reserved, with the wording of the request.
        result: what the call returned, as plain values.
        error: the type and text of what it raised.
        heard: warnings, log records and printed text.
        detail: what the owner may read of an error; not compared.
    """

    seed: str
    steps: list[Step] = field(default_factory=list)
    charges: list[Any] = field(default_factory=list)
    result: Any = None
    error: tuple[str, str] | None = None
    heard: list[Any] = field(default_factory=list)
    detail: str = ""

    @property
    def text(self) -> str:
        """Every word that a caller can read, but for what was released."""
        return repr((self.error, self.heard, self.charges))


@dataclass(frozen=True)
class PlannedNoise:
    """The noise of one step of a planned release."""

    sigma: Fraction
    sensitivity: int
    rate: Fraction

    name = "planned noise"

    def release(self, seen: Any, source: Any) -> Any:
        return seen + discrete_gaussian(self.sigma, seen.shape, source)


# The share of a mechanism's sensitivity that two statistics are apart: above 1 is a breach.


_FAR = Fraction(10**12)  # a breach of another kind: what moved was not to move at all
_FINE = 10**20


def _gaps(left: Any, right: Any) -> list[Fraction]:
    """The distances of what differs, exactly."""
    one, other = np.asarray(left), np.asarray(right)
    if one.shape != other.shape:
        return [_FAR]
    differ = one != other
    pairs = zip(one[differ].tolist(), other[differ].tolist(), strict=True)
    return [abs(Fraction(a) - Fraction(b)) for a, b in pairs]


def _l1(mechanism: Any, left: Any, right: Any) -> Fraction:
    return sum(_gaps(left, right), Fraction(0)) / mechanism.sensitivity


def _l2(mechanism: Any, left: Any, right: Any) -> Fraction:
    """Rounded up to a fine grid, so that it is above a whole number if and only if the exact root is."""
    square = Fraction(sum(gap**2 for gap in _gaps(left, right))) / mechanism.sensitivity**2
    root = Fraction(math.isqrt(math.floor(square * _FINE**2)), _FINE)
    return root if root**2 == square else root + Fraction(1, _FINE)


def _choice(mechanism: Any, left: Any, right: Any) -> Fraction:
    one, other = (np.asarray(side).ravel() for side in (left, right))
    if mechanism.monotone and one.shape == other.shape and (one < other).any() and (one > other).any():
        return _FAR  # the rate is that of scores which all move the same way
    return max(_gaps(one, other), default=Fraction(0)) / mechanism.sensitivity


def _in_each_group(mechanism: Any, left: Any, right: Any) -> Fraction:
    """The loss of a choice shrinks in proportion to how far its scores move: over groups the moves add up."""
    return sum((_choice(mechanism.inner, *pair) for pair in zip(left, right, strict=True)), Fraction(0))


def _in_one_place(mechanism: Any, left: Any, right: Any) -> Fraction:
    """Parallel composition: a row may move the scores of one place only."""
    shares = [_choice(mechanism.one, *pair) for pair in zip(left, right, strict=True)]
    return max(sum(shares, Fraction(0)), Fraction(sum(share > 0 for share in shares)))


def _found(mechanism: Any, left: Any, right: Any) -> Fraction:
    """Counts of values that are not public: those that only one side has belong to one unit alone."""
    one, other = ({_plain(value): count for value, count in side} for side in (left, right))
    if len(one) != len(left) or len(other) != len(right):
        return _FAR  # a value is listed twice: each of its parts would be compared with the threshold
    alone = [one[value] if value in one else other[value] for value in one.keys() ^ other.keys()]
    if len(alone) > mechanism.most or any(count > mechanism.weight for count in alone):
        return _FAR
    every = sorted(one.keys() | other.keys(), key=repr)
    return _l2(mechanism.noise, [one.get(value, 0) for value in every], [other.get(value, 0) for value in every])


NORMS: dict[type, Callable[[Any, Any, Any], Fraction]] = {
    DiscreteLaplace: _l1,
    DiscreteGaussian: _l2,
    PlannedNoise: _l2,
    Exponential: _choice,
    PermuteAndFlip: _choice,
    NoisyMax: _choice,
    EachGroup: _in_each_group,
    Apart: _in_one_place,
    Thresholded: _found,
}


def used(one: Step, other: Step) -> Fraction:
    """How far two statistics are apart, as a share of the sensitivity that the noise is made for."""
    if type(one.mechanism) not in NORMS:
        raise LookupError(f"{type(one.mechanism).__name__} is new: say in replay.NORMS in which norm it is sensitive.")
    return NORMS[type(one.mechanism)](one.mechanism, one.seen, other.seen)


def differences(first: Run, second: Run, rows: int = 1) -> list[str]:
    """Every way to tell two neighbouring tables apart, but for the noise. None, if the promise holds.

    Args:
        first, second: a recording and its replay.
        rows: how many rows the unit has, where mechanisms protect one row and are paid for that many of them.
    """
    found = []
    for what in ("error", "charges", "heard"):
        left, right = getattr(first, what), getattr(second, what)
        if left != right:
            found.append(f"{what}: {_short(left)} and {_short(right)} ({first.detail or second.detail})")
    if len(first.steps) != len(second.steps):
        found.append(f"{len(first.steps)} and {len(second.steps)} looks")
    for i, (one, other) in enumerate(zip(first.steps, second.steps, strict=False)):
        name = f"look {i}, {getattr(one.mechanism, 'name', '')}"
        if one.mechanism != other.mechanism:
            found.append(f"{name}: another mechanism, {_short(one.mechanism)} and {_short(other.mechanism)}")
        elif (share := used(one, other)) > rows:
            found.append(f"{name}: moved by {float(share):.9g} of its sensitivity")
    if first.result != second.result:
        found.append(f"what follows from the same releases: {_apart(first.result, second.result)}")
    return found


def reach(first: Run, second: Run) -> float:
    """The largest share of a sensitivity that the neighbours use."""
    return float(max((used(*pair) for pair in zip(first.steps, second.steps, strict=False)), default=0))


def record(call: Callable[[], Any], seed: object = "replay", *, hostile: bool = False) -> Run:
    """Run a release path and keep every look.

    Args:
        call: releases something.
        seed: of the noise.
        hostile: whether some releases are replaced by others that the mechanism could have made, however unlikely: a
            sensitivity must hold after any of them.
    """
    return _carried_out(Run(str(seed)), call, _Recording(str(seed), hostile))


def replay(first: Run, call: Callable[[], Any]) -> Run:
    """The same on other rows, if they had released the same."""
    return _carried_out(Run(first.seed), call, _Replaying(first))


class _Recording:
    def __init__(self, seed: str, hostile: bool) -> None:
        self.noise, self.random = SeededSource(f"noise {seed}"), random.Random(seed)
        self.hostile = hostile

    def told(self, _place: int, mechanism: Any, seen: Any) -> Any:
        told = mechanism.release(seen, self.noise)
        return self._other(mechanism, seen, told) if self.hostile and self.random.random() < 0.4 else told

    def _other(self, mechanism: Any, seen: Any, told: Any) -> Any:
        """Another release that is possible."""
        if isinstance(mechanism, DiscreteGaussian | DiscreteLaplace):
            far = int(mechanism.standard_error * self.random.choice([0, 1, 30, 10**4])) * self.random.choice([-1, 1])
            if isinstance(told, np.ndarray):
                signs = np.array([self.random.choice([-1, 0, 1]) for _ in range(told.size)]).reshape(told.shape)
                return told + signs * max(-(2**40), min(far, 2**40))  # within 64 bits
            return told + far
        if isinstance(mechanism, Apart | EachGroup):
            picked = [self.random.randrange(len(scores)) for scores in seen]
            return np.array(picked, dtype=np.int64) if isinstance(told, np.ndarray) else picked
        if isinstance(mechanism, Thresholded):
            return told[: self.random.randrange(len(told) + 1)]
        return self.random.randrange(len(seen))


class _Replaying:
    def __init__(self, first: Run) -> None:
        self.first, self.noise = first, SeededSource(f"beyond {first.seed}")

    def told(self, place: int, mechanism: Any, seen: Any) -> Any:
        if place < len(self.first.steps):
            return self.first.steps[place].told
        return mechanism.release(seen, self.noise)  # `differences` will say that there are more looks


class _Watched:
    """A mechanism whose releases go through a recording or a replay."""

    def __init__(self, mechanism: Any, run: Run, by: "_Recording | _Replaying") -> None:
        self._mechanism, self._run, self._by = mechanism, run, by

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mechanism, name)

    def release(self, statistic: Any, source: Any = None) -> Any:
        if isinstance(self._mechanism, PlannedRelease):  # its steps are the looks
            return self._mechanism.release(statistic, source)
        told = self._by.told(len(self._run.steps), self._mechanism, statistic)
        self._run.steps.append(Step(self._mechanism, _kept(statistic), _kept(told)))
        return told


def _kept(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


class _SameChance:
    """Public chance that is the same on both sides: the k-th request begins with the same bytes, however long it is."""

    def __init__(self, seed: str) -> None:
        self.seed, self.calls = seed, 0

    def bytes(self, _system: Any, count: int) -> bytes:
        self.calls += 1
        return SeededSource(f"public {self.seed} {self.calls}").bytes(count)

    def throws(self, below: int, size: Any = None, source: Any = None) -> Any:
        """One throw for each row, by its place: a row at the end shifts nobody's."""
        self.calls += 1
        shape = size if isinstance(size, tuple) else (size or 1,)
        stream = SeededSource(f"throws {self.seed} {self.calls}")
        found = [int.from_bytes(stream.bytes(8), "little") % below for _ in range(math.prod(shape))]
        return found[0] if size is None else np.array(found, dtype=np.int64).reshape(shape)


@contextlib.contextmanager
def _in_place(run: Run, by: "_Recording | _Replaying") -> Iterator[None]:
    meter, perform, reserve = PrivacyFilter.release, measure._perform, Ledger.reserve
    chance = _SameChance(run.seed)

    def one_step(self: PrivacyFilter, look: Any, mechanism: Any) -> Any:
        return meter(self, look, _Watched(mechanism, run, by))  # type: ignore[arg-type]

    def one_look(charge: Any, look: Any, mechanisms: Any, source: Any) -> Any:
        return perform(charge, look, [_Watched(one, run, by) for one in mechanisms], source)  # type: ignore[misc]

    def charged(self: Ledger, items: Any, request: str) -> Any:
        run.charges.append(([str(account.price(item)) for account, item in items], request))
        return reserve(self, items, request)

    def one_sum(self: NoiseSteps, integers: Any) -> Any:
        step = self._next()
        assert step is not None
        self.done += 1
        return _Watched(PlannedNoise(step.sigma, int(step.sensitivity), step.rate), run, by).release(integers)

    throwing = [module for name, module in sys.modules.items() if name.startswith("cloister.learn.")]
    with contextlib.ExitStack() as stack:
        for module in throwing:
            if getattr(module, "uniform", None) is uniform:
                stack.enter_context(patch.object(module, "uniform", chance.throws))
        stack.enter_context(patch.object(PrivacyFilter, "release", one_step))
        stack.enter_context(patch.object(measure, "_perform", one_look))
        stack.enter_context(patch.object(NoiseSteps, "release", one_sum))
        stack.enter_context(patch.object(Ledger, "reserve", charged))
        stack.enter_context(patch.object(SystemSource, "bytes", lambda system, count: chance.bytes(system, count)))
        yield


class _Listening(logging.Handler):
    def __init__(self, run: Run) -> None:
        super().__init__(logging.DEBUG)
        self.run = run

    def emit(self, entry: logging.LogRecord) -> None:
        # Spark's wire says what passes over it, and JAX how long it compiled.
        if not entry.name.startswith(("py4j", "asyncio", "jax")):
            self.run.heard.append((entry.name, entry.levelname, entry.getMessage()))


def _carried_out(run: Run, call: Callable[[], Any], by: "_Recording | _Replaying") -> Run:
    root, listening, printed = logging.getLogger(), _Listening(run), io.StringIO()
    level = root.level
    root.addHandler(listening)
    root.setLevel(logging.DEBUG)
    try:
        with (
            warnings.catch_warnings(record=True) as caught,
            contextlib.redirect_stdout(printed),
            contextlib.redirect_stderr(printed),
            _in_place(run, by),
        ):
            warnings.simplefilter("always")
            try:
                run.result = face(call())
            except CloisterError as error:
                run.error, run.detail = _told(error), getattr(error, "owner_detail", "")
            except (ValueError, TypeError, ArithmeticError, AttributeError, LookupError, RuntimeError) as error:
                run.error = _told(error)
    finally:
        root.removeHandler(listening)
        root.setLevel(level)
    run.heard += [(one.category.__name__, str(one.message)) for one in caught] + [printed.getvalue()]
    return run


def _told(error: BaseException) -> tuple[str, str]:
    """The error as a traceback would show it, with those behind it unless they are suppressed."""
    behind = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    more = "" if behind is None else f" from {_told(behind)}"
    return type(error).__name__, f"{error}{more}"


# What a call returned, as plain values that can be compared

_UNTOLD = {"ledger", "account", "receipt", "search"}  # they name the entry of a ledger, which is another one each time


def face(value: Any, depth: int = 12) -> Any:
    """A result as nested plain values: equal if and only if a caller sees the same, to the last bit."""
    if depth < 0:
        return "deeper"
    if isinstance(value, str):
        return re.sub(r"entry \d+ of the ledger", "entry of the ledger", value)
    if value is None or isinstance(value, bool | int | bytes | Fraction | type | types.ModuleType):
        return value
    if isinstance(value, float | np.generic):
        return type(value).__name__, repr(value)
    if isinstance(value, np.ndarray):
        told = [face(one, depth - 1) for one in value.ravel().tolist()] if value.dtype == object else value.tobytes()
        return value.dtype.str, value.shape, told
    if isinstance(value, pa.Table | pa.RecordBatch):
        return str(value.schema), repr(value.to_pylist())
    if isinstance(value, dict):
        return [(face(key, depth - 1), face(one, depth - 1)) for key, one in value.items()]
    if isinstance(value, list | tuple | range):
        return [face(one, depth - 1) for one in value]
    if isinstance(value, set | frozenset):
        return sorted((face(one, depth - 1) for one in value), key=repr)
    if callable(value) and hasattr(value, "__qualname__"):
        return value.__qualname__
    if dataclasses.is_dataclass(value):
        held = {one.name: getattr(value, one.name, None) for one in dataclasses.fields(value)}
    else:
        held = getattr(value, "__dict__", None) or {}
    shown = {name: face(one, depth - 1) for name, one in held.items() if name.lstrip("_") not in _UNTOLD}
    return type(value).__name__, shown or (" at 0x" in repr(value) or repr(value))


def _plain(value: Any) -> Any:
    return (type(value).__name__, repr(value)) if isinstance(value, float) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 300 else f"{text[:200]} … {text[-80:]}"


def _apart(left: Any, right: Any, where: str = "") -> str:
    """The first place where two faces differ."""
    if isinstance(left, dict) and isinstance(right, dict) and left.keys() == right.keys():
        return next(_apart(left[name], right[name], f"{where}.{name}") for name in left if left[name] != right[name])
    if isinstance(left, list | tuple) and isinstance(right, list | tuple) and len(left) == len(right):
        pairs = enumerate(zip(left, right, strict=True))
        return next(_apart(one, other, f"{where}[{i}]") for i, (one, other) in pairs if one != other)
    return f"at {where or 'the top'}: {_short(left)} and {_short(right)}"
