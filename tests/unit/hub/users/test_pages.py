"""The pages about people, through the real application."""

import re
import time

import pyotp
import pytest
from fastapi.testclient import TestClient

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Person
from cloister.hub.core.settings import Settings
from cloister.hub.users import totp, user_actions
from cloister.hub.web.app import create_app

GOOD = "four plain words here"
NEW = "quite other plain words"


class Browser:
    """A browser that sends a page's own CSRF token back."""

    def __init__(self, hub):
        self.client = TestClient(create_app(hub), follow_redirects=False)

    def get(self, path, **more):
        return self.client.get(path, **more)

    def post(self, path, form=None, at=None):
        shown = self.client.get(at or path)
        token = re.search(r'name="csrf" value="([^"]+)"', shown.text)
        return self.client.post(path, data={**(form or {}), "csrf": token[1] if token else ""})

    def sign_in(self, email, password=GOOD, **more):
        return self.post("/sign-in", {"email": email, "password": password, **more})

    @property
    def cookie(self):
        return self.client.cookies.get("cloister-session")


@pytest.fixture
def hub(tmp_path):
    with started(tmp_path / "hub") as hub:
        yield hub


def started(folder, **settings):
    hub = Hub.create(Settings(folder=folder, requests_per_minute=100_000, **settings))
    for email, roles in (("op@hub.org", ["operator"]), ("ann@clinic.org", ["data owner"])):
        secret = user_actions.invite(hub, None, email=email, roles=roles)
        user_actions.sign_up(hub, email=email, name=email[:3], password=GOOD, address="", invitation=secret)
    return hub


@pytest.fixture
def ann(hub):
    browser = Browser(hub)
    assert browser.sign_in("ann@clinic.org").status_code == 303
    return browser


@pytest.fixture
def operator(hub):
    browser = Browser(hub)
    assert browser.sign_in("op@hub.org").status_code == 303
    return browser


def secret_in(answer):
    return re.search(r'<code class="secret" id="[^"]+">([^<]+)</code>', answer.text)[1]


# Signing in.


def test_signing_in_leads_to_where_one_wanted_and_never_to_strangers(hub):
    browser = Browser(hub)
    assert browser.get("/account").headers["location"] == "/sign-in?next=/account"
    assert 'value="/account"' in browser.get("/sign-in?next=/account").text
    assert browser.sign_in("ann@clinic.org", next="/account").headers["location"] == "/account"
    assert browser.get("/sign-in?next=//evil.org").headers["location"] == "/"
    assert Browser(hub).sign_in("ann@clinic.org", next="https://evil.org").headers["location"] == "/"


def test_the_cookie_is_out_of_reach_for_scripts_and_other_sites(hub):
    header = Browser(hub).sign_in("ann@clinic.org").headers["set-cookie"].lower()
    assert "httponly" in header
    assert "samesite=lax" in header


def test_a_wrong_password_and_an_unknown_address_draw_the_same_page(hub):
    pages = []
    for email in ("ann@clinic.org", "eve@clinic.org"):
        answer = Browser(hub).sign_in(email, "wrong words entirely")
        assert answer.status_code == 401
        pages.append(re.sub(r'(value|content)="[^"]*"', "", answer.text))
    assert pages[0] == pages[1]
    assert "do not fit together" in pages[0]
    assert "wrong words entirely" not in pages[0]


def test_a_locked_account_is_answered_with_429(hub):
    browser = Browser(hub)
    for _ in range(hub.settings.login_tries):
        assert browser.sign_in("ann@clinic.org", "wrong words entirely").status_code == 401
    assert browser.sign_in("ann@clinic.org").status_code == 429


def test_a_form_without_its_token_is_refused(hub, ann):
    form = {"email": "ann@clinic.org", "password": GOOD}
    assert Browser(hub).client.post("/sign-in", data=form).status_code == 403
    assert ann.client.post("/account/sessions/end", data={"csrf": "made up"}).status_code == 403
    assert ann.get("/account").status_code == 200


def test_signing_out_ends_the_session_in_the_hub_too(hub, ann):
    cookie = ann.cookie
    assert ann.post("/sign-out", at="/account").headers["location"] == "/sign-in?after=out"
    ann.client.cookies.set("cloister-session", cookie)
    assert ann.get("/account").status_code == 303


def test_words_after_signing_out_are_the_hubs_own(hub):
    assert "You are signed out" in Browser(hub).get("/sign-in?after=out").text
    assert "pay me" not in Browser(hub).get("/sign-in?after=pay+me").text


# The second factor.


