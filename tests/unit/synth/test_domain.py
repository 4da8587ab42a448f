"""Columns as public cells: from the schema alone, alike in every engine, and back to values."""

import math
from datetime import date, datetime, timedelta

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Column, Schema
from cloister.privacy.errors import BadBounds, BadInput, BadSchema
from cloister.synth.domain.axis import arrow_types, read_axis
from cloister.synth.domain.domain import read_domain
from cloister.synth.measure.marginals import Measurer
from cloister.synth.output.shared_table import meets

COLUMNS = {
    "ward": {"type": "text", "categories": ["a", "b", "c"]},
    "age": {"type": "integer", "bounds": [0, 99], "nullable": False},
    "stars": {"type": "integer", "bounds": [1, 5], "nullable": False},
    "cost": {"type": "real", "bounds": [0, 80]},
    "back": {"type": "boolean", "nullable": False},
    "seen": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"], "nullable": False},
    "at": {"type": "timestamp", "bounds": ["2025-01-01 00:00:00", "2025-12-31 23:59:59"]},
    "badge": {"type": "text", "nullable": False},
}
ROWS = 400
_g = np.random.default_rng(5)
TABLE = pa.table(
    {
        "ward": pa.array([None if x == 3 else "abc"[x] for x in _g.integers(0, 4, ROWS)]),
        "age": pa.array(_g.integers(0, 100, ROWS)),
        "stars": pa.array(_g.integers(1, 6, ROWS)),
        "cost": pa.array(_g.random(ROWS) * 80, mask=_g.random(ROWS) < 0.2),
        "back": pa.array(_g.random(ROWS) < 0.5),
        "seen": pa.array([date(2025, 1, 1 + int(x)) for x in _g.integers(0, 30, ROWS)]),
        "at": pa.array(
            [datetime(2025, 1 + int(x), 1, int(x), 30) for x in _g.integers(0, 12, ROWS)], pa.timestamp("us")
        ),
        "badge": pa.array([f"b{i}" for i in range(ROWS)]),
    }
)


def opened(folder, source=TABLE, **table):
    schema = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS, **table}}})
    return cl.open(source, schema=schema, budget=cl.rho(100), ledger=folder)


def test_every_kind_of_column_has_the_cells_its_schema_says(tmp_path):
    domain, _ = read_domain(opened(tmp_path), bins=10)
    sizes = {axis.name: axis.size for axis in domain.axes}
    assert sizes == {"ward": 4, "age": 11, "stars": 5, "cost": 11, "back": 2, "seen": 10, "at": 11, "badge": 1}
    assert [axis.name for axis in domain.modelled] == [name for name in COLUMNS if name != "badge"]


def check_counts(data, bins):
    with data:
        check_open_counts(data, bins)


def check_open_counts(data, bins):
    domain, relation = read_domain(data, bins=bins)
    cells = domain.encode(TABLE)
    survey = Measurer(domain, relation, None, None)  # type: ignore[arg-type]
    sets = [(0,), (1,), (3,), (5,), (6,), (0, 3), (1, 2, 4)]
    survey.count(sets)
    for positions in sets:
        columns = [domain.names.index(name) for name in domain.words(positions)]
        expected = np.zeros([domain.shape[position] for position in positions], dtype=np.int64)
        np.add.at(expected, tuple(cells[:, column] for column in columns), 1)
        assert (survey._exact[positions].table() == expected).all(), domain.words(positions)


def test_the_engine_counts_the_same_cells_as_the_encoder(tmp_path):
    check_counts(opened(tmp_path), {"cost": [5, 20.5, 60], "age": 7, "seen": 5, "at": 6})


def test_spark_counts_the_same_cells(tmp_path, spark):
    frame = spark.createDataFrame(TABLE.to_pylist())
    check_counts(opened(tmp_path, frame), {"cost": [5, 20.5, 60], "age": 7, "seen": 5, "at": 6})


def test_postgres_counts_the_same_cells(tmp_path, postgres_address):
    import psycopg

    with psycopg.connect(postgres_address, autocommit=True) as connection:
        connection.execute(
            "CREATE TABLE visits (ward text, age bigint, stars bigint, cost double precision, back boolean, seen date, "
            "at timestamp, badge text)"
        )
        with connection.cursor() as cursor:
            rows = [tuple(row.values()) for row in TABLE.to_pylist()]
            cursor.executemany("INSERT INTO visits VALUES (%s, %s, %s, %s, %s, %s, %s, %s)", rows)
    check_counts(opened(tmp_path, postgres_address), {"cost": [5, 20.5, 60], "age": 7, "seen": 5, "at": 6})


