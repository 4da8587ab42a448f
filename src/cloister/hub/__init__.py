"""The hub: data owners share protected data, researchers use it, the policy and the ledger decide.

    core/        settings, database, models, migrations, keys, audit log, notifications, logs, metrics
    users/       accounts, organisations, roles, sessions, tokens, second factors
    policy/      who may do what, for which purpose, at which cost; every decision explains itself
    datasets/    sealed tables: uploads, versions, connections, mock data
    accounting/  the ledger's statements, the audit log, the card for a data subject
    approvals/   requests for access or for a release, and decisions about them
    jobs/        the gateway of every request, the durable queue, the workers, the spending limits, the job types
    surveys/     questions, ballots, intake, results
    web/         pages and HTTP API over all of these
    ops/         processes, backup and restore, the demo

A request passes through: web → gateway → policy → plan → approval → queue → worker → ledger →
rows → release. Only `datasets` can open a sealed table, and only a worker calls it for that.

The Python client is the package `cloister.client`.
"""

import warnings


def __getattr__(name: str) -> object:
    if name == "Client":
        from cloister.client import Client

        warnings.warn("hub.Client is client.Client now.", DeprecationWarning, stacklevel=2)
        return Client
    raise AttributeError(f"cloister.hub has no {name!r}.")
