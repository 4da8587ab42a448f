"""No message tells what was in a row: whatever the rows hold, the error is the same."""

import csv
import math
from decimal import Decimal
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.dataset import Dataset
from cloister.privacy.errors import CloisterError
from cloister.privacy.filter import release_steps
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon
from cloister.privacy.measure import measure
from cloister.privacy.mechanisms import DiscreteLaplace, PermuteAndFlip
from cloister.privacy.noise import Grid

from ..statistical.learn_cases import CASES, FRAMES, SECRET, Table, draw_case
from ..statistical.replay import differences, record, replay


class Panic(BaseException):
    """An error of a library that is not written in Python: no Exception."""


numbers = st.floats(allow_nan=True, allow_infinity=True) | st.integers(-(2**80), 2**80)
things = st.none() | numbers | st.text(max_size=8) | st.lists(numbers, max_size=3)


def outcome(call):
    """What an observer could tell a failure by: its type and words, or that it worked."""
    try:
        call()
    except CloisterError as error:
        return type(error), str(error), error.__cause__, error.__suppress_context__ or error.__context__ is None
    return "an answer"


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=64), max_size=20))
def test_any_float_rows_go_onto_a_grid(rows):
    encoded = Grid(8).encode(np.array(rows, dtype=np.float64), -3, 5)
    assert len(encoded) == len(rows)
    assert encoded.min(initial=0) >= -3 * 256
    assert encoded.max(initial=0) <= 5 * 256


@given(st.lists(st.text(max_size=6), min_size=1, max_size=6), st.lists(st.text(max_size=6), min_size=1, max_size=6))
def test_a_grid_refuses_text_in_the_same_words_whatever_it_says(left, right):
    refusals = {outcome(lambda rows=rows: Grid(8).encode(np.array(rows), 0, 1)) for rows in (left, right)}
    assert len(refusals) == 1
    assert "an answer" not in refusals


@pytest.fixture(scope="module")
def account(tmp_path_factory):
    with Ledger.in_folder(tmp_path_factory.mktemp("secrets") / "ledger") as ledger:
        yield ledger.open_account("visits", epsilon(10**6))


@pytest.mark.parametrize("mechanism", [DiscreteLaplace.for_loss(1, epsilon(1)), PermuteAndFlip.for_loss(1, epsilon(1))])
@given(
    secret=things, error=st.sampled_from([ValueError, KeyError, ZeroDivisionError, OverflowError, CloisterError, Panic])
)
@settings(max_examples=25, deadline=None)
def test_a_failing_look_says_the_same_whatever_went_wrong(account, mechanism, secret, error):
    def look():
        raise error(f"the diagnosis is {secret!r}")

    def nonsense():
        return object()

    failures = {
        outcome(lambda one=one: measure(one, mechanism, account=account, request="q")) for one in (look, nonsense)
    }
    assert len(failures) == 1
    steps = {
        outcome(
            lambda one=one: release_steps(
                lambda meter: meter.release(one, mechanism), accounts=[account], request="q", spend=epsilon(1)
            )
        )
        for one in (look, nonsense)
    }
    assert len(steps) == 1


# Whole fits and whole files: one row that is as odd as can be changes no word that a caller reads.


@pytest.fixture(scope="module")
def accounts(tmp_path_factory):
    with Ledger.in_folder(tmp_path_factory.mktemp("fits") / "ledger") as ledger:
        yield {
            "rho": ledger.open_account("rho", epsilon(10**6, delta="0.1")),
            "epsilon": ledger.open_account("pure", epsilon(10**6)),
        }


@pytest.mark.parametrize("frame", FRAMES)
def test_every_estimator_says_the_same_of_neighbours_in_every_container(accounts, frame):
    for name in CASES:
        for i in range(1):
            drawn = draw_case(Random(f"{name} {frame} {i}"), name, accounts, frame)
            first = record(lambda drawn=drawn: drawn.fit(*drawn.left))
            second = replay(first, lambda drawn=drawn: drawn.fit(*drawn.right))
            said = [(one.error, one.heard, one.charges, len(one.steps)) for one in (first, second)]
            assert said[0] == said[1], drawn.about
            assert "secret@" not in second.text, drawn.about


SCHEMA = Schema.load(
    {
        "unit": {"name": "person", "max_rows": 2},
        "tables": {
            "t": {
                "unit": "person",
                "columns": {
                    "age": {"type": "integer", "bounds": [0, 100]},
                    "cost": {"type": "real", "bounds": [0.0, 9.0]},
                    "word": {"type": "text", "categories": ["a", "b", "1"]},
                    "ok": {"type": "boolean"},
                    "free": {"type": "text"},
                },
            }
        },
    }
)
NAMES = ("person", *SCHEMA.tables["t"].columns)
USUAL = [["p", 30, 2.5, "a", True, "x"], ["p", 41, 3.0, "b", False, "y"], ["q", 52, 0.5, "1", True, "z"]]
ODD = [
    SECRET,
    None,
    math.nan,
    math.inf,
    1e300,
    3.5,
    7,
    "",
    True,
    2**63,
    -(2**70),
    Decimal("1.5"),
    (1, SECRET),
    b"secret@bytes",
]
QUESTION = (
    "SELECT word, COUNT(*) AS n, SUM(age) AS years, AVG(cost) AS mean, SUM(CAST(ok AS INTEGER)) AS good, "
    "COUNT(DISTINCT free) AS words FROM t GROUP BY word"
)


def csv_file(table, folder):
    with (folder / "t.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(
            [table.names, *([("" if cell is None else str(cell)) for cell in row] for row in table.rows)]
        )
    return folder / "t.csv"


def declared(table, _folder):
    """Arrow columns of declared types; what they cannot hold is NULL."""
    kinds = [pa.string(), pa.int64(), pa.float64(), pa.string(), pa.bool_(), pa.string()]

    def held(cell, kind):
        try:
            return pa.array([cell], kind)[0].as_py()
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, ValueError):
            return None

    cells = [[held(cell, kind) for cell in table.column(i)] for i, kind in enumerate(kinds)]
    return pa.table(
        {name: pa.array(column, kind) for name, column, kind in zip(table.names, cells, kinds, strict=True)}
    )


def parquet_file(table, folder):
    pq.write_table(declared(table, folder), folder / "t.parquet")
    return folder / "t.parquet"


SOURCES = {
    **{
        name: (lambda table, _folder, make=make: make(table))
        for name, make in FRAMES.items()
        if name in ("pandas objects", "pandas nullable", "pandas arrow", "polars")
    },
    "arrow": declared,
    "csv": csv_file,
    "parquet": parquet_file,
    "object array": lambda table, _folder: FRAMES["object array"](table),
    "lists": lambda table, _folder: FRAMES["lists"](table),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_source_opens_and_answers_alike_with_one_odd_row_more(accounts, source, tmp_path):
    def asked(table, side):
        folder = tmp_path / side
        folder.mkdir(exist_ok=True)
        with Dataset(open_tables({"t": SOURCES[source](table, folder)}, SCHEMA, threads=1), accounts["rho"]) as data:
            plan = data.plan(QUESTION, spend=epsilon(1))
            return str(plan), data.run(plan)

    plain = Table(NAMES, USUAL, [None] * len(USUAL), (True, False, False, True, False, True))
    first = record(lambda: asked(plain, "plain"))
    for i, cell in enumerate(ODD):
        more = plain.with_row(i % 4, ["z", *[cell] * (len(NAMES) - 1)], None)
        second = replay(first, lambda more=more: asked(more, "more"))
        assert not differences(first, second), (source, cell)
        assert "secret@" not in second.text
