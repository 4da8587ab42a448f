"""Attacks that a dataset's owner runs on what was made from it: models, synthetic tables, anonymised releases.

    the owner's page ─► Attack, queued ─► a worker takes it ─► findings, sealed by the dataset's key ─► the owner's page

    store.py     targets and attacks of a dataset, for its owner; start, cancel, remove
    running.py   one attack in a worker: a bounded number of tries, progress, and what is kept of it
    package.py   what is kept: verdict, findings as JSON, drawings, and a report as one file
    sources.py   the rows that a job read
    halves.py    random halves of them, from which a job's fresh copies ("twins") are made
    releases.py  anonymised releases: re-identification and disclosure
    models.py    models: hidden values, stealing, and membership in twins
    synthetic.py synthetic tables: hidden values, copies, closeness and membership in a twin

An attack reads rows without noise, and what it finds is as secret as they are. Only the owner may know that there is
one; the requester of the attacked job learns nothing. It charges no account, and nothing of it leaves as a release.
"""
