"""Files of a connected folder that change places with links to another organisation's, at every moment."""

import os
import shutil
import threading
from datetime import datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cloister.data import pinned_files
from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.hub.core.models import Dataset, Organisation
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import connect
from cloister.hub.jobs import dataset_pool
from cloister.hub.jobs.dataset_pool import DatasetPool, OpenDataset
from cloister.privacy.errors import BadForm, CloisterError

DATASET = Dataset(name="people", organisation=Organisation(name="Anna"))
FIELDS = """
unit: {name: person, max_rows: 1}
tables:
  people:
    unit: person
    columns:
      age: {type: integer, bounds: [0, 120]}
"""
SCHEMAS = {
    "duckdb": Schema.load(FIELDS),
    "arrow": Schema.load(
        FIELDS + "      seen: {type: timestamp, bounds: [2020-01-01 00:00:00, 2030-01-01 00:00:00]}\n"
    ),
}
OWN, FOREIGN = 11, 7777


def write(place, rows):
    """People, with moments in milliseconds: files that have such a column in the schema are read by Arrow."""
    place.parent.mkdir(parents=True, exist_ok=True)
    seen = pa.array([datetime(2025, 1, 1)] * rows, pa.timestamp("ms"))
    pq.write_table(pa.table({"person": list(range(rows)), "age": [77] * rows, "seen": seen}), place)


@pytest.fixture(params=["people.parquet", "people/part.parquet", "people/year=2026/part.parquet", "other.parquet"])
def place(request, tmp_path):
    """Where Anna's own file lies; the Lake's lies beside her folder."""
    write(tmp_path / "lake" / "people.parquet", FOREIGN)
    write(tmp_path / "anna" / request.param, OWN)
    return tmp_path / "anna" / request.param


@pytest.fixture
def anna(tmp_path):
    return tmp_path / "anna"


@pytest.fixture
def given(anna, tmp_path):
    return Settings(connect_folders=f"Anna={anna}, Lake={tmp_path / 'lake'}")


def swap(place, lake):
    place.unlink()
    place.symlink_to(lake / "people.parquet")


def swap_folder(place, lake):
    """Let the folder above be the link."""
    shutil.move(place.parent, lake.parent / "aside")
    place.parent.symlink_to(lake)


def count(tables):
    return tables.engine.run("SELECT COUNT(*) AS n FROM people").to_pylist()[0]["n"]


def outcome(read):
    """What was read; or that it was refused, without a word about whose file it is."""
    try:
        return read()
    except CloisterError as error:
        return "told" if "lake" in str(error) else "refused"


def held():
    """The descriptors that this process has."""
    return {one.name for one in Path("/proc/self/fd").iterdir()}


def counted(given, link, schema, between=lambda: None):
    """How many rows are read, with something done before the files are opened by the engine."""
    source = connect.open_source(given, DATASET, link, schema)
    between()
    tables = open_tables(source, schema, spill=False)
    try:
        return count(tables)
    finally:
        tables.close()


@pytest.mark.parametrize("engine", SCHEMAS)
def test_a_link_put_there_between_check_and_open_leads_nowhere(engine, place, anna, given, tmp_path):
    link = connect.read_address(given, DATASET, str(anna))
    schema = SCHEMAS[engine]
    assert outcome(lambda: counted(given, link, schema, lambda: swap(place, tmp_path / "lake"))) in (OWN, "refused")
    with pytest.raises(BadForm, match="holds a link"):
        counted(given, link, schema)


@pytest.mark.parametrize("engine", SCHEMAS)
@pytest.mark.parametrize("put", [swap, swap_folder])
def test_a_link_put_there_after_the_tables_are_open_leads_nowhere(put, engine, place, anna, given, tmp_path):
    schema = SCHEMAS[engine]
    source = connect.open_source(given, DATASET, connect.read_address(given, DATASET, str(anna)), schema)
    tables = open_tables(source, schema, spill=False)
    assert tables.engine.unchanged()
    other = tables.again()
    put(place, tmp_path / "lake")
    assert not tables.engine.unchanged()
    for one in (tables, other):
        assert outcome(lambda one=one: count(one)) in (OWN, "refused")
    other.close()
    tables.close()