@pytest.mark.parametrize("name", [name for name in COLUMNS if name != "badge"])
def test_values_drawn_from_a_cell_lie_in_that_cell(tmp_path, name):
    domain, _ = read_domain(opened(tmp_path), bins=9)
    axis = domain.axis(name)
    cells = np.repeat(np.arange(axis.size), 50)
    drawn = axis.draw(cells, np.random.default_rng(0))
    assert (axis.place(pa.chunked_array([drawn])) == cells).all()
    assert drawn.null_count == (50 if axis.nullable else 0)


def test_pseudonyms_are_fresh_and_all_different(tmp_path):
    axis = read_domain(opened(tmp_path))[0].axis("badge")
    drawn = axis.draw(np.zeros(300, dtype=np.int64), np.random.default_rng(0)).to_pylist()
    assert len(set(drawn)) == 300
    assert not set(drawn) & set(TABLE["badge"].to_pylist())


def test_a_column_without_public_facts_is_refused():
    with pytest.raises(BadSchema, match="neither public bounds nor categories"):
        read_axis(Column("x", "real"), 32)


def test_bins_must_rise():
    with pytest.raises(BadBounds, match="rising order"):
        read_axis(Column("x", "real", (0.0, 1.0)), [0.5, 0.2])


def test_bins_of_an_unknown_column_are_refused(tmp_path):
    with pytest.raises(BadInput, match="bins names"):
        read_domain(opened(tmp_path), bins={"nothing": 3})


def test_conditions_name_cells(tmp_path):
    domain, _ = read_domain(opened(tmp_path), bins=10)
    assert domain.axis("age").cells_of({"from": 20, "below": 40}).nonzero()[0].tolist() == [3, 4]
    assert domain.axis("ward").cells_of(["a", None]).nonzero()[0].tolist() == [0, 3]
    with pytest.raises(BadBounds, match="no public value"):
        domain.axis("ward").cells_of("z")


def test_nothing_is_no_part_of_a_bin():
    amounts = Column("amount", "integer", bounds=(-400, 1999), nullable=False)
    ends = read_axis(amounts, 8).ends or ()
    assert {0.0, 1.0} < set(ends)
    axis = read_axis(amounts, 8)
    drawn = axis.draw(np.full(50, ends.index(0.0)), np.random.default_rng(1))
    assert set(drawn.to_pylist()) == {0}
    assert axis.widths.sum() == 2400
    assert read_axis(Column("days", "integer", bounds=(1, 99), nullable=False), 8).size == 8


def test_rules_of_one_column_come_in_any_order(tmp_path):
    never = [{"ward": "a", "age": {"from": 60}}, {"ward": "b", "age": {"below": 10}}]
    domain, _ = read_domain(opened(tmp_path, never=never), bins=10)
    assert {10.0, 60.0} < set(domain.axis("age").ends or ())


@pytest.mark.parametrize(
    "never",
    [
        [{"back": [True, False]}],
        [{"back": True}, {"back": False, "stars": {"from": 3}}, {"stars": {"below": 3}}],
        [{"stars": [1, 2], "back": True}, {"stars": [3, 4, 5], "back": True}, {"ward": "a"}, {"back": False}],
    ],
)
def test_rules_that_leave_no_row_are_refused_before_a_charge(tmp_path, never):
    data = opened(tmp_path, never=never)
    with pytest.raises(BadSchema, match="no row that can be"):
        cl.synth.independent(data, spend=cl.rho(1), rows=10)
    assert not data.account.spent.amount


def test_a_range_is_written_with_from_and_below_alone():
    with pytest.raises(BadSchema, match="range in never"):
        Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS, "never": [{"age": {"above": 3}}]}}})


def test_bins_end_where_never_draws_a_line(tmp_path):
    domain, _ = read_domain(opened(tmp_path, never=[{"ward": "a", "age": {"from": 33}}]), bins=10)
    axis, (zero,) = domain.axis("age"), domain.zeros
    assert 33.0 in (axis.ends or ())
    assert zero.positions == (0, 1)
    first = (axis.ends or ()).index(33.0)
    assert not zero.allowed[0, first:].any()
    assert zero.allowed[0, :first].all()
    assert zero.allowed[1:].all()


def never_drawn(folder, never, bins=30):
    """Rows of a table with a rule."""
    few = ["ward", "age", "cost"]
    with opened(folder, never=never) as data:
        return cl.synth.independent(data, spend=cl.rho(50), rows=20_000, bins=bins, columns=few).to_pandas()