def test_a_second_factor_from_setting_up_to_signing_in(hub, ann):
    assert (
        ann.post("/account/second-factor", {"factor_password": "wrong words entirely"}, at="/account").status_code
        == 401
    )
    assert ann.post("/account/second-factor", {"factor_password": GOOD}, at="/account").status_code == 303
    text = secret_in(ann.get("/account"))
    before = ann.cookie
    wrong = ann.post("/account/second-factor/confirm", {"code": "000000"}, at="/account")
    assert (wrong.status_code, text in wrong.text) == (422, True)
    now = time.time()
    code = pyotp.TOTP(text).at(now)
    assert ann.post("/account/second-factor/confirm", {"code": code}, at="/account").status_code == 303
    assert ann.cookie != before
    shown = ann.get("/account").text
    assert "asked for a code" in shown
    assert text not in shown

    later = Browser(hub)
    assert later.sign_in("ann@clinic.org", next="/account").headers["location"] == "/second-factor?next=/account"
    assert later.get("/account").status_code == 303  # half a session opens nothing
    assert later.get("/api/me").status_code == 401
    half = later.cookie
    assert later.post("/second-factor", {"code": code}).status_code == 401  # used
    done = later.post("/second-factor", {"code": pyotp.TOTP(text).at(now + 30), "next": "/account"})
    assert done.headers["location"] == "/account"
    assert later.cookie != half
    assert later.get("/account").status_code == 200


def test_a_hub_that_requires_it_shows_how_at_the_first_sign_in(tmp_path):
    with started(tmp_path / "strict", require_totp=True) as hub:
        browser = Browser(hub)
        assert browser.sign_in("ann@clinic.org").headers["location"] == "/second-factor?next=/"
        shown = browser.get("/second-factor")
        assert "otpauth://totp/" in shown.text
        with hub.database.reading() as session:
            ann = session.get(Person, 2)
        assert secret_in(shown) == totp.pending(hub.keys, ann)[0]
        assert browser.get("/account").status_code == 303
        code = pyotp.TOTP(secret_in(shown)).now()
        assert browser.post("/second-factor", {"code": code}).headers["location"] == "/"
        assert browser.get("/account").status_code == 200


def test_the_page_for_the_code_is_for_those_who_showed_a_password(hub, ann):
    assert Browser(hub).get("/second-factor").headers["location"] == "/sign-in"
    assert ann.get("/second-factor").headers["location"] == "/"


# The account.


def test_a_changed_password_ends_the_session(hub, ann):
    form = {"current": GOOD, "new": NEW, "again": NEW}
    assert ann.post("/account/password", {**form, "again": "x"}, at="/account").status_code == 422
    assert ann.post("/account/password", {**form, "current": "x"}, at="/account").status_code == 401
    assert ann.post("/account/password", {**form, "new": "short", "again": "short"}, at="/account").status_code == 422
    assert ann.post("/account/password", form, at="/account").headers["location"] == "/sign-in?after=password"
    assert ann.get("/account").status_code == 303
    assert ann.sign_in("ann@clinic.org", NEW).status_code == 303


def test_a_token_is_shown_once_works_and_is_revoked(hub, ann):
    form = {"label": "<b>laptop</b>", "scopes": ["read"], "days": "30", "token_password": GOOD}
    made = ann.post("/account/tokens", form, at="/account")
    secret = secret_in(made)
    assert "<b>laptop" not in made.text
    assert secret not in ann.get("/account").text
    program = TestClient(create_app(hub), headers={"Authorization": f"Bearer {secret}"})
    assert program.get("/api/me").json() == {
        "id": 2, "email": "ann@clinic.org", "name": "ann", "roles": ["data owner"], "organisation": None,
        "scopes": ["read"], "verified": True,
    }  # fmt: skip
    assert program.get("/account", follow_redirects=False).status_code == 303  # a token opens no page
    number = re.search(r"/account/tokens/(\d+)/revoke", ann.get("/account").text)[1]
    assert ann.post(f"/account/tokens/{number}/revoke", at="/account").status_code == 303
    assert program.get("/api/me").status_code == 401


def test_a_bad_token_form_is_answered_with_its_problem(ann):
    answer = ann.post(
        "/account/tokens", {"label": "x", "scopes": ["operate"], "days": "30", "token_password": GOOD}, at="/account"
    )
    assert answer.status_code == 422
    assert "read, work, share" in answer.text


def test_another_persons_token_cannot_be_revoked(hub, ann, operator):
    ann.post("/account/tokens", {"label": "x", "scopes": ["read"], "days": "30", "token_password": GOOD}, at="/account")
    for number in (1, 10**30):
        assert operator.post(f"/account/tokens/{number}/revoke", at="/account").status_code == 404


def test_all_sessions_can_be_ended(hub, ann):
    other = Browser(hub)
    other.sign_in("ann@clinic.org")
    ann.post("/account/sessions/end", at="/account")
    assert other.get("/account").status_code == 303


# People, for operators.

PEOPLE = ["/people", "/people/1"]
DEEDS = [
    "/people/invite", "/people/organisations", "/people/1/roles", "/people/1/organisation", "/people/1/reset",
    "/people/1/close", "/people/1/open",
]  # fmt: skip


