"""End of what a restored copy of the database would bring back: sessions, tokens, grants, pending jobs, open surveys.

A restore leaves a mark in the hub's folder. Whenever the hub is opened, its audit log is asked whether this was done
for that mark. So it is done too if a database in PostgreSQL is loaded after the folder was restored.
"""

import json
import secrets
from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import (
    Attack,
    AuditEntry,
    Dataset,
    Job,
    Notice,
    OneTimeLink,
    Output,
    Request,
    Submission,
    Survey,
    Token,
    Upload,
)
from cloister.hub.core.models import Session as SignedIn

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["finish_restore", "mark"]

_FILE = "restored.json"
_ACTION = "hub.restored"


def mark(folder: Path, copied: str) -> None:
    """Note in a hub's folder that it was restored from a copy of that time."""
    (folder / _FILE).write_text(json.dumps({"copied": copied, "restore": secrets.token_hex(8)}))


def finish_restore(hub: "Hub") -> None:
    """End what the copy brought back, once for each database that is found beside a mark."""
    file = hub.folder / _FILE
    if not file.exists():
        return
    facts = json.loads(file.read_text())
    with hub.database.reading() as session:
        if _is_done(session, facts["restore"]):
            return
    with hub.database.writing() as session:
        if not _is_done(session, facts["restore"]):  # another process may have been faster
            _end(hub, session, facts["copied"])
            hub.audit.write(session, None, _ACTION, "hub", **facts)


def _is_done(session: Session, restore: str) -> bool:
    details = session.scalars(sa.select(AuditEntry.detail).where(AuditEntry.action == _ACTION))
    return any(detail.get("restore") == restore for detail in details)


def _end(hub: "Hub", session: Session, copied: str) -> None:
    session.execute(sa.delete(SignedIn))
    session.execute(sa.update(Token).values(revoked=True))
    session.execute(sa.update(OneTimeLink).where(OneTimeLink.used.is_(None)).values(ends=now()))
    _stop_what_was_pending(session)
    _close_surveys(session, copied)
    for dataset in session.scalars(sa.select(Dataset).where(Dataset.deleted.is_(None))).all():
        text = (
            f"The hub was restored from a copy of {copied}. Check that the policy of {dataset.name} is the newest, "
            "and grant again the access that people should have: what was granted by request has ended."
        )
        session.add(Notice(person_id=dataset.owner_id, text=text, link=f"/datasets/{dataset.name}/policy"))


def _stop_what_was_pending(session: Session) -> None:
    """End granted access and jobs that are not done: what was revoked, denied or run since the copy is unknown.

    So is whether an output that was being checked was denied: its file is erased. Uploads are in no copy.
    """
    granted = sa.update(Request).where(Request.state.in_(("open", "granted")))
    session.execute(granted.values(state="expired", ends=now()))
    pending = sa.update(Job).where(Job.state.in_(("waiting", "queued")))
    problem = "The hub was restored from a copy before this ran. Nothing was spent. Submit it again."
    session.execute(pending.values(state="cancelled", finished=now(), problem=problem))
    checking = sa.update(Job).where(Job.state == "checking")
    problem = "The hub was restored from a copy while others looked at its output. Nothing was spent. Submit it again."
    session.execute(checking.values(state="cancelled", finished=now(), problem=problem))
    session.execute(sa.update(Output).where(Output.released.is_(None)).values(sealed=None, facts=None))
    attacks = sa.update(Attack).where(Attack.state.in_(("queued", "running")))
    session.execute(attacks.values(state="cancelled", finished=now()))
    active = sa.update(Job).where(Job.state.in_(("running", "charged")))
    problem = "The hub was restored from a copy while this ran. What was charged stands. Submit it again."
    session.execute(active.values(state="interrupted", finished=now(), problem=problem))
    session.execute(sa.update(Upload).where(Upload.state.in_(("open", "complete"))).values(state="cancelled"))


def _close_surveys(session: Session, copied: str) -> None:
    """Close open surveys, and remove answers that were not shown: which were shown since the copy is unknown.

    An answer that was shown among others since then, and waits again, would let a single new one be told apart. Ballots
    that were given since are not known either, so that an invitation could be used twice.
    """
    session.execute(sa.delete(Submission).where(Submission.batch.is_(None)))
    for survey in session.scalars(sa.select(Survey).where(Survey.state == "open")).all():
        survey.state = "closed"
        text = (
            f"The hub was restored from a copy of {copied}, and the survey {survey.title} is closed: answers that had "
            "not been shown by then are gone. Publish a new one to go on."
        )
        session.add(Notice(person_id=survey.owner_id, text=text, link=f"/surveys/{survey.name}"))
