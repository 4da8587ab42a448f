"""The Python client of a hub. It needs none of the server's packages."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloister.client.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    """Load the client on first use."""
    if name == "Client":
        from cloister.client.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
