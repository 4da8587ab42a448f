"""Serve models under an output policy, and refuse to export what carries training rows.

from cloister import learn
from cloister.learn import serving
service = learn.serve(model, policy=serving.rounded(2), queries=10_000)

policies.py        label only, top k, rounded, full
service.py         a served model: limits, log, names
guard.py           models that carry training rows
private_votes.py   private prediction: an ensemble whose every answer is paid for
"""

from cloister.learn.serving.guard import check_export
from cloister.learn.serving.policies import OutputPolicy, full, label_only, rounded, top_k
from cloister.learn.serving.private_votes import PrivateVotes, TeacherEnsemble, private
from cloister.learn.serving.service import LogEntry, ModelService

__all__ = [
    "LogEntry",
    "ModelService",
    "OutputPolicy",
    "PrivateVotes",
    "TeacherEnsemble",
    "check_export",
    "full",
    "label_only",
    "private",
    "rounded",
    "top_k",
]
