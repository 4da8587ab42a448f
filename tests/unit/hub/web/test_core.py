"""The web core: who gets in, what every answer carries, how a refusal is shown."""

import logging
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import pytest
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.testclient import TestClient
from starlette.responses import JSONResponse, Response

from cloister.hub.core import heartbeats
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Notice, Person
from cloister.hub.core.settings import Settings
from cloister.hub.users import sessions, tokens
from cloister.hub.web.app import create_app
from cloister.hub.web.context import Visitor, form, go, guard, page, scoped, signed_in, with_role
from cloister.hub.web.forms import Form, inside
from cloister.hub.web.security import CONTENT_SECURITY_POLICY
from cloister.privacy.errors import EngineFailed, OverBudget, UploadRefused

SECRET = "ZZSECRETZZ"
pages = APIRouter()


@pages.get("/try/mine")
def mine(here: Annotated[Visitor, Depends(signed_in)]) -> Response:
    return JSONResponse({"who": here.who.name})


@pages.get("/try/operators")
def operators(here: Annotated[Visitor, Depends(with_role("operator"))]) -> Response:
    return JSONResponse({"who": here.who.name})


@pages.post("/try/change")
def change(
    request: Request, here: Annotated[Visitor, Depends(signed_in)], sent: Annotated[Form, Depends(form)]
) -> Response:
    return go(request, "/try/said", said=f"Saved {sent.text('title', 'Title')}.")


@pages.get("/try/said")
def said(request: Request) -> Response:
    return page(request, "error.html", title="A page", number=200, message="as it is", way_out="", code="")


@pages.get("/try/surprise")
def surprise() -> Response:
    raise RuntimeError(f"the value was {SECRET}")


@pages.get("/try/engine")
def engine() -> Response:
    raise EngineFailed("the engine failed.", owner_detail=SECRET)


@pages.get("/try/budget")
def budget() -> Response:
    raise OverBudget("needs rho 0.1, 0.03 is left.")


@pages.post("/api/try/work")
def work(here: Annotated[Visitor, Depends(scoped("work"))]) -> Response:
    return JSONResponse({"who": here.who.name})


@pages.get("/api/try/read")
def read(here: Annotated[Visitor, Depends(scoped("read"))]) -> Response:
    return JSONResponse({"who": here.who.name, "address": here.address})


@pages.post("/api/try/body")
async def body(request: Request) -> Response:
    return JSONResponse({"length": len(await request.body())})


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(folder=tmp_path / "hub", requests_per_minute=10_000)


@pytest.fixture
def hub(settings: Settings) -> Iterator[Hub]:
    with Hub.create(settings) as made:
        yield made


@pytest.fixture
def app(hub: Hub) -> FastAPI:
    made = create_app(hub)
    made.include_router(pages, dependencies=[Depends(guard)])
    return made


@pytest.fixture
def person(hub: Hub) -> Person:
    with hub.database.writing() as session:
        made = Person(email="ana@example.org", name="Ana Lopes", roles=["data user"])
        session.add(made)
        session.flush()
        session.refresh(made)
    return made


@pytest.fixture
def browser(app: FastAPI) -> TestClient:
    return TestClient(app, follow_redirects=False, headers={"accept": "text/html"})


@pytest.fixture
def csrf(hub: Hub, person: Person, browser: TestClient) -> str:
    """Ana is signed in with this browser; her CSRF token."""
    with hub.database.writing() as session:
        secret, kept = sessions.begin(session, hub.settings, person, complete=True)
    browser.cookies.set("cloister-session", secret)
    return kept.csrf


def token(hub: Hub, person: Person, *scopes: str) -> dict[str, str]:
    with hub.database.writing() as session:
        return {"authorization": f"Bearer {tokens.make(session, person, 'test', scopes, 1)}"}


# Who gets in.


def test_a_stranger_sees_the_landing_page_and_a_way_in(browser: TestClient) -> None:
    answer = browser.get("/")
    assert answer.status_code == 200
    assert "Learn from data that nobody is allowed to see" in answer.text
    assert 'href="/sign-in"' in answer.text


def test_a_stranger_is_sent_to_the_sign_in_page_and_back(browser: TestClient) -> None:
    answer = browser.get("/try/mine?a=1")
    assert (answer.status_code, answer.headers["location"]) == (303, "/sign-in?next=/try/mine%3Fa%3D1")


def test_a_session_opens_pages_and_its_end_closes_them(
    hub: Hub, browser: TestClient, person: Person, csrf: str
) -> None:
    assert browser.get("/try/mine").json() == {"who": "Ana Lopes"}
    with hub.database.writing() as session:
        sessions.end_all(session, person)
    assert browser.get("/try/mine").status_code == 303


