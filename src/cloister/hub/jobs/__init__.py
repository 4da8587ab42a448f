"""Jobs: from a user's request to a release, the same for every job type.

    gateway.py        policy, plan, limits and approval of every request; then the queue
    planner.py        plans in child processes, with limits of time and memory
    authorise.py      the policy's decision on one job: for the gateway, and for a worker before the charge
    limits.py         limits per user, period and request, reserved exactly before the ledger is charged
    queue.py          jobs in the database: claimed by one worker only, fair between users, recovered after a crash
    job_ledger.py     the ledger for one job: decided again, reserved and recorded before anything is charged
    trust_model.py    where work runs, and who could see rows there
    dataset_pool.py   datasets kept open between jobs
    runner.py         one job from its claim to its result
    job_types/        query, profile, training, synthesis
    external_tables/  synthetic tables that an owner made elsewhere: checked, charged, shared
    attacks/          what an owner attacks of all that was made from their dataset, for the owner alone
    worker.py         the processes: a supervisor, and a child that runs jobs
    maintenance.py    periodic tasks of a worker: new versions, expired requests, mail

The datasets and jobs that a user may see are in `approvals/visibility.py`.

Only a worker opens tables with rows, and only after the policy has decided, or for an attack of the owner's.
"""
