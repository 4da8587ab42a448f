"""The law of a client that is looked at from outside: given bytes go in, reports come out, and words are counted.

A word may change a report only at limits that are known beforehand. Every run of words between two limits is driven at
its first word, at its last and at one inside; if the three disagree, or the client reads more or fewer bytes, the
limits are wrong and the test fails. What is counted is what the client did, whatever its description says.
"""

import random
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import pairwise, product
from typing import Any

from cloister import local

WORD = 1 << 64
Scripts = list[tuple[Any, bytes]]
Drive = Callable[[dict[str, Any], Scripts], list[bytes | None]]
# Runs of words (or of several in a row): how likely, and bytes from the beginning, the inside and the end of it.
Runs = list[tuple[Fraction, tuple[bytes, ...]]]


class Short(Exception):
    """The given bytes are used up."""


class Script:
    """A source that reads from given bytes."""

    private = False

    def __init__(self, text: bytes) -> None:
        self.text = text

    def bytes(self, count: int) -> bytes:
        """The next of them."""
        if count > len(self.text):
            raise Short
        taken, self.text = self.text[:count], self.text[count:]
        return taken


def in_python(described: dict[str, Any], scripts: Scripts) -> list[tuple[bytes | None, int]]:
    """What Python's client does with these bytes: the report, if they suffice, and how many it did not read."""
    mechanism, answers = read(described), []
    for value, text in scripts:
        source = Script(text)
        try:
            reports = mechanism.perturb([value] if isinstance(value, list) else value, source)
            answers.append((mechanism.encode(reports)[0].tobytes(), len(source.text)))
        except Short:
            answers.append((None, 0))
    return answers


def read(described: dict[str, Any]) -> Any:
    """The mechanism; one with Laplace noise takes the scale it is told, as JavaScript does, so that it may be short."""
    if described["mechanism"] != "laplace-number":
        return local.from_description(described)
    kind = type("Coarse", (local.LaplaceNumber,), {"scale": Fraction(described["scale"])})
    made = kind(described["low"], described["high"], described["steps"], local.epsilon(described["loss"]))
    assert made.describe() == described
    return made


def to_the_end(spare: Callable[[dict[str, Any], Scripts], list[tuple[bytes | None, int]]]) -> Drive:
    """A client that must read all bytes: those it leaves did not decide the report."""

    def drive(described: dict[str, Any], scripts: Scripts) -> list[bytes | None]:
        reports = []
        for (report, left), (value, text) in zip(spare(described, scripts), scripts, strict=True):
            assert left == 0, (described["mechanism"], value, text.hex(), left)
            reports.append(report)
        return reports

    return drive


class Measured:
    """A law that was driven out of a client, for `verify`. Answers are numbers, sets as their bits."""

    def __init__(self, loss: Any, laws: dict[int, Sequence[Fraction]]) -> None:
        self.loss, self.laws = loss, laws
        self.inputs, self.answers = list(laws), len(laws)
        self.domain, self.outputs = len(laws), len(next(iter(laws.values())))

    def law(self, value: int) -> Sequence[Fraction]:
        """The probability of every report on this value."""
        return self.laws[value]


def spelled(number: int) -> bytes:
    """A word of 8 bytes."""
    return number.to_bytes(8, "little")


def between(*ends: int) -> Runs:
    """Runs of words between these limits."""
    dice = random.Random(str(ends))
    limits = [0, *sorted(end for end in set(ends) if 0 < end < WORD), WORD]
    return [
        (Fraction(stop - start, WORD), tuple(map(spelled, (start, dice.randrange(start, stop), stop - 1))))
        for start, stop in pairwise(limits)
    ]


def alike(limit: int) -> Runs:
    """Words by their remainder; those of the last, incomplete run are drawn again and not listed here."""
    dice, turns = random.Random(limit), WORD // limit
    return [
        (Fraction(1, limit), tuple(spelled(rest + limit * turn) for turn in (0, dice.randrange(turns), turns - 1)))
        for rest in range(limit)
    ]


def then(first: Runs, second: Runs) -> Runs:
    """One after the other."""
    return [
        (chance * other, tuple(map(bytes.__add__, before, after)))
        for (chance, before), (other, after) in product(first, second)
    ]


def buckets(keep: int, run: int, count: int) -> Runs:
    """Direct encoding: one's own, then runs for the others."""
    return between(*(keep + run * place for place in range(count)))


def words(mechanism: Any, value: Any) -> Runs:
    """All runs of the words that a report takes, for mechanisms whose randomness is words alone."""
    p, q = (int(chance * WORD) for chance in (getattr(mechanism, "p", 0), getattr(mechanism, "q", 0)))
    match mechanism:
        case local.RandomisedResponse():
            return between(q, p)
        case local.DirectEncoding():
            return buckets(*mechanism.thresholds, mechanism.domain)
        case local.LocalHashing():
            return then(alike(mechanism.seeds), buckets(*mechanism.thresholds, mechanism.buckets))
        case local.HadamardResponse():
            inside, outside = mechanism.thresholds
            half = mechanism.order // 2
            far = range(mechanism.outputs - half)
            return between(*(inside * one for one in range(1, half)), *(half * inside + outside * one for one in far))
        case local.Piecewise() | local.SquareWave():
            whole = mechanism.window * p
            far = range(mechanism.reach)
            return between(*(p * one for one in range(1, mechanism.window)), *(whole + q * one for one in far))
        case local.Duchi():
            return between(q + value * mechanism.rise)
        case local.Hybrid():
            near, far = between(int(mechanism.share * WORD))
            return then([near], words(mechanism.piecewise, value)) + then([far], words(mechanism.duchi, value))
        case local.OneOfSet():
            own, run = mechanism.thresholds
            chosen, others = range(1, mechanism.most), range(mechanism.domain + 1)
            return between(*(own * one for one in chosen), *(mechanism.most * own + run * one for one in others))
        case local.PaddedSample():
            return then(alike(mechanism.most), words(mechanism.inner, value))
        case local.Memoised(encoding="direct"):
            flip = int(mechanism.flip * WORD)
            again = buckets(WORD - (mechanism.domain - 1) * flip, flip, mechanism.domain)
            return then(words(mechanism.permanent, value), again)
        case local.HeavyHitters():
            shares = [int(mechanism.share(level) * WORD) for level in range(mechanism.levels)]
            levels = between(*(sum(shares[:level]) for level in range(1, mechanism.levels)))
            last = buckets(*mechanism.thresholds, mechanism.buckets)
            seeds = [alike(mechanism.seeds(level)) for level in range(mechanism.levels)]
            return [run for level, one in enumerate(levels) for run in then(then([one], seeds[level]), last)]
    raise AssertionError(mechanism)


def listed(mechanism: Any, told: Callable[[int], Any], drive: Drive) -> Measured:
    """Drive every run for every answer, and add up how likely each report is."""
    answers = getattr(mechanism, "inputs", None) or range(mechanism.domain)
    keys, scripts = [], []
    for answer in answers:
        for chance, probes in words(mechanism, answer):
            keys.append((answer, chance))
            scripts += [(told(answer), probe) for probe in probes]
    reports = drive(mechanism.describe(), scripts)
    laws = {answer: [Fraction(0)] * mechanism.outputs for answer in answers}
    for place, (answer, chance) in enumerate(keys):
        (report,) = set(reports[3 * place : 3 * place + 3])
        assert report is not None
        laws[answer][int.from_bytes(report, "little")] += chance
    return Measured(mechanism.loss, laws)
