"""The law of reports whose bits are tossed by the byte, looked at from outside.

A coin of probability a/2^k takes k rounds of random bytes, a bit of each. First, what every one of the 2^k settings of
these bits comes to: a report that is wide enough shows them all at once. Then, on a small domain, whether each bit of a
report is such a coin, or fixed by the word before.
"""

import random
from collections.abc import Sequence
from fractions import Fraction
from math import prod
from typing import Any, NamedTuple

import numpy as np

WORD = 1 << 64
TRIES = 24


class Bits(NamedTuple):
    """Reports of bits.

    Attributes:
        small: the mechanism whose law is wanted.
        wide: one with the same coins, and a place for each of their settings.
        first: runs of the words that are read ahead of the coins.
        coins: the coins of each place, of which the report's bit is the sum modulo 2.
        places: how many bits the small one sends, and the wide one.
        skip: bytes of a report ahead of its bits.
    """

    small: Any
    wide: Any
    first: list[tuple[Fraction, tuple[bytes, ...]]]
    coins: list[Fraction]
    places: tuple[int, int]
    skip: int = 0


def rounds_of(chance: Fraction) -> int:
    """How many random bits a coin of this probability takes."""
    return chance.denominator.bit_length() - 1


def columns(settings: Sequence[int], rounds: int) -> bytes:
    """Rounds of random bytes in which place i has the bits of settings[i], the first round in the lowest bit."""
    each = np.asarray(settings)
    return b"".join(np.packbits(each >> turn & 1, bitorder="little").tobytes() for turn in range(rounds))


def tables(kind: Bits, told: Any, drive: Any) -> list[list[int]]:
    """What every setting of each coin comes to, in the client."""
    return [_table(kind, told, which, drive) for which in range(len(kind.coins))]


def _table(kind: Bits, told: Any, which: int, drive: Any) -> list[int]:
    rounds, places = [rounds_of(chance) for chance in kind.coins], kind.places[1]
    size, made = 1 << rounds[which], {}
    # Settings change places: the answer's own place shows none, and no place may matter.
    for turn in (0, 1, size // 2 + 1):
        settings = [(place + turn) % size for place in range(places)]
        still = [0] * places
        text = b"".join(columns(settings if at == which else still, count) for at, count in enumerate(rounds))
        (report,) = drive(kind.wide.describe(), [(told, kind.first[-1][1][0] + text)])
        shown = int.from_bytes(report[kind.skip :], "little")
        fixed = _own(kind, told)
        for place, bit in enumerate(f"{shown:0{places}b}"[::-1]):
            if place not in fixed:
                assert made.setdefault(settings[place], int(bit)) == int(bit)
    table = [made[setting] for setting in range(size)]
    assert table[0] == 0  # so that a coin that is left alone changes nothing
    return table


def _own(kind: Bits, told: Any) -> set[int]:
    """Places that the answer takes: of a sketch, wherever it was folded to."""
    if kind.skip:
        return {int(bucket) for row in range(kind.wide.rows) for bucket in [kind.wide.hashed(row, told)]}
    return set(told) if isinstance(told, list) else {told}


def law(kind: Bits, told: Any, coins: list[list[int]], drive: Any) -> dict[bytes, list[Fraction]]:
    """The law of the bits on one answer, for each beginning of the report (of `skip` bytes).

    For every run of words, each place is told apart by its bits over some tries: it is the coins, or fixed at 0 or 1
    ahead of the second coin (if there is one).
    """
    dice, count = random.Random(str(told)), kind.places[0]
    chances = [Fraction(sum(coin), len(coin)) for coin in coins]
    falls = [[[at for at, bit in enumerate(coin) if bit == side] for side in (0, 1)] for coin in coins]
    plans, scripts = [], []
    for chance, probes in kind.first:
        tries = [_tried(falls, dice, count) for _ in range(TRIES)]
        plans.append((chance, [sides for sides, _ in tries]))
        scripts += [(told, probes[at % len(probes)] + text) for at, (_, text) in enumerate(tries)]
    reports = drive(kind.small.describe(), scripts)
    laws: dict[bytes, list[Fraction]] = {}
    for place, (chance, tries) in enumerate(plans):
        mine = reports[place * TRIES : (place + 1) * TRIES]
        (head,) = {report[: kind.skip] for report in mine}
        shown = [int.from_bytes(report[kind.skip :], "little") for report in mine]
        assert all(one < 1 << count for one in shown)
        ones = [_chance([one >> bit & 1 for one in shown], [t[bit] for t in tries], chances) for bit in range(count)]
        settings = laws.setdefault(head, [Fraction(0)] * (1 << count))
        for bits in range(1 << count):
            settings[bits] += chance * prod(
                (one if bits >> bit & 1 else 1 - one for bit, one in enumerate(ones)), start=Fraction(1)
            )
    return laws


def _tried(falls: list[list[list[int]]], dice: random.Random, count: int) -> tuple[list[tuple[int, ...]], bytes]:
    """Sides of the coins for each place, both alike however rare, and bytes on which they fall so."""
    sides = [[dice.randrange(2) for _ in range(count)] for _ in falls]
    text = b""
    for (tails, heads), row in zip(falls, sides, strict=True):
        rounds = (len(tails) + len(heads)).bit_length() - 1
        text += columns([dice.choice(heads if side else tails) for side in row], rounds)
    return list(zip(*sides, strict=True)), text


def _chance(shown: list[int], sides: list[tuple[int, ...]], chances: list[Fraction]) -> Fraction:
    """The probability of a 1 at a place that showed these bits when its coins fell like this."""
    later = [sum(fell[1:]) % 2 for fell in sides]
    free = [(fell[0] + rest) % 2 for fell, rest in zip(sides, later, strict=True)]
    known = {
        "coins": (free, _odd(chances)),
        "0": (later, _odd(chances[1:])),
        "1": ([1 - bit for bit in later], 1 - _odd(chances[1:])),
    }
    (found,) = [chance for bits, chance in known.values() if bits == shown]
    return found


def _odd(chances: Sequence[Fraction]) -> Fraction:
    """The probability of an odd number of ones."""
    return (1 - prod((1 - 2 * chance for chance in chances), start=Fraction(1))) / 2
