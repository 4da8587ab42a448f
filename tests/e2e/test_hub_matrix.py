"""Every route × every role × own, foreign and missing things: who gets in, who is told nothing.

The routes are taken from the application, so a new one without a line in the table below fails the first test.
"""

import hashlib
import re
from collections import Counter
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

import pytest
import sqlalchemy as sa

from cloister.hub.core.database import Database
from cloister.hub.core.models import Job, Spent
from cloister.hub.surveys import survey as surveys
from cloister.hub.users import totp
from cloister.privacy.errors import BadForm

from . import hub_world

pytestmark = pytest.mark.e2e


EVERYBODY = frozenset(hub_world.VISITORS)
NOBODY = frozenset()
STRANGERS = ("stranger", "half")
LET_IN = {200, 201, 202, 204, 303, 409, 413, 422}
POLICY = (
    "dataset: {}\npurposes: [research]\nbudget: {{lifetime: {{epsilon: 1}}}}\n"
    "roles: {{a: {{who: anyone, may: [query]}}}}"
)


@dataclass(frozen=True)
class Rule:
    """Who gets in, for the things of the hospital and those of the clinic; everybody else is answered with `rest`.

    `denied` may know of the thing and is told why not (403); `quiet` knows of it and finds nothing there (404).
    """

    visits: frozenset = NOBODY
    hidden: frozenset = NOBODY
    denied: frozenset = NOBODY
    hidden_denied: frozenset = NOBODY
    quiet: frozenset = NOBODY
    hidden_quiet: frozenset = NOBODY
    rest: int = 404
    everybody: bool = False  # strangers too
    scope: str = ""
    number: str = ""
    sent: dict = field(default_factory=dict)
    also: frozenset = NOBODY  # statuses that are answers of the page itself
    after: str = ""  # of the address
    no_cookie: bool = False  # a respondent shows none, so none is abused

    def expected(self, who, side):
        """The status that somebody gets about the things of one side, None: let in."""
        if self.everybody:
            return None
        if who in STRANGERS:
            return 401
        if side == "nowhere":
            return self.rest if self.rest == 403 and who not in self.visits else 404
        good, known, still = {
            "visits": (self.visits, self.denied, self.quiet),
            "hidden": (self.hidden, self.hidden_denied, self.hidden_quiet),
        }[side]
        return None if who in good else 403 if who in known else 404 if who in still else self.rest


def of(words):
    return frozenset(words.split())


def rule(visits="", hidden="", denied="", **more):
    return Rule(of(visits), of(hidden), of(denied), **more)


def signed(**more):
    return Rule(EVERYBODY, EVERYBODY, rest=403, **more)


def role(words, **more):
    return Rule(of(words), of(words), rest=403, **more)


KNOWN = "owner reviewer ada cleo dora"
SEES = "owner ada cleo"
WORKS = "ada cleo"
owns = rule("owner", "other")
knows = rule(KNOWN, "other")
WORK = {"form": {"sql": hub_world.COUNT, "spend": "rho 0.01"}, "purpose": "health-research"}
TYPED = {"sql": hub_world.COUNT, "spend": "rho 0.01", "purpose": "health-research"}
TWICE = {"password": "seven blue doors", "again": "seven blue doors", "name": "New"}


def but(base, **more):
    return Rule(**{**base.__dict__, **more})


