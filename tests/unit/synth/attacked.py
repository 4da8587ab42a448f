"""What attacks on synthetic tables share: a hospital, rows that are as odd as can be, and every generator."""

import math
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema

from .people import opened, people

ROWS = people(150)
NOBODY = ROWS.slice(0, 0)
LOUD, PURE = cl.rho("0.5"), cl.epsilon(2)
SOME = ["ward", "age", "cost", "back"]
FEW = {"columns": SOME, "bins": {"age": 5, "cost": 4}}
SMALL = {"rounds": 4, **FEW}
FRESH = people(80, seed=9).select(SOME)


def choosing(ds: Any, **told: Any) -> Any:
    return synth.choose(ds, [FRESH, FRESH.slice(0, 20), FRESH.slice(20)], released=True, **told)


def scoring(ds: Any, **told: Any) -> Any:
    return synth.publishable_score(ds, FRESH, released=True, **told)


GENERATORS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "histogram": (synth.histogram, {"column": "cost", "bins": 9}),
    "one_column": (synth.one_column, {"column": "age", "bins": 9}),
    "two_way": (synth.two_way, {"columns": ["ward", "cost"], "bins": 5}),
    "m_way": (synth.m_way, FEW),
    "independent": (synth.independent, {"bins": 6}),
    "mst": (synth.mst, {"columns": [*SOME, "building", "note"], "bins": 6}),
    "aim": (synth.aim, {**SMALL, "bins": 6}),
    "privbayes": (synth.privbayes, FEW),
    "mixture": (synth.mixture, {"fits": 1, **FEW}),
    "bought cuts": (synth.independent, {"columns": ["age", "cost", "admitted"], "bins": synth.PrivateCuts(5)}),
    "mwem": (synth.mwem, SMALL),
    "mggm": (synth.mggm, {"group_size": 10, **FEW}),
    "ron_gauss": (synth.ron_gauss, {"label": "back", **FEW}),
    "publishable_score": (scoring, FEW),
    "choose": (choosing, FEW),
}
TABLES = [name for name in GENERATORS if name not in ("publishable_score", "choose")]


def canaries() -> dict[str, pa.Table]:
    """Rows of one unit more, as odd as can be: alone, beyond all bounds, of no known value, of nothing."""
    usual = {"person": 10**6, "ward": "maternity", "building": "south", "age": 0, "cost": 100.0}
    usual |= {"admitted": date(2025, 1, 1), "back": True, "note": "x"}
    odd = {
        "alone": {},
        "beyond": {"age": 10**9, "cost": 1e300, "admitted": date(9999, 12, 31)},
        "not a number": {"cost": math.nan, "age": -(10**9), "admitted": date(1, 1, 1)},
        "unknown": {"ward": "a ward of no schema", "note": None},
        "nothing": dict.fromkeys(("ward", "building", "age", "cost", "admitted", "back", "note")),
    }
    return {name: pa.Table.from_pylist([{**usual, **told}], schema=ROWS.schema) for name, told in odd.items()}


CANARIES = canaries()
MANY = pa.concat_tables([*(CANARIES["alone"],) * 7, *CANARIES.values()])  # one person, who has many rows


def tables_of(name: str, made: Any) -> Any:
    """All that is handed on, without the receipt."""
    if name in TABLES:
        return {**made.side, "receipt": None}, made.to_arrow().drop_columns(
            ["note"] if "note" in made.domain.names else []
        ).to_pylist()
    return (made.index, made.short_by) if name == "choose" else made.to_json()


def make(name: str, ds: Any, spend: Any, **told: Any) -> Any:
    call, options = GENERATORS[name]
    return call(ds, spend=spend, random_state="attacks", **{**options, **told})


BESIDE = {name: pa.concat_tables([ROWS, rows]) for name, rows in {**CANARIES, "many": MANY}.items()}


class Book:
    """Datasets that are opened once."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.known = folder, {}

    def __call__(self, rows: pa.Table, schema: Schema) -> Any:
        key = id(rows), id(schema)
        if key not in self.known:
            self.known[key] = opened(self.folder / str(len(self.known)), rows, schema), rows
        return self.known[key][0]

    def close(self) -> None:
        for ds, _ in self.known.values():
            ds.close()
