"""The Python client of a hub. It needs none of the server's packages."""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.client.client import Client

__all__ = ["Client"]

__getattr__, __dir__ = door(__name__)
