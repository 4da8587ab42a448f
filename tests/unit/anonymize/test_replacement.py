import numpy as np
import pyarrow as pa
import pytest

from cloister.anonymize.operations.masking import suppress_columns
from cloister.anonymize.operations.operated import pipe, step
from cloister.anonymize.operations.replacement import best_fit, encode_labels, replace_randomly
from cloister.privacy.errors import BadBounds, BadCandidates, BadNumber, BadSchema

RNG = np.random.default_rng(1)
ADULTS = pa.table(
    {
        "age": (17 + RNG.gamma(2.5, 9, 4000)).astype(int).clip(17, 90),
        "fnlwgt": RNG.integers(10_000, 900_000, 4000),
        "race": RNG.choice(["White", "Black", "Other"], 4000, p=[0.85, 0.1, 0.05]),
        "sex": RNG.choice(["Male", "Female"], 4000),
    }
)


@pytest.mark.parametrize(
    ("law", "values"),
    [
        ("norm", RNG.normal(50, 5, 20_000)),
        ("expon", RNG.exponential(3, 20_000)),
        ("uniform", RNG.uniform(2, 9, 20_000)),
        ("lognorm", RNG.lognormal(1, 1, 20_000)),
    ],
)
def test_the_law_behind_values_fits_about_best(law, values):
    fit = best_fit({"x": values}, "x")
    assert fit.error <= fit.errors[law]
    assert fit.errors[law] <= 2 * fit.error + 1e-4
    assert fit.errors[law] < 0.5 * max(fit.errors.values())


def test_the_walk_through_is_recorded_and_stays_in_bounds():
    result = pipe(
        ADULTS,
        [
            step(suppress_columns, columns="fnlwgt"),
            step(encode_labels, columns=["race", "sex"]),
            step(
                replace_randomly, columns=["age", "race"], categorical="race", bounds={"age": (17, 90)}, random_state=1
            ),
        ],
    )
    assert result.rows.column_names == ["age", "race", "sex"]
    ages = result.rows["age"].to_numpy()
    assert (ages.min() >= 17, ages.max() <= 90, str(result.rows["age"].type)) == (True, True, "int64")
    assert ages.mean() == pytest.approx(ADULTS["age"].to_numpy().mean(), abs=2.5)
    assert (result.rows["race"].to_numpy() == 2).mean() == pytest.approx(0.85, abs=0.03)
    assert result.rows["sex"].to_pylist() == [{"Female": 0, "Male": 1}[sex] for sex in ADULTS["sex"].to_pylist()]
    assert len(result.log) == 5
    assert "no anonymisation" in result.note
    assert "lose every relation" in result.note


def test_replacement_destroys_the_relation_to_other_columns():
    values = RNG.normal(size=5000)
    rows = {"a": values, "b": values + RNG.normal(0, 0.1, 5000)}
    result = replace_randomly(rows, "a", random_state=1).rows
    assert abs(np.corrcoef(result["a"].to_numpy(), rows["b"])[0, 1]) < 0.1
    assert result["b"].to_numpy().tolist() == rows["b"].tolist()


def test_nulls_are_drawn_as_often_as_they_occur():
    rows = {"x": [None, 1.0, 2.0, 3.0] * 1000, "c": [None, True, False, True] * 1000}
    result = replace_randomly(rows, ["x", "c"], random_state=1).rows
    for name in rows:
        assert result[name].null_count == pytest.approx(1000, abs=150)
        assert result[name].is_null().to_pylist() != pa.table(rows)[name].is_null().to_pylist()


def test_label_codes_keep_null_and_say_that_they_hide_nothing():
    result = encode_labels({"x": ["b", None, "a"]}, "x")
    assert result.rows["x"].to_pylist() == [1, None, 0]
    assert "hides nothing" in result.log[0]


def test_what_cannot_be_fitted_is_refused():
    with pytest.raises(BadNumber, match="two different values"):
        best_fit({"x": [1, 1, None]}, "x")
    with pytest.raises(BadCandidates):
        best_fit({"x": [1, 2]}, "x", laws=["poisson"])
    with pytest.raises(BadBounds):
        replace_randomly({"x": [1, 2]}, "x", bounds={"x": (2, 1)})
    with pytest.raises(BadSchema):
        replace_randomly({"x": [1, 2], "y": [1, 2]}, "x", categorical="y")
