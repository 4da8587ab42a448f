"""Whoever writes the hub's database can change no schema, bring back no older tables and open no paused dataset."""

import sqlite3
from contextlib import closing

import pytest
import sqlalchemy as sa
import yaml

from cloister.hub.core import signed_state
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import AuditEntry, Notice, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import datasets, ingest
from cloister.hub.ops.backup import backup, restore
from cloister.hub.ops.ledger_heads import show_head
from cloister.hub.policy.versions import schema_of
from cloister.privacy.errors import BadSchema, NotNow, SealBroken
from cloister.privacy.loss import rho

SUM = "SELECT SUM(age) AS s FROM visits"
CHANGED = "is not what its owner made"
MISSING = "was ready and is missing"


def written(world, statement, *values):
    """Somebody else writes the hub's database."""
    with closing(sqlite3.connect(world.hub.folder / "hub.db")) as database:
        database.execute(statement, values)
        database.commit()


def new_version(world, **given):
    with world.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        return datasets.new_version(world.hub, session, world.owner, dataset, **given)


def paused(world, switch):
    with world.hub.database.writing() as session:
        datasets.pause(world.hub, session, world.owner, datasets.find(session, "visits"), switch)


def stored(world, number=1):
    return world.rows(sa.select(Version).where(Version.number == number))[0]


def reopened(world):
    """The same hub in another process: nothing is cached."""
    signed_state._valid.clear()
    return type(world)(Hub.open(world.hub.settings), world.people)


# What a version is


def public(world):
    """Make the table public, with every patient's name in it."""
    schema = yaml.safe_load(stored(world).schema)
    table = schema["tables"]["visits"]
    unit = table.pop("unit")
    table["public"] = True
    table["columns"][unit] = {"type": "text"}
    return yaml.safe_dump(schema)


@pytest.mark.parametrize("again", [False, True])
def test_a_schema_that_was_changed_in_the_database_runs_nothing(hospital_hub, visits_of, again):
    waiting = hospital_hub.submit("ada", SUM)
    written(hospital_hub, "UPDATE versions SET schema = ?", public(hospital_hub))
    world = reopened(hospital_hub) if again else hospital_hub
    for order in (
        {},
        {"kind": "profile", "table": "visits"},
        {"kind": "synthesise", "table": "visits", "method": "independent"},
        {"kind": "train", "table": "visits", "model": "GaussianNB", "target": "ward"},
    ):
        with pytest.raises(SealBroken, match=CHANGED):
            world.plan("ada", **order)
        with pytest.raises(SealBroken, match=CHANGED):
            world.submit("ada", **order)
    visit = visits_of(world)
    for path in ("/api/datasets/visits/schema", "/api/datasets/visits/mock/visits"):
        for who in ("ada", "owner"):
            answer = visit(who).api.get(path)
            assert (answer.status_code, CHANGED in answer.text) == (503, True), (path, who)
    for path in ("/datasets/visits/schema", "/datasets/visits/mock/visits"):
        assert visit("ada").get(path).status_code == 503
    assert CHANGED in visit("ada").get("/datasets/visits").text
    assert CHANGED in visit("owner").get("/datasets/visits/schema").text
    assert CHANGED in visit("owner").get("/datasets/visits/versions").text
    assert "public: true" not in visit("owner").get("/datasets/visits/schema").text
    assert world.work() == ["failed"]
    assert CHANGED in world.job(waiting.id).problem
    assert world.job(waiting.id).result is None
    assert not world.spent().amount
    with world.hub.database.reading() as session:
        assert schema_of(world.hub, session, world.dataset()) is None


