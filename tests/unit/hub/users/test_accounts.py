"""Accounts, invitations, roles, organisations, resets."""

import threading

import pytest

from cloister.hub.core.hub import Hub
from cloister.hub.core.keys import digest
from cloister.hub.core.models import Notice, OneTimeLink, Person
from cloister.hub.core.settings import Settings
from cloister.hub.users import accounts, sessions, tokens, user_actions
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
    secret = user_actions.invite(hub, by, email=email, roles=roles, organisation=organisation)
    return user_actions.sign_up(hub, email=email, name=email[:3], password=GOOD, address=HOME, invitation=secret)


def person(hub, number):
    with hub.database.reading() as session:
        return session.get(Person, number)


def log(hub, action):
    with hub.database.reading() as session:
        return hub.audit.search(session, action=action)


# Invitations and open sign-up.


def test_an_invitation_gives_its_roles_and_organisation_once(hub, operator):
    clinic = user_actions.make_organisation(hub, operator, "Clinic", "de")
    secret = user_actions.invite(hub, operator, email=" Ann@Clinic.ORG ", roles=["data owner"], organisation=clinic.id)
    ann = user_actions.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)
    found = person(hub, ann.id)
    assert (found.email, found.roles, found.organisation.country) == ("ann@clinic.org", ["data owner"], "DE")
    with pytest.raises(NotHere):
        user_actions.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)


def test_an_invitation_is_for_one_address(hub, operator):
    secret = user_actions.invite(hub, operator, email="ann@clinic.org", roles=["data owner"])
    with pytest.raises(NotHere):
        user_actions.sign_up(hub, email="eve@evil.org", name="Eve", password=GOOD, address=HOME, invitation=secret)
    user_actions.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)


def test_a_refused_password_does_not_use_the_invitation_up(hub, operator):
    secret = user_actions.invite(hub, operator, email="ann@clinic.org", roles=[])
    with pytest.raises(BadForm):
        user_actions.sign_up(hub, email="ann@clinic.org", name="Ann", password="short", address=HOME, invitation=secret)
    user_actions.sign_up(hub, email="ann@clinic.org", name="Ann", password=GOOD, address=HOME, invitation=secret)


def test_an_old_invitation_and_one_of_a_former_operator_do_not_work(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    old = user_actions.invite(hub, operator, email="a@b.org", roles=[])
    theirs = user_actions.invite(hub, second, email="c@d.org", roles=["operator"])
    with hub.database.writing() as session:
        session.get(OneTimeLink, digest(old)).ends -= 8 * 86_400
    user_actions.set_roles(hub, operator, second, [])
    for email, secret in (("a@b.org", old), ("c@d.org", theirs), ("c@d.org", "made up")):
        with pytest.raises(NotHere):
            user_actions.sign_up(hub, email=email, name="X", password=GOOD, address=HOME, invitation=secret)


def test_a_reset_link_is_no_invitation(hub, operator):
    ann = join(hub, operator, "ann@clinic.org")
    secret = user_actions.make_reset_link(hub, operator, ann)
    with pytest.raises(NotHere), hub.database.reading() as session:
        accounts.invitation(session, secret)


def test_without_an_invitation_a_closed_hub_says_so(hub):
    with pytest.raises(Denied, match="invitation"):
        user_actions.sign_up(hub, email="a@b.org", name="A", password=GOOD, address=HOME)


def test_an_open_hub_gives_two_roles_and_not_more_accounts_than_tries(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "open", open_sign_up=True, login_tries=2)) as hub:
        made = user_actions.sign_up(hub, email="a@b.org", name="A", password=GOOD, address=HOME)
        assert set(made.roles) == {"data user", "data provider"}
        with pytest.raises(NotNow):
            user_actions.sign_up(hub, email="A@b.org", name="A", password=GOOD, address=HOME)
        with pytest.raises(TooMany):
            user_actions.sign_up(hub, email="c@d.org", name="C", password=GOOD, address=HOME)


@pytest.mark.parametrize("bad", ["", "nobody", "a@", "@b", "a@b@c", "a b@c.org", "a@b.org\x00", "x" * 200 + "@b.org"])
def test_an_address_must_look_like_one(hub, operator, bad):
    with pytest.raises(BadForm, match="email"):
        user_actions.invite(hub, operator, email=bad, roles=[])


