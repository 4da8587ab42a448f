"""Faults of protocols: local reports, the shuffle model, sums under masks, noise in shares."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloister.attack.zoo.mechanisms import gaussian
from cloister.attack.zoo.twins import Draw, Twins, generator, of_kind
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.noise import Source, bernoulli, discrete_gaussian

__all__ = ["PROTOCOLS"]

_WAVES = 5
_MODULUS = 2**16
_PEOPLE = 1000
_KEEP = "7310/10000"  # e / (1 + e), rounded down
_KEEP_HALF = "6224/10000"  # sqrt(e) / (1 + sqrt(e)), rounded down
_KEEP_TWO = "8807/10000"  # e^2 / (1 + e^2), rounded down


def _flipped(bit: Any, keep: str, shape: Any, source: Source) -> Any:
    """Return bits that are kept with a probability and turned otherwise."""
    kept = np.asarray(bernoulli(keep, shape, source)).astype(np.int64)
    return np.where(kept, bit, 1 - np.asarray(bit))


def _waves(*, memoised: bool) -> Draw:
    """Return one person's reports to five waves of a question."""

    def draw(data: int, n: int, source: Source) -> Any:
        reports = _flipped(data, _KEEP, (n, 1 if memoised else _WAVES), source)
        return np.repeat(reports, _WAVES, axis=1) if memoised else reports

    return draw


def _unary(keep: str) -> Draw:
    """Return a vector of four bits, one of them set, each kept with a probability."""

    def draw(data: int, n: int, source: Source) -> Any:
        return _flipped((np.arange(4) == data).astype(int), keep, (n, 4), source)

    return draw


def _shuffled(*, in_order: bool) -> Draw:
    """Return what a server sees of 1,000 reports at epsilon 2: their sum, or the first person's own report too."""

    def draw(data: int, n: int, source: Source) -> Any:
        own = _flipped(data, _KEEP_TWO, n, source)
        others = generator(source).binomial(_PEOPLE - 1, 1 - 0.8807, n)
        return np.column_stack((own, own + others)) if in_order else own + others

    return draw


def _masked(*, fresh: bool) -> Draw:
    """Return an owner's masked numbers in two rounds, as the server sees them."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        masks = generator(source).integers(_MODULUS, size=(n, 2 if fresh else 1))
        uploads = (np.asarray(data) + masks) % _MODULUS
        return np.column_stack((uploads, (uploads[:, 1] - uploads[:, 0]) % _MODULUS))

    return draw


def _shares(each: Any) -> Draw:
    """Return a sum with the shares of noise of the two of ten owners who stayed."""

    def draw(data: int, n: int, source: Source) -> Any:
        return data + discrete_gaussian(each, (n, 2), source).sum(axis=1)

    return draw


def _two_categories_of_three(*, both: bool) -> Draw:
    """Return reports of a person with two of three answers, each by randomised response."""

    def draw(data: Sequence[int], n: int, source: Source) -> Any:
        return _flipped(np.asarray(data), _KEEP if both else _KEEP_HALF, (n, len(data)), source)

    return draw


_twins = of_kind("protocol")


_LOCAL = epsilon(1, relation="replace-one")

PROTOCOLS: tuple[Twins, ...] = (
    _twins(
        "a new random answer in every wave",
        "Five waves of one question cost five times epsilon, unless the first report is kept and sent again.",
        _waves(memoised=False), _waves(memoised=True), 0, 1, _LOCAL,
        reference="Erlingsson, Pihur & Korolova 2014, RAPPOR",
    ),
    _twins(
        "unary encoding with the noise of one bit",
        "Two bits differ between two answers, so each may cost half.",
        _unary(_KEEP), _unary(_KEEP_HALF), 0, 1, _LOCAL,
        reference="Wang, Blocki, Li & Jha 2017, Locally differentially private protocols",
    ),
    _twins(
        "several answers of one person, each at the whole price",
        "A person who answers two questions pays for both.",
        _two_categories_of_three(both=True), _two_categories_of_three(both=False), [0, 0], [1, 1], _LOCAL,
    ),
    _twins(
        "a shuffler that keeps the order",
        "The loss of the shuffle model is stated, and the first report is still the first person's.",
        _shuffled(in_order=True), _shuffled(in_order=False), 0, 1,
        epsilon("0.15", delta="1e-3", relation="replace-one"),
        reference="Balle, Bell, Gascón & Nissim 2019, The privacy blanket of the shuffle model",
    ),
    _twins(
        "masks that are used in two rounds",
        "The difference of two uploads under one mask is the difference of the numbers.",
        _masked(fresh=False), _masked(fresh=True), [3, 3], [3, 4], epsilon("0.01", relation="replace-one"),
    ),
    _twins(
        "noise of owners who left",
        "Ten owners share the noise, eight leave, and the price is still that of ten.",
        _shares(316), _shares(708), 0, 1000, rho("1/2"),
    ),
    _twins(
        "noise left to a server that adds none",
        "Three quarters of the variance are the server's share, and it adds nothing.",
        gaussian(500), gaussian(1000), 0, 1000, rho("1/2"),
    ),
)  # fmt: skip