COMPOSERS = "owner other reviewer ada cleo dora ben"
SURVEY = {"title": "New", "purpose": "To learn.", "consent": "Of my own will."}
QUESTION = {"type": "yes_no", "text": "Well?", "levels": "strong 0.5"}
PAIR = "?first=smoker&second=where"
READ, SHARE, DO = {"scope": "read"}, {"scope": "share"}, {"scope": "work"}
TABLE = {
    # Programs
    "GET /api/openapi.json": Rule(everybody=True),
    "GET /api/me": signed(**READ),
    "GET /api/audit": role("auditor operator", **READ),
    "GET /api/audit/verify": role("auditor operator", **READ),
    "GET /api/audit/export": role("auditor operator", **READ),
    "GET /api/datasets": signed(**READ),
    "POST /api/datasets": role("owner other", **SHARE, sent={"name": "fresh", "policy": POLICY.format("fresh")}),
    "GET /api/datasets/{name}": but(knows, **READ),
    "DELETE /api/datasets/{name}": but(owns, **SHARE),
    "POST /api/datasets/{name}/pause": but(owns, **SHARE, sent={"paused": True}),
    "GET /api/datasets/{name}/schema": rule(SEES, "other", "reviewer dora", **READ),
    "GET /api/datasets/{name}/mock/{table}": rule(SEES, "other", "reviewer dora", **READ),
    "GET /api/datasets/{name}/versions": but(owns, **READ),
    "POST /api/datasets/{name}/versions": but(owns, **SHARE, sent={"uploads": {"visits": "{upload}"}}),
    "GET /api/datasets/{name}/versions/{number}": but(owns, **READ, number="version"),
    "POST /api/datasets/{name}/plan": rule(WORKS, "other", "owner reviewer dora", **DO, sent=WORK),
    "POST /api/datasets/{name}/jobs": rule(WORKS, "other", "owner reviewer dora", **DO, sent=WORK),
    "GET /api/datasets/{name}/jobs": but(knows, **READ),
    "GET /api/datasets/{name}/ledger": rule(f"{KNOWN} auditor", "other auditor", **READ),
    "GET /api/datasets/{name}/policy": but(knows, **READ),
    "PUT /api/datasets/{name}/policy": but(owns, **SHARE, sent={"text": POLICY.format("{name}")}),
    "GET /api/datasets/{name}/why": but(knows, **READ),
    "POST /api/datasets/{name}/uploads": rule(
        "owner provider", "other", **SHARE, sent={"table": "visits", "file": "v.csv", "size": 900}
    ),
    "GET /api/datasets/{name}/tables": rule(SEES, "other", "reviewer dora", **READ),
    "POST /api/datasets/{name}/tables": but(owns, **SHARE, sent={"key": "ed25519:x"}),
    # Cleo sees a part of what the table shows, so for her there is none.
    "GET /api/datasets/{name}/tables/{number}": rule("owner ada", "other", "reviewer dora", **READ, number="handed"),
    "GET /api/datasets/{name}/tables/{number}/table": rule(
        "owner ada", "other", "reviewer dora", **READ, number="handed"
    ),
    "GET /api/datasets/{name}/attacks": but(owns, **READ),
    "POST /api/datasets/{name}/attacks": but(owns, **SHARE, sent={"job": "{trained}"}),
    "GET /api/datasets/{name}/attacks/{number}": but(owns, **READ, number="attack"),
    "DELETE /api/datasets/{name}/attacks/{number}": but(owns, **SHARE, number="attack"),
    "GET /api/uploads/{upload_id}": rule("owner provider", "other", **READ),
    "PUT /api/uploads/{upload_id}": rule("owner provider", "other", **SHARE, after="?offset=0"),
    "DELETE /api/uploads/{upload_id}": rule("owner provider", "other", **SHARE),
    "GET /api/jobs": signed(**READ),
    "GET /api/jobs/{number}": rule("ada owner", "other", **READ, number="job"),
    "DELETE /api/jobs/{number}/result": rule("ada", "other", **DO, number="job", quiet=of("owner")),
    "GET /api/jobs/{number}/receipt": rule("ada owner", "other", **READ, number="job"),
    "GET /api/jobs/{number}/model": rule("ada", "other", **READ, number="trained", quiet=of("owner")),
    "POST /api/jobs/{number}/predictions": rule(
        "ada", "other", **DO, number="trained", quiet=of("owner"), sent={"rows": "age,ward\n40,surgery\n"}
    ),
    "GET /api/jobs/{number}/table": rule("ada", "other", **READ, number="made", quiet=of("owner")),
    "POST /api/jobs/{number}/cancel": rule("ada", "other", **DO, number="job"),
    "GET /api/ledger": signed(**READ),
    "GET /api/ledger/verify": role("auditor", **READ),
    "GET /api/ledger/copy": role("auditor", **READ),
    "GET /api/requests": signed(**READ),
    "POST /api/requests": but(
        knows, **DO, sent={"dataset": "{name}", "role": "guests", "purpose": "health-research", "text": "A paper."}
    ),
    "GET /api/requests/{number}": rule("dora owner reviewer", "other", **READ, number="request"),
    "GET /api/requests/{number}/output": rule("owner reviewer", **SHARE, number="output"),
    "GET /api/requests/{number}/output/file": rule("owner reviewer", **SHARE, number="output"),
    "POST /api/requests/{number}/decision": rule(
        "owner reviewer", "other", "dora", **SHARE, number="request", sent={"agreed": False, "reason": "no"}
    ),
    "POST /api/requests/{number}/comments": rule(
        "dora owner reviewer", "other", **DO, number="request", sent={"text": "Why?"}
    ),
    "POST /api/requests/{number}/withdraw": rule(
        "dora", "", "owner reviewer", **DO, number="request", hidden_denied=of("other")
    ),
    "POST /api/requests/{number}/revoke": rule(
        "owner reviewer", "other", "dora", **SHARE, number="request", sent={"text": "no more"}
    ),
    "GET /api/notices": signed(**READ),
    "GET /api/surveys": signed(**READ),
    "POST /api/surveys": role(COMPOSERS, **DO, sent={"name": "fresh", **SURVEY}),
    "POST /api/surveys/advice": signed(**DO, sent={"question": {"type": "yes_no", "text": "?"}}),
    "GET /api/surveys/{name}": but(owns, **READ),
    "PUT /api/surveys/{name}": but(owns, **DO, sent={"title": "Other"}),
    "POST /api/surveys/{name}/publish": but(owns, **DO),
    "POST /api/surveys/{name}/close": but(owns, **DO),
    "POST /api/surveys/{name}/wave": but(owns, **DO),
    "POST /api/surveys/{name}/invitations": but(owns, **DO, sent={"count": 2}),
    "GET /api/surveys/{name}/results": but(owns, **READ),
    "GET /api/surveys/{name}/cross": but(owns, **READ, after=PAIR),
    "GET /api/surveys/{name}/reports": but(owns, **READ),
    "GET /api/surveys/{name}/receipt": but(owns, **READ),
    # Anybody
    "GET /": Rule(everybody=True),
    "GET /trust": Rule(everybody=True),
    "GET /health": Rule(everybody=True),
    "GET /metrics": Rule(everybody=True),
    "GET /sign-in": Rule(everybody=True),
    "POST /sign-in": Rule(everybody=True, sent={"email": "ada@university.example", "password": "wrong"}),
    "GET /second-factor": Rule(everybody=True),
    "POST /second-factor": Rule(everybody=True, sent={"code": "000000"}),
    "POST /sign-out": Rule(everybody=True),
    "GET /sign-up": Rule(everybody=True),
    "POST /sign-up": Rule(everybody=True, sent=TWICE),
    "GET /invitation/{secret}": Rule(everybody=True),
    "POST /invitation/{secret}": Rule(everybody=True, sent=TWICE),
    "GET /reset/{secret}": Rule(everybody=True),
    "POST /reset/{secret}": Rule(everybody=True, sent=TWICE),
    "GET /verify/{secret}": rule(),
    "POST /verify/{secret}": rule(),
    "GET /s/{name}": Rule(everybody=True),
    "GET /s/{name}/survey.json": Rule(everybody=True),
    "POST /s/{name}/ballot": Rule(everybody=True, no_cookie=True, sent={"secret": "x", "blinded": "AQ"}),
    "POST /s/{name}/answers": Rule(everybody=True, no_cookie=True, sent={"version": 1}),
    # One's own
    "GET /account": signed(),
    "POST /account/password": signed(sent={"current": "x", "new": "a", "again": "b"}),
    "POST /account/verify": signed(),
    "POST /account/second-factor": signed(sent={"factor_password": hub_world.PASSWORD}),
    "POST /account/second-factor/confirm": signed(sent={"code": "000000"}),
    "POST /account/second-factor/cancel": signed(),
    "POST /account/second-factor/remove": signed(sent={"code": "000000"}),
    "POST /account/tokens": signed(
        sent={"label": "x", "scopes": "read", "days": "3", "token_password": hub_world.PASSWORD}
    ),
    "POST /account/tokens/{number}/revoke": rule("ada", number="token"),
    "POST /account/sessions/end": signed(),
    "GET /notices": signed(),
    "POST /notices/read": signed(),
    "POST /notices/{number}": rule("ada", number="notice"),
    "GET /jobs": signed(),
    "GET /ledger": signed(),
    "GET /requests": signed(),
    "GET /datasets": signed(),
    # Surveys
    "GET /surveys": signed(),
    "GET /surveys/new": role(COMPOSERS),
    "POST /surveys/new": role(COMPOSERS, sent={"name": "fresh", "target": "50", "language": "en", **SURVEY}),
    "GET /surveys/{name}": owns,
    "POST /surveys/{name}": but(owns, sent={"target": "50", "language": "en", **SURVEY}),
    "GET /surveys/{name}/add": owns,
    "POST /surveys/{name}/add": but(owns, sent=QUESTION),
    "GET /surveys/{name}/questions/{question}": owns,
    "POST /surveys/{name}/questions/{question}": but(owns, sent=QUESTION),
    "POST /surveys/{name}/questions/{question}/move": but(owns, sent={"where": "down"}),
    "POST /surveys/{name}/questions/{question}/delete": owns,
    "GET /surveys/{name}/preview": owns,
    "GET /surveys/{name}/publish": owns,
    "POST /surveys/{name}/publish": but(owns, sent={"sure": "yes"}),
    "POST /surveys/{name}/close": owns,
    "POST /surveys/{name}/wave": owns,
    "POST /surveys/{name}/invitations": but(owns, sent={"count": "2"}),
    "GET /surveys/{name}/results": owns,
    "GET /surveys/{name}/results/{question}.svg": owns,
    "GET /surveys/{name}/cross.svg": but(owns, after=PAIR),
    "GET /surveys/{name}/model": but(owns, after="?label=smoker&feature=where"),
    "GET /surveys/{name}/beside": owns,
    "GET /surveys/{name}/beside.svg": owns,
    "GET /surveys/{name}/reports": owns,
    "GET /surveys/{name}/estimates": owns,
    "GET /surveys/{name}/receipt": owns,
    # Operators and auditors
    "GET /people": role("operator"),
    "POST /people/invite": role("operator", sent={"email": "n@x.example", "roles": "data user", "days": "3"}),
    "POST /people/organisations": role("operator", sent={"organisation_name": "New", "country": "DE"}),
    "GET /people/{number}": role("operator", number="person"),
    "POST /people/{number}/roles": role("operator", number="person", sent={"roles": "data user"}),
    "POST /people/{number}/organisation": role("operator", number="person", sent={"organisation": "1"}),
    "POST /people/{number}/reset": role("operator", number="person"),
    "POST /people/{number}/verify": role("operator", number="person"),
    "POST /people/{number}/close": role("operator", number="person"),
    "POST /people/{number}/open": role("operator", number="person"),
    "GET /audit": role("auditor operator"),
    "POST /audit/verify": role("auditor operator"),
    "GET /audit/export": role("auditor operator"),
    "POST /ledger/verify": role("auditor"),
    "GET /ledger/copy": role("auditor"),
    "GET /ledger/head": role("auditor"),
    # Datasets
    "GET /datasets/new": role("owner other"),
    "POST /datasets/new": role("owner other", sent={"name": "fresh", "policy": POLICY.format("fresh")}),
    "GET /datasets/{name}": knows,
    "GET /datasets/{name}/mock/{table}": rule(SEES, "other", "reviewer dora"),
    "POST /datasets/{name}/pause": but(owns, sent={"paused": "yes"}),
    "POST /datasets/{name}/delete": but(owns, sent={"confirm": "{name}"}),
    "GET /datasets/{name}/activity": owns,
    "POST /datasets/{name}/activity/pause": but(owns, sent={"paused": "yes"}),
    "GET /datasets/{name}/attacks": owns,
    "POST /datasets/{name}/attacks": but(owns, sent={"job": "{trained}"}),
    "GET /datasets/{name}/attacks/{number}": but(owns, number="attack"),
    "POST /datasets/{name}/attacks/{number}/cancel": but(owns, number="attack"),
    "POST /datasets/{name}/attacks/{number}/remove": but(owns, number="attack"),
    "GET /datasets/{name}/attacks/{number}/report.html": but(owns, number="attack"),
    "GET /datasets/{name}/attacks/{number}/report.json": but(owns, number="attack"),
    "GET /datasets/{name}/ledger": rule(f"{KNOWN} auditor", "other auditor"),
    "GET /datasets/{name}/ledger.csv": rule(f"{KNOWN} auditor", "other auditor"),
    "GET /datasets/{name}/ledger/{side}.svg": rule(
        "ada owner auditor", "other auditor", quiet=of("reviewer cleo dora")
    ),
    "GET /datasets/{name}/policy": knows,
    "POST /datasets/{name}/policy": but(
        owns, sent={"text": POLICY.format("{name}"), "after": "1", "action": "publish"}
    ),
    "POST /datasets/{name}/policy/form": but(owns, sent={"after": "1", "purposes": "research"}),
    "GET /datasets/{name}/policy/{number}": but(owns, number="version"),
    "GET /datasets/{name}/requests": knows,
    "POST /datasets/{name}/requests": but(
        knows, sent={"role": "guests", "purpose": "health-research", "text": "A paper."}
    ),
    "GET /datasets/{name}/schema": rule(SEES, "other", "reviewer dora"),
    "POST /datasets/{name}/schema": but(owns, sent={"action": "look"}),
    "GET /datasets/{name}/subject": rule(f"{KNOWN} auditor", "other auditor"),
    "GET /datasets/{name}/tables": rule(SEES, "other", "reviewer dora"),
    "POST /datasets/{name}/tables": but(owns, sent={"key": "ed25519:x"}),
    "GET /datasets/{name}/tables/{number}": rule("owner ada", "other", "reviewer dora", number="handed"),
    "GET /datasets/{name}/tables/{number}/chart.svg": rule(
        "owner ada", "other", "reviewer dora", number="handed", after="?column=age"
    ),
    "GET /datasets/{name}/tables/{number}/{file}": rule("owner ada", "other", "reviewer dora", number="handed"),
    "GET /datasets/{name}/versions": rule("owner provider", "other"),
    "POST /datasets/{name}/versions": owns,
    "POST /datasets/{name}/versions/files": rule("owner provider", "other"),
    "POST /datasets/{name}/versions/files/{upload_id}/cancel": rule("owner provider", "other"),
    "POST /datasets/{name}/versions/{number}/retry": but(owns, number="version"),
    "GET /datasets/{name}/why": knows,
    "GET /datasets/{name}/query": knows,
    "GET /datasets/{name}/profile": knows,
    "GET /datasets/{name}/train": knows,
    "GET /datasets/{name}/predict": knows,
    "GET /datasets/{name}/synthesise": knows,
    "GET /datasets/{name}/anonymise": knows,
    # Work
    "GET /work/{kind}/{name}": rule(WORKS, "other", "owner reviewer dora"),
    "POST /work/{kind}/{name}": rule(WORKS, "other", "owner reviewer dora", sent=TYPED),
    "POST /work/query/{name}/saved": but(knows, sent={"name": "Mine", "sql": "SELECT 1"}),
    "POST /work/query/{name}/saved/{number}/forget": rule("ada", number="saved"),
    "GET /jobs/{number}": rule("ada owner", "other", number="job"),
    "POST /jobs/{number}/cancel": rule("ada", "other", number="job"),
    "POST /jobs/{number}/forget": rule("ada", "other", number="job", quiet=of("owner")),
    "GET /jobs/{number}/chart.svg": rule("ada", "other", number="job", quiet=of("owner")),
    "GET /jobs/{number}/receipt": rule("ada owner", "other", number="job"),
    "GET /jobs/{number}/model": rule("ada", "other", number="trained", quiet=of("owner")),
    "GET /jobs/{number}/predictions": rule("ada", "other", number="trained", quiet=of("owner")),
    "POST /jobs/{number}/predictions": rule(
        "ada", "other", number="trained", quiet=of("owner"), sent={"rows": "age\n40\n", "show": "label"}
    ),
    "GET /jobs/{number}/table.parquet": rule("ada", "other", number="made", quiet=of("owner")),
    "GET /jobs/{number}/table.csv": rule("ada", "other", number="made", quiet=of("owner")),
    "GET /jobs/{number}/table.side.json": rule("ada", "other", number="made", quiet=of("owner")),
    "GET /jobs/{number}/label": rule("ada", "other", number="job", quiet=of("owner")),
    "GET /jobs/{number}/answer.csv": rule("ada", "other", number="job", quiet=of("owner")),
    "GET /requests/{number}": rule("dora owner reviewer", "other", number="request"),
    "GET /requests/{number}/output.parquet": rule("owner reviewer", number="output"),
    "GET /requests/{number}/output.csv": rule("owner reviewer", number="output"),
    "POST /requests/{number}/decide": rule(
        "owner reviewer", "other", "dora", number="request", sent={"word": "deny", "reason": "no"}
    ),
    "POST /requests/{number}/comment": rule("dora owner reviewer", "other", number="request", sent={"text": "Why?"}),
    "POST /requests/{number}/withdraw": rule("dora", "", "owner reviewer", number="request", hidden_denied=of("other")),
    "POST /requests/{number}/revoke": rule(
        "owner reviewer", "other", "dora", number="request", sent={"reason": "no more"}
    ),
}
SIDES = ("visits", "hidden", "nowhere")
SCOPES = ("read", "work", "share", "read work", "read share", "work share")


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    place = tmp_path_factory.mktemp("town")
    for name in ("hospital", "clinic"):
        (place / name).mkdir()
    made = hub_world.copied(
        place / "hub",
        connect_folders=f"Hospital={place / 'hospital'}, Clinic={place / 'clinic'}",
        connect_hosts="Hospital=db.hospital.example:5432, Clinic=db.clinic.example:5432",
    )
    for who in hub_world.VISITORS:
        for scopes in (*SCOPES, "read work share"):
            made.token(who, scopes)
    made.remember()
    yield made
    made.hub.close()


