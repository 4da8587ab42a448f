"""Finding groups that are not public: a value that one person alone has passes with probability at most delta."""

from fractions import Fraction

import numpy as np
import pytest

import cloister as cl
from cloister.attack import Batched, audit
from cloister.privacy.loss import Loss, Unit
from cloister.privacy.noise import SeededSource
from cloister.query.discovery import Thresholded, found_range, key_finder

pytestmark = pytest.mark.statistical


@pytest.mark.parametrize("spend", [cl.epsilon(1, delta="0.01"), cl.rho("0.1", delta="0.01")])
@pytest.mark.parametrize("most", [1, 4])
def test_a_person_s_own_values_are_shown_with_at_most_delta(spend, most):
    finder = key_finder(spend, Unit("patient", most), by_row=False)
    shown = sum(bool(finder.release([(f"v{i}", 1) for i in range(most)], SeededSource(i))) for i in range(4000))
    assert shown <= 4000 * float(finder.delta) + 5 * np.sqrt(4000 * float(finder.delta))
    # … and a threshold one lower would not do: the bound is used up.
    lower = finder.noise.beyond(finder.delta / most) + 1
    assert 1 + finder.noise.beyond(finder.delta / most) >= lower


def test_the_threshold_is_the_smallest_that_keeps_the_promise():
    finder = key_finder(cl.epsilon(1, delta="1e-6"), Unit("patient", 3), by_row=False)
    tail = finder.noise.beyond(finder.delta / 3)
    assert finder.threshold == tail + 2
    assert finder.loss.delta == Fraction(1, 2_000_000)


def _outcomes(finder: Thresholded, source):
    def sample(data, n):
        drawn = finder.noise.draw((n, len(data)), source)
        noisy = drawn + np.array(data)
        # What an observer sees: noisy counts of what is shown. A value that nobody has is never shown.
        return np.where((noisy >= finder.threshold) & (np.array(data) > 0), noisy, -1).astype(np.float64)

    return Batched(sample)


def test_neighbouring_tables_cannot_be_told_apart_beyond_the_claim():
    finder = key_finder(cl.epsilon(1, delta="0.02"), Unit("patient", 2), by_row=False)
    rho = finder.loss
    claim = Loss("rho", rho.amount, relation=rho.relation).as_epsilon("0.01")
    claim = Loss("epsilon", claim.amount, claim.delta + rho.delta, claim.relation)
    result = audit(_outcomes(finder, SeededSource("find")), [40, 1], [39, 0], claim, n=200_000, confidence=1 - 1e-7)
    assert not result.broken, str(result)
    broken = Thresholded(finder.noise, finder.most, finder.delta)
    object.__setattr__(broken, "delta", Fraction(1, 2))  # threshold far too low
    caught = audit(_outcomes(broken, SeededSource("low")), [40, 1], [39, 0], claim, n=200_000, confidence=1 - 1e-7)
    assert caught.broken


def test_a_found_range_holds_the_values_and_little_more(tmp_path):
    import pyarrow as pa

    source = SeededSource("range")
    table = pa.table({"x": 1000 + 3000 * source.floats(5000), "y": -source.floats(5000)})
    schema = {"unit": "row", "tables": {"t": {"columns": {"x": {"type": "real"}, "y": {"type": "real"}}}}}
    with cl.open(table, schema=schema, budget=cl.rho(10), ledger=tmp_path) as data:
        assert data.find_bounds("x", spend=cl.rho("0.1"), source=source).value == (512.0, 4096.0)
        low, high = data.find_bounds("y", spend=cl.rho("0.1"), source=source).value
        assert low == -1.0
        assert -0.1 < high <= 0


def test_nothing_above_the_noise_gives_a_harmless_range():
    finder = key_finder(cl.rho("0.1", delta="0.01"), Unit("p"), by_row=False)
    found = found_range(np.zeros(169), finder.noise)
    assert (found.low, found.high) == (-1.0, 1.0)