@pytest.mark.parametrize(
    "change",
    [
        "schema = replace(schema, 'max_rows: 8', 'max_rows: 9')",
        """declared = '{"visits": {"patient": "BIGINT"}}'""",
        """source = replace(source, '"kind": "sealed"', '"kind": "folder"')""",
        """source = '{"kind": 0.5}'""",
        "number = 7",
        "dataset_id = 2",
        "signature = NULL",
        "signature = ''",
        "signature = 'x'",
        "signature = replace(signature, substr(signature, 5, 4), 'AAAA')",
    ],
)
def test_every_part_of_a_version_is_signed(hospital_hub, change):
    with hospital_hub.hub.database.writing() as session:
        dataset = datasets.create(
            hospital_hub.hub, session, hospital_hub.owner, name="other", title="", about="", schema_text="",
            policy_text="dataset: other\npurposes: [research]\nbudget: {lifetime: {rho: 1}}\n"
            "roles: {a: {who: anyone, may: [query]}}\n",
        )  # fmt: skip
    before = stored(hospital_hub)
    signed_state.check_version(hospital_hub.hub, hospital_hub.dataset(), before)
    written(hospital_hub, f"UPDATE versions SET {change}")
    (after,) = hospital_hub.rows(sa.select(Version))
    columns = ("schema", "declared", "source", "number", "dataset_id", "signature")
    assert [getattr(after, name) for name in columns] != [getattr(before, name) for name in columns]
    of = dataset if after.dataset_id == dataset.id else hospital_hub.dataset()
    with pytest.raises(SealBroken, match=f"{CHANGED}|has no signature"):
        signed_state.check_version(hospital_hub.hub, of, after)
    for use in (
        lambda: datasets.open_twin(hospital_hub.hub, of, after),
        lambda: datasets.open_for_work(hospital_hub.hub, of, after, None),
    ):
        with pytest.raises(SealBroken):
            use()


def test_a_signature_is_for_one_stage_and_one_kind_of_text(hospital_hub):
    hub, version = hospital_hub.hub, stored(hospital_hub)
    for state in ("draft", "preparing", "failed", "deleted"):
        version.state = state
        with pytest.raises(SealBroken):
            signed_state.check_version(hub, hospital_hub.dataset(), version)
    version.state = "ready"
    statement = signed_state._statement(hospital_hub.dataset(), version)
    version.signature = hub.key.sign(statement.removeprefix(signed_state._VERSION))
    with pytest.raises(SealBroken):
        signed_state.check_version(hub, hospital_hub.dataset(), version)


