"""Columns as integer codes, one for each different printed value.

Two cells of a column are equal if they print alike, code point by code point: 'a' and 'A', 'a' and 'a ', composed and
decomposed letters are different values. Numbers print without trailing zeros (1.0 is 1, -0.0 is 0), dates and times in
ISO form, times with a zone in UTC. NULL is a value of its own, and NaN is NULL.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from cloister.privacy.errors import BadSource

__all__ = ["Column", "Integers", "common_codes", "encode", "lookalikes", "ranks_of_numbers", "share_codes"]

Integers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Column:
    """A column in codes.

    Attributes:
        codes: for each row, the number of its value.
        texts: for each code, the value as printed; NULL is one of them if it occurs.
        ranks: for each code, its position in the order of numbers, dates or times, with NULL first; None for text.
    """

    codes: Integers
    texts: pa.Array
    ranks: Integers | None

    def text(self, code: int) -> str | None:
        """Return the printed value of a code."""
        value: str | None = self.texts[code].as_py()
        return value

    def null_code(self) -> int | None:
        """Return the code of NULL, or None if there is no NULL."""
        nulls = np.flatnonzero(self.texts.is_null().to_numpy(zero_copy_only=False))
        return int(nulls[0]) if len(nulls) else None


def encode(name: str, cells: pa.ChunkedArray) -> Column:
    """Return a column in codes.

    Raises:
        BadSource: for lists, structures and other types that do not print as one value.
    """
    kind = cells.type
    if pa.types.is_dictionary(kind):
        return _encode_categories(name, cells)
    if pa.types.is_nested(kind) or pa.types.is_union(kind):
        raise BadSource(
            f"the column {name:.60} is {kind!s:.60}: its cells hold several values. Name a column of sets with items=, "
            "and convert others to text."
        )
    codes, values = _coded(name, cells)
    return Column(codes, _printed(values), _ranks(values))


def common_codes(name: str, tables: Sequence[pa.ChunkedArray]) -> tuple[list[Integers], int | None]:
    """Return codes of a column of several tables, equal for cells that print alike, and the code of NULL, if it occurs.

    For ids, of which there are as many as rows: cells of one type are neither printed nor ordered.
    """
    kinds = {cells.type for cells in tables}
    if len(kinds) > 1 or any(pa.types.is_dictionary(kind) or pa.types.is_nested(kind) for kind in kinds):
        shared = share_codes([encode(name, cells) for cells in tables])
        return [column.codes for column in shared], shared[0].null_code()
    codes, values = _coded(name, pa.chunked_array([chunk for cells in tables for chunk in cells.chunks], *kinds))
    null = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
    ends = np.cumsum([len(cells) for cells in tables])[:-1]
    return np.split(codes, ends), int(null[0]) if len(null) else None


def _coded(name: str, cells: pa.ChunkedArray) -> tuple[Integers, pa.Array]:
    """Return the codes of cells, and the value of each code."""
    plain = _plain(name, cells)
    if plain.num_chunks > 1 and pa.types.is_string(plain.type):
        plain = plain.cast(pa.large_string())  # one array of more than 2 GB
    array = plain.chunk(0) if plain.num_chunks == 1 else pa.concat_arrays(plain.chunks or [pa.array([], plain.type)])
    encoded = pc.dictionary_encode(array, null_encoding="encode")
    return encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64), encoded.dictionary


def _plain(name: str, cells: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return cells in a type that can be hashed, with NaN as NULL and without negative zero."""
    kind = cells.type
    if pa.types.is_null(kind):
        return cells.cast(pa.string())
    if pa.types.is_float16(kind):
        cells = cells.cast(pa.float32())
    if pa.types.is_floating(cells.type):
        zero = pa.scalar(0.0, cells.type)
        return pc.if_else(pc.is_nan(cells), pa.scalar(None, cells.type), pc.add(cells, zero))
    if kind == pa.string_view():
        return cells.cast(pa.large_string())
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        try:
            return cells.cast(pa.large_string())
        except pa.ArrowInvalid:
            raise BadSource(f"the column {name:.60} holds bytes that are no text. Convert it to text.") from None
    return cells


