"""The way of a request from a person to a release, the same for every kind of work.

    known.py     which datasets and jobs a person may know of
    gateway.py   who asks, may they, what would it cost, does somebody have to agree; then into the queue
    limits.py    a person's and a period's limits, set aside exactly before the ledger is charged
    queue.py     jobs in the database: taken by one worker only, fair between people, recovered after a crash
    case.py      what decides about a job, asked before its tables are opened and again before its charge
    book.py      the ledger as one job sees it: decided again, set aside and noted before anything is charged
    place.py     where work runs, and who could see rows there
    shelf.py     datasets kept open between jobs
    job.py       one job from its claim to its result
    handing.py   a synthetic table that an owner made elsewhere: checked, charged, then there for others
    shared.py    who may know of such tables, and who may take one
    worker.py    the processes: a supervisor, and a child that runs jobs
    chores.py    what a worker does between jobs: new versions, expired requests, mail

Only a worker opens tables with rows, and only after the policy has decided.
"""
