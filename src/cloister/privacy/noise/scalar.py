"""One draw at a time, in Python integers of any size: the algorithms as published.

Canonne, Kamath & Steinke, "The Discrete Gaussian for Differential Privacy", 2020, algorithms 2 and 3. The arrays in
`on_grid.py` and `on_grid.py` draw from the same laws, a million at a time; single draws and magnitudes beyond int64
come from here.

Every exact sampler needs one test: is U < e^(-p/q) for a uniform real U and a rational p/q? `Toss` draws the first bits
of U, bounds e^(-p/q) from both sides with integers, and draws further bits only while the two overlap. The answer has
exactly the right probability, at any precision that decides it.
"""

from functools import lru_cache

from cloister.privacy.noise.source import Source, integer

__all__ = ["Toss", "bernoulli", "bernoulli_exp", "exp_bounds", "gaussian", "geometric", "laplace", "uniform"]


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


def uniform(below: int, source: Source) -> int:
    """Draw uniformly from 0 … below - 1, by rejection."""
    bits = (below - 1).bit_length()
    while (drawn := integer(bits, source)) >= below:
        pass
    return drawn


def bernoulli(p: int, q: int, source: Source) -> bool:
    """Return True with probability p/q."""
    return uniform(q, source) < p


def bernoulli_exp(p: int, q: int, source: Source) -> bool:
    """Return True with probability e^(-p/q)."""
    return p == 0 or Toss(source).below_exp(p, q)


def geometric(p: int, q: int, source: Source) -> int:
    """Draw k >= 0 with probability proportional to e^(-k q/p), that is of scale p/q."""
    # X = U + p V has P(X = x) ∝ e^(-x/p): U is its remainder, V its quotient, and they are independent.
    while True:
        remainder = uniform(p, source)
        if bernoulli_exp(remainder, p, source):
            break
    toss, quotient = Toss(source), 0
    while toss.below_exp(quotient + 1, 1):
        quotient += 1
    return (remainder + p * quotient) // q


def laplace(p: int, q: int, source: Source) -> int:
    """Draw k with probability proportional to e^(-|k| q/p), that is of scale p/q."""
    while True:
        size = geometric(p, q, source)
        negative = integer(1, source)
        if size or not negative:  # zero has one sign only
            return -size if negative else size


def gaussian(p: int, q: int, source: Source) -> int:
    """Draw k with probability proportional to e^(-k²/(2 sigma²)), sigma = p/q."""
    scale, a, b = p // q + 1, p * p, q * q
    while True:
        drawn = laplace(scale, 1, source)
        if bernoulli_exp((abs(drawn) * scale * b - a) ** 2, 2 * a * b * scale * scale, source):
            return drawn