def _encode_categories(name: str, cells: pa.ChunkedArray) -> Column:
    """Return a dictionary column in codes of the values that occur. A dictionary may repeat a value or contain NULL."""
    try:
        chunks = cells.unify_dictionaries().chunks
    except pa.ArrowException:  # several dictionaries, one of them with NULL
        chunks = []
    if not chunks:
        return encode(name, cells.cast(cells.type.value_type))
    dictionary = chunks[0].dictionary
    values = encode(name, pa.chunked_array([dictionary, pa.nulls(1, dictionary.type)]))
    indices = pa.chunked_array([chunk.indices for chunk in chunks])
    position = pc.fill_null(indices, len(values.codes) - 1).to_numpy().astype(np.int64)
    return _compact(replace(values, codes=values.codes[position]))


def _compact(column: Column) -> Column:
    """Return a column without codes that no row has."""
    used = np.flatnonzero(np.bincount(column.codes, minlength=len(column.texts)))
    number = np.zeros(len(column.texts), dtype=np.int64)
    number[used] = np.arange(len(used))
    ranks = None if column.ranks is None else _positions(np.argsort(column.ranks[used]))
    return Column(number[column.codes], column.texts.take(pa.array(used)), ranks)


def _printed(values: pa.Array) -> pa.Array:
    """Return values as text."""
    kind = values.type
    if pa.types.is_timestamp(kind) and kind.tz is not None:
        values = values.cast(pa.timestamp(kind.unit, "UTC"))
    texts = values.cast(pa.large_string())
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        texts = pc.replace_substring_regex(texts, r"^(-?\d+\.\d*?)0+$", r"\1")
        texts = pc.replace_substring_regex(texts, r"\.$", "")
        texts = pc.if_else(pc.equal(texts, "-0"), "0", texts)
    elif pa.types.is_timestamp(kind):
        texts = pc.replace_substring_regex(texts, r"\.0+(Z?)$", r"\1")
    return texts


def _ranks(values: pa.Array) -> Integers | None:
    """Return the position of each value in the order of its type, with NULL first; None if the type has no order."""
    kind = values.type
    if not (pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)):
        if not pa.types.is_temporal(kind):
            return None
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())
    ranks = _positions(pc.sort_indices(values).to_numpy())
    nulls = values.is_null().to_numpy(zero_copy_only=False)  # sorted last: put them first
    return np.where(nulls, 0, ranks + 1) if nulls.any() else ranks


def _positions(order: Any) -> Integers:
    """Return the inverse of a permutation."""
    ranks = np.empty(len(order), dtype=np.int64)
    ranks[np.asarray(order, dtype=np.int64)] = np.arange(len(order))
    return ranks


def ranks_of_numbers(texts: pa.Array) -> Integers | None:
    """Return the order of texts that are numbers, exactly, with NULL first; None if one of them is no number."""
    try:
        keys = [Decimal(-10).scaleb(400) if text is None else Decimal(text) for text in texts.to_pylist()]
    except InvalidOperation:
        return None
    if any(key.is_nan() for key in keys):
        return None
    return _positions(sorted(range(len(keys)), key=keys.__getitem__))


def share_codes(columns: Sequence[Column]) -> list[Column]:
    """Return columns of the same name in several tables with common codes. Ranks are those of the first."""
    first, *others = columns
    texts = first.texts
    shared = [first]
    for column in others:
        known = pc.index_in(column.texts, value_set=texts, skip_nulls=False)
        unknown = known.is_null().to_numpy(zero_copy_only=False)
        codes = pc.fill_null(known, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        codes[unknown] = len(texts) + np.arange(unknown.sum())
        texts = pa.concat_arrays([texts, column.texts.filter(pa.array(unknown)).cast(texts.type)])
        shared.append(replace(column, codes=codes[column.codes] if len(codes) else column.codes))
    return [replace(column, texts=texts, ranks=first.ranks) for column in shared]


def lookalikes(texts: pa.Array) -> int:
    """Return the number of texts that differ from another one only in case, outer spaces or Unicode form."""
    plain = pc.utf8_lower(pc.utf8_trim_whitespace(pc.utf8_normalize(texts.drop_null(), "NFKC")))
    counts = pc.value_counts(plain).field("counts").to_numpy(zero_copy_only=False)
    return int(counts[counts > 1].sum())
