import datetime as dt

import numpy as np
import pytest

from cloister.anonymize.operations.noise import Noise, perturb, spectral_filter
from cloister.privacy.errors import BadBounds, BadNumber, BadScale, BadSchema

ADDITIVE = [Noise("normal", 3), Noise("uniform", 3), Noise("laplace", 3)]
MULTIPLICATIVE = [Noise("lognormal", 0.3, "multiplicative"), Noise("uniform", 0.3, "multiplicative")]


@pytest.mark.parametrize("noise", ADDITIVE + MULTIPLICATIVE, ids=str)
def test_noise_follows_its_public_distribution(noise):
    value = 50.0
    noisy = np.sort(perturb({"x": [value] * 20_000}, "x", noise, random_state=5).rows["x"].to_numpy())
    distance = np.abs(noise.cdf(noisy, np.array(value)) - (np.arange(20_000) + 0.5) / 20_000).max()
    assert distance < 2.5 / np.sqrt(20_000)  # Kolmogorov-Smirnov: beyond it with probability 7e-6; the seed is fixed
    assert noisy.mean() == pytest.approx(value, abs=5 * noisy.std() / np.sqrt(20_000))
    assert noisy.std() == pytest.approx(noise.deviation * (value if noise in MULTIPLICATIVE else 1), rel=0.05)


@pytest.mark.parametrize("noise", MULTIPLICATIVE, ids=str)
def test_the_law_of_multiplied_negative_values_and_zero_is_right(noise):
    noisy = np.sort(noise.apply(np.full(20_000, -50.0), np.random.default_rng(1)))
    assert np.abs(noise.cdf(noisy, np.array(-50.0)) - (np.arange(20_000) + 0.5) / 20_000).max() < 2.5 / np.sqrt(20_000)
    assert noise.cdf(np.array([-1.0, 0.0, 1.0]), np.array(0.0)).tolist() == [0, 1, 1]


def test_null_stays_and_the_log_counts_the_rest():
    result = perturb({"x": [1, None, 3]}, "x", Noise("normal", 1))
    assert result.rows["x"].is_null().to_pylist() == [False, True, False]
    assert result.log == ("Column x: additive normal noise of scale 1 on 2 of 3 cells.",)
    assert "no differential privacy" in result.note


def test_each_call_draws_fresh_noise():
    first, second = (perturb({"x": [1.0]}, "x", Noise("normal", 1)).rows["x"][0].as_py() for _ in range(2))
    assert first != second


def test_bounds_clip_and_types_are_kept_where_asked():
    result = perturb({"x": [5] * 500}, "x", Noise("normal", 10), bounds=(0, 10), keep_type=True, random_state=1)
    values = result.rows["x"].to_numpy()
    assert str(result.rows["x"].type) == "int64"
    assert (values.min(), values.max()) == (0, 10)
    assert "clipped to 0..10" in result.log[0]
    with pytest.raises(BadBounds):
        perturb({"x": [5]}, "x", Noise("normal", 10), bounds=(10, 0))


def test_dates_move_by_days_and_are_not_multiplied():
    rows = {"day": [dt.date(2020, 1, 1)] * 50}
    moved = perturb(rows, "day", Noise("uniform", 3), random_state=1).rows["day"].to_pylist()
    assert {(day - dt.date(2020, 1, 1)).days for day in moved} <= set(range(-3, 4))
    assert len(set(moved)) > 3
    with pytest.raises(BadSchema, match="multiply numbers only"):
        perturb(rows, "day", MULTIPLICATIVE[0])


@pytest.mark.parametrize(
    "options", [("lognormal", 1), ("normal", 0), ("normal", 1, "multiplicative"), ("uniform", 1, "multiplicative")]
)
def test_noise_without_a_sense_is_refused(options):
    with pytest.raises(BadScale):
        Noise(*options)


def test_noise_on_correlated_columns_is_filtered_out():
    rng = np.random.default_rng(2)
    common = rng.normal(0, 10, 5000)
    rows = {f"x{i}": common * (i + 1) + rng.normal(0, 1, 5000) for i in range(5)}
    noise = Noise("normal", 10)
    noisy = perturb(rows, rows, noise, random_state=3)
    filtered = spectral_filter(noisy, rows, noise)
    for name, values in rows.items():
        before = np.sqrt(np.mean((noisy.rows[name].to_numpy() - values) ** 2))
        after = np.sqrt(np.mean((filtered.rows[name].to_numpy() - values) ** 2))
        assert before == pytest.approx(10, rel=0.05)
        assert after < 0.75 * before
        stated = float(next(line for line in filtered.log if f"Column {name}:" in line).split()[-1].rstrip("."))
        assert after == pytest.approx(stated, rel=0.35)
    assert np.sqrt(np.mean((filtered.rows["x0"].to_numpy() - rows["x0"]) ** 2)) < 3


def test_noise_on_independent_columns_is_not_filtered_beyond_shrinking():
    rng = np.random.default_rng(4)
    rows = {name: rng.normal(0, 10, 5000) for name in "abc"}
    noise = Noise("normal", 10)
    filtered = spectral_filter(perturb(rows, rows, noise, random_state=3), rows, noise)
    for name, values in rows.items():
        error = np.sqrt(np.mean((filtered.rows[name].to_numpy() - values) ** 2))
        assert error == pytest.approx(np.sqrt(50), rel=0.05)  # the best estimate of one column by itself


def test_the_filter_takes_different_noise_per_column_and_leaves_nulls():
    rng = np.random.default_rng(4)
    common = rng.normal(0, 10, 400)
    rows = {"a": [None, *common[1:]], "b": common}
    laws = {"a": Noise("normal", 5), "b": Noise("laplace", 2)}
    noisy = perturb(perturb(rows, "a", laws["a"]), "b", laws["b"])
    filtered = spectral_filter(noisy, ["a", "b"], laws).rows
    assert filtered["a"][0].as_py() is None
    assert filtered["b"][0] == noisy.rows["b"][0]
    assert filtered["b"][1] != noisy.rows["b"][1]


def test_the_filter_refuses_what_it_cannot_estimate():
    rows = {"a": [1.0] * 40, "b": [2.0] * 40}
    with pytest.raises(BadSchema, match="logarithms"):
        spectral_filter(rows, rows, MULTIPLICATIVE[0])
    with pytest.raises(BadSchema, match="two columns"):
        spectral_filter(rows, ["a"], ADDITIVE[0])
    with pytest.raises(BadNumber, match="ten complete rows"):
        spectral_filter({"a": [1.0], "b": [2.0]}, ["a", "b"], ADDITIVE[0])
