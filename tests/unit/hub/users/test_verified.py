"""An e-mail address that nobody has verified gives no right."""

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.config import Config

from cloister.hub.approvals.mail import deliver
from cloister.hub.approvals.requests import reviewers
from cloister.hub.approvals.visibility import may_know
from cloister.hub.core import models
from cloister.hub.core.database import Database
from cloister.hub.core.models import Notice, Organisation, Person
from cloister.hub.policy import versions
from cloister.hub.policy.conditions import Subject
from cloister.hub.users import user_actions
from cloister.privacy.errors import Denied, NotHere, NotNow, TooMany

GOOD = "four plain words here"
HOME = "192.0.2.7"
NAMED = (("reviewers: [reviewer@hospital.example]", "reviewers: [new@lake.example]"),
         ("people: [cleo@college.example]", "people: [prof@elsewhere.example]"))  # fmt: skip


@pytest.fixture
def open_world(world_maker, tmp_path):
    made = world_maker(tmp_path / "open", open_sign_up=True, mail_folder=str(tmp_path / "mail"))
    made.publish(change=NAMED)
    yield made
    made.hub.close()


def claim(world, email):
    """Sign up openly with somebody's address."""
    return user_actions.sign_up(world.hub, email=email, name="Claims", password=GOOD, address=HOME)


def again(world, person):
    with world.hub.database.reading() as session:
        return session.get(Person, person.id)


def notices(world, who):
    with world.hub.database.reading() as session:
        return list(session.scalars(sa.select(Notice.text).where(Notice.person_id == world.people[who].id)))


def mailed_link(folder):
    """The secret in the newest e-mail of its kind."""
    mail = max(Path(folder).glob("verify-*.eml"))
    return re.search(r"/verify/([\w-]+)", mail.read_text(encoding="utf-8"))[1]


def test_whoever_signs_up_with_a_reviewers_address_is_no_reviewer(open_world):
    stranger = claim(open_world, "new@lake.example")
    with open_world.hub.database.reading() as session:
        assert [one.name for one in reviewers(open_world.hub, session, open_world.dataset())] == ["Owner"]
        assert not may_know(open_world.hub, session, stranger, open_world.dataset(), open_world.here)


def test_whoever_signs_up_with_an_address_of_a_role_gets_nothing(open_world):
    stranger = claim(open_world, "prof@elsewhere.example")
    open_world.people["prof"] = stranger
    assert Subject.of(stranger).facts == {}  # rules that speak of :person do not believe it either
    for ask in (open_world.plan, open_world.submit):
        with pytest.raises(NotHere):
            ask("prof")


def test_a_link_by_mail_makes_the_address_count(open_world):
    stranger = claim(open_world, "prof@elsewhere.example")
    assert deliver(open_world.hub) >= 1
    user_actions.verify(open_world.hub, stranger, mailed_link(open_world.hub.settings.mail_folder))
    open_world.people["prof"] = again(open_world, stranger)
    assert open_world.plan("prof", "SELECT COUNT(*) AS n FROM visits").own.amount
    assert any("the policy of visits names it" in one for one in notices(open_world, "owner"))
    with open_world.hub.database.reading() as session:
        actions = list(session.scalars(sa.select(models.AuditEntry.action)))
    assert "person.verified" in actions


def test_the_secret_of_the_link_is_in_the_mail_and_nowhere_in_the_hub(open_world):
    claim(open_world, "prof@elsewhere.example")
    deliver(open_world.hub)
    secret = mailed_link(open_world.hub.settings.mail_folder)
    with open_world.hub.database.reading() as session:
        for table in models.Base.metadata.sorted_tables:
            assert all(secret not in repr(tuple(row)) for row in session.execute(sa.select(table)))


def test_a_link_works_only_for_the_account_it_was_made_for_and_once(open_world):
    stranger, other = claim(open_world, "prof@elsewhere.example"), claim(open_world, "eve@elsewhere.example")
    deliver(open_world.hub)
    with open_world.hub.database.reading() as session:
        wanted = sa.select(models.OneTimeLink.person_id).where(models.OneTimeLink.purpose == "verify")
        assert set(session.scalars(wanted)) == {stranger.id, other.id}
    files = sorted(Path(open_world.hub.settings.mail_folder).glob("verify-*.eml"))
    secret = re.search(r"/verify/([\w-]+)", files[0].read_text(encoding="utf-8"))[1]
    with pytest.raises(NotHere, match="another account"):
        user_actions.verify(open_world.hub, other, secret)
    user_actions.verify(open_world.hub, stranger, secret)
    with pytest.raises(NotHere):
        user_actions.verify(open_world.hub, stranger, secret)
    assert again(open_world, other).verified is None


def test_no_notice_is_mailed_to_an_address_that_is_only_claimed(open_world):
    stranger = claim(open_world, "prof@elsewhere.example")
    with open_world.hub.database.writing() as session:
        session.add(Notice(person_id=stranger.id, text="A word."))
    deliver(open_world.hub)
    texts = [one.read_text(encoding="utf-8") for one in Path(open_world.hub.settings.mail_folder).glob("notice-*.eml")]
    assert not any("prof@elsewhere.example" in one for one in texts)