@pytest.mark.parametrize("single", [0, 50, 99, [50, 51, 70]])
def test_a_single_whole_number_that_never_occurs_takes_no_other_with_it(tmp_path, single):
    made = never_drawn(tmp_path, [{"ward": "a", "age": single}])
    gone = {single} if isinstance(single, int) else set(single)
    ages = set(made[made.ward == "a"].age)
    assert not ages & gone
    near = {one + step for one in gone for step in (-2, -1, 1, 2)} - gone
    assert {one for one in near if 0 <= one <= 99} <= ages
    assert gone <= set(made[made.ward == "b"].age)


@pytest.mark.parametrize("single", [date(2025, 3, 7), "2025-03-07", date(2025, 12, 31)])
def test_a_single_day_that_never_occurs_takes_no_other_with_it(tmp_path, single):
    day = date.fromisoformat(single) if isinstance(single, str) else single
    with opened(tmp_path, never=[{"back": True, "seen": single}]) as data:
        domain, _ = read_domain(data, bins=12)
    zero, axis = domain.zeros[0], domain.axis("seen")
    gone = np.flatnonzero(~zero.allowed[1])
    assert zero.allowed[0].all()
    drawn = axis.draw(np.repeat(gone, 20), np.random.default_rng(1)).to_pylist()
    assert set(drawn) == {day}
    assert axis.widths[gone].tolist() == [1]


def test_a_single_moment_that_never_occurs_takes_no_other_with_it(tmp_path):
    moment = datetime(2025, 3, 7, 8, 30)
    domain, _ = read_domain(opened(tmp_path, never=[{"back": True, "at": moment}]), bins=12)
    gone = np.flatnonzero(~domain.zeros[0].allowed[1])
    assert domain.axis("at").widths[gone].tolist() == [1]


def test_the_last_whole_number_is_part_of_a_range_that_begins_there(tmp_path):
    made = never_drawn(tmp_path, [{"ward": "a", "age": {"from": 99}}])
    assert set(made[made.ward == "a"].age) == set(range(99))


@pytest.mark.parametrize(
    ("never", "words"),
    [
        ({"cost": 50.0}, "Name a range"),
        ({"cost": [1, None]}, "Name a range"),
        ({"age": 50.5}, "not whole"),
        ({"age": 200}, "beyond the bounds"),
    ],
)
def test_single_values_that_cannot_be_left_out_alone_are_refused_before_a_charge(tmp_path, never, words):
    data = opened(tmp_path, never=[{"ward": "a", **never}])
    with pytest.raises((BadSchema, BadBounds), match=words):
        cl.synth.independent(data, spend=cl.rho(1), rows=10)
    assert not data.account.spent.amount


def test_a_real_number_may_never_be_missing_or_within_a_range(tmp_path):
    made = never_drawn(tmp_path, [{"ward": "a", "cost": None}, {"ward": "b", "cost": {"from": 10.3, "below": 20}}])
    assert not made[made.ward == "a"].cost.isna().any()
    cost = made[made.ward == "b"].cost
    assert not ((cost >= 10.3) & (cost < 20)).any()
    assert ((cost > 9.5) & (cost < 10.3)).any()


def test_the_column_of_the_unit_is_refused_by_its_name(tmp_path):
    columns = {"ward": COLUMNS["ward"]}
    schema = Schema.load(
        {"unit": {"name": "person", "max_rows": 2}, "tables": {"visits": {"unit": "who", "columns": columns}}}
    )
    data = cl.open(
        {"visits": TABLE.append_column("who", TABLE["badge"])}, schema=schema, budget=cl.rho(1), ledger=tmp_path
    )
    with pytest.raises(BadSchema, match=r"visits\.who says whose a row is and is in no synthetic table"):
        read_domain(data, columns=["ward", "who"])
    with pytest.raises(BadSchema, match=r"there is no column visits\.whom"):
        read_domain(data, columns=["ward", "whom"])
    assert read_domain(data)[0].names == ("ward",)


def test_rules_are_written_and_read_back():
    text = {"columns": COLUMNS, "never": [{"ward": "a", "age": {"from": 33}}], "determines": ["ward, stars -> back"]}
    schema = Schema.load({"unit": "row", "tables": {"visits": text}})
    again = Schema.load(schema.dump())
    assert again.tables["visits"].never == ({"ward": "a", "age": {"from": 33}},)
    assert again.tables["visits"].determines == ((("ward", "stars"), "back"),)


