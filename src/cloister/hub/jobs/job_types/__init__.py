"""Job types: one file each, registered here.

    job_type.py   the interface of a job type: form, plan, run, result page
    query.py      a question in SQL
    profile.py    a table at a glance: counts and a histogram of every column, for one spend
    train/        a private model, with its card and its file
    predict.py    the right to ask a model that somebody has trained, paid for once by who asks
    synthesise/   a synthetic table, with its metadata file and the errors to expect
    anonymise.py  an anonymised table: real rows under k-anonymity and its like, without epsilon; people check it

Gateway, policy, approval, ledger, queue, receipt and audit log are the same for all of them.
"""

from cloister.hub.jobs.job_types.anonymise import Anonymise
from cloister.hub.jobs.job_types.job_type import KINDS, Done, Field, JobType, Planned, Progress, kind_of, register
from cloister.hub.jobs.job_types.predict import Predict
from cloister.hub.jobs.job_types.profile import Profile
from cloister.hub.jobs.job_types.query import Query
from cloister.hub.jobs.job_types.synthesise import Synthesise
from cloister.hub.jobs.job_types.train import Train

__all__ = ["KINDS", "Done", "Field", "JobType", "Planned", "Progress", "kind_of"]

register(Query(), Profile(), Train(), Predict(), Synthesise(), Anonymise())
