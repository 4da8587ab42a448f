"""Passwords, and slowing down who guesses them."""

import threading

import pytest
from argon2 import PasswordHasher

from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.users import passwords, rate_limits
from cloister.privacy.errors import BadForm, TooMany

pytestmark = pytest.mark.usefixtures("real_hashes")

GOOD = "four plain words here"


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub", login_tries=3)) as hub:
        yield hub


def test_a_password_is_kept_as_argon2id_with_a_salt_of_its_own():
    one, other = passwords.seal(GOOD), passwords.seal(GOOD)
    assert one.startswith("$argon2id$v=19$m=47104,t=2,p=1$")
    assert one != other
    assert passwords.matches(one, GOOD)
    assert not passwords.matches(one, GOOD + " ")


def test_length_is_asked_for_and_signs_are_not():
    passwords.accept("only small letters")
    for bad in ("short", "x" * 11, "ab " * 67):
        with pytest.raises(BadForm, match="12 to 200"):
            passwords.accept(bad)


@pytest.mark.parametrize("bad", ["maria.schmidt@clinic.org", "Maria.Schmidt", "maria schmidt", "a" * 20])
def test_what_everybody_would_guess_is_refused(bad):
    with pytest.raises(BadForm) as caught:
        passwords.accept(bad, email="maria.schmidt@clinic.org", name="Maria Schmidt")
    assert bad not in str(caught.value)


def test_the_same_letters_typed_another_way_fit():
    assert passwords.matches(passwords.seal("caf\u00e9 by the river"), "cafe\u0301 by the river")


def test_a_hash_with_older_parameters_still_fits_and_is_outdated():
    old = PasswordHasher(time_cost=1, memory_cost=8192, parallelism=1).hash(GOOD)
    assert passwords.matches(old, GOOD)
    assert passwords.outdated(old)
    assert not passwords.outdated(passwords.seal(GOOD))


def test_nobodys_password_never_fits_and_is_checked_with_the_same_work():
    assert not passwords.matches(None, "")
    assert not passwords.matches("", GOOD)
    assert not passwords.matches("no hash at all", GOOD)
    shape = passwords.seal(GOOD).split("$")[:4]
    assert passwords._nobodys().split("$")[:4] == shape


def test_tries_are_counted_before_the_password_is_looked_at(hub):
    who = rate_limits.key("account", "nobody@here.org")
    left = []
    for _ in range(3):
        with hub.database.writing() as session:
            left.append(rate_limits.reserve(session, hub.settings, [who]))
    assert left == [2, 1, 0]
    with pytest.raises(TooMany, match="15 minutes"), hub.database.writing() as session:
        rate_limits.reserve(session, hub.settings, [who])


def test_a_right_answer_gives_an_address_its_own_try_back_and_no_more(hub):
    place = rate_limits.key("address", "192.0.2.1")
    with hub.database.writing() as session:
        rate_limits.reserve(session, hub.settings, [place])
        rate_limits.reserve(session, hub.settings, [place])
        rate_limits.give_back(session, place)
        assert rate_limits.reserve(session, hub.settings, [place]) == 1
        rate_limits.forget(session, [place])
        assert rate_limits.reserve(session, hub.settings, [place]) == 2


def test_tries_age(hub):
    from cloister.hub.core.models import Try

    who = rate_limits.key("account", "a@b.org")
    with hub.database.writing() as session:
        for _ in range(3):
            rate_limits.reserve(session, hub.settings, [who])
    with hub.database.writing() as session:
        for row in session.query(Try):
            row.time -= 15 * 60 + 1
    with hub.database.writing() as session:
        assert rate_limits.reserve(session, hub.settings, [who]) == 2
        assert session.query(Try).count() == 1


def test_twenty_at_once_get_three_tries(hub):
    who, got = rate_limits.key("account", "a@b.org"), []

    def guess():
        try:
            with hub.database.writing() as session:
                rate_limits.reserve(session, hub.settings, [who])
        except TooMany:
            return
        got.append(1)

    threads = [threading.Thread(target=guess) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(got) == 3


def test_what_was_typed_is_not_stored(hub):
    from cloister.hub.core.models import Try

    with hub.database.writing() as session:
        rate_limits.reserve(session, hub.settings, [rate_limits.key("account", "my password in the wrong field")])
        assert all("password" not in row.who for row in session.query(Try))


def test_a_limiter_lets_so_many_through_a_minute_and_then_again():
    clock = [1000 * 60.0]
    limiter = rate_limits.Limiter(3, 60, clock=lambda: clock[0])
    for _ in range(3):
        limiter.check("me")
    with pytest.raises(TooMany):
        limiter.check("me")
    limiter.check("you")
    clock[0] += 61  # nearly all of the minute before still weighs
    limiter.check("me")
    with pytest.raises(TooMany):
        limiter.check("me")
    clock[0] += 120
    for _ in range(3):
        limiter.check("me")


def test_a_limiter_forgets_who_is_idle():
    clock = [0.0]
    limiter = rate_limits.Limiter(3, 60, clock=lambda: clock[0])
    for number in range(1000):
        limiter.check(str(number))
    clock[0] += 180
    limiter.check("me")
    assert list(limiter._counts) == ["me"]
