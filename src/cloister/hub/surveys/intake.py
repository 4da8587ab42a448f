"""Intake of submissions: checked, counted if invalid, durable before they are acknowledged.

    bytes ──► well formed? ──► envelopes of this survey? ──► ballot? ──► batch ──► one transaction ──► signed receipt

Submissions are written in batches: while one is written, the next one gathers. A submission that arrives twice is
stored once and acknowledged twice, so that a device can send again after a failed connection. A report that was taken
and arrives in another submission is refused with all of it: each envelope has an id, whose hash is kept.

A submission is JSON: {"version": 1, "wave": 1, "reports": [envelope, …], "ballot": {"message": …, "signature": …}}, the
ballot only where respondents are invited. Its id is the SHA-256 of the ballot's message, or of the envelopes.
"""

import asyncio
import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from cloister.client import survey_wire
from cloister.hub.core.database import now
from cloister.hub.core.models import Refusal, SeenReport, Submission, Survey
from cloister.hub.surveys.ballots import accept
from cloister.hub.surveys.survey import asked_of, collection, digest_of, find, is_open
from cloister.local.survey.envelope import canonical, pack
from cloister.privacy.errors import NotNow, StoreFailed

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["MOST_BYTES", "Intake", "KnownSurvey", "SentReports", "read"]

_LOG = logging.getLogger("cloister.hub.surveys")
MOST_BYTES = 512 * 1024
_KNOWN_S = 1.0  # how long a survey is cached; the transaction checks again that it is open
_COUNTED_AS = {"again": "sent again", "used": "ballot used", "replayed": "replayed"}
_WAITING = 2000  # beyond this many in the queue of one process, devices are asked to come back


@dataclass(frozen=True, slots=True)
class SentReports:
    """Submission that may be stored.

    Attributes:
        id: its id in the database.
        reports: canonical JSON, {question: [level, report]}.
        digest: SHA-256 of the envelopes, for the receipt.
        levels: the respondent's levels, by question.
        marks: SHA-256 of the id of each envelope, sorted.
    """

    id: str
    reports: str
    digest: str
    levels: Mapping[str, str]
    marks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class KnownSurvey:
    """Survey as a process knows it for a moment, and the digest of all facts that respondents get."""

    survey: Survey
    digest: str


