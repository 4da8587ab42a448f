"""Scattering transform of images: public features that need no training (Bruna & Mallat 2013).

    image ──► wavelets at 2 scales and 8 angles ──► modulus ──► wavelets of the larger scale ──► modulus ──► blur

Each image has 81 channels on a grid a quarter of its side: the blurred image, 16 blurred moduli, and 64 moduli of
moduli. Private linear models on these features are as accurate as private convolutional networks, and cost far less
(Tramèr & Boneh 2021). The channels of one image are normalised by that image alone.

An image's features must not depend, to the last bit, on the images beside it, since a model is trained on all of them.
Images are transformed in batches of one fixed size, padded; a check on made-up images compares all places of a batch,
and images are transformed one at a time where they differ.
"""

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy import fft

from cloister.privacy.errors import BadInput

__all__ = ["CHANNELS", "Scattering"]

Floats = NDArray[np.float32]
Spectrum = NDArray[np.complex64]

CHANNELS = 81
_ANGLES = 8
_PAD = 4  # pixels around an image, mirrored; also the step between two features
_BATCH = 64
_GROUP = 27  # groups of channels that are normalised together
_EPSILON = 1e-5


@dataclass(frozen=True)
class Scattering:
    """Scattering transform of grey images of one size.

    Args:
        height, width: of the images, multiples of 4, from 8 to 256.

    Privacy: the features of an image follow from that image and public filters alone; nothing is learned or counted.
        Release nothing of them but through a private model.

    >>> Scattering(28, 28).transform(np.zeros((2, 28, 28))).shape
    (2, 3969)
    """

    height: int
    width: int

    def __post_init__(self) -> None:
        for side in (self.height, self.width):
            if isinstance(side, bool) or not isinstance(side, int) or side % 4 or not 8 <= side <= 256:
                raise BadInput("the sides of images are multiples of 4, from 8 to 256 pixels. Pad or crop them alike.")

    @property
    def features(self) -> int:
        """Return the number of features of an image."""
        return CHANNELS * (self.height // _PAD) * (self.width // _PAD)

    def transform(self, images: NDArray[np.generic], progress: Callable[[int, int], object] | None = None) -> Floats:
        """Return the features of each image.

        Args:
            images: an array of (images, height, width), of numbers from 0 to 1; others are clipped, and what is no
                number is 0.
            progress: called with the number of images that are done, and of all.
        """
        images = np.asarray(images)
        if images.ndim != 3 or images.shape[1:] != (self.height, self.width) or images.dtype.kind not in "biuf":
            raise BadInput(f"images are an array of numbers of shape (images, {self.height}, {self.width}).")
        step = _BATCH if self._places_do_not_matter else 1
        found = np.empty((len(images), self.features), dtype=np.float32)

        def one_batch(start: int) -> int:
            part = images[start : start + step]
            batch = np.zeros((step, self.height, self.width), dtype=np.float32)
            with np.errstate(all="ignore"):  # an overflow or NaN must not be told
                batch[: len(part)] = np.clip(np.nan_to_num(part.astype(np.float32), nan=0.0), 0.0, 1.0)
            found[start : start + step] = self._of_batch(batch)[: len(part)]
            return len(part)

        done = 0
        with ThreadPoolExecutor(os.cpu_count()) as threads:  # transforms and products run outside Python's lock
            for count in threads.map(one_batch, range(0, len(images), step)):
                done += count
                if progress is not None:
                    progress(done, len(images))
        return found

    @cached_property
    def _places_do_not_matter(self) -> bool:
        """Return True if made-up images have equal features in all places of a batch, whatever surrounds them."""
        shape = (_BATCH, self.height, self.width)
        mixed = np.modf(np.arange(np.prod(shape), dtype=np.float64) * 0.6180339887498949)[0].reshape(shape)
        mixed = (mixed * np.linspace(0, 1, _BATCH)[:, None, None]).astype(np.float32)
        together = self._of_batch(mixed)
        if not np.array_equal(self._of_batch(mixed[::-1].copy()), together[::-1]):
            return False
        alone = (np.repeat(mixed[place : place + 1], _BATCH, axis=0) for place in (0, 1, _BATCH // 2, _BATCH - 1))
        places = (0, 1, _BATCH // 2, _BATCH - 1)
        return all(
            np.array_equal(self._of_batch(same), np.repeat(together[[place]], _BATCH, axis=0))
            for place, same in zip(places, alone, strict=True)
        )

    def _of_batch(self, images: Floats) -> Floats:
        filters = _filters(self.height + 2 * _PAD, self.width + 2 * _PAD)
        padded = np.pad(images, ((0, 0), (_PAD, _PAD), (_PAD, _PAD)), mode="symmetric")
        channels = [filters.blur(padded, 1)]
        whole = fft.fft2(padded)
        second: list[Floats] = []
        for fine in filters.fine:
            modulus = np.abs(fft.ifft2(whole * fine))
            channels.append(filters.blur(modulus, 1))
            spectrum = fft.fft2(modulus)
            second += [filters.coarse_modulus(spectrum, wide) for wide in filters.coarse]
        channels += [filters.coarse_modulus(whole, wide) for wide in filters.coarse]
        return _normalised(np.stack([*channels, *second], axis=1))


@dataclass(frozen=True)
class _Filters:
    """Morlet wavelets in the Fourier domain, and a Gaussian blur with its sampling as two matrices.

    Attributes:
        fine, coarse: wavelets of scales 1 and 2.
        rows, columns: the blur of each direction: {pixels between samples: matrix}.
    """

    fine: tuple[Spectrum, ...]
    coarse: tuple[Spectrum, ...]
    rows: dict[int, Floats]
    columns: dict[int, Floats]

    def blur(self, images: Floats, every: int) -> Floats:
        """Blur images, of which every so many pixels are there, and sample the middle at a quarter of the side."""
        return np.asarray(self.rows[every] @ images @ self.columns[every].T, dtype=np.float32)

    def coarse_modulus(self, spectrum: Spectrum, wavelet: Spectrum) -> Floats:
        """Return the blurred modulus of a convolution with a coarse wavelet, which is sampled at every second pixel."""
        height, width = wavelet.shape[0] // 2, wavelet.shape[1] // 2
        folded = spectrum[:, :height, :width] * wavelet[:height, :width]
        for rows, columns in ((height, 0), (0, width), (height, width)):
            place = np.s_[rows : rows + height, columns : columns + width]
            folded += spectrum[:, *place] * wavelet[place]
        return self.blur(np.abs(fft.ifft2(folded)), 2)


@lru_cache(maxsize=8)
def _filters(height: int, width: int) -> _Filters:
    angles = [np.pi * turn / _ANGLES for turn in range(_ANGLES)]
    fine, coarse = (tuple(_morlet(height, width, scale, angle) for angle in angles) for scale in (1, 2))
    rows, columns = ({every: _blur(side, every) for every in (1, 2)} for side in (height, width))
    return _Filters(fine, coarse, rows, columns)


def _morlet(height: int, width: int, scale: int, angle: float) -> Spectrum:
    """Return the Fourier transform of a Morlet wavelet: a wave under a slanted Gaussian, less what makes its mean 0."""
    sigma, wave, slant = 0.8 * scale, 0.75 * np.pi / scale, 4 / _ANGLES
    y, x = np.meshgrid(_around(height), _around(width), indexing="ij")
    along, across = np.cos(angle) * x + np.sin(angle) * y, -np.sin(angle) * x + np.cos(angle) * y
    envelope = np.exp(-(along**2 + (slant * across) ** 2) / (2 * sigma**2))
    carrier = envelope * np.exp(1j * wave * along)
    wavelet = carrier - envelope * (carrier.sum() / envelope.sum())
    wavelet *= slant / (2 * np.pi * sigma**2)
    wavelet /= scale**2  # of as many samples as are kept
    return np.asarray(np.fft.fft2(wavelet), dtype=np.complex64)


def _around(side: int) -> NDArray[np.float64]:
    """Return coordinates around 0, in the order of a periodic transform."""
    return np.asarray(np.fft.fftfreq(side, 1 / side), dtype=np.float64)


def _blur(side: int, every: int) -> Floats:
    """Return the matrix that blurs a line of pixels and samples it in the middle of the image, at every fourth."""
    sigma = 0.8 * 2
    middle = np.arange(_PAD, side - _PAD, _PAD) + (_PAD - 1) / 2
    pixels = np.arange(0, side, every)
    gap = np.abs(middle[:, None] - pixels[None, :])
    weights = np.exp(-(np.minimum(gap, side - gap) ** 2) / (2 * sigma**2))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True), dtype=np.float32)


def _normalised(channels: Floats) -> Floats:
    """Return the channels of each image in groups of mean 0 and variance 1, as one row."""
    groups = channels.reshape(len(channels), _GROUP, -1)
    middle = groups.mean(axis=2, keepdims=True)
    spread = np.sqrt(groups.var(axis=2, keepdims=True) + _EPSILON)
    return np.asarray((groups - middle) / spread, dtype=np.float32).reshape(len(channels), -1)