def test_a_session_without_its_second_factor_opens_nothing(hub: Hub, browser: TestClient, person: Person) -> None:
    with hub.database.writing() as session:
        secret, _ = sessions.begin(session, hub.settings, person, complete=False)
    browser.cookies.set("cloister-session", secret)
    assert browser.get("/try/mine").status_code == 303


def test_a_hub_that_requires_a_second_factor_opens_nothing_without(tmp_path: Path) -> None:
    with Hub.create(Settings(folder=tmp_path / "strict", require_totp=True)) as hub:
        app = create_app(hub)
        app.include_router(pages, dependencies=[Depends(guard)])
        with hub.database.writing() as session:
            made = Person(email="a@example.org", name="A", roles=[])
            session.add(made)
            session.flush()
            secret, _ = sessions.begin(session, hub.settings, made, complete=True)
        browser = TestClient(app, cookies={"cloister-session": secret})
        assert browser.get("/try/mine").status_code == 403


def test_a_role_that_is_not_held_is_denied(hub: Hub, browser: TestClient, person: Person, csrf: str) -> None:
    assert browser.get("/try/operators").status_code == 403
    with hub.database.writing() as session:
        session.get_one(Person, person.id).roles = ["operator"]
    assert browser.get("/try/operators").status_code == 200


# Forms.


def test_a_post_without_the_token_of_the_page_changes_nothing(browser: TestClient, csrf: str) -> None:
    assert browser.post("/try/change", data={"title": "x"}).status_code == 403
    assert browser.post("/try/change", data={"title": "x", "csrf": "wrong"}).status_code == 403
    assert browser.post("/try/change", data={"title": "x", "csrf": csrf}).status_code == 303


def test_a_post_from_another_site_changes_nothing_even_with_the_token(browser: TestClient, csrf: str) -> None:
    sent = {"title": "x", "csrf": csrf}
    assert browser.post("/try/change", data=sent, headers={"sec-fetch-site": "cross-site"}).status_code == 403
    assert browser.post("/try/change", data=sent, headers={"sec-fetch-site": "same-origin"}).status_code == 303


def test_a_stranger_posts_with_the_token_of_their_visit(browser: TestClient) -> None:
    first = browser.get("/sign-in")
    mark = first.text.partition('name="csrf" value="')[2].partition('"')[0]
    assert len(mark) == 64
    refused = TestClient(browser.app, follow_redirects=False).post("/sign-in", data={"csrf": mark, "email": "a@b.c"})
    assert refused.status_code == 403
    assert browser.post("/sign-in", data={"csrf": mark, "email": "a@b.c", "password": "x"}).status_code == 401


def test_a_missing_field_is_named(browser: TestClient, csrf: str) -> None:
    answer = browser.post("/try/change", data={"title": " ", "csrf": csrf})
    assert answer.status_code == 422
    assert "Title" in answer.text


def test_what_was_done_is_said_once_and_cannot_be_made_up(browser: TestClient, csrf: str) -> None:
    browser.post("/try/change", data={"title": "<b>it</b>", "csrf": csrf})
    assert "Saved &lt;b&gt;it&lt;/b&gt;." in browser.get("/try/said").text
    assert "Saved" not in browser.get("/try/said").text
    browser.cookies.set("cloister-said", "0" * 32 + "Send%20us%20money")
    assert "money" not in browser.get("/try/said").text


# Tokens.


def test_a_token_opens_the_api_within_its_scopes_and_no_page(hub: Hub, app: FastAPI, person: Person) -> None:
    program = TestClient(app, follow_redirects=False)
    reading, working = token(hub, person, "read"), token(hub, person, "work")
    assert program.get("/api/try/read", headers=reading).json()["who"] == "Ana Lopes"
    assert program.post("/api/try/work", headers=reading).status_code == 403
    assert program.post("/api/try/work", headers=working).status_code == 200
    assert program.get("/api/try/read", headers=working).status_code == 403
    assert program.get("/try/mine", headers=reading).status_code == 303


def test_a_token_that_is_not_known_is_refused_as_json(app: FastAPI) -> None:
    answer = TestClient(app).get("/api/try/read", headers={"authorization": "Bearer clo_wrong"})
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == "Bearer"
    assert set(answer.json()) == {"code", "message", "way_out"}
    assert answer.json()["code"] == "CLO-501"