def request(town, who, key, side, how="browser", **headers):
    """Ask as the table says; whatever changed is changed back by `town.restore`."""
    method, _, pattern = key.partition(" ")
    line, things = TABLE[key], getattr(town, side)
    path = things.fill(pattern, getattr(things, line.number) if line.number else 0) + line.after
    sent = filled(line.sent, things)
    if how == "program":
        if method == "PUT" and "uploads" in path:
            return town.call(who, method, path, content=b"x", **headers)
        return town.call(who, method, path, body=sent or None, **headers)
    if path.startswith("/api/"):
        return town.ask(who, method, path, body=sent or None, accept="application/json", **headers)
    return town.ask(who, method, path, data=sent or None, **headers)


def filled(sent, things):
    if isinstance(sent, dict):
        return {name: filled(value, things) for name, value in sent.items()}
    if not isinstance(sent, str):
        return sent
    for word, value in (("{name}", things.name), ("{upload}", things.upload), ("{trained}", str(things.trained))):
        sent = sent.replace(word, value)
    return sent


def plain(answer, things):
    """An answer's text without what names the thing that was asked for, and without the token of the page."""
    text = re.sub(r'content="[\w-]{43,}"|value="[\w-]{43,}"', "", answer.text)
    for one in (things.name, things.upload, things.invitation, things.reset, "visits", "none"):
        text = text.replace(one, "…")
    return re.sub(r"\b\d+\b", "0", text)


