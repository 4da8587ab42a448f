"""States of a survey: draft ──► open (wave 1, 2, …) ──► closed.

The questions are fixed when a survey opens: every respondent has answered exactly these.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Person, Refusal, Submission, Survey
from cloister.hub.datasets.bounded import run_bounded
from cloister.hub.surveys.ballots import give_key
from cloister.hub.surveys.question import SurveyQuestion
from cloister.local import Collection, Question
from cloister.local.survey.envelope import canonical
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = [
    "CERTIFY_S",
    "FEW_LEVELS",
    "LANGUAGES",
    "asked_of",
    "change",
    "close",
    "collection",
    "create",
    "digest_of",
    "find",
    "find_own",
    "is_open",
    "mine",
    "next_wave",
    "prepare",
    "public",
    "publish",
    "questions_of",
    "read_bounded",
    "read_questions",
    "require_draft",
    "require_free",
    "reveal",
    "shown_sizes",
    "sizes",
]

LANGUAGES = ("en", "de", "es", "fr")
_NAME = re.compile(r"[a-z][a-z0-9-]{1,38}[a-z0-9]")
_MOST_QUESTIONS = 60
_TEXTS = {"title": 200, "about": 4000, "purpose": 1000, "consent": 8000}
_LATEST_DAYS = 3660
FEW_LEVELS = 12  # of all questions together; certifying one takes a few hundredths of a second
CERTIFY_S = 60.0
_MOST_DESCRIBED = 1024
_DESCRIBED: dict[tuple[SurveyQuestion, str, int, bool], dict[str, Any]] = {}


def create(hub: "Hub", session: Session, owner: Person, name: str, facts: Mapping[str, Any]) -> Survey:
    """Create a draft.

    Args:
        hub: the hub.
        session: a writing transaction.
        owner: the user who composes it and will read its results.
        name: the name in the address of its page, of small letters, digits and dashes; it never changes.
        facts: title, purpose, consent and other arguments of `change`.
    """
    require_free(session, owner, name)
    survey = Survey(name=name, owner_id=owner.id, title="", purpose="", consent="", asked=[], questions=[])
    survey.owner = owner
    _set(survey, facts)
    session.add(survey)
    session.flush()
    hub.audit.write(session, owner.id, "survey.created", f"survey/{name}")
    return survey


def require_free(session: Session, owner: Person, name: str) -> None:
    """Refuse a name that is not valid or taken, and a user who composes no surveys. Cheap: before questions are read.

    Raises:
        BadForm: another name is needed.
        Denied: the user has neither role.
    """
    if not _NAME.fullmatch(name):
        raise BadForm("a survey's name has 3 to 40 small letters, digits and dashes, such as 'sleep-2026'.")
    if not {"data owner", "data user"} & set(owner.roles):
        raise Denied("surveys are composed by people with the role data user or data owner. Ask an operator for it.")
    if session.scalar(sa.select(Survey.id).where(Survey.name == name)) is not None:
        raise BadForm(f"there is a survey called {name} already. Choose another name.")


def require_draft(survey: Survey) -> None:
    """Refuse to change a survey that was published."""
    if survey.state != "draft":
        raise NotNow(
            "a survey that was published cannot be changed: people have answered exactly this. Make a new one."
        )


def change(hub: "Hub", session: Session, survey: Survey, facts: Mapping[str, Any]) -> None:
    """Change a draft. Facts that are not named stay.

    Args:
        hub: the hub.
        session: a writing transaction.
        survey: the draft.
        facts: title, about, purpose, consent, language, target, ends (seconds since 1970), invited, lasting, asked (a
            list of questions as `SurveyQuestion.read` takes them).
    """
    require_draft(survey)
    _set(survey, facts)
    session.add(survey)
    hub.audit.write(session, survey.owner_id, "survey.changed", f"survey/{survey.name}", fields=sorted(facts))


def _set(survey: Survey, facts: Mapping[str, Any]) -> None:
    for name, most in _TEXTS.items():
        if name in facts or (name != "about" and not getattr(survey, name)):
            text = str(facts.get(name, "")).strip()
            if (not text and name != "about") or len(text) > most:
                raise BadForm(f"'{name}' needs words, at most {most:,} characters of them.")
            setattr(survey, name, text)
    for name, read in _READERS.items():
        if name in facts:
            setattr(survey, name, read(facts[name]))


def _language(language: Any) -> str:
    if language not in LANGUAGES:
        raise BadForm(f"a survey's language is one of {', '.join(LANGUAGES)}.")
    return str(language)


def _target(target: Any) -> int:
    if isinstance(target, bool) or not isinstance(target, int) or not 10 <= target <= 10**7:
        raise BadForm("'target' is how many people you hope for: a whole number from 10 to 10,000,000.")
    return target


def _ends(moment: Any) -> float | None:
    if moment is not None and not (isinstance(moment, int | float) and now() < moment < now() + _LATEST_DAYS * 86_400):
        raise BadForm("'ends' is a moment in the future, at most ten years away.")
    return float(moment) if moment is not None else None


def read_questions(told: Any, certify: bool = True) -> list[SurveyQuestion]:
    """Read composed questions, and check them; certifying takes up to seconds: not inside a transaction."""
    if not isinstance(told, Sequence) or isinstance(told, str) or len(told) > _MOST_QUESTIONS:
        raise BadForm(f"'asked' is a list of at most {_MOST_QUESTIONS} questions.")
    questions = [entry if isinstance(entry, SurveyQuestion) else SurveyQuestion.read(entry, certify) for entry in told]
    if len({question.id for question in questions}) < len(questions):
        raise BadForm("two questions have the same name. Give each its own.")
    return questions


_READERS: Mapping[str, Callable[[Any], Any]] = {
    "language": _language,
    "target": _target,
    "ends": _ends,
    "invited": bool,
    "lasting": bool,
    "asked": lambda value: [question.to_json() for question in read_questions(value)],
}


def read_bounded(hub: "Hub", person: Person, told: Any, known: Sequence[SurveyQuestion] = ()) -> list[SurveyQuestion]:
    """Read composed questions and certify those that are not known: more than a few in a child process with limits.

    Args:
        hub: the hub.
        person: the user who sent them; each has one child at a time.
        told: the questions.
        known: questions that were certified before.
    """
    questions = read_questions(told, certify=False)
    new = [question for question in questions if question not in known]
    if sum(len(question.levels) for question in new) <= FEW_LEVELS:
        for question in new:
            question.certify()
    else:
        run_bounded(
            hub.settings, _certify, [question.to_json() for question in new], seconds=CERTIFY_S, caller=person.id
        )
    return questions


def _certify(records: list[dict[str, Any]]) -> None:
    read_questions(records)


def asked_of(survey: Survey) -> tuple[SurveyQuestion, ...]:
    """Return the questions as they were composed."""
    return _asked(canonical(survey.asked))


@lru_cache(maxsize=64)
def _asked(data: bytes) -> tuple[SurveyQuestion, ...]:
    return tuple(SurveyQuestion.read(record, certify=False) for record in json.loads(data))


def publish(hub: "Hub", session: Session, survey: Survey) -> None:
    """Open a survey: choose and fix its mechanisms, and take answers."""
    if survey.state != "draft":
        raise NotNow(f"the survey is {survey.state} already.")
    questions = asked_of(survey)
    if not questions:
        raise BadForm("a survey needs a question before it can be published.")
    survey.questions = [_described(question, survey.name, survey.target, survey.lasting) for question in questions]
    if survey.invited:
        give_key(hub, survey)
    survey.state, survey.opened = "open", now()
    session.add(survey)
    hub.audit.write(session, survey.owner_id, "survey.published", f"survey/{survey.name}", questions=len(questions))


def prepare(hub: "Hub", survey: Survey) -> None:
    """Read, certify and describe all questions, which takes up to seconds: call it before a transaction begins.

    The result is cached, so that `publish` only writes. More than a few are described in a child process with limits.
    """
    questions, facts = asked_of(survey), (survey.name, survey.target, survey.lasting)
    new = [question for question in questions if (question, *facts) not in _DESCRIBED]
    if sum(len(question.levels) for question in new) <= FEW_LEVELS:
        for question in new:
            _described(question, *facts)
        return
    records = [question.to_json() for question in new]
    descriptions = run_bounded(hub.settings, _describe, records, *facts, seconds=CERTIFY_S, caller=survey.owner_id)
    for question, description in zip(new, descriptions, strict=True):
        _keep((question, *facts), description)


def _describe(records: list[dict[str, Any]], name: str, target: int, lasting: bool) -> list[dict[str, Any]]:
    return [_described(SurveyQuestion.read(record), name, target, lasting) for record in records]


def _described(question: SurveyQuestion, name: str, target: int, lasting: bool) -> dict[str, Any]:
    key = question, name, target, lasting
    cached = _DESCRIBED.get(key)
    return cached if cached is not None else _keep(key, question.question(name, target, lasting).describe())


def _keep(key: tuple[SurveyQuestion, str, int, bool], description: dict[str, Any]) -> dict[str, Any]:
    if len(_DESCRIBED) >= _MOST_DESCRIBED:
        _DESCRIBED.clear()
    _DESCRIBED[key] = description
    return description


def close(hub: "Hub", session: Session, survey: Survey) -> None:
    """Close a survey: it takes no more answers."""
    if survey.state != "open":
        raise NotNow(f"only an open survey can be closed; this one is {survey.state}.")
    survey.state, survey.closed = "closed", now()
    session.add(survey)
    hub.audit.write(session, survey.owner_id, "survey.closed", f"survey/{survey.name}")


def next_wave(hub: "Hub", session: Session, survey: Survey) -> None:
    """Begin the next wave with the same respondents."""
    if survey.state != "open" or not survey.lasting:
        raise NotNow("only an open survey that is asked again and again has waves.")
    survey.wave += 1
    if survey.invited:
        give_key(hub, survey)
    session.add(survey)
    hub.audit.write(session, survey.owner_id, "survey.wave", f"survey/{survey.name}", wave=survey.wave)


def find(session: Session, name: str) -> Survey:
    """Return a published survey: it is public to all who have the link."""
    survey = session.scalar(sa.select(Survey).where(Survey.name == name, Survey.state != "draft"))
    if survey is None:
        raise NotHere("there is no survey at this address.")
    return survey


def find_own(session: Session, name: str, person: Person) -> Survey:
    """Return a survey of this user, drafts included; NotHere for others."""
    survey = session.scalar(sa.select(Survey).where(Survey.name == name, Survey.owner_id == person.id))
    if survey is None:
        raise NotHere("there is no survey of yours with this name.")
    return survey


def mine(session: Session, person: Person) -> list[Survey]:
    """Return a user's surveys, the newest first."""
    return list(session.scalars(sa.select(Survey).where(Survey.owner_id == person.id).order_by(Survey.id.desc())))


