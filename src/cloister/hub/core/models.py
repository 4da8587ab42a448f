"""Tables of the hub. They never hold rows of a dataset; answers only as released.

Organisation ── Person ── Session, Token, OneTimeLink; Try
Dataset ── Version (its sealed tables), PolicyVersion, Upload
Job: a job on a dataset, its plan, its state, its result; Spent, Seen, SavedQuery
Request: waits for a decision about access, or about a release above a threshold; Decision, Comment
Output: waits for people to look at it; Attack: an owner's attack on what was made from their dataset
Notice, AuditEntry
Survey ── Invitation (who may answer), Submission (reports, never true answers), SeenReport, Refusal (how many)
"""

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, LargeBinary, String, Text, UniqueConstraint
from sqlalchemy.orm import Mapped, mapped_column, relationship

from cloister.hub.core.database import Base, now

__all__ = [
    "Attack",
    "AuditEntry",
    "Comment",
    "Dataset",
    "Decision",
    "Invitation",
    "Job",
    "Notice",
    "OneTimeLink",
    "Organisation",
    "Person",
    "PolicyVersion",
    "Refusal",
    "Request",
    "SavedQuery",
    "Seen",
    "Session",
    "Spent",
    "SeenReport",
    "Submission",
    "Survey",
    "Token",
    "Try",
    "Upload",
    "Version",
    "ROLES",
    "analyst",
    "person_number",
]

ROLES = ("data owner", "data provider", "data user", "algorithm provider", "operator", "auditor")
_NAME = String(200)


class Organisation(Base):
    """Organisation, such as a hospital or a university, to which users belong and which owns datasets."""

    __tablename__ = "organisations"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(_NAME, unique=True)
    country: Mapped[str] = mapped_column(String(2), default="")


class Person(Base):
    """User with an account. `roles` is a list of words from ROLES."""

    __tablename__ = "people"
    id: Mapped[int] = mapped_column(primary_key=True)
    email: Mapped[str] = mapped_column(_NAME, unique=True)  # folded to lower case
    name: Mapped[str] = mapped_column(_NAME)
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"))
    roles: Mapped[list[str]] = mapped_column(JSON, default=list)
    password: Mapped[str] = mapped_column(String(300), default="")  # Argon2id
    totp_secret: Mapped[bytes | None] = mapped_column(LargeBinary)  # sealed by the master key; None: no second factor
    totp_last: Mapped[int] = mapped_column(default=0)  # the last time step used: a code works once
    totp_pending: Mapped[bytes | None] = mapped_column(LargeBinary)  # sealed; shown, not yet confirmed by a code
    active: Mapped[bool] = mapped_column(default=True)
    created: Mapped[float] = mapped_column(default=now)
    # When the address was verified: by an invitation to it, or by a link that was sent to it. None: not verified.
    verified: Mapped[float | None]
    verify_asked: Mapped[float | None]  # since when an e-mail with such a link waits to be sent; None: none does
    organisation: Mapped[Organisation | None] = relationship(lazy="joined")

    @property
    def verified_email(self) -> str:
        """Return the verified address in lower case, for policies; empty while it is not verified."""
        return self.email.lower() if self.verified is not None else ""


def analyst(person_id: int) -> str:
    """Return a user's name in the ledger: `visits@person-3` is their account on visits."""
    return f"person-{person_id}"


def person_number(word: str) -> int | None:
    """Return the user's id of an account's analyst: 17 for `person-17`."""
    before, _, digits = word.partition("-")
    return int(digits) if before == "person" and digits.isascii() and digits.isdigit() else None


class Session(Base):
    """A signed-in browser. Only the SHA-256 of its secret is kept."""

    __tablename__ = "sessions"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of the cookie
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    csrf: Mapped[str] = mapped_column(String(64))
    complete: Mapped[bool] = mapped_column(default=True)  # False while the second factor is missing
    created: Mapped[float] = mapped_column(default=now)
    ends: Mapped[float]