def test_a_link_is_not_sent_as_often_as_somebody_likes(open_world):
    stranger = claim(open_world, "prof@elsewhere.example")
    for _ in range(open_world.hub.settings.login_tries):
        user_actions.ask_verify_link(open_world.hub, stranger)
    with pytest.raises(TooMany):
        user_actions.ask_verify_link(open_world.hub, stranger)


def test_without_mail_a_claimed_address_gives_nothing_until_an_operator_vouches_for_it(world_maker, tmp_path):
    world = world_maker(tmp_path / "quiet", open_sign_up=True)
    world.publish(change=NAMED)
    stranger = claim(world, "new@lake.example")
    assert deliver(world.hub) == 0
    with pytest.raises(NotNow, match="Ask an operator"):
        user_actions.ask_verify_link(world.hub, stranger)
    secret = user_actions.invite(world.hub, None, email="op@hub.example", roles=["operator"])
    operator = user_actions.sign_up(
        world.hub, email="op@hub.example", name="Op", password=GOOD, address=HOME, invitation=secret
    )
    with pytest.raises(Denied):
        user_actions.make_verify_link(world.hub, stranger, stranger.id)
    user_actions.verify(world.hub, stranger, user_actions.make_verify_link(world.hub, operator, stranger.id))
    with world.hub.database.reading() as session:
        assert [one.name for one in reviewers(world.hub, session, world.dataset())] == ["Owner", "Claims"]
    world.hub.close()


def test_an_invitation_verifies_the_address_it_is_for(hospital_hub):
    secret = user_actions.invite(hospital_hub.hub, None, email="prof@elsewhere.example", roles=["data user"])
    made = user_actions.sign_up(hospital_hub.hub, email="prof@elsewhere.example", name="Prof", password=GOOD,
    address=HOME,
                        invitation=secret)  # fmt: skip
    assert again(hospital_hub, made).verified_email == "prof@elsewhere.example"


def test_owners_are_told_which_named_addresses_nobody_has_verified(open_world):
    claim(open_world, "new@lake.example")
    open_world.publish(change=NAMED)
    told = [one for one in notices(open_world, "owner") if "No verified account" in one][-1]
    assert "new@lake.example, prof@elsewhere.example" in told
    with open_world.hub.database.reading() as session:
        policy, _ = versions.current(open_world.hub, session, open_world.dataset())
        assert "new@lake.example" in versions.unverified_note(session, policy)


def test_owners_are_told_when_somebody_joins_an_organisation_that_their_policy_names(hospital_hub):
    with hospital_hub.hub.database.reading() as session:
        university = session.scalar(sa.select(Organisation.id).where(Organisation.name == "University"))
    user_actions.set_organisation(hospital_hub.hub, None, hospital_hub.stranger.id, university)
    assert any("Stranger joined University" in one for one in notices(hospital_hub, "owner"))
    secret = user_actions.invite(
        hospital_hub.hub, None, email="x@elsewhere.example", roles=["data user"], organisation=university
    )
    user_actions.sign_up(hospital_hub.hub, email="x@elsewhere.example", name="Xenia", password=GOOD, address=HOME,
                 invitation=secret)  # fmt: skip
    assert any("Xenia joined University" in one for one in notices(hospital_hub, "owner"))


def test_after_the_migration_invited_people_are_verified_and_others_are_not(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'hub.db'}")
    config = Config()
    config.set_main_option("script_location", str(Path(models.__file__).parent / "migrations"))
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0002")
        for email in ("ann@x.example", "bob@x.example"):
            connection.execute(sa.text(
                "INSERT INTO people (email, name, roles, password, totp_last, active, created) "
                "VALUES (:email, 'A', '[]', '', 0, 1, 5.0)"), {"email": email})  # fmt: skip
        for email, used in (("ann@x.example", 4.0), ("bob@x.example", None)):
            connection.execute(sa.text(
                "INSERT INTO links (id, purpose, detail, created, ends, used) "
                "VALUES (:id, 'invitation', :detail, 1, 9, :used)"),
                {"id": email, "detail": f'{{"email": "{email}"}}', "used": used})  # fmt: skip
        connection.commit()
    database.migrate()
    with database.reading() as session:
        found = {one.email: one.verified for one in session.scalars(sa.select(Person))}
    database.close()
    assert found == {"ann@x.example": 5.0, "bob@x.example": None}


def test_an_account_that_was_closed_cannot_be_verified(open_world):
    stranger = claim(open_world, "prof@elsewhere.example")
    with open_world.hub.database.writing() as session:
        session.get_one(Person, stranger.id).active = False
    deliver(open_world.hub)
    assert not list(Path(open_world.hub.settings.mail_folder).glob("verify-*.eml"))
