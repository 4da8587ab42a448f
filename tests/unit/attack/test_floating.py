"""Which doubles textbook Laplace noise can reach."""

import math

import numpy as np
import pytest

from cloister.attack.mechanisms.floating import Guesses, guess, reachable
from cloister.privacy.errors import BadScale


def test_a_double_that_the_formula_gives_is_reachable_and_its_neighbour_is_not() -> None:
    u = 123_456_789 * 2.0**-53
    output = 64.0 * math.log(u + u)
    assert reachable([output, math.nextafter(output, 0)], 0.0, 64.0).tolist() == [True, False]


def test_both_halves_of_the_law_are_inverted() -> None:
    u = np.array([0.25, 0.5, 0.75, 0.999, 2.0**-53])
    low, high = u < 0.5, u >= 0.5
    outputs = np.zeros(5)
    outputs[low] = 1 + np.array([math.log(x + x) for x in u[low]])
    outputs[high] = 1 - np.array([math.log(2.0 - x - x) for x in u[high]])
    assert reachable(outputs, 1.0, 1.0).all()


def test_a_guess_is_made_only_where_one_answer_is_impossible() -> None:
    from_left, from_right = 64.0 * math.log(0.123), 1.0 + 64.0 * math.log(0.123)
    says = guess([from_left, from_right, math.inf], 0.0, 1.0, 64.0)
    assert set(says.tolist()) <= {-1, 0, 1}
    assert says[0] <= 0 <= says[1]
    assert says[2] == 0


def test_undecided_guesses_count_as_coins() -> None:
    assert Guesses(right=0, wrong=0, undecided=10).rate == 0.5
    assert Guesses(right=8, wrong=0, undecided=2).rate == 0.9


@pytest.mark.parametrize("scale", [0.0, -1.0, math.inf, math.nan])
def test_a_scale_must_be_positive(scale: float) -> None:
    with pytest.raises(BadScale):
        reachable([1.0], 0.0, scale)