class Token(Base):
    """An API token. Only the SHA-256 of its secret is kept."""

    __tablename__ = "tokens"
    id: Mapped[int] = mapped_column(primary_key=True)
    secret: Mapped[str] = mapped_column(String(64), unique=True)  # SHA-256
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    label: Mapped[str] = mapped_column(_NAME)
    scopes: Mapped[list[str]] = mapped_column(JSON, default=list)  # read, work, share
    created: Mapped[float] = mapped_column(default=now)
    ends: Mapped[float]
    used: Mapped[float | None]
    revoked: Mapped[bool] = mapped_column(default=False)


class OneTimeLink(Base):
    """An invitation, a password reset or a verification of an address. It works once; only a SHA-256 is kept."""

    __tablename__ = "links"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256
    purpose: Mapped[str] = mapped_column(String(20))  # invitation, reset, verify
    person_id: Mapped[int | None] = mapped_column(ForeignKey("people.id"))  # whose password
    detail: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # of an invitation: email, organisation, roles
    made_by: Mapped[int | None] = mapped_column(ForeignKey("people.id"))
    created: Mapped[float] = mapped_column(default=now)
    ends: Mapped[float]
    used: Mapped[float | None]


class Try(Base):
    """Failed sign-in, for rate limits; the user is a hash of what was typed, or an address."""

    __tablename__ = "tries"
    id: Mapped[int] = mapped_column(primary_key=True)
    who: Mapped[str] = mapped_column(String(64), index=True)
    time: Mapped[float] = mapped_column(default=now)


class Dataset(Base):
    """Dataset that an organisation shares. Its name is its account's name in the ledger and never changes."""

    __tablename__ = "datasets"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(_NAME, unique=True)
    title: Mapped[str] = mapped_column(_NAME, default="")
    about: Mapped[str] = mapped_column(Text, default="")
    organisation_id: Mapped[int | None] = mapped_column(ForeignKey("organisations.id"))
    owner_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    trust: Mapped[str] = mapped_column(String(40), default="curator")  # where work on it runs: see jobs/trust_model.py
    budget: Mapped[dict[str, Any]] = mapped_column(JSON)  # the lifetime cap, Loss.to_json(); never changes
    wrapped_key: Mapped[bytes | None] = mapped_column(LargeBinary)  # its data key, see core/keys.py; None: shredded
    paused: Mapped[bool] = mapped_column(default=False)  # the owner's kill switch
    deleted: Mapped[float | None]
    created: Mapped[float] = mapped_column(default=now)
    owner: Mapped[Person] = relationship(lazy="joined")
    organisation: Mapped[Organisation | None] = relationship(lazy="joined")


class Version(Base):
    """State of a dataset's tables, sealed or connected. The newest ready one is used."""

    __tablename__ = "versions"
    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    number: Mapped[int]
    schema: Mapped[str] = mapped_column(Text)  # schema.yaml
    declared: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # table -> {column: DuckDB type}; for plans
    source: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # {"kind": "sealed", "files": …} or a connection
    signature: Mapped[str | None] = mapped_column(Text)  # over all of the above: see core/signed_state.py
    state: Mapped[str] = mapped_column(String(20), default="preparing")  # preparing, ready, failed
    problem: Mapped[str] = mapped_column(Text, default="")  # for the owner only
    created: Mapped[float] = mapped_column(default=now)
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)


class PolicyVersion(Base):
    """Signed version of a dataset's policy. The newest one is in force."""

    __tablename__ = "policies"
    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    number: Mapped[int]
    text: Mapped[str] = mapped_column(Text)  # YAML
    signature: Mapped[str] = mapped_column(Text)  # over dataset, number and text
    made_by: Mapped[int] = mapped_column(ForeignKey("people.id"))
    created: Mapped[float] = mapped_column(default=now)
    __table_args__ = (UniqueConstraint("dataset_id", "number"),)


class Upload(Base):
    """File that is being uploaded in sealed chunks; it can be resumed."""

    __tablename__ = "uploads"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"))
    table: Mapped[str] = mapped_column(_NAME)
    file: Mapped[str] = mapped_column(_NAME)  # its name, whose ending gives its format
    size: Mapped[int] = mapped_column(BigInteger)  # 10 GB exceed PostgreSQL's INTEGER
    received: Mapped[int] = mapped_column(BigInteger, default=0)
    state: Mapped[str] = mapped_column(String(20), default="open")  # open, complete, used, cancelled
    created: Mapped[float] = mapped_column(default=now)