def test_a_cookie_opens_the_api_for_posts_with_the_csrf_header_only(browser: TestClient, csrf: str) -> None:
    assert browser.post("/api/try/work").status_code == 403
    assert browser.post("/api/try/work", headers={"x-csrf": csrf}).status_code == 200


# Headers and limits.


def test_every_answer_carries_the_safe_headers(browser: TestClient) -> None:
    for path in ("/", "/try/surprise", "/nowhere", "/api/try/read", "/static/style.css", "/health"):
        headers = browser.get(path).headers
        assert headers["content-security-policy"] == CONTENT_SECURITY_POLICY, path
        assert headers["x-content-type-options"] == "nosniff", path
        assert headers["referrer-policy"] == "same-origin", path
        expected = "no-cache" if path.startswith("/static") else "no-store"
        assert headers["cache-control"] == expected, path
    assert "unsafe" not in CONTENT_SECURITY_POLICY


def test_the_api_reads_no_form_to_find_a_token(browser: TestClient, csrf: str) -> None:
    answer = browser.post("/api/try/work", data={"csrf": csrf})
    assert answer.status_code == 403


def test_pages_hold_no_inline_script_or_style(browser: TestClient, csrf: str) -> None:
    for path in ("/", "/trust", "/jobs", "/nowhere"):
        text = browser.get(path).text
        assert "style=" not in text, path
        assert "<style" not in text, path
        assert " onclick" not in text, path
        assert all("src=" in tag.partition(">")[0] for tag in text.split("<script")[1:]), path


def test_static_files_under_their_mark_are_kept(browser: TestClient) -> None:
    address = browser.get("/").text.partition('rel="stylesheet" href="')[2].partition('"')[0]
    assert "?" in address
    assert "immutable" in browser.get(address).headers["cache-control"]


def test_cookies_are_bound_to_the_host_over_tls(tmp_path: Path) -> None:
    with Hub.create(Settings(folder=tmp_path / "tls", address="https://hub.example.org")) as hub:
        answer = TestClient(create_app(hub), base_url="https://hub.example.org").get("/")
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith("__Host-cloister-visit=")
    assert all(word in cookie for word in ("Secure", "HttpOnly", "SameSite=lax", "Path=/"))
    assert "strict-transport-security" in answer.headers


def test_a_body_that_is_too_long_is_refused(browser: TestClient) -> None:
    answer = browser.post("/api/try/body", content=b"x" * (2 * 1024 * 1024 + 1))
    assert (answer.status_code, answer.json()["code"]) == (413, UploadRefused.code)
    pieces = (b"x" * 65536 for _ in range(40))
    assert browser.post("/api/try/body", content=pieces).status_code == 413
    assert browser.post("/api/try/body", content=b"x" * 1000).json() == {"length": 1000}


def test_whoever_asks_too_often_waits(tmp_path: Path) -> None:
    with Hub.create(Settings(folder=tmp_path / "slow", requests_per_minute=5, web_processes=1)) as hub:
        browser = TestClient(create_app(hub), headers={"accept": "text/html"})
        statuses = [browser.get("/trust").status_code for _ in range(7)]
        last = browser.get("/trust")
    assert statuses == [200] * 5 + [429] * 2
    assert int(last.headers["retry-after"]) >= 1


def test_forwarded_addresses_are_believed_from_trusted_proxies_only(hub: Hub, app: FastAPI, person: Person) -> None:
    shown = {**token(hub, person, "read"), "x-forwarded-for": "6.6.6.6, 203.0.113.7, 10.0.0.2"}
    asked = TestClient(app, client=("198.51.100.1", 1)).get("/api/try/read", headers=shown)
    assert asked.json()["address"] == "198.51.100.1"
    object.__setattr__(hub.settings, "trusted_proxies", "10.0.0.0/8")
    asked = TestClient(app, client=("10.0.0.1", 1)).get("/api/try/read", headers=shown)
    assert asked.json()["address"] == "203.0.113.7"
    asked = TestClient(app, client=("198.51.100.1", 1)).get("/api/try/read", headers=shown)
    assert asked.json()["address"] == "198.51.100.1"


# Refusals.


