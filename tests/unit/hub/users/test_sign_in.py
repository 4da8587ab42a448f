"""Signing in: even answers, locks, the second factor, sessions, tokens."""

import time

import pyotp
import pytest
from argon2 import PasswordHasher

from cloister.hub.core import models
from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import digest
from cloister.hub.core.models import Person, Token
from cloister.hub.core.settings import Settings
from cloister.hub.users import passwords, sessions, sign_in, tokens, totp, user_actions
from cloister.privacy.errors import BadForm, NotHere, NotNow, SignInFailed, TooMany

GOOD = "four plain words here"
WRONG = "not these words at all"
HOME, AWAY = "192.0.2.7", "198.51.100.9"


def make(folder, **settings):
    hub = Hub.create(Settings(folder=folder, login_tries=3, **settings))
    secret = user_actions.invite(hub, None, email="ann@c.org", roles=["operator"])
    user_actions.sign_up(hub, email="ann@c.org", name="Ann", password=GOOD, address=HOME, invitation=secret)
    return hub


@pytest.fixture
def hub(tmp_path):
    with make(tmp_path / "hub") as hub:
        yield hub


@pytest.fixture
def strict(tmp_path):
    with make(tmp_path / "strict", require_totp=True) as hub:
        yield hub


def enter(hub, email="ann@c.org", password=GOOD, address=HOME, **more):
    return sign_in.sign_in(hub, email=email, password=password, address=address, **more)


def find(hub, secret):
    with hub.database.reading() as session:
        return sessions.find(session, secret)


def log(hub, action):
    with hub.database.reading() as session:
        return hub.audit.search(session, action=action)


def with_factor(hub):
    """Ann with a second factor; the app's secret."""
    entered = enter(hub)
    text, _ = sign_in.enroll_factor(hub, entered.person)
    sign_in.confirm_factor(hub, entered.secret, code(text), HOME)
    return text


def code(text, steps=0):
    return pyotp.TOTP(text).at(int(time.time()) + 30 * steps)


