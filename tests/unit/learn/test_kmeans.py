"""Private k-means: near Lloyd's, whatever the bounds, and silent about training rows."""

from pathlib import Path

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.cluster import KMeans as Plain
from sklearn.datasets import make_blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from cloister.learn.base.frame import squares
from cloister.learn.cluster.enclosing_ball import radius_within, read_ground
from cloister.learn.cluster.kmeans import KMeans
from cloister.learn.cluster.lloyd import _nearest
from cloister.privacy.errors import BadBounds, BadInput, NotPrivate
from cloister.privacy.filter import BudgetShare, PrivacyFilter
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.noise import SeededSource

SPEND = epsilon(1, delta="1e-6")


def blobs(rows: int = 10_000, features: int = 2, centres: int = 5):
    return make_blobs(rows, features, centers=centres, center_box=(-8, 8), random_state=1)[0]


def model(folder: Path, spend: Loss = SPEND, **more) -> KMeans:
    return KMeans(spend, **{"n_clusters": 5, "bounds": (-15, 15), "ledger": folder, "random_state": 3, **more})


@pytest.mark.parametrize(
    ("spend", "within"), [(SPEND, 1.05), (epsilon(3, delta="1e-6"), 1.02), (epsilon(2), 1.1)], ids=str
)
def test_it_comes_near_lloyds(tmp_path: Path, spend: Loss, within: float) -> None:
    rows = blobs()
    best = Plain(5, n_init=5, random_state=0).fit(rows).inertia_
    assert -model(tmp_path, spend).fit(rows).score(rows) <= within * best


def test_bounds_a_hundred_times_too_wide_cost_little(tmp_path: Path) -> None:
    rows = blobs()
    best = Plain(5, n_init=5, random_state=0).fit(rows).inertia_
    assert -model(tmp_path, bounds=(-1500, 1500)).fit(rows).score(rows) <= 1.1 * best


def test_a_norm_does_instead_of_bounds(tmp_path: Path) -> None:
    rows = blobs()
    found = model(tmp_path, bounds=None, data_norm=20.0).fit(rows)
    assert -found.score(rows) <= 1.1 * Plain(5, n_init=5, random_state=0).fit(rows).inertia_


def test_features_of_different_width_keep_their_distances(tmp_path: Path) -> None:
    """Bounds only clip: scaling by them would change what is near."""
    near = np.random.default_rng(0).normal(size=(20_000, 2)) * [50.0, 0.1]
    near[:10_000, 0] += 400.0
    found = model(tmp_path, n_clusters=2, bounds=([-1000, -1], [1000, 1])).fit(near)
    assert sorted(np.round(found.cluster_centers_[:, 0] / 400)) == [0.0, 1.0]


def uneven(rows: int):
    """A narrow and a wide feature, as of ages and incomes."""
    random = np.random.default_rng(0)
    return np.c_[random.uniform(18, 90, rows), random.lognormal(10, 0.5, rows).clip(0, 100_000)]


def test_centres_lie_within_the_bounds_and_say_how_noisy_they_are(tmp_path: Path) -> None:
    bounds = ([18.0, 0.0], [90.0, 100_000.0])
    for seed in range(4):
        found = model(tmp_path, rho("0.05"), n_clusters=3, bounds=bounds, random_state=seed).fit(uneven(5000))
        assert (found.cluster_centers_ >= bounds[0]).all()
        assert (found.cluster_centers_ <= bounds[1]).all()
        assert found.center_errors_.shape == (3,)
        assert (found.center_errors_ > 18).all()  # in both features alike: ages are noise here, and it shows
        assert 0 < found.size_error_ < 100


def test_scaled_by_their_bounds_features_of_different_width_are_told_alike(tmp_path: Path) -> None:
    rows = (uneven(20_000) - [18, 0]) / [72, 100_000]
    best = Plain(3, n_init=5, random_state=0).fit(rows).inertia_
    found = model(tmp_path, rho("0.05"), n_clusters=3, bounds=(0, 1)).fit(rows)
    assert -found.score(rows) <= 1.1 * best
    assert (found.center_errors_ < 0.02).all()


def test_the_stated_error_of_a_centre_is_that_of_its_noise(tmp_path: Path) -> None:
    rows = blobs(10_000, centres=1)
    fits = [model(tmp_path, n_clusters=1, random_state=seed).fit(rows) for seed in range(60)]
    spread = np.std([one.cluster_centers_[0] for one in fits], axis=0).mean()
    stated = np.mean([one.center_errors_[0] for one in fits])
    assert 0.6 * stated < spread < 1.6 * stated
    counted = np.std([one.cluster_sizes_[0] for one in fits])
    assert 0.6 * fits[0].size_error_ < counted < 1.6 * fits[0].size_error_


