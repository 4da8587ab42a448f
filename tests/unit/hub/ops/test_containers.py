"""The container files say what they promise. Docker itself is not needed to read them."""

import re
from pathlib import Path

import pytest
import sqlalchemy as sa
import yaml

from cloister.cli.hub import hub as commands
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation
from cloister.hub.core.settings import Settings
from cloister.privacy.loss import rho

ROOT = Path(__file__).parents[4]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))


def test_the_image_is_built_in_one_stage_and_kept_in_another_by_nobody_in_particular():
    stages = re.findall(r"^FROM \S+(?: AS (\w+))?$", DOCKERFILE, re.MULTILINE)
    assert stages == ["build", ""]
    last = DOCKERFILE.rpartition("\nFROM ")[2]
    assert "\nUSER cloister\n" in last
    assert last.index("\nUSER ") < last.index("\nENTRYPOINT ")
    assert "COPY --from=build" in last
    assert "pip install" not in last
    assert "\nHEALTHCHECK " in last
    assert "/health" in last


def test_the_image_copies_nothing_but_what_is_let_in():
    let_in = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    copied = {
        word for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE) for word in line.split()[:-1]
    }
    assert copied == let_in
    assert all((ROOT / name).exists() for name in copied)


def test_every_command_that_a_container_runs_exists():
    services = COMPOSE["services"]
    assert {services[name]["command"][0] for name in ("hub", "worker-1", "worker-2")} <= set(commands.commands)


def test_the_settings_of_the_containers_exist():
    known = {f"CLOISTER_{name.upper()}" for name in Settings.__dataclass_fields__}
    for name in ("hub", "worker-1", "worker-2"):
        assert set(COMPOSE["services"][name]["environment"]) <= known
    assert set(re.findall(r"CLOISTER_\w+", DOCKERFILE)) <= known


def test_secrets_are_files_and_nowhere_else():
    for service in COMPOSE["services"].values():
        assert set(service["secrets"]) <= set(COMPOSE["secrets"])
        assert not [name for name in service["environment"] if name.endswith(("PASSWORD", "_KEY", "TOKEN"))]
    assert all(set(secret) == {"file"} for secret in COMPOSE["secrets"].values())


def test_a_worker_has_what_the_hub_has_and_serves_nothing():
    hub, worker = COMPOSE["services"]["hub"], COMPOSE["services"]["worker-1"]
    assert worker["volumes"] == hub["volumes"]
    assert "ports" not in worker
    assert worker["networks"] == ["inside"]
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert hub["environment"]["CLOISTER_WORKER_PROCESSES"] == "0"
    assert all(port.startswith("127.0.0.1:") for port in hub["ports"])


def test_hub_and_ledger_live_in_one_postgresql_whose_password_is_in_a_file(postgres_address, tmp_path):
    (tmp_path / "pgpass").write_text("*:*:*:*:not-asked-for\n")
    (tmp_path / "pgpass").chmod(0o600)
    address = f"{postgres_address}{'&' if '?' in postgres_address else '?'}passfile={tmp_path / 'pgpass'}"
    settings = Settings(
        folder=tmp_path / "hub", database_url=address, ledger_url=address, head_file=str(tmp_path / "head")
    )
    with Hub.create(settings) as hub:
        hub.ledger.open_account("visits", rho(1)).reserve(rho("0.1"), "q")
        with hub.database.writing() as session:
            session.add(Organisation(name="X"))
    with Hub.open(settings) as again, again.database.reading() as session:
        assert again.ledger.account("visits").spent == rho("0.1")
        assert session.scalars(sa.select(Organisation.name)).all() == ["X"]


@pytest.mark.parametrize("name", ["master.key", "pgpass", "database_password"])
def test_the_guide_says_what_every_secret_file_holds(name):
    guide = (ROOT / "docs" / "guides" / "run-a-hub.md").read_text(encoding="utf-8")
    assert f"| `{name}` |" in guide
    assert any(secret["file"].endswith(name) for secret in COMPOSE["secrets"].values())
