"""Shared numbers: numpy is the oracle; bounds are proven or refused; two and three parties agree."""

import numpy as np
import pytest

from cloister.privacy.errors import BadBounds, BadInput, BadNumber, OutOfRange
from cloister.privacy.noise import SeededSource
from cloister.vault import sharing
from cloister.vault.sharing import ring
from cloister.vault.sharing.fixed import LIMIT, Shared
from cloister.vault.sharing.supply import LOW

RNG = np.random.default_rng(11)
LEFT = RNG.uniform(-8, 8, (12, 9))
RIGHT = RNG.uniform(-8, 8, (12, 9))
UNIT = 2.0**-20


def compute(program, parties=2, **options):
    """Run a program on LEFT (of party 0) and RIGHT (of party 1), and return what party 0 got; all got the same."""

    def run(party):
        left = party.share(0, LEFT.shape, -8, 8, LEFT if party.index == 0 else None)
        right = party.share(1, RIGHT.shape, -8, 8, RIGHT if party.index == 1 else None)
        return program(left, right)

    first, *others = sharing.run_parties(run, parties, **options)
    for other in others:
        np.testing.assert_equal(other, first)
    return first


def whole(condition):
    return condition.party.open_words(condition.bits)


@pytest.mark.parametrize("parties", [2, 3])
def test_sums_and_products_agree_with_numpy(parties):
    def program(left, right):
        return [
            (left + right - 1.5).open(),
            (left * right).open(),
            (left @ right.T).open(),
            (2 - left * 3).open(),
            (left * 0.25).open(),
            (left @ np.eye(9)).open(),
            left.sum(axis=0).open(),
            (left[3] @ right[4]).open(),
        ]

    found = compute(program, parties)
    expected = [
        LEFT + RIGHT - 1.5,
        LEFT * RIGHT,
        LEFT @ RIGHT.T,
        2 - LEFT * 3,
        LEFT * 0.25,
        LEFT,
        LEFT.sum(axis=0),
        LEFT[3] @ RIGHT[4],
    ]
    # Inputs are off by half a unit, products by 8 + 8 halves a term and a unit of truncation.
    for result, truth in zip(found, expected, strict=True):
        assert np.abs(result - truth).max() <= 9 * 9 * UNIT


