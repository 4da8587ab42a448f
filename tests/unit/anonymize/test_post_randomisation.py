import datetime as dt

import numpy as np
import pyarrow as pa
import pytest

from cloister.anonymize.operations.post_randomisation import (
    Transition,
    estimate_frequencies,
    invariant_transition,
    post_randomise,
    uniform_transition,
)
from cloister.privacy.errors import BadCandidates, BadProbability

SHARES = {"A": 0.6, "B": 0.3, "C": 0.1}
ROWS = pa.table({"x": [value for value, share in SHARES.items() for _ in range(int(20_000 * share))]})


def shares_of(table):
    values = np.array(table["x"].to_pylist())
    return np.array([(values == value).mean() for value in SHARES])


def test_frequencies_are_estimated_back_with_their_errors():
    result = post_randomise(ROWS, "x", keep=0.6, random_state=1)
    estimate = estimate_frequencies(result, "x", result.transition)
    truth = np.array(list(SHARES.values()))
    assert estimate.values.to_pylist() == ["A", "B", "C"]
    assert (np.abs(estimate.shares - truth) < 5 * estimate.errors).all()
    assert estimate.shares.sum() == pytest.approx(1)
    assert np.abs(shares_of(result.rows) - truth).max() > 0.1  # uncorrected they are biased


def test_the_stated_error_is_the_scatter_of_the_estimates():
    # Rows are fixed here, so the scatter is due to the randomisation alone and below the stated error.
    rows = ROWS.take(list(range(0, 20_000, 40)))
    estimates = [estimate_frequencies(post_randomise(rows, "x", keep=0.7, random_state=seed), "x",
                                      uniform_transition(rows, "x", 0.7)) for seed in range(200)]  # fmt: skip
    scatter = np.std([estimate.shares for estimate in estimates], axis=0)
    stated = np.mean([estimate.errors for estimate in estimates], axis=0)
    assert (scatter < 1.1 * stated).all()
    assert (scatter > 0.5 * stated).all()


def test_an_invariant_matrix_keeps_the_frequencies():
    transition = invariant_transition(ROWS, "x", uniform_transition(ROWS, "x", 0.6))
    truth = np.array(list(SHARES.values()))
    assert truth @ transition.matrix == pytest.approx(truth)
    assert transition.matrix.sum(axis=1) == pytest.approx(1)
    result = post_randomise(ROWS, "x", keep=0.6, invariant=True, random_state=1)
    assert shares_of(result.rows) == pytest.approx(truth, abs=0.02)
    assert result.rows["x"].to_pylist() != ROWS["x"].to_pylist()
    assert "an invariant transition matrix of 3 categories" in result.log[0]


def test_cells_follow_the_rows_of_the_matrix():
    matrix = np.array([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0], [0.2, 0.3, 0.5]])
    result = post_randomise(ROWS, "x", Transition(pa.array(["A", "B", "C"]), matrix), random_state=1).rows
    before, after = np.array(ROWS["x"].to_pylist()), np.array(result["x"].to_pylist())
    for row, value in enumerate(SHARES):
        observed = np.array([(after[before == value] == other).mean() for other in SHARES])
        assert observed == pytest.approx(matrix[row], abs=0.06)
        assert (observed[matrix[row] == 0] == 0).all()


@pytest.mark.parametrize("cells", [[True, False, None], [1, 2, None], [dt.date(2020, 1, 1), dt.date(2021, 1, 1), None]])
def test_null_is_a_category_and_types_are_kept(cells):
    rows = pa.table({"x": cells * 200})
    result = post_randomise(rows, "x", keep=0.5, random_state=1)
    assert result.rows["x"].type == rows["x"].type
    assert 100 < result.rows["x"].null_count < 300
    assert set(result.rows["x"].to_pylist()) == set(cells)
    assert estimate_frequencies(result, "x", result.transition).clipped.sum() == pytest.approx(1)


def test_one_category_stays():
    assert post_randomise({"x": ["a", "a"]}, "x", keep=0.5).rows["x"].to_pylist() == ["a", "a"]


def test_wrong_matrices_are_refused():
    values = pa.array(["A", "B"])
    with pytest.raises(BadProbability, match="add up to 1"):
        Transition(values, np.array([[0.5, 0.4], [0, 1]]))
    with pytest.raises(BadCandidates):
        Transition(values, np.eye(3))
    with pytest.raises(BadCandidates, match="twice"):
        Transition(pa.array(["A", "A"]), np.eye(2))
    with pytest.raises(BadCandidates, match="does not list"):
        post_randomise(ROWS, "x", Transition(values, np.eye(2)))
    with pytest.raises(BadProbability, match="no inverse"):
        estimate_frequencies({"x": ["A"]}, "x", Transition(values, np.full((2, 2), 0.5)))
    with pytest.raises(BadCandidates, match="Generalise"):
        uniform_transition({"x": list(range(2001))}, "x", 0.5)
    for options in ({}, {"keep": 0.5, "transition": Transition(values, np.eye(2))}, {"keep": 0}):
        with pytest.raises(BadProbability):
            post_randomise(ROWS, "x", **options)