def test_a_rule_about_an_unknown_column_is_a_problem():
    with pytest.raises(BadSchema, match="columns of its own in determines"):
        Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS, "determines": ["ward -> nothing"]}}})


# Bounds of every type, down to one step, wherever they lie.


def _columns(random):
    """A column of every type that has bounds, with random ones: near 0 and far, one step apart and many."""
    step = int(random.choice([1, 2, 3, 10, 1000, 2**40, 2**53 - 1]))
    far = int(random.choice([0, 5, 10**6, 2**53 - 2, 2**53, 2**62 - 2**53])) * int(random.choice([-1, 1]))
    yield Column("integer", "integer", (far, far + step))
    micro = timedelta(microseconds=1)
    start = datetime(1, 1, 1) + int(random.integers(0, 9_900 * 365 * 24)) * timedelta(hours=1)
    yield Column("moment", "timestamp", (start, min(start + min(step, 2**52) * micro, datetime.max)))
    day = date.fromordinal(int(random.integers(1, 3_000_000)))
    yield Column("day", "date", (day, day + timedelta(days=min(step, 1000))))
    low = float(random.choice([0.0, 1.0, -3.5, 1e-300, 1e15, -1e15]))
    yield Column("real", "real", (low, random.choice([math.nextafter(low, math.inf), low + 1.0, low + 1e6])))


@pytest.mark.parametrize("seed", range(40))
def test_every_value_that_is_drawn_lies_within_the_bounds_and_in_its_cell(seed):
    random = np.random.default_rng(seed)
    for column in _columns(random):
        for bins in (1, 2, 7, 32):
            axis = read_axis(column, bins)
            cells = random.integers(0, axis.known, 300)
            drawn = axis.draw(cells, random)
            values = drawn.to_pylist()
            assert min(values) >= column.bounds[0], (column, bins)
            assert max(values) <= column.bounds[1], (column, bins)
            assert (axis.place(pa.chunked_array([drawn])) == cells).all(), (column, bins)
            assert axis.widths.min() > 0


@pytest.mark.parametrize("seed", range(12))
def test_what_never_occurs_does_not_wherever_the_bounds_lie(tmp_path, seed):
    random = np.random.default_rng(100 + seed)
    for column in _columns(random):
        if column.type == "real" or column.type == "date":
            continue
        low, high = column.bounds
        one = timedelta(microseconds=1) if column.type == "timestamp" else 1
        steps = (high - low) // one
        gone = low + int(random.integers(0, steps + 1)) * one
        rest = [value for value in (low, gone - one, gone + one, high) if low <= value <= high and value != gone]
        schema = {"type": column.type, "bounds": [low, high], "nullable": False}
        facts = {"unit": "row", "tables": {"t": {"columns": {"a": schema}, "never": [{"a": gone}]}}}
        rows = pa.table({"a": rest * 30})
        with cl.open(rows, schema=facts, budget=cl.rho(10**6), ledger=tmp_path / column.name) as ds:
            made = synth.independent(ds, spend=cl.rho(5000), rows=400, bins=4)
        values = made.to_arrow()["a"].to_pylist()
        assert gone not in values
        assert low <= min(values) <= max(values) <= high
        if steps <= 3:
            # A model gives every possible cell a little weight, so a value that no row has is drawn now and then.
            assert set(rest) <= set(values)
            assert sum(value in rest for value in values) > 390
        made.to_parquet(tmp_path / "a.parquet")
        again = synth.read_table(tmp_path / "a.parquet")
        upper = again.count({"a": {"from": gone}}).value
        assert upper == pytest.approx(made.count({"a": {"from": gone}}).value, abs=10)


def test_moments_keep_their_own_bounds_and_not_those_of_their_days(tmp_path):
    ends = datetime(2020, 1, 1, 12), datetime(2020, 1, 1, 13)
    facts = {"type": "timestamp", "bounds": list(ends), "nullable": False}
    rows = pa.table({"a": [ends[0] + timedelta(minutes=k % 60) for k in range(300)]})
    schema = {"unit": "row", "tables": {"t": {"columns": {"a": facts}}}}
    with cl.open(rows, schema=schema, budget=cl.rho(10**6), ledger=tmp_path) as ds:
        values = synth.mst(ds, spend=cl.rho(5000), rows=500, bins=8).to_arrow()["a"].to_pylist()
    assert ends[0] <= min(values) <= max(values) <= ends[1]