def test_only_operators_see_and_do_anything_about_people(hub, ann):
    stranger = Browser(hub)
    for path in PEOPLE:
        assert stranger.get(path).status_code == 303
        assert ann.get(path).status_code == 403
    for path in DEEDS:
        assert stranger.post(path, at="/sign-in").status_code == 401
        assert ann.post(path, {"email": "x@y.org", "roles": ["operator"]}, at="/account").status_code == 403
    with hub.database.reading() as session:
        assert session.query(Person).count() == 2
        assert session.get(Person, 1).active


def test_an_invitation_from_making_to_accepting(hub, operator):
    operator.post("/people/organisations", {"organisation_name": "Clinic", "country": "de"}, at="/people")
    form = {"email": "bob@clinic.org", "roles": ["data user", "data owner"], "organisation": "1", "days": "7"}
    made = operator.post("/people/invite", form, at="/people")
    link = secret_in(made)
    assert link.startswith("http://127.0.0.1:8400/invitation/")
    path = link.removeprefix("http://127.0.0.1:8400")
    bob = Browser(hub)
    shown = bob.get(path).text
    assert "bob@clinic.org" in shown
    assert "data owner, data user" in shown
    assert "Clinic" in shown
    assert bob.post(path, {"name": "Bob", "password": GOOD, "again": "x"}).status_code == 422
    # What the form says about the address does not count.
    answer = bob.post(path, {"name": "Bob", "password": GOOD, "again": GOOD, "email": "evil@evil.org"})
    assert answer.headers["location"] == "/sign-in?after=joined"
    assert bob.get(path).status_code == 404
    assert bob.sign_in("bob@clinic.org").status_code == 303
    assert ">Bob<" in operator.get("/people?search=bob@").text
    assert ">Bob<" not in operator.get("/people?search=nobody%25").text


def test_an_open_hub_has_a_sign_up_page_and_a_closed_one_has_not(hub, tmp_path):
    assert Browser(hub).get("/sign-up").status_code == 403
    with started(tmp_path / "open", open_sign_up=True) as other:
        browser = Browser(other)
        form = {"email": "new@x.org", "name": "New", "password": GOOD, "again": GOOD, "roles": "operator"}
        assert browser.post("/sign-up", {**form, "password": "x", "again": "x"}).status_code == 422
        assert browser.post("/sign-up", form).status_code == 303
        with other.database.reading() as session:
            assert session.get(Person, 3).roles == ["data user", "data provider"]


def test_a_reset_from_the_operator_to_the_person(hub, operator, ann):
    link = secret_in(operator.post("/people/2/reset", at="/people/2"))
    assert link not in operator.get("/people/2").text
    path = link.removeprefix("http://127.0.0.1:8400")
    somebody = Browser(hub)
    assert somebody.post(path, {"password": "short", "again": "short"}).status_code == 422
    done = somebody.post(path, {"password": NEW, "again": NEW})
    assert done.headers["location"] == "/sign-in?after=password"
    assert somebody.cookie is None
    assert ann.get("/account").status_code == 303
    assert somebody.get(path).status_code == 404
    assert somebody.sign_in("ann@clinic.org", NEW).status_code == 303


def test_roles_are_set_on_the_persons_page_and_refusals_are_shown_there(hub, operator):
    assert operator.post("/people/2/roles", {"roles": ["data user"]}, at="/people/2").status_code == 303
    with hub.database.reading() as session:
        assert session.get(Person, 2).roles == ["data user"]
    own = operator.post("/people/1/roles", {"roles": ["operator", "data owner"]}, at="/people/1")
    assert (own.status_code, "Nobody grants themself a role" in own.text) == (403, True)
    last = operator.post("/people/1/roles", {}, at="/people/1")
    assert (last.status_code, "needs an operator" in last.text) == (409, True)


def test_an_account_is_closed_and_opened(hub, operator, ann):
    assert operator.post("/people/2/close", at="/people/2").status_code == 303
    assert ann.get("/account").status_code == 303
    assert "Open the account again" in operator.get("/people/2").text
    assert operator.post("/people/2/open", at="/people/2").status_code == 303
    assert ann.sign_in("ann@clinic.org").status_code == 303


@pytest.mark.parametrize("path", ["/people/99", "/people/0", f"/people/{10**30}"])
def test_nobody_has_that_number(operator, path):
    assert operator.get(path).status_code == 404


def test_an_organisation_that_is_not_there(operator):
    for wrong in ("99", "9" * 20, "x"):
        form = {"email": "x@y.org", "organisation": wrong, "days": "7"}
        assert operator.post("/people/invite", form, at="/people").status_code == 404


def test_no_page_gives_two_things_the_same_id(operator, ann, hub):
    for answer in (
        ann.get("/account"),
        operator.get("/people"),
        operator.get("/people/2"),
        Browser(hub).get("/sign-in"),
    ):
        ids = re.findall(r' id="([^"]+)"', answer.text)
        assert len(ids) == len(set(ids))
