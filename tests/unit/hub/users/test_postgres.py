"""What two do at once, in a PostgreSQL, where writers do not take turns by themselves."""

import threading
import time

import psycopg
import pyotp
import pytest

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Person
from cloister.hub.core.settings import Settings
from cloister.hub.users import sign_in, user_actions
from cloister.privacy.errors import HubRefused, NotNow, SignInFailed, TooMany

GOOD = "four plain words here"


@pytest.fixture(scope="module")
def hub(tmp_path_factory, postgres_server):
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute("DROP DATABASE IF EXISTS hub_people")
        connection.execute("CREATE DATABASE hub_people")
    address = postgres_server.replace("/postgres?", "/hub_people?")
    assert address != postgres_server
    folder = tmp_path_factory.mktemp("people") / "hub"
    with Hub.create(Settings(folder=folder, database_url=address, login_tries=3)) as hub:
        yield hub


def join(hub, email, roles=()):
    secret = user_actions.invite(hub, None, email=email, roles=roles)
    return user_actions.sign_up(hub, email=email, name="X", password=GOOD, address="", invitation=secret)


def at_once(deeds):
    """What became of each deed: done, or the name of its refusal."""
    became, gate = [], threading.Barrier(len(deeds))

    def run(deed):
        gate.wait()
        try:
            deed()
            became.append("done")
        except HubRefused as refusal:
            became.append(type(refusal))

    threads = [threading.Thread(target=run, args=(deed,)) for deed in deeds]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return became


def test_of_two_operators_who_leave_at_once_one_stays(hub):
    two = [join(hub, f"op{number}@hub.org", ["operator"]) for number in range(2)]
    became = at_once([lambda who=who: user_actions.set_roles(hub, who, who, []) for who in two])
    assert sorted(became, key=str) == [NotNow, "done"]
    with hub.database.reading() as session:
        assert sum("operator" in person.roles for person in session.query(Person)) == 1


def test_ten_guesses_at_once_are_three_tries(hub):
    def guess():
        sign_in.sign_in(hub, email="nobody@hub.org", password="wrong words entirely", address="192.0.2.1")

    became = at_once([guess] * 10)
    assert (became.count(SignInFailed), became.count(TooMany)) == (3, 7)


def test_a_code_shown_twice_at_once_lets_one_in(hub):
    ann = join(hub, "ann@hub.org")
    first = sign_in.sign_in(hub, email=ann.email, password=GOOD, address="192.0.2.2")
    text, _ = sign_in.enroll_factor(hub, ann)
    now = time.time()
    sign_in.confirm_factor(hub, first.secret, pyotp.TOTP(text).at(now), "192.0.2.2")
    halves = [sign_in.sign_in(hub, email=ann.email, password=GOOD, address="192.0.2.2") for _ in range(2)]
    code = pyotp.TOTP(text).at(now + 30)
    became = at_once([lambda half=half: sign_in.second_factor(hub, half.secret, code, "192.0.2.2") for half in halves])
    assert sorted(became, key=str) == [SignInFailed, "done"]


def test_a_link_used_twice_at_once_works_once(hub):
    bob = join(hub, "bob@hub.org")
    secret = user_actions.make_reset_link(hub, None, bob)
    became = at_once([lambda: user_actions.reset_password(hub, secret, "other plain words", "")] * 3)
    assert became.count("done") == 1
