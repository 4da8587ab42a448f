"""No message tells what was in a row: whatever the rows hold, the error is the same."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.privacy.errors import CloisterError
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon
from cloister.privacy.measure import measure
from cloister.privacy.mechanisms import DiscreteLaplace, PermuteAndFlip
from cloister.privacy.noise import Grid

numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**80), 2**80)
things = st.none() | numbers | st.text(max_size=8) | st.lists(numbers, max_size=3)


def outcome(call):
    """What an observer could tell a failure by: its type and words, or that it worked."""
    try:
        call()
    except CloisterError as error:
        return type(error), str(error), error.__cause__, error.__suppress_context__ or error.__context__ is None
    return "an answer"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=20))
def test_any_float_rows_go_onto_a_grid(rows):
    encoded = Grid(8).encode(np.array(rows, dtype=np.float64), -3, 5)
    assert len(encoded) == len(rows)
    assert encoded.min(initial=0) >= -3 * 256
    assert encoded.max(initial=0) <= 5 * 256


@given(st.lists(st.text(max_size=6), min_size=1, max_size=6), st.lists(st.text(max_size=6), min_size=1, max_size=6))
def test_a_grid_refuses_text_in_the_same_words_whatever_it_says(left, right):
    refusals = {outcome(lambda rows=rows: Grid(8).encode(np.array(rows), 0, 1)) for rows in (left, right)}
    assert len(refusals) == 1
    assert "an answer" not in refusals


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    with Ledger.in_folder(tmp_path_factory.mktemp("secrets") / "ledger") as ledger:
        yield ledger.open_account("visits", epsilon(10**6))


@pytest.mark.parametrize("mechanism", [DiscreteLaplace.for_loss(1, epsilon(1)), PermuteAndFlip.for_loss(1, epsilon(1))])
@given(secret=things, error=st.sampled_from([ValueError, KeyError, ZeroDivisionError, OverflowError, CloisterError]))
@settings(max_examples=25, deadline=None)
def test_a_failing_look_says_the_same_whatever_went_wrong(account, mechanism, secret, error):
    def look():
        raise error(f"the diagnosis is {secret!r}")

    def nonsense():
        return object()

    failures = {
        outcome(lambda one=one: measure(one, mechanism, account=account, request="q")) for one in (look, nonsense)
    }
    assert len(failures) == 1
