"""Quotients and roots keep their stated error over all declared bounds, not only near 1."""

import numpy as np
import pytest

from cloister.privacy.errors import OutOfRange
from cloister.vault.sharing import divide, inverse_square_root, power_iteration, run_parties, square_root

PAIRS = [
    (500_000, 250_000), (3, 700_000), (100_000, 99_999), (60_000, 7), (1_000_000, 1_000_000), (1_000_000, 1),
    (1, 1_000_000), (-1_000_000, 3), (900_000, -600_001), (0, 5), (5, 0), (-0.000001, -1_000_000), (0.5, 524_288),
]  # fmt: skip


def shared(party, values, bound):
    return party.share(0, (len(values),), -bound, bound, values if party.index == 0 else None)


@pytest.mark.parametrize(("fraction_bits", "bound"), [(20, 1_000_000), (16, 1_000_000), (26, 1_000_000)])
def test_a_quotient_is_within_its_stated_error(fraction_bits, bound):
    left, right = np.array(PAIRS, dtype=np.float64).T
    # At 26 bits a quotient by 1 of a number up to 10^6 needs 46 bits, and the pieces are smaller.
    found = run_parties(
        lambda party: divide(shared(party, left, bound), shared(party, right, bound), 1).open(),
        fraction_bits=fraction_bits,
    )[0]
    unit = 2.0**-fraction_bits
    exact = [np.rint(a / unit) * unit / b if b else 0 for a, b in PAIRS]
    assert all(abs(got - true) <= abs(true) * 2**-25 + 6 * unit for got, true in zip(found, exact, strict=True))


@pytest.mark.parametrize(("fraction_bits", "bound"), [(20, 1_048_576), (26, 1 << 34), (8, 1 << 40), (0, 1 << 60)])
def test_a_root_is_within_its_stated_error(fraction_bits, bound):
    values = [1_000_000, 984_523.0, 10_000, 2, 1, 3, 4, 524_287, 0, -7, bound]
    found = run_parties(lambda party: square_root(shared(party, values, bound), 1).open(), fraction_bits=fraction_bits)
    unit = 2.0**-fraction_bits
    for got, value in zip(found[0], values, strict=True):
        assert abs(got - max(value, 0) ** 0.5) <= max(value, 0) ** 0.5 * 2**-25 + 6 * unit, value


def test_a_public_number_is_divided_by_a_shared_one():
    found = run_parties(lambda party: divide(600_000, shared(party, [300_000.0, -7], 700_000), 1).open())
    assert np.allclose(found[0], [2, -600_000 / 7], rtol=2**-24, atol=6 * 2**-20)


@pytest.mark.parametrize(("fraction_bits", "bound"), [(26, 11_000), (24, 500_000), (20, 1_000_000), (0, 1 << 60)])
def test_the_inverse_of_a_root_is_within_its_stated_error(fraction_bits, bound):
    # Before, with a small at_least, the inverse roots of large operands were off by dozens of units.
    unit = 2.0**-fraction_bits
    values = [5272.0159, 1.0, 0.25, 7 * unit, 3, 1_023.5, bound - 1, 0, -7]
    values = [round(value / unit) * unit for value in values]
    found = run_parties(
        lambda party: inverse_square_root(shared(party, values, bound), 2 * unit).open(), fraction_bits=fraction_bits
    )
    for got, value in zip(found[0], values, strict=True):
        exact = value**-0.5 if value >= 2 * unit else 0
        assert abs(got - exact) <= exact * 2**-25 + 6 * unit, value


@pytest.mark.parametrize("matrix", [np.eye(4), np.diag([1.0, 0.5, 1.0, 1.0]), np.ones((4, 4)) / 4, np.zeros((4, 4))])
def test_equal_eigenvalues_are_all_found(matrix):
    # Before, all pairs began with one vector, of which nothing was left in the space of a repeated eigenvalue.
    def program(party):
        found = power_iteration(party.share(0, (4, 4), -1, 1, matrix if party.index == 0 else None), 4)
        return found.values.open(), found.vectors.open()

    values, vectors = run_parties(program)[0]
    assert np.abs(values - np.linalg.eigvalsh(matrix)[::-1]).max() < 1e-4
    assert np.abs(matrix - (vectors.T * values) @ vectors).max() < 1e-4


def are_eigenpairs_within_their_bounds(fraction_bits, largest):
    def program(party):
        given = np.diag([largest, largest / 3]) if party.index == 0 else None
        found = power_iteration(party.share(0, (2, 2), -largest, largest, given), 1, iterations=2)
        opened = [(party.open_words(part.words).view(np.int64), part.bound) for part in (found.vectors, found.values)]
        return all(int(np.abs(words).max()) <= bound for words, bound in opened)

    return all(run_parties(program, fraction_bits=fraction_bits))


@pytest.mark.parametrize(("fraction_bits", "largest"), [(12, 8), (16, 120), (20, 128)])
def test_eigenpairs_are_within_their_bounds(fraction_bits, largest):
    assert are_eigenpairs_within_their_bounds(fraction_bits, largest)


@pytest.mark.parametrize(("fraction_bits", "largest"), [(13, 30_000), (12, 60_000), (16, 4_096)])
def test_a_vector_whose_inverse_norm_is_no_number_is_refused(fraction_bits, largest):
    # It is a unit of the last place by chance, which is many times too much.
    with pytest.raises(OutOfRange, match="more fraction_bits"):
        are_eigenpairs_within_their_bounds(fraction_bits, largest)