class Job(Base):
    """Job on a dataset.

    States: waiting (for an approval) → queued → running → charged → done; or refused, failed, cancelled, interrupted.
    An anonymised release is `checking` before it is done: see `Output`.
    `charged` is written before the ledger is: a job found there after a crash is looked up in the ledger.
    """

    __tablename__ = "jobs"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(40))
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    purpose: Mapped[str] = mapped_column(_NAME)
    parameters: Mapped[dict[str, Any]] = mapped_column(JSON)
    plan: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # cost, expected error, engine SQL: see Planned
    environment: Mapped[dict[str, Any]] = mapped_column(JSON, default=dict)  # country, network: when it was sent
    policy_number: Mapped[int]
    state: Mapped[str] = mapped_column(String(20), default="queued", index=True)
    progress: Mapped[float] = mapped_column(default=0.0)
    stage: Mapped[str] = mapped_column(_NAME, default="")
    problem: Mapped[str] = mapped_column(Text, default="")  # public: depends on the request only
    owner_detail: Mapped[str] = mapped_column(Text, default="")  # sealed by the dataset's key
    # None: no longer kept. It may be megabytes: loaded only on request (see approvals/visibility.py, find_job).
    result: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True), deferred=True)
    size: Mapped[int | None] = mapped_column(BigInteger)  # of the result, in bytes; until it is done: at most
    digest: Mapped[str | None] = mapped_column(String(64))  # SHA-256 of the result without its label
    loss: Mapped[dict[str, Any] | None] = mapped_column(JSON)  # its cost to the dataset
    receipt: Mapped[str | None] = mapped_column(Text)
    cancel: Mapped[bool] = mapped_column(default=False)
    charge: Mapped[str] = mapped_column(String(64), default="")  # digest of the request as the ledger has it
    attempts: Mapped[int] = mapped_column(default=0)  # claims so far; a job that kills workers is abandoned
    worker: Mapped[str | None] = mapped_column(String(100))
    heartbeat: Mapped[float | None]
    created: Mapped[float] = mapped_column(default=now)
    started: Mapped[float | None]
    finished: Mapped[float | None]
    person: Mapped[Person] = relationship(lazy="joined")
    dataset: Mapped[Dataset] = relationship(lazy="joined")
    __table_args__ = (
        Index("jobs_by_state", "state", "person_id"),
        Index("jobs_by_size", "person_id", "state", "size"),  # summed in every submission
        Index("jobs_by_start", "person_id", "started"),  # the user served last: the queue is fair
    )


class Request(Base):
    """Request to the owner: for access to a role of the policy, to run a job above a threshold, or for its output."""

    __tablename__ = "requests"
    id: Mapped[int] = mapped_column(primary_key=True)
    kind: Mapped[str] = mapped_column(String(20))  # access, release, output
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    job_id: Mapped[int | None] = mapped_column(ForeignKey("jobs.id"))
    role: Mapped[str] = mapped_column(_NAME, default="")  # which role of the policy, for access
    purpose: Mapped[str] = mapped_column(_NAME)
    text: Mapped[str] = mapped_column(Text, default="")
    needs: Mapped[int] = mapped_column(default=1)  # how many different people must agree
    state: Mapped[str] = mapped_column(String(20), default="open")  # open, granted, denied, expired, revoked, withdrawn
    created: Mapped[float] = mapped_column(default=now)
    ends: Mapped[float | None]  # when an open one expires, or a granted access ends
    person: Mapped[Person] = relationship(lazy="joined")
    dataset: Mapped[Dataset] = relationship(lazy="joined")
    job: Mapped[Job | None] = relationship(lazy="joined")


class Decision(Base):
    """Decision of one reviewer on a request; one per reviewer."""

    __tablename__ = "decisions"
    id: Mapped[int] = mapped_column(primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("requests.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"))
    agreed: Mapped[bool]
    reason: Mapped[str] = mapped_column(Text, default="")
    digest: Mapped[str | None] = mapped_column(String(64))  # of the output that the reviewer saw
    created: Mapped[float] = mapped_column(default=now)
    person: Mapped[Person] = relationship(lazy="joined")
    __table_args__ = (UniqueConstraint("request_id", "person_id"),)


