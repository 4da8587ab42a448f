"""Objects that hold secrets: not printed, not pickled, not copied; shared numbers: not compared."""

from typing import NoReturn, SupportsIndex

from cloister.privacy.errors import BadInput

__all__ = ["Hidden", "Secret"]


class Secret:
    """Base class of objects that hold key material or shares.

    A repr appears in logs and tracebacks, and a pickle in caches and between processes: both are places from which
    secrets leave unnoticed. Classes whose secrets may be stored offer `to_bytes`, a call that can be found by name.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: not shown>"

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise BadInput(
            f"a {type(self).__name__} holds secrets, so it is neither pickled nor copied. "
            "A key or share is stored with save(), or sealed through to_bytes()."
        )


class Hidden(Secret):
    """Base class of shared numbers, which have no value that a program could branch on.

    Python would answer `a == b` with False and `if a:` with True, whatever the numbers are.
    """

    __slots__ = ()

    def _refused(self, *_: object) -> NoReturn:
        raise BadInput("shared numbers have no value here. Compare them under sharing, or open a result first.")

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __bool__ = _refused
    __hash__ = None  # type: ignore[assignment]
