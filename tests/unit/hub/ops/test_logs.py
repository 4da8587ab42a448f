"""Logs say what happened and never what was in it."""

import io
import json
import logging
import subprocess
import sys

import pytest
import sqlalchemy as sa

from cloister.hub.core import logs
from cloister.hub.core.database import Database

MARK = "PRIVATE-7731"


@pytest.fixture
def lines(monkeypatch):
    """What is logged, as records; the process's own logging is put back afterwards."""
    names = (None, "cloister", "uvicorn", "uvicorn.error", "uvicorn.access", "sqlalchemy", "alembic")
    kept = [(log, log.handlers[:], log.level, log.disabled) for log in map(logging.getLogger, names)]
    stream = io.StringIO()
    logs.configure("debug", stream)
    yield lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
    for log, handlers, level, disabled in kept:
        log.handlers[:], log.disabled = handlers, disabled
        log.setLevel(level)


def test_a_line_is_json_with_its_facts(lines):
    logs.say("job ended", job=7, state="done", ms=12.5)
    (line,) = lines()
    assert line["event"] == "job ended"
    assert (line["job"], line["state"], line["ms"]) == (7, "done", 12.5)
    assert line["level"] == "info"


def test_facts_that_are_not_listed_are_left_out(lines):
    facts = {"route": "/jobs/{number}", "path": f"/invitation/{MARK}", "sql": MARK, "body": MARK, "query": MARK}
    logging.getLogger("cloister.hub.web").info("request", extra={"facts": facts})
    (line,) = lines()
    assert line["route"] == "/jobs/{number}"
    assert MARK not in json.dumps(line)


def test_what_is_filled_into_a_message_is_left_out(lines):
    logging.getLogger("cloister.hub").error("could not read %s of %d rows", MARK, 3)
    (line,) = lines()
    assert line["event"] == "could not read %s of %d rows"


def test_what_a_library_says_is_left_out_since_it_formats_before_it_logs(lines):
    logging.getLogger("a.library").warning(f"'EXPLAIN SELECT {MARK}' contains unsupported syntax")
    (line,) = lines()
    assert MARK not in json.dumps(line)
    assert (line["log"], line["level"]) == ("a.library", "warning")


UNCAUGHT = f"""
import sys, threading
from cloister.hub.core import logs

logs.configure()
logs.catch_all()


class Loud:
    def __del__(self):
        raise ValueError("{MARK}")


def fail():
    try:
        raise ValueError("{MARK}")
    except ValueError as error:
        raise RuntimeError("{MARK} again") from error


Loud()
thread = threading.Thread(target=fail)
thread.start()
thread.join()
fail()
"""


def test_errors_that_nobody_catches_are_lines_without_their_words():
    done = subprocess.run([sys.executable, "-c", UNCAUGHT], capture_output=True, text=True, check=False)
    found = [json.loads(line) for line in done.stderr.splitlines()]
    assert [one["error"] for one in found] == ["ValueError", "RuntimeError", "RuntimeError"]
    assert all(one["place"] for one in found)
    assert done.returncode == 1
    assert MARK not in done.stderr + done.stdout


CHILD = f"""
import os
from cloister.hub.core.settings import Settings
from cloister.hub.jobs import worker

def broken(*_):
    raise ValueError("{MARK}")

worker.work = broken
worker._child(Settings(), "a name", None, os.getppid())
"""


def test_a_workers_child_that_fails_says_where_and_not_what(tmp_path):
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False, cwd=tmp_path)
    (line,) = [json.loads(line) for line in done.stderr.splitlines()]
    assert (line["event"], line["error"], done.returncode) == ("a worker's child failed", "ValueError", 1)
    assert MARK not in done.stderr + done.stdout


def test_a_statement_that_fails_does_not_quote_its_values(tmp_path):
    database = Database(f"sqlite:///{tmp_path / 'x.db'}")
    with pytest.raises(sa.exc.OperationalError) as caught, database.writing() as session:
        session.execute(sa.text("INSERT INTO nowhere VALUES (:secret)"), {"secret": MARK})
    database.close()
    assert MARK not in str(caught.value)


def test_an_error_shows_its_type_and_place_but_not_its_words(lines):
    try:
        raise ValueError(f"cannot convert {MARK}")
    except ValueError:
        logging.getLogger("uvicorn.error").exception("Exception in ASGI application\n")
    (line,) = lines()
    assert line["error"] == "ValueError"
    assert "test_logs.py:" in line["place"]
    assert MARK not in json.dumps(line)


def test_a_message_that_is_an_error_itself_is_named_only(lines):
    logging.getLogger("x").error(ValueError(MARK))
    assert lines()[0]["event"] == "ValueError"


def test_uvicorns_own_access_lines_are_not_written(lines):
    logging.getLogger("uvicorn.access").info('"GET /reset/%s HTTP/1.1"', MARK)
    logging.getLogger("uvicorn.access").error("x")
    assert lines() == []


def test_lines_about_statements_are_not_written(lines):
    logging.getLogger("sqlalchemy.engine.Engine").info("SELECT %s", MARK)
    assert lines() == []


def test_a_line_stays_short_enough_to_be_written_in_one_piece(lines):
    logging.getLogger("cloister.x").info("e" * 10_000, extra={"facts": {"route": "r" * 10_000, "error": "x" * 10_000}})
    assert len(json.dumps(lines()[0])) < 4096


def test_a_fact_of_our_own_must_be_listed():
    with pytest.raises(AssertionError):
        logs.say("oops", sql="SELECT 1")


def test_the_level_decides(lines):
    logs.configure("error", stream := io.StringIO())
    logs.say("quiet")
    assert stream.getvalue() == ""


def test_every_process_writes_to_standard_error():
    program = "from cloister.hub.core import logs; logs.configure(); logs.say('hello', worker='a')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == ""
    assert json.loads(done.stderr)["worker"] == "a"