class Output(Base):
    """Output of a job that people look at before the requester gets it, sealed by the dataset's key."""

    __tablename__ = "outputs"
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    digest: Mapped[str] = mapped_column(String(64))  # of the result, as it would be released; keyed by the dataset
    sealed: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)  # None once it is refused or withdrawn
    facts: Mapped[bytes | None] = mapped_column(LargeBinary)  # sealed: label and risks, for the owner only
    released: Mapped[float | None]
    created: Mapped[float] = mapped_column(default=now)
    job: Mapped[Job] = relationship(lazy="joined")


class Attack(Base):
    """Attack that a dataset's owner runs on the result of a job. What it finds is for them alone, as secret as rows.

    States: queued → running → done; or failed, cancelled. `facts` and `report` are sealed by the dataset's key.
    """

    __tablename__ = "attacks"
    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"))
    state: Mapped[str] = mapped_column(String(20), default="queued", index=True)
    progress: Mapped[float] = mapped_column(default=0.0)
    stage: Mapped[str] = mapped_column(_NAME, default="")  # depends on the job only
    attempts: Mapped[int] = mapped_column(default=0)  # so far; one that kills workers is given up
    facts: Mapped[bytes | None] = mapped_column(LargeBinary)  # sealed: the verdict, or what went wrong
    report: Mapped[bytes | None] = mapped_column(LargeBinary, deferred=True)  # sealed: the findings
    created: Mapped[float] = mapped_column(default=now)
    finished: Mapped[float | None]
    job: Mapped[Job] = relationship(lazy="joined")


class Comment(Base):
    """Comment on a request."""

    __tablename__ = "comments"
    id: Mapped[int] = mapped_column(primary_key=True)
    request_id: Mapped[int] = mapped_column(ForeignKey("requests.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"))
    text: Mapped[str] = mapped_column(Text)
    created: Mapped[float] = mapped_column(default=now)
    person: Mapped[Person] = relationship(lazy="joined")


class Notice(Base):
    """Notification for one user; also sent by e-mail if that is set up."""

    __tablename__ = "notices"
    id: Mapped[int] = mapped_column(primary_key=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    text: Mapped[str] = mapped_column(Text)
    link: Mapped[str] = mapped_column(_NAME, default="")
    created: Mapped[float] = mapped_column(default=now)
    read: Mapped[bool] = mapped_column(default=False)
    mailed: Mapped[bool] = mapped_column(default=False)


class SavedQuery(Base):
    """Query that a user has saved."""

    __tablename__ = "saved_queries"
    id: Mapped[int] = mapped_column(primary_key=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"))
    name: Mapped[str] = mapped_column(_NAME)
    sql: Mapped[str] = mapped_column(Text)
    created: Mapped[float] = mapped_column(default=now)


class Seen(Base):
    """Record that a user has received a noisy statistic: receiving it again debits them nothing."""

    __tablename__ = "seen"
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), primary_key=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), primary_key=True)
    fingerprint: Mapped[str] = mapped_column(String(64), primary_key=True)


class Spent(Base):
    """Amount reserved by a job, for the limits per day, user and request: written before the ledger is charged."""

    __tablename__ = "spent"
    id: Mapped[int] = mapped_column(primary_key=True)
    dataset_id: Mapped[int] = mapped_column(ForeignKey("datasets.id"), index=True)
    person_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    job_id: Mapped[int] = mapped_column(ForeignKey("jobs.id"), unique=True)
    loss: Mapped[dict[str, Any]] = mapped_column(JSON)  # of the dataset's account, Loss.to_json()
    own: Mapped[dict[str, Any]] = mapped_column(JSON)  # of the user's account: more, if the record had news
    total: Mapped[dict[str, Any]] = mapped_column(JSON)  # of the dataset, including this row: faster than summing
    own_total: Mapped[dict[str, Any]] = mapped_column(JSON)  # of the user on the dataset, including this row
    purpose: Mapped[str] = mapped_column(_NAME)
    time: Mapped[float] = mapped_column(default=now)
    __table_args__ = (
        Index("spent_by_person", "dataset_id", "person_id", "id"),
        Index("spent_by_time", "dataset_id", "time"),
    )