def check(town, who, key, side, how):
    line, things = TABLE[key], getattr(town, side)
    method, _, pattern = key.partition(" ")
    wanted, answer = line.expected(who, side), request(town, who, key, side, how)
    case = f"{who} ({how}): {key} on {side}: {answer.status_code} {answer.text[:300]!r}"
    assert answer.status_code < 500, case
    if not line.everybody and wanted is not None and method != "GET":
        assert town.fingerprint() == town.mark, case
    if wanted is None or (side == "nowhere" and "{" not in pattern and wanted == 404):
        good = LET_IN | line.also | ({401, 403, 404} if line.everybody else set())
        good |= {404} if side == "nowhere" else set()  # a name in the body
        assert answer.status_code in good, case
        assert not answer.headers.get("location", "").startswith("/sign-in?next"), case
    elif wanted == 401 and method == "GET" and not pattern.startswith("/api/"):
        assert (answer.status_code, answer.headers["location"][:14]) == (303, "/sign-in?next="), case
    else:
        assert answer.status_code == wanted, case
    if wanted == 404 and side == "hidden" and who not in line.hidden_quiet:
        missing = request(town, who, key, "nowhere", how)
        assert plain(answer, things) == plain(missing, town.nowhere), case
    if who in STRANGERS:
        no_word(answer, case)
    if who not in ("other", "auditor", "operator"):
        assert not re.search("(Title of|About) lakeside", answer.text), case
    if method != "GET" and (line.everybody or wanted is None):
        town.restore()


