"""Files that somebody sent are read in a process with limits, and never in one that serves pages."""

import inspect
import io
import itertools
import operator
import os
import resource
import threading
import time

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa

from cloister.data.schema import Schema
from cloister.hub.core import child_process
from cloister.hub.core.models import Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets import bounded, schema_draft, unpack, upload
from cloister.hub.datasets.bounded import run_bounded, steps_bounded
from cloister.hub.jobs import planner
from cloister.hub.jobs.external_tables import check
from cloister.hub.web.spreadsheets import csv_of_parquet
from cloister.privacy.errors import BadForm, BadSchema, Denied, NotNow, TooMany, UploadRefused

SMALL = Settings(job_memory="64MB")


def test_an_answer_comes_back_as_plain_values():
    assert run_bounded(SMALL, operator.mul, "ab", 3) == "ababab"
    assert run_bounded(SMALL, os.getpid) != os.getpid()


def test_a_refusal_comes_back_as_it_was():
    with pytest.raises(BadSchema) as caught:
        run_bounded(SMALL, Schema.parse, "unit: row\n")
    with pytest.raises(BadSchema) as here:
        Schema.parse("unit: row\n")
    assert str(caught.value) == str(here.value)


def test_an_error_that_nobody_foresaw_does_not_say_its_words():
    with pytest.raises(UploadRefused) as caught:
        run_bounded(SMALL, int, "ZZSECRETZZ")
    assert "ValueError" in str(caught.value)
    assert "ZZSECRETZZ" not in str(caught.value)


def test_what_takes_too_long_is_stopped():
    begun = time.monotonic()
    with pytest.raises(UploadRefused, match="longer than 1 seconds"):
        run_bounded(SMALL, time.sleep, 60, seconds=1)
    assert time.monotonic() - begun < 30


def test_what_takes_too_much_memory_is_stopped():
    with pytest.raises(UploadRefused, match="memory"):  # resident: seen by whoever watches
        run_bounded(SMALL, operator.mul, b"x", 900 * 2**20)
    with pytest.raises(UploadRefused, match=r"MemoryError|memory"):  # asked for at once: refused by the system
        run_bounded(SMALL, operator.mul, b"x", 20 * 2**30)


def test_a_process_that_dies_is_no_mystery():
    with pytest.raises(UploadRefused, match="could not be read"):
        run_bounded(SMALL, os._exit, 7)


def test_as_many_as_may_run_and_no_more(monkeypatch):
    for _ in range(5):  # each gives its place back, however it ended
        with pytest.raises(UploadRefused):
            run_bounded(SMALL, os._exit, 1)
    assert run_bounded(SMALL, operator.add, 1, 1) == 2


def nothing_is_unpacked_here(monkeypatch):
    def here(*_):
        pytest.fail("a file was unpacked in the process that serves pages")

    monkeypatch.setattr(check, "unpack", here)
    monkeypatch.setattr(unpack, "_parquet", here)
    monkeypatch.setattr(unpack, "_csv", here)


def bomb():
    named = pa.DictionaryArray.from_arrays(pa.array([0] * 400, pa.int32()), ["x" * 8_000_000])
    sink = io.BytesIO()
    pq.write_table(pa.table({"ward": named}), sink, compression="zstd")
    return sink.getvalue()


def test_a_small_file_that_stands_for_gigabytes_leaves_the_web_process_small(hospital_hub, monkeypatch):
    nothing_is_unpacked_here(monkeypatch)
    raw, hub = bomb(), hospital_hub.hub
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises((BadForm, UploadRefused)):
        check.receive(hub.settings, raw, b"{}", "", None)
    with hub.database.writing() as session:
        about = {"table": "visits", "file": "visits.parquet", "size": len(raw)}
        sent = upload.begin(hub, session, hospital_hub.owner, hospital_hub.dataset(), **about)
    upload.receive(hub, hospital_hub.owner, sent.id, 0, raw)
    text = schema_draft.draft_schema(hub, hospital_hub.owner, hospital_hub.dataset(), from_values=False)
    assert "ward" in text
    schema_draft.draft_schema(hub, hospital_hub.owner, hospital_hub.dataset(), from_values=True)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_a_draft_without_files_says_so_from_the_child_too(hospital_hub, monkeypatch):
    nothing_is_unpacked_here(monkeypatch)
    monkeypatch.setattr(bounded, "SECONDS", 30.0)
    text = schema_draft.draft_schema(hospital_hub.hub, hospital_hub.owner, hospital_hub.dataset(), from_values=False)
    assert "visits" in text  # from the sealed tables
    with hospital_hub.hub.database.writing() as session:
        session.execute(sa.update(Version).values(source={"kind": "sealed"}))
    with pytest.raises(NotNow, match="no complete file"):
        schema_draft.draft_schema(hospital_hub.hub, hospital_hub.owner, hospital_hub.dataset(), from_values=False)