class AuditEntry(Base):
    """Entry of the audit log: append-only and hash-chained. See core/audit.py."""

    __tablename__ = "audit"
    number: Mapped[int] = mapped_column(primary_key=True)
    time: Mapped[float]
    person_id: Mapped[int | None] = mapped_column(index=True)
    action: Mapped[str] = mapped_column(String(60), index=True)
    object: Mapped[str] = mapped_column(_NAME, index=True)  # such as dataset/visits, job/17, person/3
    detail: Mapped[dict[str, Any]] = mapped_column(JSON)
    previous: Mapped[str] = mapped_column(String(64))
    hash: Mapped[str] = mapped_column(String(64))


class Survey(Base):
    """Survey: its questions, their levels, its owner, its end."""

    __tablename__ = "surveys"
    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(_NAME, unique=True)  # in the address of its page
    title: Mapped[str] = mapped_column(_NAME)
    about: Mapped[str] = mapped_column(Text, default="")
    purpose: Mapped[str] = mapped_column(Text)
    consent: Mapped[str] = mapped_column(Text)
    language: Mapped[str] = mapped_column(String(2), default="en")  # language of its own texts
    owner_id: Mapped[int] = mapped_column(ForeignKey("people.id"), index=True)
    target: Mapped[int] = mapped_column(default=500)  # expected number of respondents
    ends: Mapped[float | None]
    invited: Mapped[bool] = mapped_column(default=False)  # only invited respondents may answer, once a wave
    lasting: Mapped[bool] = mapped_column(default=False)  # asked again: answers are memoised
    state: Mapped[str] = mapped_column(String(20), default="draft")  # draft, open, closed
    wave: Mapped[int] = mapped_column(default=1)
    asked: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)  # as composed: see surveys/question.py
    questions: Mapped[list[dict[str, Any]]] = mapped_column(JSON, default=list)  # mechanisms; fixed when it opens
    ballot_key: Mapped[bytes | None] = mapped_column(LargeBinary)  # signs this wave's ballots blindly; sealed
    ballot_public: Mapped[dict[str, Any] | None] = mapped_column(JSON)
    created: Mapped[float] = mapped_column(default=now)
    opened: Mapped[float | None]
    closed: Mapped[float | None]
    owner: Mapped[Person] = relationship(lazy="joined")


class Invitation(Base):
    """Link for one respondent and one wave. Only the SHA-256 of its secret is kept, and not the respondent's name."""

    __tablename__ = "invitations"
    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    survey_id: Mapped[int] = mapped_column(ForeignKey("surveys.id"), index=True)
    wave: Mapped[int]
    # SHA-256 of what was signed blindly: a repeated request gets the same answer. The ballot cannot be linked to it.
    blinded: Mapped[str] = mapped_column(String(64), default="")
    __table_args__ = ({"sqlite_with_rowid": False},)


class Submission(Base):
    """Reports of one respondent. No address, no time; rows are stored in the order of a hash, not of arrival."""

    __tablename__ = "submissions"
    survey_id: Mapped[int] = mapped_column(ForeignKey("surveys.id"), primary_key=True)
    wave: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of the ballot, or of the reports
    reports: Mapped[str] = mapped_column(Text)  # canonical JSON: {question: [level, report in base64url]}
    # Batch with which it was first shown to the collector; None: it waits until enough others are new with it.
    batch: Mapped[int | None]
    __table_args__ = ({"sqlite_with_rowid": False},)


class SeenReport(Base):
    """Id of a report that was taken, so that none is counted twice. It does not name its submission."""

    __tablename__ = "seen_reports"
    survey_id: Mapped[int] = mapped_column(ForeignKey("surveys.id"), primary_key=True)
    wave: Mapped[int] = mapped_column(primary_key=True)
    id: Mapped[str] = mapped_column(String(64), primary_key=True)  # SHA-256 of the id in its envelope
    __table_args__ = ({"sqlite_with_rowid": False},)


class Refusal(Base):
    """Number of refused submissions of a wave, by reason."""

    __tablename__ = "refusals"
    survey_id: Mapped[int] = mapped_column(ForeignKey("surveys.id"), primary_key=True)
    wave: Mapped[int] = mapped_column(primary_key=True)
    reason: Mapped[str] = mapped_column(String(40), primary_key=True)
    count: Mapped[int]
