"""Settings come from the environment, travel to every process, and are on a page."""

from dataclasses import fields
from pathlib import Path

import pytest

from cloister.hub.core.settings import Settings
from cloister.hub.ops.serve import environment_of
from cloister.hub.ops.settings_page import settings_page
from cloister.privacy.errors import BadName


def test_what_the_environment_says_is_read():
    read = Settings.from_environment(
        {"CLOISTER_PORT": "9000", "CLOISTER_OPEN_SIGN_UP": "yes", "CLOISTER_FOLDER": "here", "CLOISTER_NAME": "Our hub"}
    )
    assert (read.port, read.open_sign_up, read.folder, read.name) == (9000, True, Path("here"), "Our hub")


def test_an_empty_variable_counts_as_not_set():
    assert Settings.from_environment({"CLOISTER_PORT": ""}) == Settings()


def test_the_command_line_wins_over_the_environment():
    assert Settings.from_environment({"CLOISTER_PORT": "9000"}, port=1).port == 1


@pytest.mark.parametrize(("name", "text"), [("PORT", "many"), ("OPEN_SIGN_UP", "perhaps"), ("SESSION_HOURS", "1.5")])
def test_what_cannot_be_read_is_refused_by_name(name, text):
    with pytest.raises(BadName, match=f"CLOISTER_{name}"):
        Settings.from_environment({f"CLOISTER_{name}": text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("HOSTS", "db.example:5432"),
        ("HOSTS", "Hospital=db.example"),  # every port of a machine
        ("HOSTS", "Hospital=u@db.example:5432"),
        ("HOSTS", "Hospital=db.example:5432/x"),
        ("HOSTS", "=db.example:5432"),
        ("HOSTS", "Hospital=db.example:5432, db.example:5433"),
        ("FOLDERS", "/srv/share"),
        ("FOLDERS", "Hospital=share"),
        ("FOLDERS", "Hospital=/srv/a,/srv/b"),
        ("FOLDERS", "=/srv/share"),
    ],
)
def test_a_connection_that_belongs_to_nobody_is_refused_at_start(name, text):
    with pytest.raises(BadName, match=rf"CLOISTER_CONNECT_{name}: .*organisation="):
        Settings.from_environment({f"CLOISTER_CONNECT_{name}": text})


def test_folders_of_two_organisations_do_not_lie_in_each_other(tmp_path):
    for first, second in (("/srv/share", "/srv/share/st-anna"), ("/srv/share", "/srv/share")):
        with pytest.raises(BadName, match="a folder of its own"):
            Settings(connect_folders=f"Lake Clinic={first}, St. Anna={second}")
        assert Settings(connect_folders=f"St. Anna={first}, St. Anna={second}").folders_of("Lake Clinic") == []
    (tmp_path / "link").symlink_to(tmp_path)
    behind = Settings(connect_folders=f"Lake Clinic={tmp_path / 'link'}, St. Anna={tmp_path / 'own'}")
    assert behind.folders_of("Lake Clinic") == []
    assert behind.folders_of("St. Anna") == [tmp_path / "own"]


def test_each_organisation_has_its_own_list():
    given = Settings(
        connect_hosts="Kern, Huber & Co=DB.example.:5432; St. Anna=[fd00::1]:5432;",
        connect_folders="St. Anna=/srv/st-anna,Lake Clinic=/srv/lake",
    )
    assert given.hosts_of("Kern, Huber & Co") == ["db.example:5432"]
    assert given.hosts_of("St. Anna") == ["fd00::1:5432"]
    assert given.folders_of("St. Anna") == [Path("/srv/st-anna")]
    assert given.hosts_of("") == given.folders_of("") == given.folders_of("st. anna") == []


def test_settings_reach_another_process_unchanged(tmp_path):
    given = Settings(
        folder=tmp_path, port=1234, open_sign_up=True, require_totp=True, connect_hosts="A=a:1,B=b:2", country="AT"
    )
    assert Settings.from_environment(environment_of(given)) == given


def test_a_relative_folder_means_the_same_in_every_process(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert environment_of(Settings(folder=Path("hub")))["CLOISTER_FOLDER"] == str(tmp_path / "hub")


def test_postgresql_is_spoken_to_through_psycopg():
    assert Settings(database_url="postgresql://h/d").database == "postgresql+psycopg://h/d"


def test_every_setting_is_on_the_page_with_its_meaning():
    page = settings_page()
    for one in fields(Settings):
        assert f"`CLOISTER_{one.name.upper()}`" in page
        assert one.metadata["meaning"].replace("|", "\\|") in page


def test_secrets_are_marked_on_the_page():
    page = settings_page()
    assert "`CLOISTER_MASTER_KEY`*" in page
    assert "`CLOISTER_PORT`*" not in page