def test_the_hub_makes_and_signs_only_what_the_owner_ordered(hospital_hub):
    """A changed schema is not laundered by having it prepared, saved or tried again."""
    changed = public(hospital_hub)
    new_version(hospital_hub)
    written(hospital_hub, "UPDATE versions SET schema = ? WHERE number = 2", changed)
    assert ingest.prepare(hospital_hub.hub, stored(hospital_hub, 2).id) == "failed"
    assert CHANGED in stored(hospital_hub, 2).problem
    with hospital_hub.hub.database.writing() as session, pytest.raises(SealBroken, match=CHANGED):
        datasets.retry(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"), 2)
    written(hospital_hub, "DELETE FROM versions WHERE number = 2")
    # What was ready, sent back to be prepared with another schema:
    written(hospital_hub, "UPDATE versions SET state = 'preparing', schema = ?", changed)
    assert ingest.prepare(hospital_hub.hub, stored(hospital_hub).id) == "failed"
    with pytest.raises(SealBroken, match=MISSING):
        hospital_hub.plan("ada")


def test_a_schema_that_was_changed_while_its_tables_are_prepared_is_not_signed(hospital_hub):
    made, changed = new_version(hospital_hub), public(hospital_hub)
    written_once = iter([True])

    def meanwhile(share, words):
        if next(written_once, False):
            written(hospital_hub, "UPDATE versions SET schema = ? WHERE number = 2", changed)

    assert ingest.prepare(hospital_hub.hub, made.id, meanwhile) == "preparing"
    assert ingest.prepare(hospital_hub.hub, made.id) == "failed"
    assert hospital_hub.plan("ada").loss == rho("0.01")  # version 1 is in force


def test_a_draft_that_was_changed_in_the_database_is_not_used(hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        datasets.save_draft(hospital_hub.hub, session, hospital_hub.owner, dataset, stored(hospital_hub).schema)
    written(hospital_hub, "UPDATE versions SET schema = replace(schema, 'max_rows: 8', 'max_rows: 9') WHERE number = 2")
    with pytest.raises(SealBroken, match=CHANGED):
        new_version(hospital_hub)
    assert new_version(hospital_hub, schema_text=stored(hospital_hub).schema).number == 2


def test_the_unit_stays_what_it_is_when_the_version_that_names_it_was_touched(hospital_hub):
    changed = public(hospital_hub)
    with pytest.raises(BadSchema, match="names the patient"):
        new_version(hospital_hub, schema_text=changed)
    written(hospital_hub, "UPDATE versions SET signature = NULL")
    with pytest.raises(SealBroken, match="has no signature"):
        new_version(hospital_hub, schema_text=changed)
    written(hospital_hub, "DELETE FROM versions")
    with pytest.raises(SealBroken, match=MISSING):
        new_version(hospital_hub, schema_text=changed)


# Which one is the newest


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize(
    "change",
    ["UPDATE versions SET state = 'failed' WHERE number = 2", "DELETE FROM versions WHERE number = 2"],
)
def test_older_tables_do_not_come_back_by_writing_the_database(hospital_hub, change, again):
    assert ingest.prepare(hospital_hub.hub, new_version(hospital_hub).id) == "ready"
    waiting = hospital_hub.submit("ada", SUM)
    written(hospital_hub, change)
    world = reopened(hospital_hub) if again else hospital_hub
    for ask in (world.plan, world.submit):
        with pytest.raises(SealBroken, match=f"version 2 of visits {MISSING}"):
            ask("ada")
    assert world.work() == ["failed"]
    assert MISSING in world.job(waiting.id).problem
    assert not world.spent().amount
    with pytest.raises(SealBroken):  # a new version takes no table from an older one
        new_version(world)


def test_a_new_version_after_one_that_is_missing_has_a_higher_number(hospital_hub):
    assert ingest.prepare(hospital_hub.hub, new_version(hospital_hub).id) == "ready"
    written(hospital_hub, "DELETE FROM versions WHERE number = 2")
    with hospital_hub.hub.database.writing() as session:
        dataset = datasets.find(session, "visits")
        draft = datasets.save_draft(hospital_hub.hub, session, hospital_hub.owner, dataset, stored(hospital_hub).schema)
    assert draft.number == 3


def test_a_version_whose_note_was_lost_is_noted_when_it_is_used(hospital_hub, monkeypatch):
    made = new_version(hospital_hub)
    with monkeypatch.context() as patch:
        patch.setattr(ingest, "note_ready", lambda *_: None)  # the process was killed
        assert ingest.prepare(hospital_hub.hub, made.id) == "ready"
    assert signed_state.newest_number(hospital_hub.hub, hospital_hub.dataset()) == 1
    hospital_hub.plan("ada")
    assert signed_state.newest_number(hospital_hub.hub, hospital_hub.dataset()) == 2


def test_a_record_belongs_to_one_version_whatever_number_its_row_has(hospital_hub):
    """After a restore the number of a lost dataset's row is given again: its record must not answer for another."""
    hospital_hub.submit("ada")
    assert hospital_hub.work() == ["done"]
    (kept,) = (hospital_hub.hub.folder / "records").glob("*.record")
    with hospital_hub.hub.database.reading() as session:
        dataset, version = datasets.find(session, "visits"), stored(hospital_hub)
    assert kept == signed_state.record_file(hospital_hub.hub, dataset, version)
    version.signature = hospital_hub.hub.key.sign(b"another dataset, with the same number")
    assert signed_state.record_file(hospital_hub.hub, dataset, version) != kept


def test_a_plan_is_approved_for_one_schema(hospital_hub):
    """The basis holds the signature, not only the id, which is a number in the database."""
    job = hospital_hub.submit("ada", SUM)
    assert ingest.prepare(hospital_hub.hub, new_version(hospital_hub).id) == "ready"
    written(hospital_hub, "UPDATE versions SET id = 1000 WHERE number = 1")
    written(hospital_hub, "UPDATE versions SET id = 1 WHERE number = 2")
    assert hospital_hub.work() == ["refused"]
    assert "have changed since this was planned" in hospital_hub.job(job.id).problem


# The pause switch


@pytest.mark.parametrize("again", [False, True])
def test_a_pause_that_was_lifted_in_the_database_is_still_a_pause(hospital_hub, again):
    waiting = hospital_hub.submit("ada")
    paused(hospital_hub, True)
    paused(hospital_hub, True)  # twice is once
    written(hospital_hub, "UPDATE datasets SET paused = 0")
    world = reopened(hospital_hub) if again else hospital_hub
    for ask in (world.plan, world.submit):
        with pytest.raises(NotNow, match="was changed so that it seems open"):
            ask("ada", SUM)
    with pytest.raises(NotNow, match="has paused"):
        datasets.open_for_work(world.hub, world.dataset(), stored(world), None)
    assert world.work() == ["refused"]
    assert "has paused" in world.job(waiting.id).problem
    assert not world.spent().amount
    paused(world, True)
    paused(world, False)
    world.submit("ada")
    assert world.work() == ["done"]


def test_a_pause_that_the_ledger_does_not_know_of_is_noted_when_the_hub_is_opened(hospital_hub, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "note_pause", lambda *_: None)  # as in a hub of version 0.1.0
        paused(hospital_hub, True)
    world = reopened(hospital_hub)
    written(world, "UPDATE datasets SET paused = 0")
    with pytest.raises(NotNow, match="has paused"):
        world.plan("ada")
    paused(world, False)
    assert world.plan("ada").loss == rho("0.01")


def test_a_dataset_is_paused_but_not_opened_while_the_ledger_may_be_an_older_copy(hospital_hub):
    hospital_hub.hub.settings.head.rename(hospital_hub.hub.folder / "head.away")
    paused(hospital_hub, True)
    with pytest.raises(NotNow, match="has paused"):
        hospital_hub.plan("ada")
    (hospital_hub.hub.folder / "head.away").rename(hospital_hub.hub.settings.head)
    world = reopened(hospital_hub)
    world.hub.settings.head.rename(world.hub.folder / "head.away")
    with pytest.raises(NotNow, match="stays paused"):
        paused(world, False)
    assert world.dataset().paused


# Hubs of version 0.1.0, and copies


@pytest.fixture
def older(hospital_hub, monkeypatch):
    """A hub as version 0.1.0 left it: no version is signed, and the ledger does not say that they are."""
    monkeypatch.setattr(signed_state, "ALL_SIGNED", "versions are signed, for this test")
    written(hospital_hub, "UPDATE versions SET signature = NULL")
    signed_state._valid.clear()
    return hospital_hub


def test_versions_of_an_older_hub_are_signed_once(older):
    with pytest.raises(SealBroken, match="has no signature"):
        older.plan("ada")
    world = reopened(older)
    assert world.plan("ada").loss == rho("0.01")
    world.submit("ada")
    assert world.work() == ["done"]
    (entry,) = world.rows(sa.select(AuditEntry).where(AuditEntry.action == "version.signed"))
    assert (entry.object, entry.detail["version"], len(entry.detail["hash"])) == ("dataset/visits", 1, 64)
    assert "patient" not in str(entry.detail)
    (notice,) = [one for one in world.rows(sa.select(Notice)) if "signs the versions of visits" in one.text]
    assert notice.person_id == world.owner.id
    # Whoever removes a signature afterwards, and starts the hub again, gets none.
    changed = public(world)
    for _ in range(2):
        written(world, "UPDATE versions SET signature = NULL, schema = ?", changed)
        world = reopened(world)
        with pytest.raises(SealBroken, match="has no signature"):
            world.plan("ada")
    assert len(world.rows(sa.select(AuditEntry).where(AuditEntry.action == "version.signed"))) == 1


def test_records_of_an_older_hub_are_found_again(hospital_hub, monkeypatch):
    hospital_hub.submit("ada")
    assert hospital_hub.work() == ["done"]
    (kept,) = (hospital_hub.hub.folder / "records").glob("*.record")
    lines = [line.rpartition("\t")[0] for line in kept.read_text().splitlines()]
    kept.with_name("1-1.record").write_text("".join(f"{line}\n" for line in lines))  # as 0.1.0 wrote it
    kept.unlink()
    monkeypatch.setattr(signed_state, "ALL_SIGNED", "versions are signed, for this test")
    written(hospital_hub, "UPDATE versions SET signature = NULL")
    assert not reopened(hospital_hub).plan("ada").loss.amount
    assert kept.exists()


def test_a_new_hub_never_signs_a_version_that_has_no_signature(hospital_hub):
    written(hospital_hub, "UPDATE versions SET signature = NULL")
    with pytest.raises(SealBroken, match="has no signature"):
        reopened(hospital_hub).plan("ada")


def test_an_older_ledger_does_not_make_the_hub_sign_again(older):
    """Somebody puts the ledger from before the note back, lets the hub sign, and then the true one."""
    ledger = older.hub.settings.ledger
    with closing(sqlite3.connect(ledger)) as live, closing(sqlite3.connect(older.hub.folder / "old.db")) as copy:
        live.backup(copy)
    world = reopened(older)
    with closing(sqlite3.connect(ledger)) as live, closing(sqlite3.connect(older.hub.folder / "true.db")) as copy:
        live.backup(copy)
    written(world, "UPDATE versions SET signature = NULL, schema = ?", public(world))
    world.hub.close()
    for name in ("old.db", "true.db"):
        with closing(sqlite3.connect(world.hub.folder / name)) as copy, closing(sqlite3.connect(ledger)) as live:
            copy.backup(live)
        world = reopened(world)
        assert stored(world).signature is None
        world.hub.close()


@pytest.mark.parametrize("signed", [True, False])
def test_a_restored_hub_has_its_versions_and_signs_older_ones_when_its_head_is_shown(
    hospital_hub, tmp_path, signed, request
):
    if not signed:
        request.getfixturevalue("older")
    head = str(hospital_hub.hub.ledger.head)
    backup(hospital_hub.hub, tmp_path / "copy")
    settings = Settings(folder=tmp_path / "again", country="DE")
    restore(tmp_path / "copy", settings, hospital_hub.hub.master_key_file)
    with Hub.open(settings) as hub:
        world = type(hospital_hub)(hub, hospital_hub.people)
        with hub.database.reading() as session:
            if signed:
                assert datasets.newest(hub, session, world.dataset()).number == 1
            else:
                with pytest.raises(SealBroken, match="has no signature"):
                    datasets.newest(hub, session, world.dataset())
        show_head(hub, head)
        world.submit("ada")
        assert world.work() == ["done"]


def test_a_deleted_dataset_still_says_whom_it_protected(hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        datasets.delete(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"))
    with hospital_hub.hub.database.reading() as session:
        assert schema_of(hospital_hub.hub, session, hospital_hub.dataset()).unit.name == "patient"


def test_jobs_cost_nothing_more_than_a_hash_for_a_version_that_was_checked(hospital_hub, monkeypatch):
    hospital_hub.plan("ada")
    checked = []
    key = type(hospital_hub.hub.key.public)
    verify = key.verify
    monkeypatch.setattr(
        key, "verify", lambda self, data, signature: checked.append(data) or verify(self, data, signature)
    )
    hospital_hub.plan("ada", SUM)
    assert not [data for data in checked if data.startswith(signed_state._VERSION)]
