"""The exponent z²/(2 sigma²) of the Gaussian curve, bounded from both sides in int64."""

from functools import lru_cache

import numpy as np

from cloister.privacy.noise.draws import Integers, Whole

__all__ = ["SLACK", "exponent", "exponent_facts"]

# Slack of the bound on the exponent, in units of 2^-31; see `exponent`.
SLACK = 4200


@lru_cache(maxsize=1024)
def exponent_facts(p: int, q: int) -> tuple[int, int, int, int]:
    """Return the constants that the rejection step needs of sigma = p/q.

    These are t; a shift k with 2^23 < sigma 2^k < 2^25; and, rounded down, the centre 2^k sigma²/t and the divisor
    2 sigma² 4^k, plus one (which is between 2^47 and 2^51).
    """
    scale = p // q + 1
    shift = 24 - p.bit_length() + q.bit_length()
    up, down = max(shift, 0), max(-shift, 0)
    centre = (p * p << up) // (q * q * scale << down)
    divisor = (2 * p * p << 2 * up) // (q * q << 2 * down) + 1
    return scale, shift, centre, divisor


def exponent(size: Integers, shift: Whole, centre: Whole, divisor: Whole) -> tuple[Integers, Integers]:
    """Return a lower bound of z²/(2 sigma²), as whole part and 31 bits.

    z 2^k is known to within 1, so the exact value is less than 4 (z 2^k)/divisor above: below 3,500 units of 2^-31
    wherever the exponent is at most 23; beyond that e^(-exponent) is less than one unit. Rounding the last division
    costs at most 40 units more.
    """
    up, down = np.clip(shift, 0, 31), np.maximum(np.negative(shift), 0)
    scaled = (np.minimum(size >> down, np.int64(1) << (31 - up))) << up
    z = np.clip(np.abs(scaled - centre) - 1, 0, 1 << 30)
    whole, rest = np.divmod(z * z, divisor)
    return whole, np.asarray((rest << 11) // ((divisor >> 20) + 1))