def test_a_seeded_fit_repeats_and_is_marked(tmp_path: Path) -> None:
    rows = blobs(500)
    one, two = (model(tmp_path).fit(rows) for _ in range(2))
    assert (one.cluster_centers_ == two.cluster_centers_).all()
    assert not one.release_.private
    free = model(tmp_path, random_state=None).fit(rows)
    assert free.release_.private
    assert free.release_.receipt is not None


def test_training_labels_are_refused_and_not_kept(tmp_path: Path) -> None:
    with pytest.raises(NotPrivate, match="secret"):
        model(tmp_path).fit_predict(blobs(100))
    found = model(tmp_path).fit(blobs(100))
    assert not hasattr(found, "labels_")
    assert not hasattr(found, "inertia_")


@pytest.mark.parametrize("rows", [0, 1, 3])
def test_hardly_any_rows_are_no_reason_to_fail(tmp_path: Path, rows: int) -> None:
    found = model(tmp_path).fit(blobs(100)[:rows])
    assert found.cluster_centers_.shape == (5, 2)
    assert np.isfinite(found.cluster_centers_).all()


def test_constant_rows_and_more_features_than_rows_are_no_reason_to_fail(tmp_path: Path) -> None:
    assert np.isfinite(model(tmp_path).fit(np.zeros((50, 3))).cluster_centers_).all()
    assert model(tmp_path).fit(np.random.default_rng(0).normal(size=(5, 40))).n_features_in_ == 40
    assert model(tmp_path, n_clusters=1).fit(np.zeros((50, 1))).cluster_centers_.shape == (1, 1)


def test_rows_beyond_the_bounds_are_clipped_and_centres_stay_within_reach(tmp_path: Path) -> None:
    rows = blobs(1000)
    rows[:10] = 1e12
    found = model(tmp_path).fit(rows)
    assert np.abs(found.cluster_centers_).max() < 100


def test_rows_with_missing_values_are_left_out_or_filled(tmp_path: Path) -> None:
    rows = blobs(100)
    rows[3, 1] = np.nan
    without = model(tmp_path).fit(np.delete(rows, 3, axis=0))
    assert (model(tmp_path).fit(rows).cluster_centers_ == without.cluster_centers_).all()
    assert model(tmp_path, fill=0.0).fit(rows).n_iter_ >= 3


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"bounds": None}, BadBounds),
        ({"data_norm": -1}, BadBounds),
        ({"n_clusters": 0}, BadInput),
        ({"n_clusters": 2.5}, BadInput),
        ({"max_iter": 0}, BadInput),
        ({"spend": None}, BadInput),
    ],
)
def test_a_wrong_call_is_refused_before_anything_is_charged(tmp_path: Path, wrong: dict, error: type) -> None:
    with pytest.raises(error):
        model(tmp_path, **wrong).fit(blobs(100))
    assert not list(tmp_path.iterdir()) or not Ledger.in_folder(tmp_path).accounts()


def test_it_charges_the_whole_spend_once(tmp_path: Path) -> None:
    account = Ledger.in_folder(tmp_path).open_account("rows", epsilon(10, delta="1e-5"))
    found = model(tmp_path, rho("0.01"), account=account).fit(blobs(100))
    assert account.spent == rho("0.01") == found.loss_


def test_it_clones_and_stands_in_a_pipeline(tmp_path: Path) -> None:
    line = make_pipeline(FunctionTransformer(lambda rows: rows / 2), clone(model(tmp_path, max_iter=4)))
    assert line.fit(blobs(500)).predict(blobs(7)).shape == (7,)
    assert line[-1].n_iter_ == 4
    assert line.transform(blobs(7)).shape == (7, 5)


def test_rows_become_integers_within_the_norm() -> None:
    ground = read_ground((-1, 1), None, 7)
    cells = ground.cells(np.random.default_rng(0).normal(size=(500, 7)) * 100)
    assert (cells == np.trunc(cells)).all()
    assert squares(cells).max() <= 4.0**ground.bits
    rounded = read_ground(None, 2.0, 3).cells(np.array([[1e300, -1e300, 5.0], [0.1, 0.0, 0.0]]))
    assert squares(rounded).max() <= 4.0**20


def test_a_row_is_assigned_the_same_wherever_it_stands() -> None:
    rows = np.rint(np.random.default_rng(0).normal(size=(1001, 13)) * 2**18)
    centres = rows[:6] + 1
    assert (_nearest(rows, centres)[1:] == _nearest(rows[1:], centres)).all()


def test_the_radius_holds_the_share_asked_for(tmp_path: Path) -> None:
    account = Ledger.in_folder(tmp_path).open_account("rows", rho(10))
    source = SeededSource("radius")
    meter = PrivacyFilter(account, rho(1), source, Loss.nothing("rho"))
    rows = np.rint(np.random.default_rng(0).normal(size=(20_000, 1)) * 1000)
    radius, known = radius_within(meter, BudgetShare(rho(1)).part("1/2"), lambda: rows, 2**20, 0.9)
    assert 1.6 * 1000 <= radius <= 1.65 * 1000 * 1.15
    assert abs(known - 20_000) < 100
