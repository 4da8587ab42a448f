"""A new hub and its first people: what is refused makes nothing."""

import os

import pytest
import sqlalchemy as sa
from click.testing import CliRunner

from cloister.cli import main
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import OneTimeLink, Organisation
from cloister.hub.core.settings import Settings
from cloister.hub.ops.backup import backup, restore
from cloister.hub.ops.ledger_heads import write_off
from cloister.hub.ops.setup import begin, invitation_link
from cloister.privacy.errors import BadForm, CloisterError, NotNow
from cloister.privacy.loss import rho


@pytest.fixture
def hub(tmp_path):
    with Hub.create(Settings(folder=tmp_path / "hub")) as hub:
        yield hub


def organisations(hub):
    with hub.database.reading() as session:
        return [tuple(row) for row in session.execute(sa.select(Organisation.name, Organisation.country))]


def test_a_bad_address_of_the_operator_makes_no_hub(tmp_path):
    settings = Settings(folder=tmp_path / "hub")
    with pytest.raises(BadForm, match="e-mail"):
        begin(settings, "notanemail")
    assert not settings.folder.exists()
    begin(settings, "op@example.org")
    with Hub.open(settings) as hub, hub.database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(OneTimeLink)) == 1


def test_a_ledger_that_cannot_be_made_leaves_a_folder_that_can_be_used_again(tmp_path):
    folder = tmp_path / "hub"
    with pytest.raises(CloisterError):
        begin(Settings(folder=folder, ledger_url=f"sqlite:///{tmp_path}/none/ledger.db"), "op@example.org")
    begin(Settings(folder=folder), "op@example.org")


def test_a_refused_invitation_makes_no_organisation(hub):
    for email, roles, country in (
        ("h@x.example", ["owner"], "AT"),
        ("nobody", ["data owner"], "AT"),
        ("h@x.example", ["data owner"], "Austria"),
    ):
        with pytest.raises(BadForm):
            invitation_link(hub, email, roles, "St. Anna", country)
    assert organisations(hub) == []
    invitation_link(hub, "h@x.example", ["data owner"], "St. Anna", "at")
    assert organisations(hub) == [("St. Anna", "AT")]


def test_a_country_is_set_once_and_never_ignored(hub):
    invitation_link(hub, "h@x.example", ["data owner"], "St. Anna")
    invitation_link(hub, "i@x.example", ["data owner"], "St. Anna", "AT")
    assert organisations(hub) == [("St. Anna", "AT")]
    with hub.database.reading() as session:
        assert len(hub.audit.search(session, action="organisation.country_set")) == 1
    with pytest.raises(NotNow, match="with the country AT"):
        invitation_link(hub, "j@x.example", ["data owner"], "St. Anna", "DE")
    with pytest.raises(BadForm, match="two letters"):
        invitation_link(hub, "j@x.example", ["data owner"], "St. Anna", "Austria")
    with pytest.raises(BadForm, match="organisation"):
        invitation_link(hub, "j@x.example", ["data owner"], country="AT")


def test_nothing_is_announced_where_there_is_no_hub(tmp_path):
    done = CliRunner().invoke(main, ["hub", "serve", "--folder", str(tmp_path / "nohub")])
    assert done.exit_code == 1
    assert "listening" not in done.output
    assert "there is no hub" in done.output


def test_a_mistyped_dataset_gives_up_no_other(hub):
    hub.ledger.open_account("visits", rho(1))
    hub.close()
    done = CliRunner().invoke(main, ["hub", "write-off", "visits", "visit", "--folder", str(hub.folder)])
    assert done.exit_code == 1
    assert "written off" not in done.output
    with Hub.open(hub.settings) as again:
        assert write_off(again, "visits")[0][1] == rho(1)


def test_a_wrong_master_key_leaves_a_folder_that_can_be_used_again(hub, tmp_path):
    backup(hub, tmp_path / "copy")
    other = tmp_path / "other.key"
    other.write_text(os.urandom(32).hex())
    settings = Settings(folder=tmp_path / "again")
    with pytest.raises(CloisterError):
        restore(tmp_path / "copy", settings, other)
    restore(tmp_path / "copy", settings, hub.master_key_file)
