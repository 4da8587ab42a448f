"""Results of comparisons are numbers: opened they are 0 and 1, their sums are counts, and they combine."""

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, BadNumber
from cloister.vault import sharing

VALUES = np.array([3.0, -1.5, 0.0, 7.25, -8.0])


def on_shares(program, parties=2, **options):
    """Return what party 0 gets of a program on VALUES, which party 0 shares."""

    def run(party):
        return program(party.share(0, VALUES.shape, -8, 8, VALUES if party.index == 0 else None))

    return sharing.run_parties(run, parties, **options)[0]


@pytest.mark.parametrize("fraction_bits", [2, 20, 26])
@pytest.mark.parametrize("parties", [2, 3])
def test_a_comparison_opens_as_zero_and_one(parties, fraction_bits):
    # Before, 1 opened as 2^-fraction_bits.
    def program(x):
        return [c.open().tolist() for c in (sharing.less_than(x, 1), sharing.is_negative(x), sharing.is_zero(x))]

    less, negative, zero = on_shares(program, parties, fraction_bits=fraction_bits)
    assert less == (VALUES < 1).tolist()
    assert negative == (VALUES < 0).tolist()
    assert zero == (VALUES == 0).tolist()


def test_sums_of_comparisons_are_counts_that_are_compared_again():
    # The two largest of five: those of which fewer than two others are larger.
    def program(x):
        larger = sharing.less_than(x.reshape(5, 1), x.reshape(1, 5)).sum(axis=1)
        return larger.open().tolist(), sharing.select(sharing.less_than(larger, 2), x, 0).open().tolist()

    larger, chosen = on_shares(program)
    assert larger == [(value < VALUES).sum() for value in VALUES]
    assert chosen == [3.0, 0, 0, 7.25, 0]


def test_conditions_are_multiplied_and_averaged_as_numbers():
    def program(x):
        below = sharing.less_than(x, 1)
        return [result.open() for result in (below * x, 1 - below, below + below, below * 0.5, below @ np.ones(5))]

    below = (VALUES < 1).astype(float)
    for found, truth in zip(
        on_shares(program), (below * VALUES, 1 - below, 2 * below, below / 2, below.sum()), strict=True
    ):
        assert np.abs(found - truth).max() < 2**-18


@pytest.mark.parametrize("parties", [2, 3])
def test_conditions_combine_and_stay_conditions(parties):
    def program(x):
        low, high = sharing.less_than(x, 1), sharing.less_than(-2, x)
        combined = (
            low & high,
            low | high,
            ~low,
            low[1:],
            low.reshape(1, 5),
            low.reshape(5, 1).T,
            sharing.clip(x, 0, 1),
        )
        return [sharing.select(c, 5, -5).open().tolist() for c in combined[:-1]]

    low, high = VALUES < 1, VALUES > -2
    expected = [low & high, low | high, ~low, low[1:], low[None], low[None]]
    assert on_shares(program, parties) == [np.where(truth, 5.0, -5.0).tolist() for truth in expected]


@pytest.mark.parametrize(
    ("work", "kind", "sentence"),
    [
        (lambda x: sharing.select(1 - sharing.less_than(x, 0), x, 0), BadInput, "~condition"),
        (lambda x: sharing.select(sharing.less_than(x, 0).sum(), x, 0), BadInput, "result of a comparison"),
        (lambda x: sharing.select(True, x, 0), BadInput, "result of a comparison"),
        (lambda x: sharing.less_than(x, 0) & True, BadInput, "result of a comparison"),
        (lambda x: sharing.less_than(x, 0) | x, BadInput, "result of a comparison"),
        (lambda x: sharing.is_zero(5), BadInput, "takes shared numbers, as party.share returns them, and got int"),
        (lambda x: sharing.less_than(5, 6), BadInput, "takes shared numbers"),
        (lambda x: sharing.clip(VALUES, 0, 1), BadInput, "takes shared numbers"),
        (lambda x: sharing.square_root(4.0, 1), BadInput, "takes shared numbers"),
        (lambda x: sharing.reciprocal("4", 1), BadInput, "takes shared numbers"),
        (lambda x: sharing.divide(x, 2, 1), BadInput, "are divided by divide"),
        (lambda x: 1 / x, BadInput, "are divided by divide"),
        (lambda x: sharing.clip(x, None, 2), BadNumber, "lower"),
        (lambda x: sharing.clip(x, 0, "2 m"), BadNumber, "upper"),
        (lambda x: sharing.concatenate([]), BadInput, "at least one"),
        (lambda x: sharing.concatenate([x, VALUES]), BadInput, "takes shared numbers"),
        (lambda x: sharing.concatenate([x, x.reshape(1, 5)]), BadNumber, "one shape"),
        (lambda x: np.ones((2, 2, 5)) @ x, BadNumber, "no product"),
        (lambda x: np.ones((2, 4)) @ x, BadNumber, "no product"),
        (lambda x: "word" @ x, BadNumber, "finite number|real number"),
    ],
)
def test_what_is_no_shared_number_or_condition_is_refused_in_one_sentence(work, kind, sentence):
    with pytest.raises(kind, match=sentence):
        on_shares(work, timeout_s=5)


def test_arrays_are_joined_and_multiplied_from_the_left():
    def program(x):
        joined = sharing.concatenate([x, x[:2]])
        matrix = np.arange(10.0).reshape(2, 5)
        square = x[:4].reshape(2, 2)
        return [r.open() for r in (joined, matrix @ x, matrix @ x.reshape(5, 1), VALUES @ x, np.eye(2) @ square)]

    matrix = np.arange(10.0).reshape(2, 5)
    truths = [
        np.concatenate([VALUES, VALUES[:2]]),
        matrix @ VALUES,
        (matrix @ VALUES)[:, None],
        VALUES @ VALUES,
        VALUES[:4].reshape(2, 2),
    ]
    for found, truth in zip(on_shares(program), truths, strict=True):
        assert found.shape == np.shape(truth)
        assert np.abs(found - truth).max() < 2**-16


def test_a_public_dividend_is_divided():
    def program(x):
        return sharing.divide(1, x * x + 1, 0.5).open()

    assert np.abs(on_shares(program) - 1 / (VALUES**2 + 1)).max() < 2**-17
