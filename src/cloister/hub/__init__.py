"""The hub: data owners share protected data, researchers use it, the policy and the ledger decide.

    people/     accounts, organisations, roles, sessions, tokens, second factors
    policy/     who may do what, for which purpose, at which cost; every decision explains itself
    store/      sealed tables: keys, uploads, versions, connections, mock data
    kinds/      kinds of work that plug in: query, profile, train, synthesise, and whatever a later room brings
    work/       the gateway every request goes through, the durable queue, the workers, the spending limits
    books/      the ledger's statements, the audit log, the card for a data subject
    requests/   asking for access or for a release, and deciding about it; notifications
    web/        pages and HTTP API over all of these
    operate/    settings' reference, backup and restore, metrics, logs, the demo

The way of a request is the way of the data: web → gateway → policy → plan → approval → queue → worker → ledger →
rows → release. Only `store` can open a sealed table, and only a worker asks it to.

`Client` talks to a hub from Python and needs none of the server's packages.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cloister.hub.client import Client

__all__ = ["Client"]


def __getattr__(name: str) -> Any:
    if name == "Client":
        from cloister.hub.client import Client

        return Client
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