def test_bounds_that_doubles_cannot_count_through_are_refused_before_the_charge(tmp_path):
    facts = {"type": "integer", "bounds": [-1, 2**53], "nullable": False}
    schema = {"unit": "row", "tables": {"t": {"columns": {"a": facts}}}}
    with cl.open(pa.table({"a": [1, 2, 3]}), schema=schema, budget=cl.rho(1), ledger=tmp_path) as ds:
        with pytest.raises(BadBounds, match="more whole numbers between its bounds"):
            synth.mst(ds, spend=cl.rho(1), rows=10)
        assert ds.left == cl.rho(1)


_STEPPED = {
    "numbers": (Column("a", "integer", (0, 11), nullable=False), [0, 3, 6, 11]),
    "cuts that are not whole": (Column("a", "integer", (0, 11), nullable=False), [0, 2.5, 2.8, 6.5, 11]),
    "numbers one by one": (Column("a", "integer", (0, 11), nullable=False), 20),
    "numbers below 0": (Column("a", "integer", (-13, -2), nullable=False), 3),
    "days": (Column("a", "date", (date(2025, 1, 1), date(2025, 1, 12)), nullable=False), 3),
}


@pytest.mark.parametrize("name", _STEPPED)
def test_a_range_that_ends_between_two_whole_numbers_or_days_is_read_alike_everywhere(name):
    column, bins = _STEPPED[name]
    axis, random, low = read_axis(column, bins), np.random.default_rng(1), column.bounds[0]

    def at(position):
        """The value, or what is between two values, so many steps from the lower bound."""
        if column.type == "integer":
            return low + position if position % 1 else low + int(position)
        start = datetime(low.year, low.month, low.day) + timedelta(days=position)
        return start if position % 1 else start.date()

    values = pa.array([at(k) for k in range(12)], arrow_types()[column.type])
    cells = axis.place(pa.chunked_array([values]))
    sizes = np.bincount(cells, minlength=axis.size)
    halves = np.arange(-1, 14, 0.5)
    ranges = (
        [(a, b) for a in halves for b in halves if a < b] + [(a, None) for a in halves] + [(None, b) for b in halves]
    )
    for a, b in ranges:
        wanted = ({} if a is None else {"from": at(a)}) | ({} if b is None else {"below": at(b)})
        meant = np.array([(a is None or a <= k) and (b is None or k < b) for k in range(12)])
        assert meets(values, wanted).to_pylist() == meant.tolist(), wanted
        inside = np.bincount(cells[meant], minlength=axis.size)
        assert axis.cells_of(wanted).tolist() == (inside > 0).tolist(), wanted
        assert axis.weights_of(wanted) == pytest.approx(inside / np.maximum(sizes, 1)), wanted
        drawn = axis.draw(np.repeat(np.flatnonzero(inside), 20), random, [wanted])
        assert not set(drawn.to_pylist()) - set(values.filter(pa.array(meant)).to_pylist()), wanted


@pytest.mark.parametrize("end", [10.5, 33.5, 98.5, 0.5])
def test_a_rule_that_ends_between_two_whole_numbers_leaves_nothing_out_beside_it(tmp_path, end):
    # "from: 10.5" once left out the bin below 11 too.
    over, under = (
        never_drawn(tmp_path / word, [{"ward": "a", "age": {word: end}}], bins=8) for word in ("from", "below")
    )
    whole = math.ceil(end)
    assert set(over[over.ward == "a"].age) == set(range(whole))
    assert set(under[under.ward == "a"].age) == set(range(whole, 100))


def test_a_rule_of_days_may_end_at_noon(tmp_path):
    with opened(tmp_path, never=[{"back": True, "seen": {"from": datetime(2025, 1, 10, 12)}}]) as data:
        made = synth.independent(data, spend=cl.rho(50), rows=5000, bins=6, columns=["back", "seen"]).to_pandas()
    assert max(made[made.back].seen) == date(2025, 1, 10)


def test_a_value_between_two_whole_numbers_is_refused_and_never_drawn(tmp_path):
    axis = read_axis(Column("age", "integer", (0, 99), nullable=False), 10)
    with pytest.raises(BadBounds, match="between two values"):
        axis.cells_of([10.5, 11])
    made = synth.independent(opened(tmp_path), spend=cl.rho(1), rows=10, columns=["age"], bins=10)
    with pytest.raises(BadBounds, match="between two values"):
        made.sample(50, given={"age": [10.5, 11]})
    with pytest.raises(BadBounds, match="NaN"):
        made.count({"age": {"from": math.nan}})
