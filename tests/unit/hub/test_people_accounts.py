"""Accounts, invitations, roles, organisations, resets."""

import threading

import pytest

from cloister.hub.hub import Hub
from cloister.hub.models import Notice, OneTimeLink, Person
from cloister.hub.people import accounts, desk, sessions, tokens
from cloister.hub.people.secret import digest
from cloister.hub.settings import Settings
from cloister.privacy.errors import BadForm, Denied, NotHere, NotNow, TooMany

GOOD = "four plain words here"
OTHER = "other plain words here"
HOME = "192.0.2.7"


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub")) as hub:
        yield hub


@pytest.fixture
def operator(hub):
    return join(hub, None, "op@hub.org", ["operator"])


def join(hub, by, email, roles=("data user",), organisation=None):
    secret = desk.invite(hub, by, email=email, roles=roles, organisation=organisation)
    return desk.sign_up(hub, email=email, name=email[:3], password=GOOD, address=HOME, invitation=secret)


def person(hub, number):
    with hub.database.reading() as session:
        return session.get(Person, number)


def log(hub, action):
    with hub.database.reading() as session:
        return hub.audit.search(session, action=action)


# Invitations and open sign-up.


def test_an_invitation_gives_its_roles_and_organisation_once(hub, operator):
    clinic = desk.make_organisation(hub, operator, "Clinic", "de")
    secret = desk.invite(hub, operator, email=" Ann@Clinic.ORG ", roles=["data owner"], organisation=clinic.id)
    ann = desk.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)
    found = person(hub, ann.id)
    assert (found.email, found.roles, found.organisation.country) == ("ann@clinic.org", ["data owner"], "DE")
    with pytest.raises(NotHere):
        desk.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)


def test_an_invitation_is_for_one_address(hub, operator):
    secret = desk.invite(hub, operator, email="ann@clinic.org", roles=["data owner"])
    with pytest.raises(NotHere):
        desk.sign_up(hub, email="eve@evil.org", name="Eve", password=GOOD, address=HOME, invitation=secret)
    desk.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)


def test_a_refused_password_does_not_use_the_invitation_up(hub, operator):
    secret = desk.invite(hub, operator, email="ann@clinic.org", roles=[])
    with pytest.raises(BadForm):
        desk.sign_up(hub, email="ann@clinic.org", name="Ann", password="short", address=HOME, invitation=secret)
    desk.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)


def test_an_old_invitation_and_one_of_a_former_operator_do_not_work(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    old = desk.invite(hub, operator, email="a@b.org", roles=[])
    theirs = desk.invite(hub, second, email="c@d.org", roles=["operator"])
    with hub.database.writing() as session:
        session.get(OneTimeLink, digest(old)).ends -= 8 * 86_400
    desk.set_roles(hub, operator, second, [])
    for email, secret in (("a@b.org", old), ("c@d.org", theirs), ("c@d.org", "made up")):
        with pytest.raises(NotHere):
            desk.sign_up(hub, email=email, name="X", password=GOOD, address=HOME, invitation=secret)


def test_a_reset_link_is_no_invitation(hub, operator):
    ann = join(hub, operator, "ann@clinic.org")
    secret = desk.make_reset_link(hub, operator, ann)
    with pytest.raises(NotHere), hub.database.reading() as session:
        accounts.invitation(session, secret)


def test_without_an_invitation_a_closed_hub_says_so(hub):
    with pytest.raises(Denied, match="invitation"):
        desk.sign_up(hub, email="a@b.org", name="A", password=GOOD, address=HOME)


def test_an_open_hub_gives_two_roles_and_not_more_accounts_than_tries(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "open", open_sign_up=True, login_tries=2)) as hub:
        made = desk.sign_up(hub, email="a@b.org", name="A", password=GOOD, address=HOME)
        assert set(made.roles) == {"data user", "data provider"}
        with pytest.raises(NotNow):
            desk.sign_up(hub, email="A@b.org", name="A", password=GOOD, address=HOME)
        with pytest.raises(TooMany):
            desk.sign_up(hub, email="c@d.org", name="C", password=GOOD, address=HOME)


@pytest.mark.parametrize("bad", ["", "nobody", "a@", "@b", "a@b@c", "a b@c.org", "a@b.org\x00", "x" * 200 + "@b.org"])
def test_an_address_must_look_like_one(hub, operator, bad):
    with pytest.raises(BadForm, match="email"):
        desk.invite(hub, operator, email=bad, roles=[])


