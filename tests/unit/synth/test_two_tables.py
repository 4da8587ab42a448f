"""Two synthetic tables of the same people: keys match, children fit their parents, and one charge pays for both."""

import json
from fractions import Fraction
from hashlib import sha256
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput, BadSchema, OverBudget
from cloister.synth.domain import domain
from cloister.synth.model.inference import Model

from .transcripts import moved, recorded, replayed

FACTS: dict[str, Any] = {
    "unit": {"name": "patient", "max_rows": 4},
    "tables": {
        "patients": {
            "unit": "patient",
            "max_rows": 1,
            "columns": {
                "sex": {"type": "text", "categories": ["f", "m"], "nullable": False},
                "age": {"type": "integer", "bounds": [0, 99], "nullable": False},
                "name": {"type": "text"},
            },
        },
        "visits": {
            "unit": "who",
            "columns": {
                "ward": {"type": "text", "categories": ["eye", "heart", "birth"], "nullable": False},
                "days": {"type": "integer", "bounds": [0, 30]},
            },
            "never": [{"ward": "eye", "days": {"from": 20}}],
        },
    },
    "foreign_keys": ["visits.who -> patients.patient"],
}
SCHEMA = Schema.load(FACTS)


def hospital(people: int = 1500, seed: int = 4) -> dict[str, pa.Table]:
    """Women and the young come for births, the old for their hearts and more often."""
    generator = np.random.default_rng(seed)
    sex = generator.choice(["f", "m"], people)
    age = generator.integers(15, 95, people)
    visits = np.where(age > 60, generator.integers(1, 5, people), generator.integers(0, 3, people))
    who = np.repeat(np.arange(people), visits)
    birth = (sex[who] == "f") & (age[who] < 45) & (generator.random(len(who)) < 0.7)
    heart = (age[who] > 60) & (generator.random(len(who)) < 0.8)
    ward = np.where(birth, "birth", np.where(heart, "heart", "eye"))
    days = np.where(ward == "heart", generator.integers(8, 25, len(who)), generator.integers(0, 6, len(who)))
    names = [f"patient {i}" for i in range(people)]
    return {
        "patients": pa.table({"patient": np.arange(people), "sex": sex, "age": age, "name": names}),
        "visits": pa.table({"who": who, "ward": ward, "days": days}),
    }


def opened(folder: Any, tables: Any = None, schema: Schema = SCHEMA, budget: Any = None) -> Any:
    return cl.open(tables or hospital(), schema=schema, budget=budget or cl.rho(100), ledger=folder)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    ds = opened(tmp_path_factory.mktemp("ledger"))
    made = synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho(2))
    return made, cl.rho(100) - ds.left, ds.account.book.key.public


def test_one_charge_pays_for_both_and_one_receipt_proves_it(both):
    made, charged, key = both
    assert charged == made.loss == cl.rho(2)
    made.receipt.verify(key)
    assert made.private


def test_every_child_has_a_parent_and_none_has_too_many(both):
    made = both[0]
    parents = made.parents["patient"].to_pylist()
    assert len(set(parents)) == len(parents) == pytest.approx(1500, abs=100)
    counts = made.children.to_pandas()["who"].value_counts()
    assert set(counts.index) <= set(parents)
    assert counts.max() <= 4
    assert made.children.num_rows == pytest.approx(hospital()["visits"].num_rows, rel=0.08)
    assert not {one for one in made.parents["name"].to_pylist() if one.startswith("patient")}
    assert made.parents.column_names == ["patient", "sex", "age", "name"]
    assert made.children.column_names == ["who", "ward", "days"]


def test_children_are_like_children_of_such_parents(both):
    made = both[0]
    real, drawn = (
        tables[1].to_pandas().merge(tables[0].to_pandas(), left_on="who", right_on="patient")
        for tables in (tuple(hospital().values()), (made.parents, made.children))
    )
    for frame in (real, drawn):
        old, young = (frame[frame.age > 65].ward == "heart").mean(), (frame[frame.age < 50].ward == "heart").mean()
        assert old > young + 0.25
    assert drawn[drawn.ward == "heart"].days.mean() > drawn[drawn.ward == "birth"].days.mean() + 5
    assert not ((drawn.ward == "eye") & (drawn.days >= 20)).any()
    many = [frame.groupby("who").age.first().mean() for frame in (real, drawn)]
    assert many[1] == pytest.approx(many[0], abs=8), "how many children one has is lost"