@pytest.fixture(autouse=True)
def a_still_clock(monkeypatch):
    """A test does not stand between two time steps."""
    at = (time.time() // 30) * 30 + 10
    monkeypatch.setattr(time, "time", lambda: at)


# Passwords.


def test_the_right_password_opens_a_session_that_only_the_cookie_knows(hub):
    entered = enter(hub, email=" ANN@c.org ")
    who, kept = find(hub, entered.secret)
    assert who.email == "ann@c.org"
    assert kept.complete
    assert kept.id == digest(entered.secret) != entered.secret
    assert [(entry.person_id, entry.detail) for entry in log(hub, "person.signed_in")] == [(1, {"address": HOME})]


def test_wrong_unknown_and_closed_are_answered_alike(hub):
    secret = user_actions.invite(hub, None, email="bob@c.org", roles=[])
    bob = user_actions.sign_up(hub, email="bob@c.org", name="Bob", password=GOOD, address=HOME, invitation=secret)
    user_actions.set_active(hub, None, bob, False)
    said = set()
    for number, (email, password) in enumerate([("ann@c.org", WRONG), ("nobody@c.org", GOOD), ("bob@c.org", GOOD)]):
        with pytest.raises(SignInFailed) as caught:
            enter(hub, email, password, address=f"192.0.2.{number}")
        said.add(str(caught.value))
    assert len(said) == 1


def test_an_unknown_account_costs_one_password_check_like_a_known_one(hub, monkeypatch):
    checked = []
    verify = PasswordHasher.verify

    def watch(self, kept, password):
        checked.append(kept.split("$")[:4])
        return verify(self, kept, password)

    monkeypatch.setattr(PasswordHasher, "verify", watch)
    for email in ("ann@c.org", "nobody@c.org"):
        with pytest.raises(SignInFailed):
            enter(hub, email, WRONG)
    assert len(checked) == 2
    assert checked[0] == checked[1]


def test_a_failure_is_logged_without_what_a_stranger_typed(hub):
    for email in ("ann@c.org", "my-secret@typed.org"):
        with pytest.raises(SignInFailed):
            enter(hub, email, WRONG)
    entries = log(hub, "person.sign_in_failed")
    assert [entry.object for entry in entries] == ["person/unknown", "person/1"]
    assert all(entry.detail == {"address": HOME, "locked": False} for entry in entries)
    with hub.database.reading() as session:
        assert not hub.audit.search(session, text="typed.org")
        assert not hub.audit.search(session, text=WRONG)


@pytest.mark.parametrize("email", ["ann@c.org", "nobody@c.org"])
def test_an_account_is_locked_whether_or_not_it_exists_and_wherever_one_asks_from(hub, email):
    for number in range(3):
        with pytest.raises(SignInFailed):
            enter(hub, email, WRONG, address=f"192.0.2.{number}")
    with pytest.raises(TooMany, match="15 minutes"):
        enter(hub, email, GOOD, address=AWAY)
    assert [entry.detail["locked"] for entry in log(hub, "person.sign_in_failed")] == [True, False, False]


def test_an_address_is_locked_for_every_account(hub):
    for number in range(3):
        with pytest.raises(SignInFailed):
            enter(hub, f"guess{number}@c.org", WRONG, address=AWAY)
    with pytest.raises(TooMany):
        enter(hub, address=AWAY)
    assert enter(hub, address=HOME).session.complete


def test_a_right_password_forgets_the_accounts_wrong_ones_but_not_the_addresss(hub):
    for _ in range(2):
        with pytest.raises(SignInFailed):
            enter(hub, password=WRONG, address=AWAY)
    enter(hub, address=AWAY)
    with pytest.raises(SignInFailed):
        enter(hub, password=WRONG, address=AWAY)
    with pytest.raises(TooMany):
        enter(hub, address=AWAY)
    enter(hub, address=HOME)


def test_a_lock_ends(hub):
    for _ in range(3):
        with pytest.raises(SignInFailed):
            enter(hub, password=WRONG)
    with hub.database.writing() as session:
        for row in session.query(models.Try):
            row.time -= 15 * 60 + 1
    enter(hub)


def test_a_hash_with_old_parameters_is_renewed_at_sign_in(hub):
    with hub.database.writing() as session:
        session.get(Person, 1).password = PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash(GOOD)
    enter(hub)
    with hub.database.reading() as session:
        kept = session.get(Person, 1).password
    assert not passwords.outdated(kept)
    enter(hub)


def test_a_changed_password_ends_every_session_and_the_old_one(hub):
    one, two = enter(hub), enter(hub)
    with pytest.raises(SignInFailed):
        user_actions.change_password(hub, one.person, WRONG, "new plain words here", HOME)
    assert find(hub, one.secret)
    user_actions.change_password(hub, one.person, GOOD, "new plain words here", HOME)
    assert find(hub, one.secret) is None
    assert find(hub, two.secret) is None
    with pytest.raises(SignInFailed):
        enter(hub)
    assert enter(hub, password="new plain words here").session.complete


def test_guessing_the_old_password_from_an_open_session_is_limited_too(hub):
    entered = enter(hub)
    for _ in range(3):
        with pytest.raises(SignInFailed):
            user_actions.change_password(hub, entered.person, WRONG, "new plain words here", HOME)
    with pytest.raises(TooMany):
        user_actions.change_password(hub, entered.person, GOOD, "new plain words here", HOME)


# Sessions.


def test_signing_in_again_changes_the_secret_and_ends_the_one_before(hub):
    first = enter(hub)
    second = enter(hub, before=first.secret)
    assert find(hub, first.secret) is None
    assert find(hub, second.secret)
    assert first.session.csrf != second.session.csrf


def test_a_session_ends_after_the_hours_that_are_set(hub):
    entered = enter(hub)
    assert entered.session.ends == pytest.approx(time.time() + 12 * 3600)
    with hub.database.writing() as session:
        session.get(models.Session, entered.session.id).ends = time.time()
    assert find(hub, entered.secret) is None
    enter(hub)
    with hub.database.reading() as session:
        assert session.query(models.Session).count() == 1  # the old one was swept out


def test_signing_out_ends_this_session_and_ending_all_ends_all(hub):
    one, two, three = (enter(hub) for _ in range(3))
    sign_in.sign_out(hub, one.secret)
    assert [bool(find(hub, entered.secret)) for entered in (one, two, three)] == [False, True, True]
    assert user_actions.end_sessions(hub, two.person) == 2
    assert find(hub, three.secret) is None
    assert find(hub, "made up") is None


# The second factor.


def test_a_second_factor_counts_once_it_is_confirmed(hub):
    entered = enter(hub)
    text, uri = sign_in.enroll_factor(hub, entered.person)
    assert uri.startswith("otpauth://totp/Cloister:ann%40c.org?secret=" + text)
    assert enter(hub).session.complete
    with pytest.raises(BadForm):
        sign_in.confirm_factor(hub, entered.secret, "000000", HOME)
    after = sign_in.confirm_factor(hub, entered.secret, code(text), HOME)
    assert find(hub, entered.secret) is None
    assert find(hub, after.secret)[1].complete
    assert not enter(hub).session.complete
    with hub.database.reading() as session:
        kept = session.get(Person, 1)
        assert text.encode() not in kept.totp_secret
        assert kept.totp_pending is None


def test_the_code_completes_the_session_under_a_new_secret(hub):
    text = with_factor(hub)
    half = enter(hub)
    full = sign_in.second_factor(hub, half.secret, code(text, 1), HOME)
    assert full.session.complete
    assert full.secret != half.secret
    assert find(hub, half.secret) is None
    assert log(hub, "person.signed_in")[0].detail == {"address": HOME, "factor": True}


def test_a_code_works_once_and_so_does_none_before_it(hub):
    text = with_factor(hub)  # used the code of this very step
    half = enter(hub)
    for used in (code(text), code(text, -1)):
        with pytest.raises(SignInFailed):
            sign_in.second_factor(hub, half.secret, used, HOME)
    sign_in.second_factor(hub, half.secret, code(text, 1), HOME)
    with pytest.raises(SignInFailed):
        sign_in.second_factor(hub, enter(hub).secret, code(text, 1), AWAY)


@pytest.mark.parametrize("bad", ["", "12345", "1234567", "abcdef", "١٢٣٤٥٦", "00 00 00"])
def test_wrong_codes_are_refused_and_logged(hub, bad):
    with_factor(hub)
    half = enter(hub)
    with pytest.raises(SignInFailed):
        sign_in.second_factor(hub, half.secret, bad, HOME)
    assert not find(hub, half.secret)[1].complete
    assert log(hub, "person.code_failed")[0].object == "person/1"


def test_a_code_may_be_typed_with_a_gap(hub):
    text = with_factor(hub)
    spaced = code(text, 1)[:3] + " " + code(text, 1)[3:]
    assert sign_in.second_factor(hub, enter(hub).secret, spaced, HOME).session.complete


def test_codes_too_far_off_do_not_fit(hub):
    text = with_factor(hub)
    with pytest.raises(SignInFailed):
        sign_in.second_factor(hub, enter(hub).secret, code(text, 3), HOME)


def test_guessing_codes_is_limited_and_signing_in_anew_does_not_help(hub):
    text = with_factor(hub)
    for number in range(3):
        with pytest.raises(SignInFailed):
            sign_in.second_factor(hub, enter(hub).secret, "000000", f"192.0.2.{number}")
    with pytest.raises(TooMany):
        sign_in.second_factor(hub, enter(hub).secret, code(text, 1), AWAY)


def test_half_a_session_cannot_replace_the_factor_it_lacks(hub):
    with_factor(hub)
    half = enter(hub)
    with pytest.raises(NotNow):
        sign_in.enroll_factor(hub, half.person)
    with pytest.raises(NotNow):
        sign_in.confirm_factor(hub, half.secret, "000000", HOME)


def test_half_a_session_lasts_a_quarter_of_an_hour(hub):
    with_factor(hub)
    assert enter(hub).session.ends == pytest.approx(time.time() + 15 * 60)


def test_a_factor_is_removed_for_a_code_only(hub):
    text = with_factor(hub)
    ann = enter(hub).person
    with pytest.raises(SignInFailed):
        sign_in.remove_factor(hub, ann, "000000", HOME)
    sign_in.remove_factor(hub, ann, code(text, 1), HOME)
    assert enter(hub).session.complete
    assert len(log(hub, "person.factor_removed")) == 1


def test_a_hub_may_ask_everybody_for_a_second_factor(strict):
    half = enter(strict)
    assert not half.session.complete
    with strict.database.reading() as session:
        text, _ = totp.pending(strict.keys, session.get(Person, 1))
    with pytest.raises(SignInFailed):  # nothing is confirmed yet, so no code completes the session by itself
        sign_in.second_factor(strict, half.secret, code(text), HOME)
    full = sign_in.confirm_factor(strict, half.secret, code(text), HOME)
    assert full.session.complete
    assert find(strict, half.secret) is None
    with pytest.raises(NotNow):
        sign_in.remove_factor(strict, full.person, code(text, 1), HOME)


def test_an_operators_reset_takes_a_lost_factor_off_only_if_it_says_so(hub):
    with_factor(hub)
    user_actions.reset_password(hub, user_actions.make_reset_link(hub, None, 1), "new plain words here", HOME)
    assert not enter(hub, password="new plain words here").session.complete
    user_actions.reset_password(hub, user_actions.make_reset_link(hub, None, 1, second_factor=True), GOOD, HOME)
    assert enter(hub).session.complete


def test_a_sealed_secret_of_one_person_does_not_open_for_another(hub):
    from cloister.privacy.errors import CloisterError

    with_factor(hub)
    secret = user_actions.invite(hub, None, email="bob@c.org", roles=[])
    bob = user_actions.sign_up(hub, email="bob@c.org", name="Bob", password=GOOD, address=HOME, invitation=secret)
    with hub.database.writing() as session:
        session.get(Person, bob.id).totp_secret = session.get(Person, 1).totp_secret
    with pytest.raises(CloisterError):
        sign_in.second_factor(hub, enter(hub, "bob@c.org").secret, "000000", HOME)


# Tokens.


def test_a_token_works_within_its_scopes_and_time(hub):
    ann = enter(hub).person
    secret = user_actions.make_token(hub, ann, "my laptop", ["work", "read"], 30)
    assert secret.startswith("clo_")
    with hub.database.reading() as session:
        who, scopes = tokens.find(session, secret)
        assert (who.id, scopes) == (1, ("read", "work"))
        assert tokens.find(session, secret + "x") is None
    with hub.database.writing() as session:
        session.query(Token).one().ends = time.time()
    with hub.database.reading() as session:
        assert tokens.find(session, secret) is None
    assert log(hub, "token.made")[0].detail["label"] == "my laptop"


def test_a_revoked_token_is_gone_and_nobody_revokes_anothers(hub):
    ann = enter(hub).person
    secret = user_actions.make_token(hub, ann, "my laptop", ["read"], 30)
    other = user_actions.invite(hub, None, email="bob@c.org", roles=[])
    bob = user_actions.sign_up(hub, email="bob@c.org", name="Bob", password=GOOD, address=HOME, invitation=other)
    with pytest.raises(NotHere):
        user_actions.revoke_token(hub, bob, 1)
    user_actions.revoke_token(hub, ann, 1)
    with hub.database.reading() as session:
        assert tokens.find(session, secret) is None
        assert tokens.of(session, ann) == []
    with pytest.raises(NotHere):
        user_actions.revoke_token(hub, ann, 1)


@pytest.mark.parametrize(
    ("label", "scopes", "days"),
    [("", ["read"], 1), ("x", [], 1), ("x", ["operate"], 1), ("x", ["read"], 0), ("x", ["read"], 400)],
)
def test_a_token_needs_a_label_a_scope_and_an_end(hub, label, scopes, days):
    with pytest.raises(BadForm):
        user_actions.make_token(hub, enter(hub).person, label, scopes, days)


def test_the_use_of_a_token_is_noted_at_most_once_an_hour(hub, monkeypatch):
    secret = user_actions.make_token(hub, enter(hub).person, "x", ["read"], 1)
    noted, start = [], time.time()
    for minutes in (0, 30, 61):
        monkeypatch.setattr(time, "time", lambda minutes=minutes: start + 60 * minutes)
        tokens.note_use(hub.database, secret)
        with hub.database.reading() as session:
            noted.append(round((session.query(Token).one().used - start) / 60))
    assert noted == [0, 0, 61]
