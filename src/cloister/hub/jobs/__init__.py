"""The way of a request from a person to a release, the same for every kind of work.

    visibility.py     which datasets and jobs a person may know of
    gateway.py   who asks, may they, what would it cost, does somebody have to agree; then into the queue
    rate_limits.py    a person's and a period's limits, set aside exactly before the ledger is charged
    queue.py     jobs in the database: taken by one worker only, fair between people, recovered after a crash
    job_context.py      what decides about a job, asked before its tables are opened and again before its charge
    job_ledger.py      the ledger as one job sees it: decided again, set aside and noted before anything is charged
    trust_model.py     where work runs, and who could see rows there
    dataset_pool.py     datasets kept open between jobs
    runner.py       one job from its claim to its result
    submission.py   a synthetic table that an owner made elsewhere: checked, charged, then there for others
    access.py    who may know of such tables, and who may take one
    worker.py    the processes: a supervisor, and a child that runs jobs
    maintenance.py    what a worker does between jobs: new versions, expired requests, mail

Only a worker opens tables with rows, and only after the policy has decided.
"""