def no_word(answer, case):
    """Nothing of what is inside, for those who are outside."""
    for word in ("Title of", "About visits", "hospital.example", "cardiology", "guests", "salaries", "lakeside"):
        assert word not in answer.text, case


# The matrix


def test_every_route_has_its_line_in_the_table(town):
    found = {f"{method} {path}" for method, path in hub_world.routes(town.web.app)}
    assert found == set(TABLE)


@pytest.mark.parametrize("key", TABLE, ids=lambda key: key.replace("/", "_"))
def test_everybody_gets_what_the_table_says(town, key):
    for side in SIDES if "{" in key or "{name}" in str(TABLE[key].sent) else ("visits",):
        # Whoever gets in somewhere also asks for what is not there; to the others it is compared with what is.
        asking = TABLE[key].visits | TABLE[key].hidden if side == "nowhere" else hub_world.VISITORS
        if TABLE[key].everybody:
            asking = ("ada", "operator")
        for who in (*asking, *STRANGERS):
            check(town, who, key, side, "browser")


@pytest.mark.parametrize("key", [key for key in TABLE if " /api/" in key], ids=lambda key: key.replace("/", "_"))
def test_a_program_gets_the_same_as_a_browser(town, key):
    for side in ("visits", "hidden"):
        for who in (*hub_world.VISITORS, "stranger"):
            check(town, who, key, side, "program")


