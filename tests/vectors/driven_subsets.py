"""The law of subset selection, looked at from outside: coins that are mended to a set of fixed size.

After the coins, a report takes words of 16 bits, of which the lowest count, until the set has its size. A word that
changes nothing leaves the client as it was: whatever comes next has the same effect as without it, which is how such
words are found. The others are equally likely, and lead one step further.
"""

import random
from fractions import Fraction
from itertools import product
from typing import Any

WORD = 1 << 64
# So many words are looked ahead: a client that lacks one more than these shows that it is one further.
AHEAD = 2


class Subsets:
    """What the client answers, asked once for each beginning."""

    def __init__(self, mechanism: Any, value: int, spare: Any) -> None:
        self.mechanism, self.value, self.spare = mechanism, value, spare
        self.signs = 1 << (mechanism.domain - 1).bit_length()
        self.told: dict[bytes, tuple[bytes | None, int]] = {}

    def ask(self, texts: list[bytes]) -> None:
        """Ask what is not known yet, at once."""
        new = list(dict.fromkeys(text for text in texts if text not in self.told))
        answers = self.spare(self.mechanism.describe(), [(self.value, text) for text in new])
        self.told.update(zip(new, answers, strict=True))

    def tails(self, most: int) -> list[bytes]:
        """All words in a row, up to so many."""
        words = [place.to_bytes(2, "little") for place in range(self.signs)]
        return [b"".join(row) for count in range(most + 1) for row in product(words, repeat=count)]

    def law(self, starts: list[bytes]) -> list[dict[int, Fraction]]:
        """The law of the set after each of these beginnings."""
        self.ask(starts)
        unfinished = [start for start in starts if self.told[start][0] is None]
        self.ask([start + tail for start in unfinished for tail in self.tails(AHEAD + 1)])
        found: list[dict[int, Fraction]] = []
        for start in starts:
            report, left = self.told[start]
            assert left == 0
            if report is not None:
                found.append({int.from_bytes(report, "little"): Fraction(1)})
                continue
            words, ahead = self.tails(1)[1:], self.tails(AHEAD)
            useful = [word for word in words if any(self.told[start + word + t] != self.told[start + t] for t in ahead)]
            mixed: dict[int, Fraction] = {}
            for law in self.law([start + word for word in useful]):
                for chosen, chance in law.items():
                    mixed[chosen] = mixed.get(chosen, Fraction(0)) + chance / len(useful)
            found.append(mixed)
        return found


def fallen(start: Fraction, domain: int) -> dict[int, list[bytes]]:
    """All bytes of the coins, by the set that they come to: ANDs and ORs along the binary digits of the probability."""
    rounds = start.denominator.bit_length() - 1 if start else 0
    sets: dict[int, list[bytes]] = {}
    for rows in product(range(1 << domain), repeat=rounds):
        bits = 0
        for turn, row in enumerate(rows):
            bits = bits | row if start.numerator >> turn & 1 else bits & row
        sets.setdefault(bits, []).append(bytes(rows))
    return sets


def law(mechanism: Any, value: int, runs: Any, spare: Any) -> list[Fraction]:
    """The probability of every report on this value."""
    client, dice = Subsets(mechanism, value, spare), random.Random(value)
    sets = fallen(mechanism.start, mechanism.domain)
    total, every = [Fraction(0)] * mechanism.outputs, sum(map(len, sets.values()))
    for chance, probes in runs:
        for found, texts in zip(
            client.law([probes[0] + texts[0] for texts in sets.values()]), sets.values(), strict=True
        ):
            for chosen, part in found.items():
                total[chosen] += chance * part * Fraction(len(texts), every)
            # Other settings of the coins that make the same set do the same, whatever follows.
            texts = dice.sample(texts, min(24, len(texts)))
            tails = [b"".join(dice.choices(client.tails(1)[1:], k=2)) for _ in texts]
            mine = [dice.choice(probes) + text + tail for text, tail in zip(texts, tails, strict=True)]
            client.ask([*mine, *(probes[0] + texts[0] + tail for tail in tails)])
            for text, tail in zip(mine, tails, strict=True):
                assert client.told[text] == client.told[probes[0] + texts[0] + tail]
    _only_low_bits(client, list(client.told), dice)
    return total


def _only_low_bits(client: Subsets, texts: list[bytes], dice: random.Random) -> None:
    """The higher bits of a word say nothing."""
    rounds = client.mechanism.start.denominator.bit_length() - 1 if client.mechanism.start else 0
    begin = 8 + rounds
    some = dice.sample(texts, min(200, len(texts)))
    high = 0xFFFF ^ (client.signs - 1)
    noisy = [
        text[:begin]
        + b"".join(
            (int.from_bytes(text[at : at + 2], "little") | dice.randrange(1 << 16) & high).to_bytes(2, "little")
            for at in range(begin, len(text), 2)
        )
        for text in some
    ]
    answers = client.spare(client.mechanism.describe(), [(client.value, text) for text in noisy])
    assert answers == [client.told[text] for text in some]
