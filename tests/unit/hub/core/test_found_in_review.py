"""Found in a fourth review: keys that stay, tables named in the audit log, levels that are understated, and plans."""

import os
import sqlite3
import threading
import time

import pytest
import sqlalchemy as sa

from cloister.data.schema import Schema
from cloister.hub.core.copies import copy_folder, remove_orphaned_copies
from cloister.hub.core.models import AuditEntry, Dataset
from cloister.hub.datasets import dataset_view, datasets, upload
from cloister.hub.jobs import planner
from cloister.hub.policy import views
from cloister.hub.policy.views import TableView
from cloister.hub.surveys.device import submissions
from cloister.hub.surveys.question import SurveyQuestion
from cloister.hub.web.words import in_order
from cloister.privacy.errors import BadInput, NotHere, StoreFailed

# Deleting


def key_of(world):
    with world.hub.database.reading() as session:
        return session.scalar(sa.select(Dataset.wrapped_key).where(Dataset.name == "visits"))


def holders(world, key):
    return {one.name for one in world.hub.folder.rglob("*") if one.is_file() and key in one.read_bytes()}


def delete(world):
    with world.hub.database.writing() as session:
        datasets.delete(world.hub, session, world.owner, datasets.find(session, "visits"))


def test_a_key_is_erased_although_somebody_reads_the_database_meanwhile(hospital_hub):
    key = key_of(hospital_hub)
    assert holders(hospital_hub, key)
    reader = sqlite3.connect(f"file:{hospital_hub.hub.folder / 'hub.db'}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT COUNT(*) FROM jobs").fetchone()
    delete(hospital_hub)
    assert not datasets.finish_erasing(hospital_hub.hub)
    reader.close()
    assert datasets.finish_erasing(hospital_hub.hub)  # as every worker does, every few seconds
    assert holders(hospital_hub, key) == set()


def test_workers_finish_what_a_killed_process_left(hospital_hub, monkeypatch):
    key = key_of(hospital_hub)
    with monkeypatch.context() as patch:
        patch.setattr(datasets, "_erase", lambda *_: None)
        delete(hospital_hub)
    (mark,) = hospital_hub.hub.folder.glob("erase-pending-*")
    os.utime(mark, (0, 0))  # made long ago
    from cloister.hub.jobs.maintenance import Chores

    Chores(hospital_hub.hub, hospital_hub.pool()).do()
    assert holders(hospital_hub, key) == set()
    assert not mark.exists()


def test_a_copy_that_a_killed_backup_left_is_removed(tmp_path):
    with copy_folder(tmp_path) as used:
        assert used.stat().st_mode & 0o777 == 0o700
        left = tmp_path / "copying-killed"
        left.mkdir()
        (left / "hub.db").write_bytes(b"key")
        assert remove_orphaned_copies(tmp_path) == 0  # too young: somebody may be about to use it
        monkey = time.time
        try:
            time.time = lambda: monkey() + 100
            assert remove_orphaned_copies(tmp_path) == 1
        finally:
            time.time = monkey
        assert used.exists()  # in use
    assert list(tmp_path.iterdir()) == []


# The audit log


def test_the_audit_log_names_no_table(hospital_hub):
    world = hospital_hub
    with world.hub.database.writing() as session:
        upload.begin(
            world.hub, session, world.owner, world.dataset(), table="hiv_patients", file="secret_name.csv", size=9
        )
    with world.hub.database.reading() as session:
        told = [str(one.detail) for one in session.scalars(sa.select(AuditEntry))]
    assert told
    assert not [one for one in told if "hiv_patients" in one or "secret_name" in one]


# Surveys


@pytest.mark.parametrize("levels", [["20", "21"], ["1/2", "2.1"], ["1/2"], ["1/2", "2", "3"]])
def test_a_device_refuses_a_mechanism_that_costs_more_than_it_is_told(levels):
    asked = {"id": "smoke", "type": "yes_no", "text": "Do you smoke?"}
    told = [{"name": "strong", "epsilon": "1/2"}, {"name": "light", "epsilon": "2"}]

    def described(names):
        made = [{"name": f"n{place}", "epsilon": one} for place, one in enumerate(names)]
        return SurveyQuestion.read({**asked, "levels": made}).question("s", 500, False).describe()

    honest = {"wave": 1, "questions": [{**asked, "levels": told, "question": described(["1/2", "2"])}]}
    assert submissions(honest, [{"smoke": ("yes", "strong")}])
    cheaper = {"wave": 1, "questions": [{**asked, "levels": told, "question": described(["1/4", "1"])}]}
    assert submissions(cheaper, [{"smoke": ("yes", "strong")}])
    false = {"wave": 1, "questions": [{**asked, "levels": told, "question": described(levels)}]}
    with pytest.raises(BadInput, match="Do not answer it"):
        submissions(false, [{"smoke": ("yes", "strong")}])


