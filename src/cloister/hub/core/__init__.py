"""What every part of the hub stands on.

settings  database  models  migrations/   configuration and storage
hub                                       one open hub: settings, database, ledger, keys, audit log
logs  metrics  notices  secrets           operation
child_process  cache                      limits on memory and time
copies                                    folders for copies of the database in clear
"""