def test_both_tables_and_one_side_file_are_written(both, tmp_path):
    made = both[0]
    side = made.to_parquet(tmp_path / "out")
    assert pq.read_table(tmp_path / "out" / "visits.parquet").num_rows == made.children.num_rows
    assert pq.read_table(tmp_path / "out" / "patients.parquet").num_rows == made.parents.num_rows
    assert side.name == "patients-visits.side.json"
    digests = {name: sha256((tmp_path / "out" / f"{name}.parquet").read_bytes()) for name in ("patients", "visits")}
    assert json.loads(side.read_text())["sha256"] == {name: one.hexdigest() for name, one in digests.items()}
    assert made.side["loss"] == cl.rho(2).to_json()
    assert made.side["unit"] == str(SCHEMA.unit)
    for part in ("parents", "children with their parents"):
        assert not {"receipt", "loss", "unit", "neighbours", "private"} & set(made.side[part]), "said twice"


def test_each_of_the_tables_can_be_read_with_its_own_side_file(both, tmp_path):
    made, _, key = both
    made.to_parquet(tmp_path)
    for name, rows, many in (("patients", made.parents, 1500), ("visits", made.children, made.children.num_rows)):
        table = synth.read_table(tmp_path / f"{name}.parquet")
        table.verify(key)
        assert table.to_arrow().equals(rows)
        assert [one["name"] for one in table.side["columns"]] == rows.column_names
        assert table.count().value == pytest.approx(many, rel=0.1)
        assert table.loss == cl.rho(2)
        told = {name for one in table.side["expected error"]["marginals"] for name in one["columns"]}
        assert told <= set(rows.column_names)
    visits = synth.read_table(tmp_path / "visits.parquet")
    assert visits.side["never"] == [{"ward": "eye", "days": {"from": 20}}]
    assert visits.count({"ward": "heart"}).error < 0.2 * made.children.num_rows


def test_a_column_can_have_bins_of_its_own_in_the_tables_that_have_it(tmp_path):
    bins = {"age": [18, 65], "days": 3}
    told = {"parent": "patients", "child": "visits", "spend": cl.rho(1)}
    ds = opened(tmp_path)
    made = synth.two_tables(ds, **told, rows=20, bins=bins)
    assert made.parent_table.domain.axis("age").ends == (0.0, 18.0, 65.0, 99.0)
    assert made.joined_table.domain.axis("patients.age").ends == (0.0, 18.0, 65.0, 99.0)
    assert {0.0, 20.0} < set(made.joined_table.domain.axis("days").ends)
    assert made.joined_table.domain.axis("days").size < 8
    left = ds.left
    with pytest.raises(BadInput, match="bins names wage, which is no column of patients or visits"):
        synth.two_tables(ds, **told, bins={"wage": 4})
    with pytest.raises(BadInput, match="two tables buy no cuts"):
        synth.two_tables(ds, **told, bins=synth.PrivateCuts(8))
    assert ds.left == left


@pytest.mark.parametrize("spend", [cl.rho(50), cl.epsilon(50)], ids=["gaussian", "laplace"])
def test_no_person_moves_a_step_by_more_than_its_noise_is_made_for(spend, tmp_path, monkeypatch):
    tables = hospital(200)
    more = {
        "patients": pa.table({"patient": [10**6], "sex": ["f"], "age": [99], "name": ["x"]}),
        "visits": pa.table({"who": [10**6] * 9, "ward": ["heart", "birth", "eye"] * 3, "days": [0, 15, 30] * 3}),
    }
    joined = {name: pa.concat_tables([tables[name], more[name].cast(tables[name].schema)]) for name in tables}
    first, other = (opened(tmp_path / str(i), each) for i, each in enumerate((tables, joined)))

    def make(ds: Any) -> Any:
        return synth.two_tables(ds, parent="patients", child="visits", spend=spend, rows=20)

    _, run = recorded(monkeypatch, lambda: make(first))
    _, again = replayed(monkeypatch, run, lambda: make(other))
    shares = [moved(one, two) for one, two in zip(run.steps, again.steps, strict=True)]
    assert Fraction(1, 20) < max(shares) <= 1
    assert run.spent[spend.measure] <= spend.amount