# Plans


class Dead:
    """A child that was killed."""

    alive = False

    class pipe:  # noqa: N801
        @staticmethod
        def send(_):
            raise BrokenPipeError

    def kill(self):
        """It is dead."""


def test_a_planner_that_was_killed_is_answered_like_a_busy_hub():
    child = object.__new__(planner._Plans)
    child._child, child._ready, child._settings = Dead(), True, None
    answer = child.ask(None, threading.Event())
    with pytest.raises(StoreFailed, match="Try again"):
        planner._read(answer)


# Rules and pages


def test_rules_that_go_over_too_many_categories_are_refused_before_they_are_worked_out():
    names = ", ".join(f"c{i}" for i in range(15_000))
    text = f"""
unit: {{name: p, max_rows: 1}}
tables:
  t: {{unit: p, columns: {{a: {{type: text, categories: [{names}]}}, n: {{type: integer, bounds: [0, 100]}}}}}}
"""
    schema = Schema.parse(text, max_bytes=None)
    rule = f"CASE {' '.join(['WHEN n = 1 THEN UPPER(a)'] * 150)} END"
    ((_, problem),) = views.problems({"t": TableView(transforms={"a": rule})}, schema)
    assert "many categories" in problem
    assert list(views.problems({"t": TableView(transforms={"a": "UPPER(a)"})}, schema)) == []


def test_what_a_view_shows_is_worked_out_once(hospital_hub, monkeypatch):
    begun, real = [], dataset_view.visible_schema
    monkeypatch.setattr(dataset_view, "visible_schema", lambda *asked: begun.append(1) or real(*asked))
    dataset_view._worked_out.cache_clear()
    with hospital_hub.hub.database.reading() as session:
        seen = [
            dataset_view.visible_dataset(
                hospital_hub.hub, session, hospital_hub.people[who], "visits", hospital_hub.here
            )
            for who in ("cleo", "cleo", "ada", "ada")
        ]
    assert begun == []  # until a schema is asked for
    columns = [list(sight.schema.tables["visits"].columns)[:3] for sight in seen]
    assert columns == [["ward", "age"]] * 2 + [["ward", "age", "stay_days"]] * 2
    assert len(begun) == 2


def test_signs_that_turn_a_text_around_are_written_out():
    assert in_order("SELECT \u202e1\u2069 FROM t") == "SELECT \u27e8U+202E\u27e91\u27e8U+2069\u27e9 FROM t"


def test_a_row_that_a_database_kept_opens_nothing_after_the_deletion(hospital_hub):
    keys, dataset = hospital_hub.hub.keys, hospital_hub.dataset()
    assert keys.data_key(dataset)
    delete(hospital_hub)
    with pytest.raises(NotHere):
        keys.data_key(dataset)  # the row as it was, with its wrapped key
    assert list((hospital_hub.hub.folder / "keys").iterdir()) == []


def test_a_deletion_that_was_rolled_back_erases_no_key(hospital_hub):
    with hospital_hub.hub.database.writing() as session:
        datasets.delete(hospital_hub.hub, session, hospital_hub.owner, datasets.find(session, "visits"))
        session.rollback()
    (mark,) = hospital_hub.hub.folder.glob("erase-pending-*")
    os.utime(mark, (0, 0))
    assert datasets.finish_erasing(hospital_hub.hub)
    assert not mark.exists()
    assert hospital_hub.hub.keys.data_key(hospital_hub.dataset())


def test_what_postgresql_keeps_of_a_key_of_an_earlier_version_is_in_the_log(hospital_hub, monkeypatch):
    sealed = hospital_hub.hub.keys.seal(hospital_hub.hub.keys.data_key(hospital_hub.dataset()), "data key of visits")
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Dataset).values(wrapped_key=sealed))
    monkeypatch.setattr(hospital_hub.hub.database, "url", "postgresql://hub")
    delete(hospital_hub)
    (entry,) = hospital_hub.rows(sa.select(AuditEntry).where(AuditEntry.action == "dataset.deleted"))
    assert "VACUUM FULL" in entry.detail["key"]
