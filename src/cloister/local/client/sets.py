"""Multiple choice, on the device: one word, and for SetBits the coins of all options after it."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.local.client.coins import Bytes, Words, bit_coins, tossed, uniform
from cloister.local.client.perturb import checked, perturbed, pieces
from cloister.local.client.unary import row_width, trim
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.privacy.errors import BadCandidates
from cloister.privacy.noise.source import Source

__all__ = ["bits_of_set", "one_of_set", "padded_sample", "read_sets"]


@perturbed.register
def one_of_set(mechanism: OneOfSet, values: NDArray[np.int64], source: Source) -> Words:
    """A number: 8 random bytes a person, read as one little-endian word u.

    With (own, run) = mechanism.thresholds and the chosen options in ascending order:
        u < most·own: number u div own of the chosen options, or `domain` (nothing) if so many were not chosen;
        otherwise r = (u - most·own) div run: number r of the options that were not chosen, or `domain`.
    """
    own, run = (np.uint64(share) for share in mechanism.thresholds)
    people, end = np.arange(len(values)), np.uint64(mechanism.most) * own
    word = tossed(len(values), source)
    hit = word < end
    slot = np.minimum(word // own, np.uint64(mechanism.most - 1)).astype(np.int64)
    named = values[people, slot]
    named[named < 0] = mechanism.domain
    # Where hit, the difference wraps and is not used.
    other = np.minimum((word - end) // run, np.uint64(mechanism.domain)).astype(np.int64)
    for chosen in values.T:  # ascending: each chosen option that is passed moves the place up by one
        other += (chosen >= 0) & (chosen <= other)
    return np.asarray(np.where(hit, named, np.minimum(other, mechanism.domain)), dtype=np.uint64)


@perturbed.register
def bits_of_set(mechanism: SetBits, values: NDArray[np.int64], source: Source) -> Bytes:
    """Packed bits, the first option in the lowest bit of the first byte; bits beyond the domain are 0.

    8 random bytes a person, read as one little-endian word u: the first chosen option (ascending) that shows is number
    j, the number of thresholds that are not above u. Then the coins, as for unary encoding: ceil(domain/8) random
    bytes for each binary digit of q, from the lowest (`client.coins.bit_coins`). Chosen options before number j are
    cleared, number j is set, all other bits stay as the coins fell.
    """
    width, ends = row_width(mechanism.domain), np.array(mechanism.thresholds, dtype=np.uint64)
    rows = np.empty((len(values), width), dtype=np.uint8)
    for piece in pieces(len(values)):
        chosen = values[piece]
        first = np.searchsorted(ends, tossed(len(chosen), source), side="right")
        bits = bit_coins(mechanism.q, len(chosen) * width, source).reshape(-1, width)
        trim(bits, mechanism.domain)
        for place, option in enumerate(chosen.T):
            at = np.flatnonzero((option >= 0) & (place <= first))
            byte, mask = option[at] >> 3, np.uint8(1) << (option[at] & 7).astype(np.uint8)
            held = bits[at, byte] & ~mask
            bits[at, byte] = np.where(first[at] == place, held | mask, held)
        rows[piece] = bits
    return rows


@perturbed.register
def padded_sample(mechanism: PaddedSample, values: NDArray[np.int64], source: Source) -> NDArray[Any]:
    """One of `most` places, uniform (a word each, again in the last incomplete run); then the inner mechanism's bytes.

    The place's chosen option, in ascending order, or `domain` if fewer were chosen, is the inner mechanism's value.
    """
    place = uniform(mechanism.most, len(values), source).astype(np.int64)
    named = values[np.arange(len(values)), place]
    return perturbed(mechanism.inner, np.where(named < 0, mechanism.domain, named), source)


@checked.register
def read_sets(mechanism: OneOfSet | SetBits | PaddedSample, values: Any) -> NDArray[np.int64]:
    """One row a person: the chosen options in ascending order, then -1 up to `most`.

    Args:
        mechanism: the public facts.
        values: one person's set or frozenset; a list with one set (or list, or tuple) a person; or a matrix of bools
            with one row a person and one column an option.
    """
    rule = (
        f"give each person's options as a set of at most {mechanism.most} different whole numbers from 0 to "
        f"{mechanism.domain - 1}: one set, a list of sets, or a matrix of bools."
    )
    if isinstance(values, set | frozenset):
        values = [values]
    if isinstance(values, np.ndarray) and values.dtype == np.bool_ and values.ndim == 2:
        if values.shape[1] != mechanism.domain:
            raise BadCandidates(rule)
        rows, flat = np.divmod(np.flatnonzero(values), mechanism.domain)
        people = len(values)
    elif isinstance(values, list | tuple) and all(isinstance(one, set | frozenset | list | tuple) for one in values):
        people = len(values)
        rows = np.repeat(np.arange(people), [len(one) for one in values])
        listed = [option for one in values for option in one]
        if any(isinstance(option, bool) or not isinstance(option, int | np.integer) for option in listed):
            raise BadCandidates(rule)
        try:
            flat = np.array(listed, dtype=np.int64)
        except OverflowError:
            raise BadCandidates(rule) from None
        order = np.lexsort((flat, rows))
        flat = flat[order]
    else:
        raise BadCandidates(rule)
    return _filled(rows, np.asarray(flat, dtype=np.int64), people, mechanism, rule)


def _filled(
    rows: NDArray[np.intp],
    flat: NDArray[np.int64],
    people: int,
    mechanism: OneOfSet | SetBits | PaddedSample,
    rule: str,
) -> NDArray[np.int64]:
    """The matrix, from options sorted by person and number."""
    sizes = np.bincount(rows, minlength=people)
    twice = (np.diff(rows) == 0) & (np.diff(flat) == 0)
    if twice.any() or (sizes > mechanism.most).any() or ((flat < 0) | (flat >= mechanism.domain)).any():
        raise BadCandidates(rule)
    filled = np.full((people, mechanism.most), -1, dtype=np.int64)
    filled[rows, np.arange(len(rows)) - np.repeat(np.cumsum(sizes) - sizes, sizes)] = flat
    return filled
