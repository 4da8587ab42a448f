"""Base of the hub: settings, database, keys, audit log and operation.

    settings  database  models  migrations/   configuration and storage
    hub                                       one open hub: settings, database, ledger, keys, audit log
    keys                                      encryption of tables; secrets of tokens and their digests
    audit  trail  audit_triggers              the audit log, its hash chain, and triggers that protect it
    logs  metrics  notices  heartbeats        operation
    child_process  cache                      limits on memory and time
    copies                                    folders for copies of the database in clear

The lowest layer: it imports no other part of the hub.
"""