class BadSubmission(ValueError):
    """Raised for a submission that is refused and counted; `reason` is one of few words."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"these reports were not taken ({reason}). Load the page again, then answer again.")
        self.reason = reason


def read(survey: Survey, raw: bytes) -> SentReports:
    """Read a submission from its bytes.

    Raises:
        BadSubmission: why not. The reason depends on the form of the reports alone.
    """
    if len(raw) > MOST_BYTES:
        raise BadSubmission("oversized")
    try:
        body = json.loads(raw)
    except (ValueError, RecursionError):
        raise BadSubmission("malformed") from None
    if not isinstance(body, dict) or not {"version", "wave", "reports"} <= set(body) <= {
        "version",
        "wave",
        "reports",
        "ballot",
    }:
        raise BadSubmission("malformed")
    if body["version"] != 1:
        raise BadSubmission("wrong version")
    if body["wave"] != survey.wave or isinstance(body["wave"], bool):
        raise BadSubmission("wrong wave")
    envelopes = body["reports"]
    if not isinstance(envelopes, list) or not 0 < len(envelopes) <= len(survey.questions):
        raise BadSubmission("malformed")
    checks = collection(survey)
    reports: dict[str, list[str]] = {}
    marks: set[str] = set()
    for envelope in envelopes:
        if isinstance(envelope, str) and envelope.endswith(("\r", "\n")):  # of a file's line: one content, one spelling
            raise BadSubmission("malformed")
        checked = checks.check(envelope)
        if isinstance(checked, str):
            raise BadSubmission(checked)
        name = checked.question.partition(".")[2]
        if name in reports:
            raise BadSubmission("malformed")
        if not checked.private:
            raise BadSubmission("not private")
        reports[name] = [checked.level, pack(checked.report)]
        marks.add(hashlib.sha256(checked.id).hexdigest())
    if len(marks) < len(reports):
        raise BadSubmission("replayed")
    digest = hashlib.sha256("\n".join(sorted(envelopes)).encode()).hexdigest()
    submission_id = _ballot(survey, body.get("ballot")) if survey.invited else digest
    levels = {name: report[0] for name, report in reports.items()}
    return SentReports(submission_id, canonical(reports).decode(), digest, levels, tuple(sorted(marks)))


def _ballot(survey: Survey, ballot: Any) -> str:
    submission_id = accept(survey, ballot)
    if submission_id is None:
        raise BadSubmission("no ballot")
    return submission_id


class Intake:
    """Intake of submissions for all surveys, in one process. Its methods are called from the event loop."""

    def __init__(self, hub: "Hub") -> None:
        self.hub = hub
        self._writer = ThreadPoolExecutor(1, "intake")
        self._queue: list[tuple[int, int, SentReports | str, asyncio.Future[str]]] = []
        self._busy = False
        self._known: dict[str, tuple[float, KnownSurvey]] = {}

    async def take(self, name: str, raw: bytes) -> dict[str, Any]:
        """Store a submission; return its signed receipt when it is durable.

        Raises:
            BadSubmission: refused, and counted.
            NotNow: the survey takes no answers, or the ballot was used.
            StoreFailed: not now; send again.
        """
        survey = await self.survey(name)
        if not is_open(survey):
            raise NotNow("this survey takes no more answers.")
        try:
            # In a thread: a submission to a large survey takes milliseconds.
            sent = await asyncio.get_running_loop().run_in_executor(None, read, survey, raw)
        except BadSubmission as bad:
            await self._put(survey, bad.reason)
            raise
        verdict = await self._put(survey, sent)
        if verdict == "closed":
            raise NotNow("this survey takes no more answers.")
        if verdict in ("wrong wave", "replayed"):  # the next one began a moment ago; or a report of it was taken before
            raise BadSubmission(verdict)
        if verdict == "used":
            raise NotNow("this invitation was used for other answers already. What was sent first counts.")
        facts = {"survey": name, "wave": survey.wave, "reports": sent.digest, "levels": dict(sent.levels)}
        return survey_wire.issue_receipt(survey_wire.TAKEN, facts, self.hub.key)

    async def survey(self, name: str) -> Survey:
        """Return the survey, at most a second old."""
        return (await self.known(name)).survey

    async def known(self, name: str) -> KnownSurvey:
        """Return the survey and the digest of its facts, at most a second old."""
        cached = self._known.get(name)
        if cached is None or now() - cached[0] > _KNOWN_S:
            known = await asyncio.get_running_loop().run_in_executor(None, self._find, name)
            cached = self._known[name] = now(), known
        return cached[1]

    def _find(self, name: str) -> KnownSurvey:
        with self.hub.database.reading() as session:
            survey = find(session, name)
        # Certifying every mechanism takes seconds: here, in a thread, and not later in the event loop.
        collection(survey)
        asked_of(survey)
        return KnownSurvey(survey, digest_of(survey))

    async def _put(self, survey: Survey, sent: SentReports | str) -> str:
        if len(self._queue) >= _WAITING:
            raise StoreFailed("the hub is busy. Your device tries again in a moment.")
        done: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._queue.append((survey.id, survey.wave, sent, done))
        if not self._busy:
            self._busy = True
            asyncio.get_running_loop().create_task(self._write_all())
        return await done

    async def _write_all(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while self._queue:
                batch, self._queue = self._queue, []
                try:
                    verdicts = await loop.run_in_executor(self._writer, self._write, [entry[:3] for entry in batch])
                except Exception as error:
                    # Only its type: the text of a database error may hold the data to be written.
                    _LOG.error("reports could not be kept", extra={"facts": {"error": type(error).__name__}})
                    failed = StoreFailed("the reports could not be kept. Your device tries again in a moment.")
                    for *_, done in batch:
                        if not done.done():
                            done.set_exception(failed)
                    continue
                for (*_, done), verdict in zip(batch, verdicts, strict=True):
                    if not done.done():
                        done.set_result(verdict)
        finally:
            self._busy = False

    def _write(self, batch: list[tuple[int, int, SentReports | str]]) -> list[str]:
        """Write all of them in one transaction."""
        with self.hub.database.writing() as session:
            connection = session.connection()
            insert: Any = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
            state = sa.select(Survey.id, Survey.wave, Survey.state, Survey.ends)
            rows = connection.execute(state.where(Survey.id.in_({entry[0] for entry in batch})))
            takes = {row[0]: row[1] for row in rows if row[2] == "open" and (row[3] is None or now() < row[3])}
            verdicts: list[str] = []
            refused: Counter[tuple[int, int, str]] = Counter()
            for survey, wave, sent in batch:
                if isinstance(sent, str):
                    verdicts.append("refused")
                    refused[survey, wave, sent] += 1
                elif takes.get(survey) != wave:
                    verdicts.append("wrong wave" if survey in takes else "closed")
                    refused[survey, wave, "too late"] += 1
                else:
                    verdict = _store(connection, insert, survey, wave, sent)
                    if verdict != "kept":
                        refused[survey, wave, _COUNTED_AS[verdict]] += 1
                    verdicts.append(verdict)
            for (survey, wave, reason), count in refused.items():
                first = insert(Refusal).values(survey_id=survey, wave=wave, reason=reason, count=count)
                keys = [Refusal.survey_id, Refusal.wave, Refusal.reason]
                more = first.on_conflict_do_update(index_elements=keys, set_={"count": Refusal.count + count})
                connection.execute(more)
            return verdicts


def _store(connection: sa.Connection, insert: Any, survey: int, wave: int, sent: SentReports) -> str:
    """Store a submission and the ids of its reports, or nothing of it; return the verdict."""
    wave_key = {"survey_id": survey, "wave": wave}
    marks = insert(SeenReport).values([{**wave_key, "id": mark} for mark in sent.marks])
    new = list(connection.execute(marks.on_conflict_do_nothing().returning(SeenReport.id)).scalars())
    if len(new) == len(sent.marks):
        row = insert(Submission).values({**wave_key, "id": sent.id, "reports": sent.reports})
        # Not the row count, which PostgreSQL's driver does not tell here.
        if connection.scalar(row.on_conflict_do_nothing().returning(Submission.id)) is not None:
            return "kept"
    mine = sa.delete(SeenReport).where(SeenReport.survey_id == survey, SeenReport.wave == wave, SeenReport.id.in_(new))
    connection.execute(mine)
    stored = connection.scalar(sa.select(Submission.reports).filter_by(**wave_key, id=sent.id))
    if stored is None:
        return "replayed"
    return "again" if stored == sent.reports and not new else "used"  # new ids are other reports, if they say the same
