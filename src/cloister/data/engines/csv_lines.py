"""CSV files without the lines that are too long for DuckDB.

DuckDB leaves out a line of more than two million bytes, but loses its place at a text between quotation marks that
fills one of its buffers: all later lines were gone, so that one person decided over everybody else. So lines are found
here, before it reads a file for the first time, and longer ones are left out one by one:

    people.csv ── every line is short enough ── private/0.csv, a link to it
               ── some are too long ─────────── private/0.csv, a copy without them

A line ends at a line break outside quotation marks. A text is between quotation marks if its first character is one,
or its second after a blank, which is how DuckDB reads it; within, two of them stand for one. Of a file that is not
well formed, other lines may be left out than DuckDB would.
"""

import gzip
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from numpy.typing import NDArray

__all__ = ["LONGEST_LINE", "CsvFile", "line_ends"]

LONGEST_LINE = 2_000_000  # bytes; DuckDB reads lines of this length, in buffers of sixteen times as many
_BLOCK = 4 * 2**20
_QUOTE, _LINE_FEED, _RETURN, _BLANK = b'"\n\r '


class CsvFile:
    """A CSV file under a path at which it has only lines that DuckDB can read, once it is `ready`.

    Args:
        path: the file, gzipped if its name ends so.
        separator: between two texts.
        place: the path to read from, which is made here; it ends like `path`.
        in_memory: if True, a copy is held in memory and no row reaches a disk.
    """

    def __init__(self, path: Path, separator: str, place: Path, *, in_memory: bool) -> None:
        self._path, self._separator, self._place, self._in_memory = path.resolve(), ord(separator), place, in_memory
        self._lock, self._is_ready, self._memory = threading.Lock(), False, -1
        place.symlink_to(self._path)

    def ready(self) -> None:
        """Leave out the lines that are too long. The file is read, so this comes after the charge."""
        with self._lock:
            if self._is_ready:
                return
            with self._open() as file:
                spans = list(_too_long(lambda: file.read(_BLOCK), self._separator))
            if spans:
                self._copy(spans)
            self._is_ready = True

    def close(self) -> None:
        """Release a copy in memory; one on the disk belongs to the folder of `place`."""
        if self._memory >= 0:
            os.close(self._memory)
            self._memory = -1

    def _open(self) -> BinaryIO:
        return cast(BinaryIO, gzip.open(self._path)) if self._path.suffix == ".gz" else self._path.open("rb")

    def _copy(self, spans: Sequence[tuple[int, int]]) -> None:
        """Put a copy without these bytes in the place of the link."""
        copy = self._place.with_name(f"copy-{self._place.name}")
        if self._in_memory:
            self._memory = os.memfd_create("cloister")
            copy.symlink_to(f"/proc/self/fd/{self._memory}")
            written = os.fdopen(os.dup(self._memory), "wb")
        else:
            written = copy.open("xb")
        with self._open() as file, written:
            packed = gzip.GzipFile(fileobj=written, mode="wb", compresslevel=1) if self._path.suffix == ".gz" else None
            for block in _without(lambda: file.read(_BLOCK), spans):
                (packed or written).write(block)
            if packed is not None:
                packed.close()
        copy.replace(self._place)


def _too_long(read: Callable[[], bytes], separator: int) -> Iterator[tuple[int, int]]:
    """Yield the first byte of each line that is too long, and the one behind it. The first line is none of them."""
    start, size, first = 0, 0, True
    for ends, read_to in line_ends(read, separator):
        size = read_to
        if not ends.size:
            continue
        behind = ends + 1
        starts = np.concatenate(([start], behind[:-1]))
        for i in np.flatnonzero(ends - starts > LONGEST_LINE):
            if not (first and i == 0):
                yield int(starts[i]), int(behind[i])
        start, first = int(behind[-1]), False
    if not first and size - start > LONGEST_LINE:
        yield start, size


def line_ends(read: Callable[[], bytes], separator: int) -> Iterator[tuple[NDArray[np.int64], int]]:
    """Yield, block by block, the positions of the line breaks that end lines, and the number of bytes read so far."""
    before, held, quoted, at = b"\n\n", b"", False, 0
    while block := read():
        known = len(before) + len(held)
        text = before + held + block
        base, at = at - known, at + len(block)
        # A run of quotation marks may go on in the next block. Only whether their number is odd matters.
        whole = text.rstrip(b'"')
        run = len(text) - len(whole)
        held = b"" if not run else b'"' if run % 2 else b'""'
        data = np.frombuffer(whole, np.uint8)
        breaks = data == _LINE_FEED
        if b"\r" in whole:
            breaks |= data == _RETURN
        breaks[: len(before)] = False
        ends = np.flatnonzero(breaks)
        marks, after = _quoted_after(data, len(before), separator, quoted)
        if marks.size:
            states = np.concatenate(([quoted], after))
            ends = ends[~states[np.searchsorted(marks, ends)]]
            quoted = bool(after[-1])
        elif quoted:
            ends = ends[:0]
        before = whole[-2:]
        yield ends + base, at


def _quoted_after(
    data: NDArray[np.uint8], skipped: int, separator: int, quoted: bool
) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """Return where runs of quotation marks begin, and whether the text after each is between such marks.

    Runs of an even number change nothing. Between quotation marks every other run ends the text. Elsewhere a run begins
    a text between quotation marks if it is at the beginning of a text, and is part of the text otherwise.
    """
    marks = np.flatnonzero(data[skipped:] == _QUOTE) + skipped
    if not marks.size:
        return marks, np.zeros(0, np.bool_)
    firsts = np.flatnonzero(np.diff(marks, prepend=-2) != 1)
    odd = np.diff(firsts, append=marks.size) % 2 == 1
    begins = marks[firsts[odd]]
    breaks = np.zeros(256, np.bool_)
    breaks[[separator, _LINE_FEED, _RETURN]] = True
    at_beginning = breaks[data[begins - 1]] | ((data[begins - 1] == _BLANK) & breaks[data[begins - 2]])
    # At a beginning the state is turned around; elsewhere no text is between quotation marks afterwards. So the state
    # is odd if an odd number of beginnings followed the last run that was elsewhere.
    turns = np.cumsum(at_beginning)
    since = np.maximum.accumulate(np.where(at_beginning, -int(quoted), turns))
    return begins, (turns - since) % 2 == 1


def _without(read: Callable[[], bytes], spans: Sequence[tuple[int, int]]) -> Iterator[bytes]:
    """Yield a file without some spans of it, and without the line feed behind a span that ends at a carriage return."""
    at, waiting = 0, list(reversed(spans))
    ended = -1  # the end of the last span, if it was at a carriage return
    while block := read():
        position, behind = at, at + len(block)
        while position < behind:
            if position == ended and block[position - at] == _LINE_FEED:
                position += 1
                ended = -1
                continue
            low, high = waiting[-1] if waiting else (behind, behind)
            if position < low:
                stop = min(low, behind)
                yield block[position - at : stop - at]
                position = stop
                continue
            position = min(high, behind)
            if position == high:
                waiting.pop()
                ended = high if block[position - at - 1 : position - at] == b"\r" else -1
        at = behind
