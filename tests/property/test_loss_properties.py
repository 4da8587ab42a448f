"""Laws that hold for every loss."""

from fractions import Fraction

from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.privacy.conversion import delta_of_rho, epsilon_of_rho, rho_within
from cloister.privacy.errors import BadNumber
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import rational, rounded_down, rounded_up, show

amounts = st.fractions(min_value=0, max_value=10**4, max_denominator=10**9)
deltas = st.fractions(min_value=0, max_value=1, max_denominator=10**9)
powers = st.integers(min_value=-15, max_value=6)
digits = st.integers(min_value=1, max_value=999)


def losses(measure):
    return st.builds(Loss, st.just(measure), amounts, deltas, st.just(Relation.ADD_REMOVE))


@given(losses("rho"), losses("rho"), losses("rho"))
def test_adding_is_associative_and_the_order_does_not_matter(a, b, c):
    assert (a + b) + c == a + (b + c) == (c + b) + a


@given(losses("epsilon"), st.integers(min_value=1, max_value=20))
def test_a_count_is_that_many_additions(loss, count):
    assert loss * count == sum([loss] * count)


@given(losses("epsilon"), st.integers(min_value=1, max_value=1000))
def test_shares_add_up_to_the_whole(loss, parts):
    assert loss.split(parts) * parts == loss


@given(losses("epsilon"), losses("epsilon"))
def test_a_sum_is_never_less_than_its_parts(a, b):
    assert a <= a + b
    assert b <= a + b


@given(losses("epsilon"))
def test_a_loss_survives_being_written_down_and_printed(loss):
    assert Loss.from_json(loss.to_json()) == loss
    assert str(loss).startswith("epsilon ")


@given(losses("epsilon"), st.integers(min_value=1, max_value=5))
def test_a_group_is_never_promised_more_than_one_of_it(loss, size):
    assert loss <= loss.group(size)


@settings(deadline=None, max_examples=60)
@given(digits, powers, st.integers(min_value=1, max_value=300))
def test_there_and_back_never_gains(digit, power, tail):
    rho, delta = Fraction(digit) * Fraction(10) ** (power - 2), Fraction(1, 2) / Fraction(10) ** (tail - 1)
    epsilon = epsilon_of_rho(rho, delta)
    assert delta_of_rho(rho, epsilon) <= delta * (1 + Fraction(1, 10**9))
    # From a true epsilon at least the rho it came from fits, up to the two roundings.
    assert epsilon == 0 or rho_within(epsilon, delta) >= rho * (1 - Fraction(1, 10**9))


@settings(deadline=None, max_examples=60)
@given(digits, powers, st.integers(min_value=1, max_value=300))
def test_a_rho_that_fits_costs_no_more_than_was_allowed(digit, power, tail):
    epsilon, delta = Fraction(digit) * Fraction(10) ** (power - 2), Fraction(1, 2) / Fraction(10) ** (tail - 1)
    assert epsilon_of_rho(rho_within(epsilon, delta), delta) <= epsilon * (1 + Fraction(1, 10**9))


@given(st.fractions(), st.integers(min_value=1, max_value=15))
def test_rounding_encloses(value, places):
    assert rounded_down(value, places) <= value <= rounded_up(value, places)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_means_what_it_prints(value):
    assert rational(value) == Fraction(repr(value))
    assert float(rational(value)) == value


@given(st.text(max_size=30))
def test_text_is_a_number_or_refused(text):
    try:
        number = rational(text)
    except BadNumber:
        return
    assert isinstance(number, Fraction)
    assert show(number)
