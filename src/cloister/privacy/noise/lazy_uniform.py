"""A uniform number drawn bit by bit, compared exactly with e^(-x).

Every exact sampler here needs one test: is U < e^(-p/q) for a uniform real U and a rational p/q? We draw the first bits
of U, bound e^(-p/q) from both sides with integers, and draw further bits only while the two overlap. The answer has
exactly the right probability, at any precision that decides it.
"""

from functools import lru_cache

from cloister.privacy.noise.source import Source, integer

__all__ = ["Toss", "exp_bounds"]


@lru_cache(maxsize=4096)
def exp_bounds(p: int, q: int, bits: int) -> tuple[int, int]:
    """Return integers low <= 2^bits e^(-p/q) <= high with high - low <= 4, for p >= 0 and q > 0.

    >>> low, high = exp_bounds(1, 1, 16)
    >>> low <= 24109 <= high  # 2^16 / e = 24109.3
    True
    """
    if p >= bits * q:
        return 0, 1  # e^(-bits) < 2^(-bits)
    # e^(-x) = (e^(-x / 2^k))^(2^k) with x / 2^k < 1/16, so the series is short.
    k = max(0, (16 * p // q).bit_length())
    # Every truncation below is worth less than one unit of 2^-work. The series makes at most 2 errors per term, fewer
    # than 64 + bits terms; each squaring at most doubles what was there and adds one: < 2^(k+1) (2 bits + 130) units.
    guard = k + 2 + (2 * bits + 130).bit_length()
    work = bits + guard
    x = (p << work) // (q << k)
    total = term = 1 << work
    i = 1
    while term:
        term = (term * x >> work) // i
        total += -term if i & 1 else term
        i += 1
    for _ in range(k):
        total = total * total >> work
    near = total >> guard
    return max(0, near - 1), near + 2


class Toss:
    """A uniform number in [0, 1), of which only the bits needed so far are drawn."""

    __slots__ = ("_bits", "_source", "_value")

    def __init__(self, source: Source, value: int | None = None, bits: int = 64) -> None:
        self._value = integer(bits, source) if value is None else value
        self._bits = bits
        self._source = source

    def below_exp(self, p: int, q: int) -> bool:
        """Return True if this number is below e^(-p/q)."""
        if p == 0:
            return True
        while True:
            low, high = exp_bounds(p, q, self._bits)
            if self._value < low:
                return True
            if self._value >= high:
                return False
            self._value = (self._value << 64) | integer(64, self._source)
            self._bits += 64