@pytest.mark.parametrize("engine", SCHEMAS)
def test_no_moment_of_a_file_that_is_swapped_all_the_time_shows_foreign_rows(engine, place, anna, given, tmp_path):
    aside, stop, schema = tmp_path / "aside", threading.Event(), SCHEMAS[engine]
    link = connect.read_address(given, DATASET, str(anna))

    def flip():
        while not stop.is_set():
            (tmp_path / "next").symlink_to(tmp_path / "lake" / "people.parquet")
            place.rename(aside)
            (tmp_path / "next").rename(place)
            stop.wait(0.002)
            aside.rename(place)
            stop.wait(0.002)

    thread = threading.Thread(target=flip)
    thread.start()
    seen = set()
    try:
        for _ in range(60):
            seen.add(outcome(lambda: counted(given, link, schema)))
    finally:
        stop.set()
        thread.join()
    assert seen <= {OWN, "refused"}


def test_a_link_put_there_inside_the_check_is_not_followed(place, anna, given, tmp_path, monkeypatch):
    link, look = connect.read_address(given, DATASET, str(anna)), os.stat

    def slow(name, **more):
        found = look(name, **more)
        if name == place.name and not place.is_symlink():
            swap(place, tmp_path / "lake")
        return found

    monkeypatch.setattr(pinned_files.os, "stat", slow)
    with pytest.raises(BadForm, match="changed just now"):
        connect.open_source(given, DATASET, link, SCHEMAS["duckdb"])


def test_a_listed_folder_that_becomes_a_link_after_it_was_asked_about_is_not_followed(
    place, anna, given, tmp_path, monkeypatch
):
    link, ask = connect.read_address(given, DATASET, str(anna)), connect._allowed

    def slow(*asked):
        found = ask(*asked)
        shutil.move(anna, tmp_path / "aside")
        anna.symlink_to(tmp_path / "lake")
        return found

    monkeypatch.setattr(connect, "_allowed", slow)
    with pytest.raises(BadForm, match="a link leads to it"):
        connect.open_source(given, DATASET, link, SCHEMAS["duckdb"])


def test_a_second_name_of_a_foreign_file_and_a_pipe_are_refused(place, anna, given, tmp_path):
    link = connect.read_address(given, DATASET, str(anna))
    os.link(tmp_path / "lake" / "people.parquet", anna / "more.parquet")
    with pytest.raises(BadForm, match="second name"):
        connect.open_source(given, DATASET, link, SCHEMAS["duckdb"])
    (anna / "more.parquet").unlink()
    os.mkfifo(anna / "more.parquet")
    with pytest.raises(BadForm, match="no file"):
        connect.open_source(given, DATASET, link, SCHEMAS["duckdb"])


def test_files_are_let_go(place, anna, given):
    link = connect.read_address(given, DATASET, str(anna))
    counted(given, link, SCHEMAS["duckdb"])
    before = held()
    source = connect.open_source(given, DATASET, link, SCHEMAS["duckdb"])
    private = Path(source["people"].source._private)
    assert private.stat().st_mode & 0o777 == 0o700
    open_tables(source, SCHEMAS["duckdb"], spill=False).close()
    assert not private.exists()
    assert held() == before


def test_too_many_files_are_refused(place, anna, given, monkeypatch):
    link = connect.read_address(given, DATASET, str(anna))
    write(anna / "people" / "second.parquet", 1)
    monkeypatch.setattr(pinned_files, "_MOST_FILES", 1)
    with pytest.raises(BadForm, match="more than 1 Parquet files"):
        connect.open_source(given, DATASET, link, SCHEMAS["duckdb"])


def test_what_the_owner_replaces_or_adds_is_read_by_the_next_job(anna, given):
    write(anna / "people" / "year=2025" / "a.parquet", OWN)
    schema, link = SCHEMAS["duckdb"], connect.read_address(given, DATASET, str(anna))

    class Version:
        number, signature = 1, "signed"

    class Data:
        def __init__(self):
            self.tables = open_tables(connect.open_source(given, DATASET, link, schema), schema, spill=False)

        def close(self):
            self.tables.close()

    class Pool(DatasetPool):
        def _open(self, dataset, version, person):
            return OpenDataset("people", 1, Data(), None)

    pool = Pool(None, None)
    first = pool.get(DATASET, Version, None)
    assert pool.get(DATASET, Version, None) is first
    assert dataset_pool._is_unchanged(first)
    write(anna / "people" / "year=2026" / "b.parquet", 5)
    second = pool.get(DATASET, Version, None)
    assert second is not first
    assert count(second.data.tables) == OWN + 5
    write(anna / "people" / "next", 3)
    (anna / "people" / "next").replace(anna / "people" / "year=2026" / "b.parquet")
    assert count(pool.get(DATASET, Version, None).data.tables) == OWN + 3
    pool.close()