def test_what_cannot_be_joined_is_refused_for_nothing(tmp_path):
    ds = opened(tmp_path, budget=cl.rho("0.5"))
    before = ds.left
    for parent, child in (("visits", "patients"), ("patients", "patients"), ("nobody", "visits")):
        with pytest.raises(BadSchema):
            synth.two_tables(ds, parent=parent, child=child, spend=cl.rho("0.1"))
    with pytest.raises(BadInput):
        synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho("0.1"), rows=0)
    with pytest.raises(OverBudget):
        synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho(1))
    assert ds.left == before


def test_columns_can_be_left_out_and_a_seed_marks_both_not_private(tmp_path):
    chosen = {"patients": ["age"], "visits": ["ward"]}
    made = synth.two_tables(
        opened(tmp_path), parent="patients", child="visits", spend=cl.rho(1), rows=50, columns=chosen, random_state=2
    )
    assert made.parents.column_names == ["patient", "age"]
    assert made.children.column_names == ["who", "ward"]
    assert made.parents.num_rows == 50
    assert not made.private


@pytest.mark.parametrize(
    ("most", "rows", "word"),
    [
        (4, 10**9, "1,000,000,000 rows of 4 columns"),
        (10**6, 20_000, "20,000,000,000 rows of"),
        (10**9, None, "1 parents"),
    ],
)
def test_more_rows_than_memory_holds_are_refused_before_the_charge(tmp_path, most, rows, word):
    told = {name: dict(table) for name, table in FACTS["tables"].items()}
    schema = Schema.load({**FACTS, "unit": {"name": "patient", "max_rows": most}, "tables": told})
    ds = opened(tmp_path, schema=schema)
    with pytest.raises(BadInput, match=word) as refused:
        synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho(1), rows=rows)
    assert "more than memory holds" in str(refused.value)
    assert ds.left == cl.rho(100)


def test_a_public_number_of_parents_counts_as_one_that_was_asked_for(tmp_path):
    told = {name: dict(table) for name, table in FACTS["tables"].items()}
    told["patients"]["rows"] = 10**6
    schema = Schema.load({**FACTS, "unit": {"name": "patient", "max_rows": 1000}, "tables": told})
    ds = opened(tmp_path, schema=schema)
    with pytest.raises(BadInput, match="1,000,000 parents with up to 1,000 rows of visits each"):
        synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho(1))
    assert ds.left == cl.rho(100)


def test_parents_whose_children_have_no_room_are_left_out_and_the_side_file_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(domain, "_MOST_UNASKED", 4000)  # 1,000 rows of four columns
    ds = opened(tmp_path)
    made = synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho(2))
    assert 0 < made.children.num_rows <= 1000
    assert set(made.children["who"].to_pylist()) <= set(made.parents["patient"].to_pylist())
    assert "parents were kept" in made.side["parents"]["rows left out"]
    assert made.to_parquet(tmp_path / "out").exists()
    synth.read_table(tmp_path / "out" / "patients.parquet").verify(ds.account.book.key.public)


@pytest.mark.parametrize("most", [200, 0])
def test_rows_that_memory_does_not_hold_lose_no_release(tmp_path, monkeypatch, most):
    draw = Model.draw

    def tight(self, rows, generator, given=None):
        if rows > most:
            raise MemoryError
        return draw(self, rows, generator, given)

    monkeypatch.setattr(Model, "draw", tight)
    ds = opened(tmp_path)
    made = synth.two_tables(ds, parent="patients", child="visits", spend=cl.rho(2), rows=300)
    assert ds.left == cl.rho(98)
    assert made.parents.num_rows <= most
    assert "more than memory holds" in made.side["parents"]["rows left out"]
    monkeypatch.setattr(Model, "draw", draw)
    assert made.parent_table.sample(20).num_rows == made.joined_table.sample(20).num_rows == 20
    assert made.to_parquet(tmp_path / "out").exists()