UNMAILABLE = ["a@[", 'é@<,"', ',(]:?@.").\\', "ü@x.example", "a@bücher.example", ".a@b.org", "a..b@c.org", "a@b..org"]
UNMAILABLE += [
    "a@-b.org",
    "a@b_c.org",
    "a@[127.0.0.1]",
    '"a b"@c.org',
    "a@b.org,c@d.org",
    "a@b.org>",
    "x" * 65 + "@b.org",
]


@pytest.mark.parametrize("bad", UNMAILABLE)
def test_an_address_that_no_mail_server_need_accept_is_refused(hub, operator, bad):
    with pytest.raises(BadForm, match="email: give"):
        user_actions.invite(hub, operator, email=bad, roles=[])


@pytest.mark.parametrize("good", ["o'neil+x@b.org", "a@xn--bcher-kva.example", "root@localhost", "A.B@C.D.org"])
def test_an_address_that_any_mail_server_accepts_is_taken(hub, operator, good):
    assert user_actions.invite(hub, operator, email=good, roles=[])


def test_somebody_with_an_account_is_not_invited_again(hub, operator):
    with pytest.raises(NotNow):
        user_actions.invite(hub, operator, email="OP@hub.org", roles=[])


# Roles and organisations.


def test_only_operators_say_who_is_what(hub, operator):
    ann, eve = join(hub, operator, "ann@c.org", ["data owner"]), join(hub, operator, "eve@c.org", ["auditor"])
    for deed in (
        lambda: user_actions.set_roles(hub, eve, ann, ["operator"]),
        lambda: user_actions.set_roles(hub, eve, eve, ["operator"]),
        lambda: user_actions.invite(hub, ann, email="x@y.org", roles=["operator"]),
        lambda: user_actions.make_organisation(hub, ann, "Mine"),
        lambda: user_actions.set_organisation(hub, ann, eve, None),
        lambda: user_actions.set_active(hub, eve, ann, False),
        lambda: user_actions.make_reset_link(hub, eve, operator),
    ):
        with pytest.raises(Denied):
            deed()
    assert person(hub, ann.id).roles == ["data owner"]
    assert not log(hub, "person.roles_set")