def test_somebody_with_an_account_is_not_invited_again(hub, operator):
    with pytest.raises(NotNow):
        desk.invite(hub, operator, email="OP@hub.org", roles=[])


# Roles and organisations.


def test_only_operators_say_who_is_what(hub, operator):
    ann, eve = join(hub, operator, "ann@c.org", ["data owner"]), join(hub, operator, "eve@c.org", ["auditor"])
    for deed in (
        lambda: desk.set_roles(hub, eve, ann, ["operator"]),
        lambda: desk.set_roles(hub, eve, eve, ["operator"]),
        lambda: desk.invite(hub, ann, email="x@y.org", roles=["operator"]),
        lambda: desk.make_organisation(hub, ann, "Mine"),
        lambda: desk.set_organisation(hub, ann, eve, None),
        lambda: desk.set_active(hub, eve, ann, False),
        lambda: desk.make_reset_link(hub, eve, operator),
    ):
        with pytest.raises(Denied):
            deed()
    assert person(hub, ann.id).roles == ["data owner"]
    assert not log(hub, "person.roles_set")


def test_a_role_taken_a_moment_ago_counts_no_more(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    desk.set_roles(hub, operator, second, ["data user"])
    assert second.roles == ["operator"]  # what an open page still believes
    with pytest.raises(Denied):
        desk.set_roles(hub, second, operator, [])


def test_a_change_of_roles_is_logged_and_told(hub, operator):
    ann = join(hub, operator, "ann@c.org", ["data user", "data provider"])
    desk.set_roles(hub, operator, ann.id, ["data user", "data owner"])
    assert person(hub, ann.id).roles == ["data owner", "data user"]
    (entry,) = log(hub, "person.roles_set")
    assert (entry.person_id, entry.object) == (operator.id, f"person/{ann.id}")
    assert entry.detail == {"added": ["data owner"], "removed": ["data provider"]}
    with hub.database.reading() as session:
        (notice,) = session.query(Notice).filter_by(person_id=ann.id)
    assert "data owner, data user" in notice.text


def test_an_operator_grants_themself_nothing_and_may_lay_a_role_down(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator", "data user"])
    for more in ("data owner", "algorithm provider"):
        with pytest.raises(Denied, match="themself"):
            desk.set_roles(hub, second, second, ["operator", "data user", more])
    desk.set_roles(hub, second, second, ["data user"])
    assert person(hub, second.id).roles == ["data user"]


def test_nobody_is_operator_and_auditor_at_once(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    with pytest.raises(BadForm, match="at once"):
        desk.set_roles(hub, operator, second, ["operator", "auditor"])
    with pytest.raises(BadForm, match="at once"):
        desk.invite(hub, operator, email="x@y.org", roles=["auditor", "operator"])


def test_unknown_roles_are_refused(hub, operator):
    with pytest.raises(BadForm, match="roles"):
        desk.set_roles(hub, operator, operator, ["god"])


def test_the_last_operator_stays(hub, operator):
    with pytest.raises(NotNow, match="operator"):
        desk.set_roles(hub, operator, operator, [])
    with pytest.raises(NotNow, match="operator"):
        desk.set_active(hub, operator, operator, False)
    second = join(hub, operator, "two@hub.org", ["operator"])
    desk.set_active(hub, operator, second, False)
    with pytest.raises(NotNow):  # a closed account runs no hub
        desk.set_roles(hub, None, operator, [])
    assert person(hub, operator.id).roles == ["operator"]


def test_of_two_operators_who_leave_at_once_one_stays(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    refused = []

    def leave(who):
        try:
            desk.set_roles(hub, who, who, [])
        except NotNow:
            refused.append(who.id)

    threads = [threading.Thread(target=leave, args=(who,)) for who in (operator, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert person(hub, refused[0]).roles == ["operator"]


def test_organisations_have_one_name_and_a_country_of_two_letters(hub, operator):
    clinic = desk.make_organisation(hub, operator, "  Clinic  North ", "fr")
    assert (clinic.name, clinic.country) == ("Clinic North", "FR")
    with pytest.raises(NotNow):
        desk.make_organisation(hub, operator, "Clinic North")
    with pytest.raises(BadForm, match="country"):
        desk.make_organisation(hub, operator, "South", "France")
    ann = join(hub, operator, "ann@c.org")
    desk.set_organisation(hub, operator, ann, clinic.id)
    assert person(hub, ann.id).organisation.name == "Clinic North"
    with pytest.raises(NotHere):
        desk.set_organisation(hub, operator, ann, 999)
    with pytest.raises(Denied):
        desk.set_organisation(hub, operator, operator, clinic.id)


# Resets and closing.


def signed_in(hub, who):
    with hub.database.writing() as session:
        cookie, _ = sessions.begin(session, hub.settings, who, complete=True)
        return cookie, tokens.make(session, who, "laptop", ["read"], 30)


def works(hub, cookie, token):
    with hub.database.reading() as session:
        return sessions.find(session, cookie) is not None, tokens.find(session, token) is not None


def test_a_reset_link_sets_a_password_once_and_ends_sessions_and_tokens(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    cookie, token = signed_in(hub, ann)
    secret = desk.make_reset_link(hub, operator, ann)
    assert works(hub, cookie, token) == (True, True)
    desk.reset_password(hub, secret, OTHER, HOME)
    assert works(hub, cookie, token) == (False, False)
    assert person(hub, ann.id).password != ann.password
    with pytest.raises(NotHere):
        desk.reset_password(hub, secret, GOOD, HOME)


def test_a_new_reset_link_ends_the_one_before(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    first, second = (desk.make_reset_link(hub, operator, ann) for _ in range(2))
    with pytest.raises(NotHere):
        desk.reset_password(hub, first, OTHER, HOME)
    desk.reset_password(hub, second, OTHER, HOME)


def test_of_two_who_use_a_link_at_once_one_succeeds(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    secret, done = desk.make_reset_link(hub, operator, ann), []

    def use():
        try:
            desk.reset_password(hub, secret, OTHER, HOME)
            done.append(True)
        except NotHere:
            done.append(False)

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(done) == [False, False, False, True]


def test_a_refused_password_leaves_the_reset_link_usable(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    secret = desk.make_reset_link(hub, operator, ann)
    with pytest.raises(BadForm):
        desk.reset_password(hub, secret, "short", HOME)
    desk.reset_password(hub, secret, OTHER, HOME)


def test_an_operator_makes_no_reset_link_for_themself(hub, operator):
    with pytest.raises(Denied):
        desk.make_reset_link(hub, operator, operator)
    desk.make_reset_link(hub, None, operator)  # from the host's command line


def test_a_reset_is_logged_and_the_person_is_told_who_made_it(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    secret = desk.make_reset_link(hub, operator, ann)
    desk.reset_password(hub, secret, OTHER, HOME)
    assert [entry.person_id for entry in log(hub, "person.reset_made")] == [operator.id]
    assert [entry.object for entry in log(hub, "person.reset_used")] == [f"person/{ann.id}"]
    with hub.database.reading() as session:
        told = [notice.text for notice in session.query(Notice).filter_by(person_id=ann.id)]
    assert any(operator.name in text for text in told)
    assert len(told) == 2


def test_a_closed_account_loses_sessions_tokens_and_links_and_can_be_opened_again(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    cookie, token = signed_in(hub, ann)
    secret = desk.make_reset_link(hub, operator, ann)
    desk.set_active(hub, operator, ann, False)
    assert works(hub, cookie, token) == (False, False)
    with pytest.raises(NotHere):
        desk.reset_password(hub, secret, OTHER, HOME)
    with pytest.raises(NotNow):
        desk.make_reset_link(hub, operator, ann)
    desk.set_active(hub, operator, ann, True)
    assert person(hub, ann.id).active
    assert works(hub, cookie, token) == (False, False)


def test_no_secret_and_no_password_is_in_the_database_file_or_the_log(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    cookie, token = signed_in(hub, ann)
    invitation = desk.invite(hub, operator, email="x@y.org", roles=[])
    reset = desk.make_reset_link(hub, operator, ann)
    with hub.database.engine.connect() as connection:
        dump = "\n".join(connection.connection.driver_connection.iterdump())
    assert "ann@c.org" in dump
    for secret in (cookie, token, invitation, reset, GOOD):
        assert secret not in dump


def test_the_log_of_all_this_holds(hub, operator):
    join(hub, operator, "ann@c.org")
    with hub.database.reading() as session:
        assert hub.audit.verify(session) == 4


def test_a_link_lasts_a_month_at_most(hub, operator):
    with pytest.raises(BadForm, match="days"):
        desk.invite(hub, operator, email="x@y.org", roles=[], days=31)