def is_open(survey: Survey) -> bool:
    """Return True if answers are taken now."""
    return survey.state == "open" and (survey.ends is None or now() < survey.ends)


def sizes(session: Session, survey: Survey, wave: int | None = None) -> tuple[int, dict[str, int]]:
    """Return how many submissions of a wave (the newest unless given) were counted, and refused, by reason."""
    wave_number = survey.wave if wave is None else wave
    taken = sa.select(sa.func.count()).where(Submission.survey_id == survey.id, Submission.wave == wave_number)
    bad = sa.select(Refusal.reason, Refusal.count).where(Refusal.survey_id == survey.id, Refusal.wave == wave_number)
    return session.scalar(taken) or 0, {row[0]: row[1] for row in session.execute(bad.order_by(Refusal.reason))}


def shown_sizes(hub: "Hub", session: Session, survey: Survey, wave: int | None = None) -> tuple[int, dict[str, int]]:
    """Return the sizes for the survey's owner: answers that were shown, and refusals in steps of a batch.

    Waiting answers do not count: beside the answers shown at a look, a second counter would tell single ones. See
    `reveal`.
    """
    wave_number, step = survey.wave if wave is None else wave, max(1, hub.settings.survey_batch)
    _, refused = sizes(session, survey, wave_number)
    mine = sa.select(sa.func.count()).where(
        Submission.survey_id == survey.id, Submission.wave == wave_number, Submission.batch.is_not(None)
    )
    people = session.scalar(mine) or 0
    if is_open(survey) and wave_number == survey.wave:
        refused = {reason: count // step * step for reason, count in refused.items() if count >= step}
    return people, refused


def reveal(hub: "Hub", survey: Survey, wave: int) -> None:
    """Show the waiting answers to the survey's owner, if there are enough for a batch.

    Answers that were not shown before become visible together with at least `survey_batch - 1` others, whether the wave
    is open or over. An owner who looks after every answer, or closes the survey after one, cannot tell whose it was.
    """
    waiting = (Submission.survey_id == survey.id, Submission.wave == wave, Submission.batch.is_(None))
    counted = sa.select(sa.func.count()).select_from(Submission).where(*waiting)
    with hub.database.reading() as session:
        if (session.scalar(counted) or 0) < max(1, hub.settings.survey_batch):
            return
    last = sa.select(sa.func.coalesce(sa.func.max(Submission.batch), 0)).where(
        Submission.survey_id == survey.id, Submission.wave == wave
    )
    with hub.database.writing() as session:
        # One at a time, also in PostgreSQL: of two concurrent counts the second would mark the few new ones.
        session.execute(sa.select(Survey.id).where(Survey.id == survey.id).with_for_update(key_share=True))
        number = (session.scalar(last) or 0) + 1
        # Counted and marked by one statement: later arrivals wait for the next batch.
        enough = counted.scalar_subquery() >= max(1, hub.settings.survey_batch)
        marked = sa.update(Submission).where(*waiting, enough).values(batch=number)
        session.execute(marked, execution_options={"synchronize_session": False})


def reveal_all(hub: "Hub", person: Person, name: str | None = None) -> None:
    """Show the waiting answers of a user's surveys, or of the one with that name; see `reveal`."""
    with hub.database.reading() as session:
        own = mine(session, person)
    for survey in own:
        if survey.state != "draft" and name in (None, survey.name):
            reveal(hub, survey, survey.wave)


def questions_of(survey: Survey) -> dict[str, Question]:
    """Return the mechanisms by the question's short name, as they were fixed when it opened."""
    return {name.partition(".")[2]: question for name, question in collection(survey).questions.items()}


def collection(survey: Survey) -> Collection:
    """Return an empty collection of the survey's questions: it checks whether an envelope is one of ours."""
    return _collection(canonical(survey.questions))


@lru_cache(maxsize=64)  # certifying every mechanism for every submission would be slow
def _collection(questions: bytes) -> Collection:
    return Collection(Question.read(record) for record in json.loads(questions))


def public(survey: Survey) -> dict[str, Any]:
    """Return the facts for a respondent's device: everything it needs, nothing about any person."""
    return {
        **_facts(survey),
        "open": is_open(survey),
        "questions": [
            {**question.to_json(), "choices": list(question.choices), "question": description}
            for question, description in zip(asked_of(survey), survey.questions, strict=True)
        ],
    }


def digest_of(survey: Survey) -> str:
    """Return the SHA-256 of everything that `public` depends on, except for the time."""
    facts = {**_facts(survey), "state": survey.state, "asked": survey.asked, "questions": survey.questions}
    return hashlib.sha256(canonical(facts)).hexdigest()


def _facts(survey: Survey) -> dict[str, Any]:
    return {
        "name": survey.name,
        "title": survey.title,
        "about": survey.about,
        "purpose": survey.purpose,
        "consent": survey.consent,
        "language": survey.language,
        "by": survey.owner.organisation.name if survey.owner.organisation else survey.owner.name,
        "wave": survey.wave,
        "ends": survey.ends,
        "target": survey.target,
        "lasting": survey.lasting,
        "invited": survey.invited,
        "ballots": survey.ballot_public,
    }