def test_a_role_taken_a_moment_ago_counts_no_more(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    user_actions.set_roles(hub, operator, second, ["data user"])
    assert second.roles == ["operator"]  # what an open page still believes
    with pytest.raises(Denied):
        user_actions.set_roles(hub, second, operator, [])


def test_a_change_of_roles_is_logged_and_told(hub, operator):
    ann = join(hub, operator, "ann@c.org", ["data user", "data provider"])
    user_actions.set_roles(hub, operator, ann.id, ["data user", "data owner"])
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
            user_actions.set_roles(hub, second, second, ["operator", "data user", more])
    user_actions.set_roles(hub, second, second, ["data user"])
    assert person(hub, second.id).roles == ["data user"]


def test_nobody_is_operator_and_auditor_at_once(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    with pytest.raises(BadForm, match="at once"):
        user_actions.set_roles(hub, operator, second, ["operator", "auditor"])
    with pytest.raises(BadForm, match="at once"):
        user_actions.invite(hub, operator, email="x@y.org", roles=["auditor", "operator"])


def test_unknown_roles_are_refused(hub, operator):
    with pytest.raises(BadForm, match="roles"):
        user_actions.set_roles(hub, operator, operator, ["god"])


def test_the_last_operator_stays(hub, operator):
    with pytest.raises(NotNow, match="operator"):
        user_actions.set_roles(hub, operator, operator, [])
    with pytest.raises(NotNow, match="operator"):
        user_actions.set_active(hub, operator, operator, False)
    second = join(hub, operator, "two@hub.org", ["operator"])
    user_actions.set_active(hub, operator, second, False)
    with pytest.raises(NotNow):  # a closed account runs no hub
        user_actions.set_roles(hub, None, operator, [])
    assert person(hub, operator.id).roles == ["operator"]


def test_of_two_operators_who_leave_at_once_one_stays(hub, operator):
    second = join(hub, operator, "two@hub.org", ["operator"])
    refused = []

    def leave(who):
        try:
            user_actions.set_roles(hub, who, who, [])
        except NotNow:
            refused.append(who.id)

    threads = [threading.Thread(target=leave, args=(who,)) for who in (operator, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 1
    assert person(hub, refused[0]).roles == ["operator"]


@pytest.mark.parametrize(("first", "second"), [
    ("Weiß AG", "WEISS AG"), ("MIT", "Mit"), ("Clinic-North", "Clinic North"), ("Office", "Oﬃce"),
    ("Café", "Cafe\u0301"),
])  # fmt: skip
def test_no_two_organisations_have_names_that_look_alike(hub, operator, first, second):
    user_actions.make_organisation(hub, operator, first)
    with pytest.raises(NotNow, match=f"{first} is there already, and its name looks the same"):
        user_actions.make_organisation(hub, operator, second)


def test_organisations_have_one_name_and_a_country_of_two_letters(hub, operator):
    clinic = user_actions.make_organisation(hub, operator, "  Clinic  North ", "fr")
    assert (clinic.name, clinic.country) == ("Clinic North", "FR")
    with pytest.raises(NotNow):
        user_actions.make_organisation(hub, operator, "Clinic North")
    with pytest.raises(BadForm, match="country"):
        user_actions.make_organisation(hub, operator, "South", "France")
    ann = join(hub, operator, "ann@c.org")
    user_actions.set_organisation(hub, operator, ann, clinic.id)
    assert person(hub, ann.id).organisation.name == "Clinic North"
    with pytest.raises(NotHere):
        user_actions.set_organisation(hub, operator, ann, 999)
    with pytest.raises(Denied):
        user_actions.set_organisation(hub, operator, operator, clinic.id)


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
    secret = user_actions.make_reset_link(hub, operator, ann)
    assert works(hub, cookie, token) == (True, True)
    user_actions.reset_password(hub, secret, OTHER, HOME)
    assert works(hub, cookie, token) == (False, False)
    assert person(hub, ann.id).password != ann.password
    with pytest.raises(NotHere):
        user_actions.reset_password(hub, secret, GOOD, HOME)


def test_a_new_reset_link_ends_the_one_before(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    first, second = (user_actions.make_reset_link(hub, operator, ann) for _ in range(2))
    with pytest.raises(NotHere):
        user_actions.reset_password(hub, first, OTHER, HOME)
    user_actions.reset_password(hub, second, OTHER, HOME)


def test_of_two_who_use_a_link_at_once_one_succeeds(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    secret, done = user_actions.make_reset_link(hub, operator, ann), []

    def use():
        try:
            user_actions.reset_password(hub, secret, OTHER, HOME)
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
    secret = user_actions.make_reset_link(hub, operator, ann)
    with pytest.raises(BadForm):
        user_actions.reset_password(hub, secret, "short", HOME)
    user_actions.reset_password(hub, secret, OTHER, HOME)


def test_an_operator_makes_no_reset_link_for_themself(hub, operator):
    with pytest.raises(Denied):
        user_actions.make_reset_link(hub, operator, operator)
    user_actions.make_reset_link(hub, None, operator)  # from the host's command line


def test_a_reset_is_logged_and_the_person_is_told_who_made_it(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    secret = user_actions.make_reset_link(hub, operator, ann)
    user_actions.reset_password(hub, secret, OTHER, HOME)
    assert [entry.person_id for entry in log(hub, "person.reset_made")] == [operator.id]
    assert [entry.object for entry in log(hub, "person.reset_used")] == [f"person/{ann.id}"]
    with hub.database.reading() as session:
        told = [notice.text for notice in session.query(Notice).filter_by(person_id=ann.id)]
    assert any(operator.name in text for text in told)
    assert len(told) == 2


def test_a_closed_account_loses_sessions_tokens_and_links_and_can_be_opened_again(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    cookie, token = signed_in(hub, ann)
    secret = user_actions.make_reset_link(hub, operator, ann)
    user_actions.set_active(hub, operator, ann, False)
    assert works(hub, cookie, token) == (False, False)
    with pytest.raises(NotHere):
        user_actions.reset_password(hub, secret, OTHER, HOME)
    with pytest.raises(NotNow):
        user_actions.make_reset_link(hub, operator, ann)
    user_actions.set_active(hub, operator, ann, True)
    assert person(hub, ann.id).active
    assert works(hub, cookie, token) == (False, False)


def test_no_secret_and_no_password_is_in_the_database_file_or_the_log(hub, operator):
    ann = join(hub, operator, "ann@c.org")
    cookie, token = signed_in(hub, ann)
    invitation = user_actions.invite(hub, operator, email="x@y.org", roles=[])
    reset = user_actions.make_reset_link(hub, operator, ann)
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
        user_actions.invite(hub, operator, email="x@y.org", roles=[], days=31)