@pytest.mark.parametrize("parties", [2, 3])
def test_comparisons_agree_with_numpy_at_every_distance(parties):
    near = np.array([0, 1, -1, 2, 5, -7, 2**40, -(2**40), LIMIT // 2 - 1, 1 - LIMIT // 2], dtype=np.int64)

    def program(left, right):
        party = left.party
        numbers = Shared(party, near.view(np.uint64) * np.uint64(party.index == 0), LIMIT // 2)
        return [
            whole(sharing.less_than(left, right)),
            whole(sharing.is_negative(numbers)),
            whole(sharing.is_zero(numbers)),
            sharing.select(sharing.less_than(left, right), left, right).open(),
            sharing.maximum(left, 1.0).open(),
            sharing.clip(left, -2, 3).open(),
        ]

    less, negative, zero, smaller, largest, clipped = compute(program, parties)
    assert (less == (LEFT < RIGHT)).all()
    assert (negative == (near < 0)).all()
    assert (zero == (near == 0)).all()
    for result, truth in (
        (smaller, np.minimum(LEFT, RIGHT)),
        (largest, np.maximum(LEFT, 1)),
        (clipped, LEFT.clip(-2, 3)),
    ):
        assert np.abs(result - truth).max() <= UNIT


def test_a_truncation_is_off_by_less_than_one_always():
    # Every remainder, the largest operands, and many masks.
    values = np.array([*range(-70, 70), LIMIT - 1, 1 - LIMIT, LIMIT - 64, 64 - LIMIT] * 60, dtype=np.int64)

    def program(party):
        mine = values.view(np.uint64) * np.uint64(party.index == 0)
        blind = ring.uniform(values.shape, SeededSource("both parties know it"))
        shared = Shared(party, mine + blind if party.index else mine - blind, LIMIT - 1)
        result = shared.truncate(6)
        return ring.signed(party.open_words(result.words)), result.bound

    found, bound = sharing.run_parties(program)[0]
    assert np.abs(found).max() == bound  # the bound is reached, so it is not too wide either
    floors = values >> 6
    assert set((found - floors).tolist()) == {0, 1}


def test_truncation_material_is_consistent():
    def program(party):
        mask, shifted, top = party.supply.truncation(500, 13)
        return [party.open_words(part) for part in (mask, shifted, top)]

    mask, shifted, top = sharing.run_parties(program, 3)[0]
    assert (shifted == (mask & LOW) >> np.uint64(13)).all()
    assert (top == mask >> np.uint64(63)).all()
    assert 180 < top.sum() < 320


@pytest.mark.parametrize("parties", [2, 3])
def test_division_and_roots_agree_with_numpy(parties):
    values = np.array([0.05, 0.5, 0.999, 1, 1.001, 2, 3, 7.9, 0.0625, 0.2])

    def program(party):
        own = values if party.index == 0 else None
        x = party.share(0, values.shape, -8, 8, own)
        return [
            sharing.reciprocal(x, 0.03).open(),
            sharing.reciprocal(-x, 0.03).open(),
            sharing.divide(x, x[::-1], 0.03).open(),
            sharing.square_root(x, 0.03).open(),
            sharing.inverse_square_root(x, 0.03).open(),
        ]

    found = sharing.run_parties(program, parties)[0]
    expected = [1 / values, -1 / values, values / values[::-1], np.sqrt(values), 1 / np.sqrt(values)]
    for result, truth in zip(found, expected, strict=True):
        # The operand itself is known to half a unit, and 1/x moves by 1/x² times that.
        assert np.abs(result - truth).max() <= (truth**2).max() * 16 * UNIT


def test_operands_below_the_limit_give_zero_and_nothing_wraps():
    values = np.array([0, 2.0**-20, -(2.0**-20), 0.01, -0.01])

    def program(party):
        x = party.share(0, (5,), -1, 1, values if party.index == 0 else None)
        negative = party.share(0, (5,), -1, 1, -np.abs(values) - 0.5 if party.index == 0 else None)
        return [
            sharing.reciprocal(x, 0.125).open(),
            sharing.inverse_square_root(x, 0.125).open(),
            sharing.square_root(negative, 0.125).open(),
        ]

    for result in sharing.run_parties(program)[0]:
        assert (result == 0).all()


# Bounds.


def test_a_result_that_could_wrap_is_refused_before_it_is_computed():
    def program(left, right):
        wide = left * (1 << 30)
        rounds = left.party.rounds
        for misuse in (
            lambda: wide * right,
            lambda: wide @ right.T,
            lambda: left * (1 << 40),
            lambda: wide * (1 << 9),
            lambda: Shared(left.party, wide.words, LIMIT),
        ):
            with pytest.raises(OutOfRange, match="62"):
                misuse()
        assert left.party.rounds == rounds
        return (left + right).open()

    compute(program)


def test_bounds_of_results_hold():
    def program(left, right):
        results = [left + right, left * right, left @ right.T, sharing.clip(left, -1, 1), left.sum(), left * -3]
        return [(result.bound, ring.signed(left.party.open_words(result.words)).astype(float)) for result in results]

    for bound, integers in compute(program):
        assert np.abs(integers).max() <= bound


def test_an_opened_number_outside_its_range_is_refused():
    def program(left, right):
        return Shared(left.party, left.words + np.uint64(1 << 60), left.bound).open()

    with pytest.raises(OutOfRange, match="outside its proven range"):
        compute(program)


def test_an_input_outside_its_bounds_is_refused_and_the_others_are_not_left_waiting():
    def program(party):
        return party.share(0, (1,), 0, 5, [5.5] if party.index == 0 else None)

    with pytest.raises(OutOfRange, match="outside the bounds"):
        sharing.run_parties(program, 3)


@pytest.mark.parametrize(
    ("misuse", "kind"),
    [
        (lambda party: party.share(0, (1,), 0, 5), BadInput),
        (lambda party: party.share(2, (1,), 0, 5, [1]), BadInput),
        (lambda party: party.share(party.index, (2,), 0, 5, [1]), BadNumber),
        (lambda party: party.share(party.index, (1,), 5, 0, [1]), BadBounds),
        (lambda party: party.public([float("nan")]), BadNumber),
        (lambda party: sharing.clip(party.public([1]), 2, 1), BadBounds),
        (lambda party: sharing.select(party.public([1]), party.public([1]), 0), BadInput),
        (lambda party: sharing.reciprocal(party.public([1]), 0), BadBounds),
        (lambda party: sharing.reciprocal(party.public([1]), 3), OutOfRange),
        (lambda party: sharing.power_iteration(party.public([1]), 1), BadNumber),
        (lambda party: sharing.power_iteration(party.public([[1]]), 2), BadNumber),
        (lambda party: party.public([1]) * float("inf"), BadNumber),
        (lambda party: party.public([1]).truncate(62), OutOfRange),
    ],
)
def test_misuse_is_one_sentence(misuse, kind):
    with pytest.raises(kind):
        sharing.run_parties(misuse, timeout_s=5)


def test_one_or_four_parties_and_too_many_bits_are_refused():
    for parties in (1, 4):
        with pytest.raises(BadInput, match="two or three"):
            sharing.run_parties(lambda party: None, parties)
    with pytest.raises(BadNumber, match="fraction_bits"):
        sharing.run_parties(lambda party: None, fraction_bits=27)


def test_shares_of_two_parties_do_not_mix():
    kept = []

    def program(party):
        number = party.public([1.0])
        kept.append(number)
        return number

    sharing.run_parties(program)
    with pytest.raises(BadInput, match="different parties"):
        kept[0] + kept[1]


# Eigenvectors.


def positive_definite(size, seed, ridge=0.0):
    gram = np.random.default_rng(seed).normal(size=(size, 2 * size)) * np.geomspace(1, 0.1, size)[:, None]
    product = gram @ gram.T
    return product / np.abs(product).max() + ridge * np.eye(size)


def test_power_iteration_and_deflation_find_the_leading_eigenpairs():
    matrix = positive_definite(4, 3)

    def program(party):
        shared = party.share(0, (4, 4), -1, 1, matrix if party.index == 0 else None)
        found = sharing.power_iteration(shared, pairs=2, iterations=14)
        return found.values.open(), found.vectors.open()

    values, vectors = sharing.run_parties(program)[0]
    truth, basis = np.linalg.eigh(matrix)
    assert np.abs(values - truth[::-1][:2]).max() < 1e-3
    for place in range(2):
        assert abs(vectors[place] @ basis[:, -1 - place]) > 0.999


def test_the_generalised_eigenproblem_stays_shared_and_agrees_with_scipy():
    import scipy.linalg

    left, right = positive_definite(3, 5), positive_definite(3, 6, ridge=0.4)

    def program(party):
        a = party.share(0, (3, 3), -2, 2, left if party.index == 0 else None)
        b = party.share(1, (3, 3), -2, 2, right if party.index == 1 else None)
        found = sharing.generalised_eigenpairs(a, b, pairs=1, at_least=0.2, limit=10, iterations=14)
        lower, _ = sharing.cholesky(b, 0.2)
        return found.values.open(), found.vectors.open(), lower.open()

    values, vectors, lower = sharing.run_parties(program)[0]
    truth, basis = scipy.linalg.eigh(left, right)
    assert abs(values[0] - truth[-1]) < 1e-3
    assert abs(abs(vectors[0] @ right @ basis[:, -1]) - 1) < 1e-3
    assert np.abs(lower - np.linalg.cholesky(right)).max() < 1e-4
