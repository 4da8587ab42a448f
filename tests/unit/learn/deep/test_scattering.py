"""Scattering transform: the features of an image follow from that image alone."""

import numpy as np
import pytest

from cloister.learn.deep import scattering as scattering_module
from cloister.learn.deep.scattering import CHANNELS, Scattering
from cloister.privacy.errors import BadInput

IMAGES = np.random.default_rng(0).random((150, 12, 16))


def test_features_have_mean_0_and_variance_1_in_each_group_so_their_norm_is_bounded():
    found = Scattering(12, 16).transform(IMAGES)
    assert found.shape == (150, CHANNELS * 3 * 4)
    groups = found.reshape(150, 27, -1)
    np.testing.assert_allclose(groups.mean(axis=2), 0, atol=1e-4)
    assert (np.linalg.norm(found, axis=1) <= np.sqrt(found.shape[1]) * 1.0001).all()


@pytest.mark.parametrize("place", [0, 63, 64, 149])
def test_an_image_has_the_same_features_alone_and_among_others(place):
    transform = Scattering(12, 16)
    among = transform.transform(IMAGES)[place]
    assert np.array_equal(among, transform.transform(IMAGES[[place]])[0])
    assert np.array_equal(among, transform.transform(IMAGES[::-1])[149 - place])


def test_where_places_matter_images_go_one_at_a_time(monkeypatch):
    transform = Scattering(8, 8)
    plain = Scattering._of_batch
    sizes = []

    def slanted(self, images):
        sizes.append(len(images))
        return plain(self, images) + np.arange(len(images), dtype=np.float32)[:, None]

    monkeypatch.setattr(Scattering, "_of_batch", slanted)
    transform.transform(IMAGES[:3, :8, :8])
    assert sizes[-3:] == [1, 1, 1]


def test_a_moved_edge_changes_the_features_less_than_the_pixels():
    edge = np.zeros((2, 28, 28))
    edge[0, :, 13:], edge[1, :, 14:] = 1, 1
    found = Scattering(28, 28).transform(edge)
    pixels = np.linalg.norm(edge[0] - edge[1]) / np.linalg.norm(edge[0] - edge[0].mean())
    assert np.linalg.norm(found[0] - found[1]) / np.linalg.norm(found[0]) < 2 * pixels


def test_pixels_that_are_no_numbers_are_black_and_tell_nothing():
    with np.errstate(all="raise"):
        odd = IMAGES[:1].copy()
        odd[0, 0, :3] = [np.nan, np.inf, -np.inf]
        black = IMAGES[:1].copy()
        black[0, 0, :3] = [0, 1, 0]
        assert np.array_equal(Scattering(12, 16).transform(odd), Scattering(12, 16).transform(black))


def test_progress_counts_images():
    told = []
    Scattering(12, 16).transform(IMAGES, lambda done, of: told.append((done, of)))
    assert told == [(64, 150), (128, 150), (150, 150)]


@pytest.mark.parametrize("sides", [(9, 8), (4, 8), (8, 512), (8.0, 8), (True, 8)])
def test_other_sides_are_refused(sides):
    with pytest.raises(BadInput, match="multiples of 4"):
        Scattering(*sides)


@pytest.mark.parametrize("images", [np.zeros((2, 8, 12)), np.zeros((8, 8)), np.array([["a"]])])
def test_other_images_are_refused(images):
    with pytest.raises(BadInput, match="shape"):
        Scattering(8, 8).transform(images)


def test_wavelets_have_mean_zero():
    filters = scattering_module._filters(20, 24)
    assert max(abs(wave[0, 0]) for wave in (*filters.fine, *filters.coarse)) < 1e-5
