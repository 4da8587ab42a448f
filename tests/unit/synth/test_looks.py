"""What synthetic tables look at, and when: nothing before the charge, nothing for a refusal, nothing stays behind."""

import inspect
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.privacy.errors import CloisterError, LookFailed
from cloister.synth.measure.marginals import Measurer
from cloister.synth.planning import plan

from .attacked import BESIDE, FRESH, GENERATORS, LOUD, MANY, NOBODY, ROWS, SOME, TABLES, Book, make
from .people import BY_PERSON, BY_ROW
from .test_two_tables import SCHEMA as TWO
from .test_two_tables import hospital
from .transcripts import Transcript, recorded


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


PARENTS = hospital(30)
OWN = {"rows": 20, "columns": ["ward", "age", "back"], "bins": 4}
SCORED = {"real": ROWS.slice(0, 40), "synthetic": FRESH.slice(0, 40), "schema": BY_ROW, "holdout": ROWS.slice(40, 40)}
# Every public function that may charge or reads real rows, with arguments that work.
CALLED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("m_way", "independent", "mst", "privbayes", "mggm", "ron_gauss"), OWN),
    "aim": {**OWN, "rounds": 2},
    "mixture": {**OWN, "fits": 1},
    "mwem": {**OWN, "rounds": 2},
    "histogram": {"column": "age", "rows": 20},
    "one_column": {"column": "age", "rows": 20},
    "two_way": {**OWN, "columns": ["ward", "age"]},
    "two_tables": {"parent": "patients", "child": "visits", "rows": 20, "bins": 4},
    "plan": {"method": "mst", "columns": ["ward", "age"]},
    "publishable_score": {"synthetic": FRESH, "released": True, "bins": 4},
    "choose": {"tables": [FRESH, FRESH.slice(0, 20)], "released": True, "bins": 4},
    "score": {**SCORED, "columns": ["ward", "back"], "boxes": 3, "rules": 3, "marginals": 3, "models": False},
}
HANDED_ON = {"gate": "score"}  # all that it takes it hands to another one, but for what it has alone
OF_FILES = {"judge", "read_table", "link"}  # of scores, files and released rows: they reach no private row
HOSTILE: list[Any] = [
    None, True, False, 0, -1, 2.5, math.nan, math.inf, 10**30, 10**400, "", "nobody", b"x", 1j, object(), np.int64(3),
    [], {}, [None], ["nobody"], ["ward", "ward"], [("ward", "ward")], [()], [("ward",), 5], [{"age": {"from": "x"}}],
    {"nobody": 3}, {"age": math.nan}, {"age": [10**400]}, {("ward", "age"): 10**400}, {("ward", "age"): math.nan},
    {None: None}, {"age": []}, cl.epsilon("1e-300"), cl.rho("1e-15"),
    cl.rho("1e-39"), cl.rho(10**4), cl.epsilon(1, delta="1e-300"),
    synth.PrivateCuts(3), pa.table({"ward": ["a ward of no schema"]}), [pa.table({"x": [1]})] * 2,
]  # fmt: skip


def test_every_public_function_is_tried_with_hostile_values() -> None:
    functions = {name for name in synth.__all__ if inspect.isfunction(getattr(synth, name))}
    assert set(CALLED) | set(HANDED_ON) == functions - OF_FILES
    told = {name: set(inspect.signature(getattr(synth, name)).parameters) for name in functions}
    assert told["gate"] - told["score"] == {"limits"}


@pytest.mark.parametrize("limits", [0, "", [], {}, math.nan, object(), synth.Limits])
def test_limits_that_nothing_could_break_are_refused(limits: Any) -> None:
    with pytest.raises(CloisterError, match="limits"):
        synth.gate(**SCORED, columns=["ward", "back"], limits=limits)
    with pytest.raises(CloisterError, match="copies"):
        synth.Limits(copies=limits if limits != 0 else None)


@pytest.mark.parametrize("name", CALLED)
def test_a_hostile_value_works_or_is_refused_before_the_charge(book: Any, name: str) -> None:
    """What is wrong with a request depends on no row: noticed by a step, it would be paid for."""
    call, usual = getattr(synth, name), dict(CALLED[name])
    ds = book(PARENTS, TWO) if name == "two_tables" else book(ROWS, BY_ROW)
    parameters = [one for one in inspect.signature(call).parameters if one != "own"]
    if parameters[0] in ("ds", "data"):
        usual |= {parameters[0]: ds, "spend": LOUD}
    for one in parameters:
        # A seed may be anything that has a text; each one that works is a whole synthesis.
        values = [math.nan, 10**400, object()] if one == "random_state" else [*HOSTILE, iter([("ward", "age")])]
        for value in values:
            before, refused = ds.account.spent, None
            try:
                call(**{**usual, one: value})
            except CloisterError as error:
                refused = error
            told = f"{name}({one}={value!r:.60}): {getattr(refused, 'owner_detail', refused)}"
            assert not isinstance(refused, LookFailed), told
            assert refused is None or ds.account.spent == before, told


@pytest.mark.parametrize("told", [{"share": 0}, {"share": math.nan}, {"share": "1e-90"}, {"share": None}, {"bins": 0}])
def test_cuts_that_cannot_be_bought_are_refused_when_they_are_asked_for(told: dict[str, Any]) -> None:
    with pytest.raises(CloisterError):
        synth.PrivateCuts(**told)


@pytest.mark.parametrize(
    ("rows", "spend"),
    [(NOBODY, cl.rho("0.000001")), (MANY, cl.rho(1000)), (ROWS, cl.rho(10**4)), (NOBODY, cl.rho("1e-15"))],
    ids=["nobody, hardly told", "one, well told", "without noise", "noise of millions of rows"],
)
@pytest.mark.parametrize("name", GENERATORS)
def test_a_table_is_made_whoever_is_in_it(book: Any, name: str, rows: pa.Table, spend: Any) -> None:
    """A step that fails on some rows and not on others would tell which they are."""
    asked = {"rows": 20} if name in TABLES else {}  # a noisy number of rows may be any
    assert make(name, book(rows, BY_PERSON), spend, **asked).loss == spend


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
    secret = (Measurer, Transcript, type(ds.tables.engine), type(ds.relation("visits", [])), type(ds))
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
