"""What synthetic tables look at, and when: nothing before the charge, nothing for a refusal, nothing stays behind."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.privacy.errors import CloisterError, LookFailed
from cloister.synth.marginals import Survey
from cloister.synth.planning import plan

from .synth_attacked import BESIDE, GENERATORS, LOUD, MANY, NOBODY, ROWS, SOME, TABLES, Book, make
from .synth_people import BY_PERSON, BY_ROW
from .synth_transcripts import Transcript, recorded


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Book]:
    made = Book(tmp_path_factory.mktemp("book"))
    yield made
    made.close()


class Watched:
    """An engine that notes what was charged whenever it is used."""

    def __init__(self, patch: pytest.MonkeyPatch, ds: Any) -> None:
        self.before, self.charged = ds.account.spent.amount, []
        self.ds, self.inner = ds, ds.tables.engine.run
        patch.setattr(ds.tables.engine, "run", self)

    def __call__(self, sql: str) -> Any:
        self.charged.append(self.ds.account.spent.amount - self.before)
        return self.inner(sql)


@pytest.mark.parametrize("name", GENERATORS)
def test_no_statement_runs_before_the_whole_charge(book: Any, monkeypatch: Any, name: str) -> None:
    watched = Watched(monkeypatch, book(ROWS, BY_ROW))
    make(name, book(ROWS, BY_ROW), LOUD)
    assert set(watched.charged) == {LOUD.amount}


REFUSED: dict[str, dict[str, Any]] = {
    "more than there is": {"spend": cl.rho(10**7)},
    "no spend": {"spend": None},
    "replaced rows": {"spend": cl.epsilon(1, relation="replace-one")},
    "a delta beside a rho": {"spend": 1.0},
    "no rows": {"spend": LOUD, "rows": 0},
    "rows that are read off": {"spend": LOUD, "rows": "all"},
    "no such column": {"spend": LOUD, "columns": ["ward", "wages"]},
    "the unit itself": {"spend": LOUD, "columns": ["person"]},
    "bins of no column": {"spend": LOUD, "bins": {"wages": 3}},
    "bins out of order": {"spend": LOUD, "bins": {"age": [30, 20]}},
    "no such table": {"spend": LOUD, "table": "wages"},
}


@pytest.mark.parametrize("asked", REFUSED)
@pytest.mark.parametrize("name", ["aim", "mwem", "mggm"])
def test_a_refusal_reads_nothing_charges_nothing_and_is_the_same_for_all_tables(
    book: Any, monkeypatch: Any, name: str, asked: str
) -> None:
    said = set()
    for rows in (NOBODY, BESIDE["many"]):
        ds = book(rows, BY_PERSON)
        watched = Watched(monkeypatch, ds)
        with pytest.raises(CloisterError) as caught:
            getattr(synth, name)(ds, **REFUSED[asked])
        said.add((type(caught.value), str(caught.value).replace(str(ds.account.left.amount), "")))
        assert not watched.charged
        assert ds.account.spent.amount == watched.before
    assert len(said) == 1


@pytest.mark.parametrize(
    ("rows", "spend"),
    [(NOBODY, cl.rho("0.000001")), (MANY, cl.rho(1000))],
    ids=["nobody, hardly told", "one, well told"],
)
@pytest.mark.parametrize("name", GENERATORS)
def test_a_table_is_made_whoever_is_in_it(book: Any, name: str, rows: pa.Table, spend: Any) -> None:
    """A step that fails on some rows and not on others would tell which they are."""
    assert make(name, book(rows, BY_PERSON), spend).loss == spend


@pytest.mark.parametrize("name", GENERATORS)
def test_a_failure_within_tells_nothing_and_the_charge_stands(book: Any, monkeypatch: Any, name: str) -> None:
    ds = book(ROWS, BY_ROW)
    before = ds.account.spent

    def failing(sql: str) -> Any:
        raise RuntimeError("the ward of patient 7 is surgery")

    monkeypatch.setattr(ds.tables.engine, "run", failing)
    with pytest.raises(LookFailed) as caught:
        make(name, ds, LOUD)
    assert "patient 7" not in str(caught.value)
    assert "patient 7" in caught.value.owner_detail
    assert ds.account.spent == before + LOUD


@pytest.mark.parametrize("name", ["mst", "mggm", "histogram"])
def test_a_seed_is_marked_everywhere(book: Any, name: str) -> None:
    ds = book(ROWS, BY_ROW)
    call, told = GENERATORS[name]
    seeded, drawn = make(name, ds, LOUD), call(ds, spend=LOUD, **told)
    for table, private in ((seeded, False), (drawn, True)):
        assert table.private is private
        assert table.private is private
        assert table.side["private"] is private
        assert table.receipt.body["private"] is private
        assert ("NOT PRIVATE" in str(table)) is not private


@pytest.mark.parametrize("name", TABLES)
def test_nothing_of_the_rows_hangs_on_a_table(book: Any, monkeypatch: Any, name: str) -> None:
    """Whoever gets the object, and not only the file, finds no survey, no engine and no exact count in it."""
    ds = book(ROWS, BY_ROW)
    made, run = recorded(monkeypatch, lambda: make(name, ds, cl.rho("0.01")))
    secret = (Survey, Transcript, type(ds.tables.engine), type(ds.relation("visits", [])), type(ds))
    held = hanging(made)
    assert not [one for one in held if isinstance(one, secret)]
    tables = [np.sort(step.seen.astype(float).ravel()) for step in run.steps if step.seen.size > 3]
    numbers = [
        np.sort(one.astype(float).ravel()) for one in held if isinstance(one, np.ndarray) and one.dtype != object
    ]
    assert not [one for one in numbers for seen in tables if np.array_equal(one, seen)]


def hanging(root: Any) -> list[Any]:
    """All values that can be reached from one, by attributes and items."""
    found, waiting, known = [], [root], set()
    while waiting:
        one = waiting.pop()
        if id(one) in known or isinstance(one, type | str | bytes | int | float | pa.Table | type(np)):
            continue
        known.add(id(one))
        found.append(one)
        names = [
            *getattr(one, "__dict__", {}),
            *(n for kind in type(one).__mro__ for n in getattr(kind, "__slots__", ())),
        ]
        waiting += [getattr(one, each) for each in names if hasattr(one, each)]
        if callable(one) and getattr(one, "__closure__", None):
            waiting += [cell.cell_contents for cell in one.__closure__]
        if isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list | tuple | set | frozenset):
            waiting += list(one)
    return found


@pytest.mark.parametrize("name", ["aim", "mst", "independent"])
def test_a_plan_asks_the_engine_nothing(book: Any, monkeypatch: Any, name: str) -> None:
    shown = set()
    for rows in (BESIDE["many"], NOBODY):
        ds = book(rows, BY_PERSON)
        watched = Watched(monkeypatch, ds)
        shown.add(str(plan(ds, name, spend=LOUD, rows=500, columns=SOME, bins=4)))
        assert not watched.charged
        assert ds.account.spent.amount == watched.before
    assert len(shown) == 1