# Connections


def test_an_owner_connects_and_sees_the_places_of_their_own_organisation_alone(town):
    root = town.hub.folder.parent
    for who, dataset, own, foreign in (
        ("owner", "visits", "hospital", "clinic"),
        ("other", "lakeside", "clinic", "hospital"),
    ):
        shown = town.ask(who, "GET", f"/datasets/{dataset}/versions").text
        assert f"db.{own}.example:5432" in shown
        assert str(root / own) in shown
        assert f"db.{foreign}.example" not in shown
        assert str(root / foreign) not in shown

        def connect(address, who=who, dataset=dataset):
            by_program = town.call(who, "POST", f"/api/datasets/{dataset}/versions", body={"address": address})
            by_browser = town.ask(who, "POST", f"/datasets/{dataset}/versions", data={"address": address})
            return by_program, by_browser.status_code

        refused, page = connect(str(root / foreign))
        missing, _ = connect(str(root / "nowhere"))
        assert (refused.status_code, page) == (422, 422)
        assert refused.json() == missing.json()  # that others connect it is not told
        assert town.fingerprint() == town.mark
        for host in (f"db.{foreign}.example", "db.nobody.example", f"db.{own}.example:5433"):
            refused, page = connect(f"postgresql://u:p@{host}/x")
            assert (refused.status_code, page) == (422, 422)
            assert "not on this hub's list for your organisation" in refused.json()["message"]
        accepted, _ = connect(str(root / own))
        assert accepted.status_code == 202
        town.restore()


# Scopes


@pytest.mark.parametrize("scopes", SCOPES)
def test_a_token_reaches_no_further_than_its_scopes(town, scopes):
    for key, line in TABLE.items():
        if not line.scope:
            continue
        method = key.partition(" ")[0]
        who = min(line.visits, default="ada")
        enough = line.scope in scopes.split() and (method != "GET" or "read" in scopes.split())
        answer = request(town, who, key, "visits", "program", scopes=scopes)
        assert (answer.status_code in LET_IN) is enough, (key, scopes, answer.text)
        assert (answer.status_code == 403 and "scope" in answer.json()["message"]) is not enough, (key, scopes)
        if enough and method != "GET":
            town.restore()
        else:
            assert town.fingerprint() == town.mark


def test_a_token_opens_no_page(town):
    for key, line in TABLE.items():
        _method, _, pattern = key.partition(" ")
        if pattern.startswith("/api/") or line.everybody:
            continue
        who = min(line.visits, default="ada")
        answer = request(town, who, key, "visits", "program")
        assert answer.status_code in (303, 401, 403), key  # as for a stranger, whose post has no token of a page
        assert answer.status_code != 303 or answer.headers["location"].startswith("/sign-in"), key
        assert town.fingerprint() == town.mark


# Other sites


def test_nothing_changes_without_the_token_of_our_own_page(town):
    for key, line in TABLE.items():
        method = key.partition(" ")[0]
        if method == "GET" or line.no_cookie:
            continue
        who = min(line.visits, default="ada")
        for tricks in (
            {"x-csrf": ""},
            {"x-csrf": town.csrf["ben"]},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site"},
        ):
            answer = request(town, who, key, "visits", **tricks)
            assert answer.status_code == 403, (key, tricks)
            assert town.fingerprint() == town.mark, (key, tricks)


# The operator


def test_being_an_operator_opens_people_and_the_log_and_nothing_else():
    everywhere = {key for key, line in TABLE.items() if line.everybody or line.visits >= EVERYBODY}
    opened = {key for key, line in TABLE.items() if "operator" in line.visits | line.hidden} - everywhere
    assert {re.sub(r"^\w+ (/api)?(/\w+).*", r"\2", key) for key in opened} == {"/people", "/audit"}


