"""The migrations make exactly the tables that the models describe, in SQLite and in PostgreSQL."""

import subprocess
import sys
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from cloister.hub.core import models
from cloister.hub.core.database import Base, Database

pytestmark = pytest.mark.usefixtures("real_tables")


@pytest.fixture(params=["sqlite", "postgresql"])
def address(request, tmp_path):
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'hub.db'}"
    return request.getfixturevalue("postgres_address").replace("postgresql://", "postgresql+psycopg://", 1)


@pytest.fixture
def database(address):
    made = Database(address)
    made.migrate()
    yield made
    made.close()


def step(database, verb, target):
    config = Config()
    config.set_main_option("script_location", str(Path(models.__file__).parent / "migrations"))
    with database.engine.connect() as connection:
        config.attributes["connection"] = connection
        verb(config, target)
        connection.commit()


def tables(database):
    return set(sa.inspect(database.engine).get_table_names()) - {"alembic_version"}


def test_the_migrated_database_is_what_the_models_describe(database):
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_a_difference_would_be_noticed(database):
    with database.engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE notices DROP COLUMN mailed"))
        connection.execute(sa.text("DROP INDEX jobs_by_state"))
    with database.engine.connect() as connection:
        found = compare_metadata(MigrationContext.configure(connection), Base.metadata)
    assert {change[0] for change in found} == {"add_column", "add_index"}


def test_constraints_have_the_names_that_later_migrations_will_use(database):
    inspector = sa.inspect(database.engine)
    assert {one["name"] for one in inspector.get_unique_constraints("versions")} == {"uq_versions_dataset_id_number"}
    assert {one["name"] for one in inspector.get_foreign_keys("tokens")} == {"fk_tokens_person_id"}


def test_migrating_again_changes_nothing(database):
    with database.writing() as session:
        session.add(models.Organisation(name="St. Anna"))
    database.migrate()
    with database.reading() as session:
        assert session.scalars(sa.select(models.Organisation.name)).all() == ["St. Anna"]


START = """
import sys
from cloister.hub.core import models
from cloister.hub.core.database import Database
database = Database(sys.argv[1])
database.migrate()
with database.writing() as session:
    session.add(models.Try(who="x"))
"""


def test_many_processes_that_start_together_migrate_once(address):
    started = [subprocess.Popen([sys.executable, "-c", START, address]) for _ in range(4)]
    assert [process.wait(60) for process in started] == [0] * 4
    database = Database(address)
    with database.reading() as session:
        assert session.scalar(sa.select(sa.func.count()).select_from(models.Try)) == 4
    database.close()


def test_the_database_refuses_to_change_the_audit_log(database):
    with database.writing() as session:
        entry = {"number": 1, "time": 1.0, "action": "a", "object": "o", "detail": {}, "previous": "", "hash": "h"}
        session.execute(sa.insert(models.AuditEntry).values(entry))
    for statement in ("UPDATE audit SET action = 'b'", "DELETE FROM audit"):
        with pytest.raises(sa.exc.DatabaseError, match="never changed"), database.writing() as session:
            session.execute(sa.text(statement))
    with database.reading() as session:
        assert session.scalar(sa.select(models.AuditEntry.action)) == "a"


def test_a_migration_that_fails_halfway_leaves_nothing(address):
    database = Database(address)
    with database.engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE spent (id INTEGER)"))  # stands in the way of a late step
    with pytest.raises(sa.exc.DatabaseError):
        database.migrate()
    assert tables(database) == {"spent"}
    with database.engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE spent"))
    database.migrate()
    assert tables(database) == set(Base.metadata.tables)
    database.close()


def test_every_step_can_be_taken_back(database):
    step(database, command.downgrade, "base")
    assert tables(database) == set()
    step(database, command.upgrade, "head")
    assert tables(database) == set(Base.metadata.tables)


def test_an_upload_of_ten_gigabytes_can_be_counted(database):
    with database.writing() as session:
        person = models.Person(email="o@x", name="O")
        dataset = models.Dataset(name="d", owner=person, budget={})
        session.add(dataset)
        session.flush()
        facts = {"table": "t", "file": "t.csv", "size": 10**10, "received": 10**10}
        session.add(models.Upload(id="u", dataset_id=dataset.id, person_id=person.id, **facts))
    with database.reading() as session:
        assert session.scalar(sa.select(models.Upload.received)) == 10**10
