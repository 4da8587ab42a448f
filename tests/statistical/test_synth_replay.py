"""Every generator on random tables, beside the same with one unit more, under the same releases (`replay`)."""

from collections.abc import Callable, Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.data.tables import open_tables
from cloister.dataset import Dataset

from ..property.query_cases import NAMES, Database, cell, draw_unit
from ..soak import few, randoms, soak, soaked
from .replay import Run, differences, reach, record, replay

pytestmark = pytest.mark.statistical

# What has no rows of its own to read: it is handed a table, or is the owner's own view, which is not released.
NOTHING_TO_REPLAY = {"score", "gate", "judge", "plan", "read_table", "link"}
LOSSES = [cl.rho("0.5"), cl.epsilon(2), cl.epsilon(1, delta="1e-6")]

Make = Callable[[Any, Random, Any, list[str], dict[str, Any]], Any]


def _whole(name: str, **more: Any) -> Make:
    return lambda data, r, spend, columns, bins: getattr(synth, name)(data, spend=spend, bins=bins, **more)


def _some(name: str, count: int) -> Make:
    def make(data: Any, r: Random, spend: Any, columns: list[str], bins: dict[str, Any]) -> Any:
        picked = columns[:count]
        told = {"column": picked[0]} if count == 1 else {"columns": picked}
        return getattr(synth, name)(data, spend=spend, bins=3, **told)

    return make


def _released(data: Any) -> list[Any]:
    """Tables that were released."""
    return [synth.independent(data, spend=cl.rho("0.1"), bins=3, rows=4) for _ in range(2)]


def _choose(data: Any, r: Random, spend: Any, columns: list[str], bins: dict[str, Any]) -> Any:
    found = synth.choose(data, _released(data), spend=spend, bins=3)
    return found.index, found.short_by


def _score(data: Any, r: Random, spend: Any, columns: list[str], bins: dict[str, Any]) -> Any:
    found = synth.publishable_score(data, _released(data)[0], spend=spend, bins=3).to_json()
    del found["receipt"]  # it names the entry of a ledger, which is another one each time
    return found


def _two(data: Any, r: Random, spend: Any, columns: list[str], bins: dict[str, Any]) -> Any:
    made = synth.two_tables(data, parent="t", child="u", spend=spend)
    # Pseudonyms are drawn anew each time.
    return made.parents.drop_columns(["person"]), made.children.drop_columns(["person"])


GENERATORS: dict[str, Make] = {
    "histogram": _some("histogram", 1),
    "one_column": _some("one_column", 1),
    "two_way": _some("two_way", 2),
    "m_way": _whole("m_way"),
    "independent": _whole("independent"),
    "mst": _whole("mst"),
    "aim": _whole("aim", rounds=3),
    "privbayes": _whole("privbayes"),
    "mixture": _whole("mixture", fits=1),
    "mwem": _whole("mwem", rounds=2),
    "mggm": _whole("mggm", group_size=3),
    "ron_gauss": _whole("ron_gauss"),
    "bought cuts": lambda data, r, spend, columns, bins: synth.independent(
        data, spend=spend, bins=synth.PrivateCuts(3)
    ),
    "two_tables": _two,
    "choose": _choose,
    "publishable_score": _score,
}


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("synth")) as book:
        yield book.open_account("all", cl.epsilon(10**6, delta="0.5"))


def draw_column(r: Random) -> dict[str, Any]:
    column = r.choice(
        [
            {"type": "text", "categories": ["a", "b", "é"]},
            {"type": "integer", "bounds": [0, 3]},
            {"type": "integer", "bounds": [-5, 12]},
            {"type": "integer", "categories": [1, 2, 7]},
            {"type": "real", "bounds": [0.0, 1.0]},
            {"type": "real", "bounds": [-4.0, 1e6]},
            {"type": "boolean"},
            {"type": "date", "bounds": ["2025-01-01", "2025-12-31"]},
        ]
    )
    return {**column, "nullable": r.random() < 0.4}


STORED = {
    "integer": [pa.int64(), pa.float64(), pa.string()], "real": [pa.float64(), pa.float64(), pa.string()],
    "text": [pa.string()], "boolean": [pa.bool_(), pa.string()], "date": [pa.date32(), pa.string()],
}  # fmt: skip


def draw_database(r: Random, two: bool) -> Database:
    by_row = not two and r.random() < 0.4
    tables: dict[str, Any] = {}
    for name in ("t", "u") if two else ("t",):
        names = r.sample(NAMES[:12], r.choice([2, 3]))
        columns = {one: draw_column(r) for one in names}
        tables[name] = {"columns": columns} if by_row else {"unit": "person", "columns": columns}
    if two:
        tables["t"]["max_rows"] = 1
    unit: Any = "row" if by_row else {"name": "person", "max_rows": r.choice([1, 2, 3])}
    stored = {
        name: {
            "person": pa.string(),
            **{one: r.choice(STORED[facts["type"]]) for one, facts in table["columns"].items()},
        }
        for name, table in tables.items()
    }
    rows = {}
    for name, kinds in stored.items():
        rows[name] = [
            {
                one: cell(r, kind) if one != "person" else r.choice(["1", "2", "é", "", None])
                for one, kind in kinds.items()
            }
            for _ in range(r.randint(0, 8))
        ]
    return Database({"unit": unit, "tables": tables}, stored, rows)


def compared(name: str, account: Any, r: Random) -> tuple[str, Run, Run]:
    database = draw_database(r, name == "two_tables")
    beside = database.joined_by(draw_unit(r, database), r)
    spend, seed, hostile = r.choice(LOSSES), r.randint(0, 10**6), r.random() < 0.3
    columns = list(database.schema["tables"]["t"]["columns"])
    bins = {one: 3 for one, facts in database.schema["tables"]["t"]["columns"].items() if "bounds" in facts}

    def made(one: Database) -> Any:
        with Dataset(open_tables(one.arrow(), Schema.load(one.schema), threads=1), account) as data:
            return GENERATORS[name](data, r, spend, columns, bins)

    first = record(lambda: made(database), seed, hostile=hostile)
    return f"{name}, {spend}: {database}\n{beside.rows}", first, replay(first, lambda: made(beside))


def check(name: str, account: Any, r: Random) -> float:
    about, first, second = compared(name, account, r)
    assert not differences(first, second), about
    return reach(first, second)


def test_everything_that_reads_rows_is_replayed() -> None:
    calls = {name for name in synth.__all__ if name[0].islower()}
    assert calls - NOTHING_TO_REPLAY == set(GENERATORS) - {"bought cuts"}


@pytest.mark.parametrize("name", GENERATORS)
def test_one_unit_more_moves_a_generator_by_no_more_than_is_paid_for(name: str, account: Any) -> None:
    reached: list[float] = []
    few(3, randoms)(lambda r: reached.append(check(name, account, r)))()
    assert max(reached) > 0, "no unit was seen"


@soaked
@pytest.mark.parametrize("name", GENERATORS)
def test_one_unit_more_in_a_generator_soaked(name: str, account: Any) -> None:
    soak(lambda r: check(name, account, r), randoms)