def test_an_operator_who_tries_everything_reads_no_answer_and_moves_no_ledger(town):
    before = str(town.hub.ledger.head), len(town.rows(sa.select(Job))), len(town.rows(sa.select(Spent)))
    for key in TABLE.keys() - {"GET /api/openapi.json"}:
        for side in ("visits", "hidden"):
            for how in ("browser", "program"):
                answer = request(town, "operator", key, side, how)
                # Answers, questions and schemas; the log holds decisions only.
                for word in ("cardiology", "SELECT ward", '"rows"', "Title of"):
                    assert word not in answer.text, (key, side, word)
    after = str(town.hub.ledger.head), len(town.rows(sa.select(Job))), len(town.rows(sa.select(Spent)))
    assert after == before
    town.restore()


# Forms


class Forms(HTMLParser):
    """The forms of a page that send something: where to, and their fields as (tag, attributes, options or text)."""

    def __init__(self, page, words):
        super().__init__()
        self.page, self.found, self.links, self._form, self._text = page, [], [], None, None
        self.feed(words)

    def handle_starttag(self, tag, attrs):
        told = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(told.get("href", ""))
        if tag == "form":
            self._form = {**told, "action": told.get("action") or self.page, "fields": []}
            if told.get("method") == "post":
                self.found.append(self._form)
        elif tag in ("input", "select", "textarea", "button") and self._form is not None and told.get("name"):
            self._form["fields"].append({"tag": tag, "type": "", "options": [], "text": "", **told})
        elif tag == "option" and self._form is not None:
            self._form["fields"][-1]["options"].append(told)
        self._text = self._form["fields"][-1] if tag == "textarea" else None

    def handle_endtag(self, tag):
        self._text = None
        self._form = None if tag == "form" else self._form

    def handle_data(self, data):
        if self._text is not None:
            self._text["text"] += data


SECRETS = ("one-time-code", "current-password", "new-password")
SECRET = "s3cret-never-shown-again"


def typed(part):
    """What somebody types into a field; None if it takes no typing, which a button and a hidden field do not."""
    kind, most = part["type"] or "text", int(part.get("maxlength") or 100)
    if kind in ("hidden", "file", "submit") or part["tag"] == "button":
        return None
    if kind == "password" or part.get("autocomplete") in SECRETS:
        return SECRET
    if part.get("data-address"):
        return "/folder/of tables"
    if part["tag"] == "select":
        return part["options"][-1].get("value", "")
    if kind in ("checkbox", "radio"):
        return part.get("value", "on")
    plain = {"email": "typed@x.example", "number": "17", "date": "2031-02-03", "url": "https://x.example/"}
    return plain.get(kind, f"typed {part['name']} & <more>" + "\nlines" * (part["tag"] == "textarea"))[:most]


def shown(part):
    """What a field of a page holds."""
    if part["tag"] == "textarea":
        return part["text"].removeprefix("\n")
    if part["tag"] == "select":
        return next((one.get("value", "") for one in part["options"] if "selected" in one), None)
    if part["type"] in ("checkbox", "radio"):
        return part["value"] if "checked" in part else None
    return part.get("value", "")


def walk(town, who, starts):
    """Every form of every kind of page that somebody reaches by links, and the page that it is on."""
    todo, seen, pages = list(starts), set(), Counter()
    while todo:
        page = todo.pop(0)
        answer = town.ask(who, "GET", page)
        if answer.status_code != 200 or not answer.headers["content-type"].startswith("text/html"):
            continue
        found = Forms(page.partition("?")[0], answer.text)
        for form in found.found:
            names = tuple(part["name"] for part in form["fields"])
            key = form["action"].partition("?")[0], names
            if key not in seen:
                seen.add(key)
                yield page, form
        for link in found.links:
            link = link.partition("#")[0]
            kind = re.sub(r"\d+", "0", link)
            if link.startswith("/") and pages[kind] < 2:
                pages[kind] += 1
                todo.append(link)


def sent_by(form):
    """The form as it is sent: fields that were typed into, the others as they are, and the first of its buttons."""
    sent, buttons = {}, [one for one in form["fields"] if one["tag"] == "button"]
    for part in form["fields"]:
        value = part.get("value", "") if part["type"] == "hidden" else typed(part)
        if value is None:
            continue
        if part["type"] == "checkbox":
            sent.setdefault(part["name"], []).append(value)
        else:
            sent[part["name"]] = value
    return {**sent, **{one["name"]: one.get("value", "") for one in buttons[:1]}}


def lost(form, answer):
    """The fields of a form that was refused that did not come back as they were sent; None if it did not come back."""
    names = {part["name"] for part in form["fields"]}
    path = form["action"].partition("?")[0].partition("#")[0]
    again = [
        one
        for one in Forms(path, answer.text).found
        if one["action"].partition("?")[0].partition("#")[0] == path and names <= {f["name"] for f in one["fields"]}
    ]
    if not again:
        return None
    missing = []
    for part in form["fields"]:
        wanted = typed(part)
        same = [one for one in again[0]["fields"] if one["name"] == part["name"] and one["tag"] == part["tag"]]
        if wanted is not None and wanted not in [shown(one) for one in same] and wanted != SECRET:
            missing.append((part["name"], wanted, [shown(one) for one in same]))
    return missing


