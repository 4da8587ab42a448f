"""A cache of finished results with a limit in bytes: what was used least recently goes first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

__all__ = ["Cache", "size_of"]


class Cache:
    """Results of one process, each computed once while it is remembered.

    One result is computed at a time: what a computation takes in passing is taken once, and who asks for the same
    result meanwhile waits for it. A result that is larger than the limit by itself is not kept.

    Args:
        limit: in bytes, for all results together.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._total = 0
        self._changing, self._computing = threading.Lock(), threading.Lock()

    @property
    def total(self) -> int:
        """How many bytes are held, about."""
        return self._total

    def get(self, key: Hashable, compute: Callable[[], Any]) -> Any:
        """A result that is held, or a new one. What `compute` raises is raised, and not remembered."""
        found = self._find(key)
        if found is None:
            with self._computing:
                found = self._find(key)  # somebody may have computed it while we waited
                if found is None:
                    found = (compute(),)
                    self._keep(key, found[0])
        return found[0]

    def _find(self, key: Hashable) -> tuple[Any] | None:
        with self._changing:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return (self._held[key][0],)

    def _keep(self, key: Hashable, value: Any) -> None:
        size = size_of(value)
        if size > self._limit:
            return
        with self._changing:
            self._held[key] = value, size
            self._total += size
            while self._total > self._limit:
                self._total -= self._held.popitem(last=False)[1][1]


def size_of(value: Any) -> int:
    """About how many bytes a result takes: its arrays and texts, and those of its parts."""
    if isinstance(value, np.ndarray):
        return int(value.nbytes) + 128
    if isinstance(value, str | bytes):
        return len(value) + 64
    if isinstance(value, Mapping):
        return 64 + sum(size_of(key) + size_of(one) for key, one in value.items())
    if isinstance(value, list | tuple):
        return 64 + sum(size_of(one) for one in value)
    if is_dataclass(value):
        return 64 + sum(size_of(getattr(value, field.name)) for field in fields(value))
    return 64 + sum(size_of(one) for one in getattr(value, "__dict__", {}).values())