# What plans and files share


def started(work, *arguments):
    return child_process.Child(bounded._child, 2**40, work, arguments, memory=2**40, watch_s=0.02)


def test_a_child_is_waited_for_and_stopped_when_nobody_waits():
    quick, slow = started(operator.add, 1, 1), started(time.sleep, 60)
    try:
        assert quick.wait(60) == "answer"
        assert slow.wait(0.1) == "time"
        stop = threading.Event()
        stop.set()
        assert slow.wait(60, stop) == "stopped"
        slow._memory = 1
        assert slow.wait(60) == "memory"
        assert slow.alive
    finally:
        quick.kill()
        slow.kill()
    assert not slow.alive


def test_a_refusal_goes_through_a_pipe_with_all_that_it_says():
    denied = Denied("no role allows it.")
    denied.decision = 7
    for error in (denied, TooMany("wait.", wait_s=3), BadForm("'File' is missing.")):
        again = child_process.error_of(*child_process.told(error))
        assert (type(again), str(again)) == (type(error), str(error))
        assert vars(again) == vars(error) or again.decision == 7
    assert child_process.error_of("ValueError", "x", {}) is None
    assert child_process.error_of("catalogue", "x", {}) is None


def test_plans_and_files_have_one_way_to_watch_a_child():
    for module in (bounded, planner):
        words = inspect.getsource(module)
        assert "multiprocessing.get_context" not in words
        assert "setrlimit" not in words
        assert "monotonic" not in words


def test_one_caller_has_one_under_way_and_the_line_is_short():
    stop = threading.Event()

    def hold(caller):
        with bounded._in_line(caller):
            stop.wait(10)

    threads = [threading.Thread(target=hold, args=(caller,)) for caller in ("ada", "ben", "cleo")]
    for thread in threads:
        thread.start()
    try:
        while bounded._CALLERS.total() < 3:
            time.sleep(0.01)
        with pytest.raises(TooMany, match="a file or text of yours"):
            run_bounded(SMALL, operator.add, 1, 1, caller="ada")
        assert run_bounded(SMALL, operator.add, 1, 1, caller="dora") == 2
        with bounded._in_line(None), pytest.raises(TooMany, match="others are having"):
            run_bounded(SMALL, operator.add, 1, 1, caller="dora")
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not bounded._CALLERS


def test_a_small_file_that_stands_for_a_huge_table_is_not_written_out_here():
    rows = pa.table({"a": pa.DictionaryArray.from_arrays(pa.array([0] * 20_000, pa.int32()), ["x" * 90_000])})
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    assert len(sink.getvalue()) < 10_000
    with pytest.raises(UploadRefused):
        csv_of_parquet(SMALL, sink.getvalue(), "ada")
    small = io.BytesIO()
    pq.write_table(pa.table({"a": [1, 2]}), small)
    assert csv_of_parquet(SMALL, small.getvalue(), "ada") == b"a\r\n1\r\n2\r\n"


def test_steps_that_were_reached_before_a_limit_stand():
    assert list(steps_bounded(SMALL, range, 3, seconds=60.0)) == [0, 1, 2]
    steps = steps_bounded(SMALL, itertools.count, seconds=3.0)
    assert [next(steps), next(steps)] == [0, 1]
    with pytest.raises(UploadRefused, match="3 seconds"):
        operator.countOf(steps, -1)


def test_a_refusal_among_steps_comes_back_as_it_was():
    with pytest.raises(BadSchema):
        list(steps_bounded(SMALL, Schema.parse, "unit: row\n", seconds=60.0))
