"""The law of Laplace noise, looked at from outside: every decision of a draw is driven on both sides of its limit.

A draw decides four things: a remainder (all 256 bytes are driven), whether it is kept (a toss against e^(-r/p)), a
quotient (a toss against e^(-k), k = 1, 2, …) and a sign (all 256 bytes). A toss is driven at 64 and at 128 binary
places, where it is decided and where it asks for more; so each probability is known to 2^-126, and the law follows.
"""

from collections.abc import Callable
from fractions import Fraction
from itertools import pairwise
from math import ceil
from typing import Any

from cloister.privacy.noise.draws import exp_bounds

ONE = 1 << 128


class Noise:
    """One draw inside a report.

    Args:
        described: the mechanism.
        value: the answer it is drawn for.
        scale: of the noise, p/q with p at most 256.
        shown: what a report says of noise of a given size, which may cut it.
        read: that part of a report.
        around: the bytes of the whole report, given those of this draw.
        reach: noise beyond this is cut.
        drive: the client.
    """

    def __init__(
        self,
        described: dict[str, Any],
        value: Any,
        scale: Fraction,
        shown: Callable[[int], int],
        read: Callable[[bytes], int],
        around: Callable[[bytes], bytes],
        reach: int,
        drive: Any,
    ) -> None:
        self.described, self.value, self.drive = described, value, drive
        self.shown, self.read, self.around = shown, read, around
        self.p, self.q = scale.numerator, scale.denominator
        self.bits = (self.p - 1).bit_length()
        assert self.bits <= 8
        self.most = ceil((reach + 1) / scale) + 1

    def said(self, texts: list[bytes]) -> list[int | None]:
        """What reports say that are made from these draws; None if more bytes are wanted."""
        reports = self.drive(self.described, [(self.value, self.around(text)) for text in texts])
        return [None if report is None else self.read(report) for report in reports]

    def remainder(self, number: int) -> bytes:
        """Its byte; none is read if there is but one."""
        return bytes([number << (8 - self.bits)]) if self.bits else b""

    def draw(self, remainder: int, quotient: int, sign: int = 0) -> bytes:
        """All bytes of a draw whose tosses are decided at once."""
        coin = bytes(8) if remainder else b""
        middle = (exp_bounds(quotient, 1, 64)[0] + exp_bounds(quotient + 1, 1, 64)[1]) // 2 if quotient else 2**64 - 1
        return self.remainder(remainder) + coin + middle.to_bytes(8, "little") + bytes([sign])

    def size(self, remainder: int, quotient: int) -> int:
        """How large that noise is."""
        return (remainder + self.p * quotient) // self.q

    def check(self, expected: dict[bytes, int | None]) -> None:
        """What these draws must say."""
        said = self.said(list(expected))
        for (text, wanted), found in zip(expected.items(), said, strict=True):
            assert found == wanted, (self.described["mechanism"], text.hex(), found, wanted)

    # The four decisions.

    def remainders(self) -> list[Fraction]:
        """How likely each remainder is proposed, out of all 256 bytes."""
        if not self.bits:
            return [Fraction(1)]
        counts, expected = [0] * self.p, {}
        for byte in range(256):
            number = byte >> (8 - self.bits)
            for quotient in range(1, self.q + 1):  # over q quotients a remainder shows itself
                if number < self.p:
                    text = bytes([byte]) + self.draw(number, quotient)[1:]
                    expected[text] = self.shown(self.size(number, quotient))
                else:
                    text = bytes([byte]) + self.draw(0, quotient)
                    expected[text] = self.shown(self.size(0, quotient))
            if number < self.p:
                counts[number] += 1
        self.check(expected)
        return [Fraction(count, sum(counts)) for count in counts]

    def toss(self, n: int, d: int, begin: bytes, yes: tuple[bytes, int], no: tuple[bytes, int]) -> Fraction:
        """How likely a toss is below e^(-n/d): what follows it, and what is said, if it is and if it is not."""
        expected: dict[bytes, int | None] = {}
        for bits in (64, 128):
            low, high = exp_bounds(n, d, bits)
            for number, (end, said) in ((low - 1, yes), (high, no)):
                if low > 64:  # else the next limit is too near to be told from this one
                    expected[begin + self.places(number, bits) + end] = said
            expected |= {begin + self.places(number, bits): None for number in (low, high - 1)}
        self.check(expected)
        return Fraction(low + high, 2 * ONE)

    @staticmethod
    def places(number: int, bits: int) -> bytes:
        """A toss of so many binary places: the first 64 of them first."""
        return b"".join((number >> at & (1 << 64) - 1).to_bytes(8, "little") for at in reversed(range(0, bits, 64)))

    def kept(self) -> list[Fraction]:
        """How likely each remainder is kept."""
        chances = [Fraction(1)]
        far = self.q  # a quotient that shows itself
        for number in range(1, self.p):
            yes = self.draw(number, far)[1 + 8 :], self.shown(self.size(number, far))
            no = self.draw(0, 2 * far), self.shown(self.size(0, 2 * far))
            chances.append(self.toss(number, self.p, self.remainder(number), yes, no))
        return chances

    def quotients(self) -> list[Fraction]:
        """How likely each quotient is; the last stands for all from there on."""
        below = [Fraction(1)]
        for number in range(1, self.most + 1):
            # At the limit from below it is this quotient, from above the one before: the next limit is far away.
            yes, no = (b"\0", self.shown(self.size(0, number))), (b"\0", self.shown(self.size(0, number - 1)))
            below.append(self.toss(number, 1, self.remainder(0), yes, no))
        below.append(Fraction(0))
        return [one - other for one, other in pairwise(below)]

    def signs(self) -> None:
        """Half of all bytes are negative, and a negative zero is drawn again."""
        for quotient in (self.q, 0):
            expected, size = {}, self.size(0, quotient)
            for sign in range(256):
                text = self.draw(0, quotient, sign)
                if size == 0 and sign >= 128:
                    expected[text + self.draw(0, self.q, 200)] = self.shown(-self.size(0, self.q))
                else:
                    expected[text] = self.shown(-size if sign >= 128 else size)
            self.check(expected)

    def law(self) -> dict[int, Fraction]:
        """How likely each size of noise is."""
        self.signs()
        proposed, kept, quotients = self.remainders(), self.kept(), self.quotients()
        weights = [one * other for one, other in zip(proposed, kept, strict=True)]
        sizes: dict[int, Fraction] = {}
        for number, weight in enumerate(weights):
            for quotient, chance in enumerate(quotients):
                size = self.size(number, quotient)
                sizes[size] = sizes.get(size, Fraction(0)) + weight / sum(weights) * chance
        whole = 1 - sizes[0] / 2
        law = {size: chance / 2 / whole for size, chance in sizes.items()}
        return law | {-size: chance for size, chance in law.items() if size}
