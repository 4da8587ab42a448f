"""Cache of results with a limit in bytes and least-recently-used eviction."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["Cache", "size_of"]


class Cache:
    """Results of one process, each computed once while it is cached.

    One result is computed at a time: temporary memory is used once, and other callers for the same result wait for it.
    A result that is larger than the limit by itself is not kept.

    Args:
        limit: the limit in bytes, for all results together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._total = 0
        self._changing, self._computing = threading.Lock(), threading.Lock()

    @property
    def total(self) -> int:
        """Return the approximate number of bytes held."""
        return self._total

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """Return the cached result, or compute it. An exception of `compute` is raised and not cached."""
        hit = self.find(key)
        if hit is None:
            with self._computing:
                hit = self.find(key)  # another thread may have computed it meanwhile
                if hit is None:
                    hit = (compute(),)
                    self.keep(key, hit[0])
        return hit[0]

    def find(self, key: Hashable) -> tuple[Any] | None:
        """Return the cached result in a tuple; None if there is none."""
        with self._changing:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return (self._held[key][0],)

    def keep(self, key: Hashable, value: Any) -> None:
        """Cache a result that was computed elsewhere, such as in a child process."""
        size = size_of(value)
        if size > self._limit:
            return
        with self._changing:
            if key in self._held:
                self._total -= self._held.pop(key)[1]
            self._held[key] = value, size
            self._total += size
            while self._total > self._limit:
                self._total -= self._held.popitem(last=False)[1][1]


def size_of(value: Any) -> int:
    """Return the approximate size of a result in bytes: its arrays and texts, and those of its parts."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + 128
    if isinstance(value, str | bytes):
        return len(value) + 64
    if isinstance(value, Mapping):
        return 64 + sum(size_of(key) + size_of(item) for key, item in value.items())
    if isinstance(value, list | tuple):
        return 64 + sum(size_of(item) for item in value)
    if is_dataclass(value):
        return 64 + sum(size_of(getattr(value, field.name)) for field in fields(value))
    return 64 + sum(size_of(item) for item in getattr(value, "__dict__", {}).values())