STARTS = {
    "owner": ["/", "/datasets/new", "/surveys/invited"],
    "other": ["/", "/surveys/lakeside"],  # has a survey that is a draft
    "ada": [
        "/",
        *(f"/work/{kind}/visits" for kind in ("query", "train", "predict", "synthesise", "profile", "anonymise")),
    ],
    "dora": ["/", "/datasets/visits/requests"],
    "reviewer": ["/", "/requests"],
    "operator": ["/", "/people"],
    "auditor": ["/", "/audit", "/ledger"],
    "ben": ["/account"],  # is setting up a second factor
    "cleo, half inside": ["/second-factor"],
    "stranger": ["/sign-in", "/sign-up"],
}
# Routes whose forms are buttons alone, or that are no form's: nothing is typed there.
UNTYPED = re.compile(
    r"/(sign-out|notices/.*|audit/verify|ledger/verify|account/(verify|sessions/end|second-factor/cancel)|verify/.*"
    r"|account/second-factor/remove|account/tokens/\{number\}/revoke|jobs/\{number\}/(cancel|forget)"
    r"|people/\{number\}/(verify|close|open)|requests/\{number\}/withdraw|work/query/\{name\}/saved/\{number\}/forget"
    r"|datasets/\{name\}/(pause|activity/pause|attacks(/\{number\}/(cancel|remove))?|versions/(files/\{upload_id\}/cancel|\{number\}/retry))"
    r"|surveys/\{name\}/(close|wave|questions/\{question\}/(move|delete))|s/.*)"
)


def refused(town, who, page, form, **changed):
    """Send a form from its page."""
    headers = {"referer": f"http://testserver{page}"}
    if who not in town.cookies:  # the token of the visit that `town.ask` makes
        changed.setdefault("csrf", hashlib.sha256(b"cloister csrf " + b"v" * 40).hexdigest())
    if form.get("enctype") != "multipart/form-data":
        where, data = form["action"].partition("#")[0], {**sent_by(form), **changed}
        return town.ask(who, "POST", where, data=data, **headers, **{"x-csrf": ""})
    cookie, csrf = f"cloister-session={town.cookies[who]}", town.csrf[who]
    files = {one["name"]: ("typed.csv", b"a,b") for one in form["fields"] if one["type"] == "file"}
    headers |= {"cookie": cookie, "x-csrf": csrf, "accept": "text/html"}
    town.web.cookies.clear()
    return town.web.post(form["action"], data=sent_by(form), files=files, headers=headers)


def prepare_forms(town, monkeypatch):
    """Bring about what some forms need: a granted request, survey links, a second factor, a hub that anybody joins."""
    hub, people = town.hub, town.people
    monkeypatch.setattr(hub, "settings", replace(hub.settings, open_sign_up=True))
    words = {"title": "Invited", "purpose": "To learn.", "consent": "Of my own will.", "invited": True}
    asked = [{"id": "smoker", "type": "yes_no", "text": "Do you smoke?"}]
    with hub.database.writing() as session:
        surveys.publish(
            hub, session, surveys.create(hub, session, people["owner"], "invited", {**words, "asked": asked})
        )
        totp.enroll(session, hub.keys, people["cleo"].id)
    granted = town.ask("owner", "POST", f"/requests/{town.visits.request}/decide", data={"word": "agree", "days": "9"})
    begun = town.ask("ben", "POST", "/account/second-factor", data={"factor_password": hub_world.PASSWORD})
    assert (granted.status_code, begun.status_code) == (303, 303)
    town.sign_in("cleo", complete=False, name="cleo, half inside")


def test_every_form_that_is_refused_comes_back_as_it_was_filled_in(town, monkeypatch):
    prepare_forms(town, monkeypatch)
    writing, armed, tried = Database.writing, [], set()

    def once_never(database):
        if armed:
            raise BadForm(armed.pop())
        return writing(database)

    monkeypatch.setattr(Database, "writing", once_never)
    links = {
        "stranger": [f"/invitation/{town.visits.invitation}", f"/reset/{town.visits.reset}"],
        "ada": [f"/jobs/{town.visits.trained}/predictions"],
    }
    for who, starts in STARTS.items():
        for page, form in walk(town, who, starts + links.get(who, [])):
            if not any(map(typed, form["fields"])):
                continue
            # Refused by the route, at the latest when it would write; and before it, unless files come after the token.
            armed[:] = ["nothing is written now."]
            answers = [refused(town, who, page, form)]
            armed.clear()
            if not form.get("enctype"):
                old = refused(town, who, page, form, csrf="of an old page")
                if who == "stranger":  # no page is rendered for whoever has neither an account nor a token
                    assert (old.status_code, lost(form, old)) == (403, None), (page, form["action"])
                    assert SECRET not in old.text
                else:
                    answers.append(old)
            for answer in answers:
                assert answer.status_code in (401, 403, 409, 422), (who, page, form["action"])
                assert lost(form, answer) == [], (who, page, form["action"])
                assert SECRET not in answer.text, (who, page, form["action"])
            tried.add(re.split(r"[?#]", form["action"])[0])
    town.restore()
    wanted = {
        path for method, path in hub_world.routes(town.web.app) if method == "POST" and not path.startswith("/api/")
    }
    known = {path for path in wanted if any(re.fullmatch(re.sub(r"\{\w+\}", "[^/]+", path), one) for one in tried)}
    assert [path for path in sorted(wanted - known) if not UNTYPED.fullmatch(path)] == []