def test_an_unforeseen_error_shows_and_logs_no_value(browser: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = browser.get("/try/surprise")
        program = browser.get("/try/surprise", headers={"accept": "application/json"})
    assert (answer.status_code, program.status_code) == (500, 500)
    number = answer.headers["x-request"]
    assert number in answer.text
    assert program.json()["code"] == "CLO-500"
    everything = answer.text + program.text + caplog.text + str([one.__dict__ for one in caplog.records])
    assert SECRET not in everything
    assert "RuntimeError" in caplog.text


def test_what_is_for_the_owner_alone_is_not_shown(browser: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        answer = browser.get("/try/engine")
    assert answer.status_code == 503
    assert SECRET not in answer.text + caplog.text + str([one.__dict__ for one in caplog.records])


def test_a_refusal_is_a_page_for_people_and_json_for_programs(browser: TestClient) -> None:
    person, program = browser.get("/try/budget"), browser.get("/try/budget", headers={"accept": "application/json"})
    assert (person.status_code, program.status_code) == (409, 409)
    assert "<h1>Not possible now</h1>" in person.text
    assert program.json() == {
        "code": "CLO-204",
        "message": "needs rho 0.1, 0.03 is left.",
        "way_out": OverBudget.way_out,
    }


def test_what_is_not_here_and_what_is_not_taken_have_their_pages(browser: TestClient) -> None:
    assert browser.get("/nowhere").status_code == 404
    assert browser.get("/api/nowhere").json()["code"] == "CLO-503"
    assert browser.delete("/trust").status_code == 405


def test_a_value_that_cannot_be_read_is_not_sent_back(browser: TestClient, csrf: str) -> None:
    answer = browser.get(f"/jobs/{SECRET}")
    assert answer.status_code == 422
    assert SECRET not in answer.text


def test_a_log_line_names_the_route_not_the_path(browser: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="cloister.hub.web"):
        browser.get(f"/invitation/{SECRET}")
    facts = [one.__dict__["facts"] for one in caplog.records if one.msg == "request"]
    assert facts[-1]["route"] == "/invitation/{secret}"
    assert SECRET not in str(facts)


@pytest.mark.parametrize(
    "address",
    ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:alert(1)", "", "/a\nb", "\\\\evil"],
)
def test_a_link_to_strangers_is_not_followed(address: str) -> None:
    assert inside(address) == "/"
    assert inside("/jobs/1?a=b#c") == "/jobs/1?a=b#c"


# Pages.


def test_the_first_page_shows_what_waits(hub: Hub, browser: TestClient, person: Person, csrf: str) -> None:
    with hub.database.writing() as session:
        session.add(Notice(person_id=person.id, text="Your request was granted.", link="/requests/1"))
    text = browser.get("/").text
    assert "Welcome, Ana Lopes" in text
    assert "Your request was granted." in text
    assert '1<span class="unseen"> unread' in text
    assert "/people" not in text


def test_the_trust_page_says_who_could_see_rows(browser: TestClient) -> None:
    text = browser.get("/trust").text
    assert "root on the hub" in text
    assert "Crypto service provider" in text


def test_health_tells_of_database_and_ledger(hub: Hub, browser: TestClient) -> None:
    assert browser.get("/health").json() | {"version": ""} == {
        "state": "ok",
        "version": "",
        "database": "ok",
        "ledger": "ok",
        "workers": "none yet",
    }
    hub.ledger.close()
    (hub.folder / "ledger.db").write_bytes(b"no ledger at all")
    del hub.__dict__["ledger"]
    answer = browser.get("/health")
    assert (answer.status_code, answer.json()["state"]) == (503, "failing")


def test_health_follows_the_workers_own_heartbeats(
    hub: Hub, browser: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeats.beat(hub.folder, "one")
    answer = browser.get("/health")
    assert (answer.status_code, answer.json()["workers"]) == (200, "ok")
    monkeypatch.setattr(heartbeats, "now", lambda: time.time() + heartbeats.LOST_S + 1)
    answer = browser.get("/health")  # nothing waits in the queue, and still nobody works
    assert (answer.status_code, answer.json()["state"]) == (503, "failing")
    assert answer.json()["workers"].startswith("none was seen for")
    monkeypatch.undo()
    heartbeats.beat(hub.folder, "two")
    assert browser.get("/health").status_code == 200


def test_health_says_that_the_ledger_refuses_to_spend(hub: Hub, browser: TestClient) -> None:
    kept = hub.settings.head.read_bytes()
    hub.settings.head.unlink()
    answer = browser.get("/health")
    assert (answer.status_code, answer.json()["ledger"]) == (503, "refuses to spend: CLO-206")
    hub.settings.head.write_bytes(kept)
    assert browser.get("/health").json()["ledger"] == "ok"


def test_the_api_describes_itself_without_pages(browser: TestClient) -> None:
    described = browser.get("/api/openapi.json").json()
    assert all(path.startswith(("/api/", "/try/")) for path in described["paths"])
