"""Bounded statistics on DuckDB against plain Python, and their stated sensitivity against the worst people."""

import datetime as dt
import hashlib
import math
import random
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from sqlglot import exp

from cloister.data.distinct import DistinctPairs, DistinctUnits
from cloister.data.engines.duckdb import DuckDB
from cloister.data.schema import Schema
from cloister.data.statistics import (
    WEIGHT,
    GroupKey,
    Sums,
    Value,
    grid_value,
    integers,
    whole_value,
)
from cloister.data.summaries import axis, cross_products, sums
from cloister.data.tables import open_tables
from cloister.privacy.errors import BadBounds, BadSchema

WARDS = ("a", "b", "c")
TYPES = {"_cl_unit": pa.int64(), "ward": pa.string(), "age": pa.int64(), "x": pa.float64()}


def engine_with(rows):
    """DuckDB with one table `t` of rows (unit, ward, age, x)."""
    columns = list(zip(*rows, strict=True)) if rows else [[]] * len(TYPES)
    table = pa.table(
        {name: pa.array(column, kind) for (name, kind), column in zip(TYPES.items(), columns, strict=True)}
    )
    engine = DuckDB(threads=2)
    engine.add_arrow("t", table)
    engine.seal()
    return engine


def column(name):
    return exp.column(name, quoted=True)


def people():
    return exp.select(column("_cl_unit")).from_(exp.to_table("t"))


def rows_alone():
    return exp.select().from_(exp.to_table("t"))


def wards(*values):
    return GroupKey("ward", column("ward"), values or (*WARDS, None), "text")


def ages(low=0, high=100):
    return whole_value(column("age"), low, high)


def random_rows(seed, count=300):
    chance = random.Random(seed)
    return [
        (
            chance.choice((1, 1, 2, *range(3, 40))),
            chance.choice((*WARDS, None, "elsewhere")),
            chance.choice((None, -7, 0, 55, 100, 1000, -(2**62))),
            chance.choice((None, chance.uniform(-20, 70), math.nan, math.inf, -math.inf, 1e300, -1e-300)),
        )
        for _ in range(count)
    ]


def weights(units, cap):
    """What a row of each unit counts."""
    return {unit: WEIGHT if n <= cap else WEIGHT * cap // n for unit, n in Counter(units).items()}


def expected(rows, values, groups, cap):
    """Number of rows and sum of values in each group, by the book."""
    each = weights([row[0] for row in rows], cap) if cap is not None else Counter()
    count, total = Counter(), Counter()
    for row, value in zip(rows, values, strict=True):
        weight = 1 if cap is None else each[row[0]]
        count[row[1]] += weight
        total[row[1]] += weight * (value or 0)
    return [[count[group] for group in groups], [total[group] for group in groups]]


def clipped(value, low, high):
    return None if value is None else min(max(value, low), high)


def on_grid(x, low, high, exponent, centre):
    if x is None:
        return None
    inside = high if math.isnan(x) else clipped(x, low, high)
    return math.floor((inside - centre) * 2.0**exponent + 0.5)


# Against plain Python


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cap", [1, 3, 8, 1000, None])
def test_numbers_of_rows_and_sums_are_those_of_plain_python(seed, cap):
    rows = random_rows(seed)
    sums = Sums(rows_alone() if cap is None else people(), (wards(),), (ages(),), cap)
    got = [part.tolist() for part in sums.run(engine_with(rows))]
    assert got == expected(rows, [clipped(row[2], 0, 100) for row in rows], (*WARDS, None), cap)


@pytest.mark.parametrize(
    ("low", "high", "exponent", "centre"),
    [(0, 60, 20, 0.0), (-10, 60, 24, 25.0), (-1e12, 1e12, -11, 0.0), (-2, 2, -1, 0.5)],
)
def test_reals_are_rounded_to_the_grid_row_by_row(low, high, exponent, centre):
    rows = random_rows(9)
    value = grid_value(column("x"), low, high, exponent, centre)
    inside = [on_grid(row[3], low, high, exponent, centre) for row in rows]
    assert min(filter(None, inside)) >= value.low
    assert max(filter(None, inside)) <= value.high
    got = [part.tolist() for part in Sums(people(), (wards(),), (value,), 4).run(engine_with(rows))]
    assert got == expected(rows, inside, (*WARDS, None), 4)


def test_the_ends_of_a_grid_are_reached_exactly():
    value = grid_value(column("x"), -10, 60, 24, 25.0)
    sums = Sums(rows_alone(), (), (value,), None)
    assert sums.run(engine_with([(1, "a", 0, 1e9)]))[1].tolist() == [value.high] == [35 * 2**24]
    assert sums.run(engine_with([(1, "a", 0, -1e9)]))[1].tolist() == [value.low] == [-35 * 2**24]


def test_a_person_with_too_many_rows_counts_each_of_them_for_less():
    rows = [(1, "a", 10, 0.0)] * 3 + [(1, "b", 10, 0.0)] * 4 + [(2, "a", 5, 0.0)]
    count, total = Sums(people(), (wards(*WARDS),), (ages(),), 2).run(engine_with(rows))
    each = 2 * WEIGHT // 7
    assert count.tolist() == [3 * each + WEIGHT, 4 * each, 0]
    assert total.tolist() == [30 * each + 5 * WEIGHT, 40 * each, 0]


def test_a_person_with_exactly_as_many_rows_as_allowed_counts_them_whole():
    count, total = Sums(people(), (), (ages(),), 3).run(engine_with([(1, "a", 100, 0.0)] * 3))
    assert (count.tolist(), total.tolist()) == ([3 * WEIGHT], [300 * WEIGHT])


def test_null_adds_nothing_to_a_sum_but_is_a_row():
    count, total = Sums(rows_alone(), (), (ages(10, 20),), None).run(engine_with([(1, "a", None, None)] * 5))
    assert (count.tolist(), total.tolist()) == ([5], [0])


def test_rows_of_groups_that_are_not_listed_are_dropped():
    rows = [(1, "a", 1, 0.0), (2, "elsewhere", 1, 0.0), (3, None, 1, 0.0)]
    assert Sums(people(), (wards("a", "b"),), (), 1).run(engine_with(rows))[0].tolist() == [WEIGHT, 0]


def test_null_is_a_group_if_it_is_listed():
    rows = [(1, "a", 1, 0.0), (2, None, 1, 0.0), (3, None, 1, 0.0)]
    assert Sums(people(), (wards(None, "a"),), (), 1).run(engine_with(rows))[0].tolist() == [2 * WEIGHT, WEIGHT]


def test_groups_of_two_keys_come_with_the_last_key_running_fastest():
    rows = [(1, "b", 1, 0.0), (2, "b", 0, 0.0), (3, "a", None, 0.0)]
    keys = (wards("a", "b"), GroupKey("age", column("age"), (0, 1, None), "integer"))
    assert Sums(rows_alone(), keys, (), None).run(engine_with(rows))[0].tolist() == [0, 0, 1, 1, 1, 0]


@pytest.mark.parametrize("listed", [range(5000), tuple(range(5000)), (*range(5000), None)])
def test_long_lists_of_groups_come_in_their_order(listed):
    rows = [(unit, "a", age, 0.0) for unit, age in enumerate((4999, 0, 17, 17, 5000, -1, None))]
    got = Sums(people(), (GroupKey("age", column("age"), listed, "integer"),), (), 1).run(engine_with(rows))[0]
    assert {i: int(n) for i, n in enumerate(got) if n} == {0: WEIGHT, 17: 2 * WEIGHT, 4999: WEIGHT} | (
        {5000: WEIGHT} if len(listed) == 5001 else {}
    )


@pytest.mark.parametrize(
    ("sql", "values", "kind", "counts"),
    [
        ("age > 1", (True, False, None), "boolean", [2, 1, 1]),
        ("DATE '2026-01-01' + CAST(age AS INTEGER)", (dt.date(2026, 1, 3), dt.date(2026, 1, 1)), "date", [2, 1]),
        ("age / 4", (0.5, 0.0), "real", [2, 1]),
        ("ward || '!'", ("a!",), "text", [4]),
    ],
)
def test_groups_may_be_of_any_type(sql, values, kind, counts):
    rows = [(1, "a", 2, 0.0), (2, "a", 2, 0.0), (3, "a", 0, 0.0), (4, "a", None, 0.0)]
    key = GroupKey("k", exp.maybe_parse(sql, dialect="duckdb"), values, kind)
    assert Sums(rows_alone(), (key,), (), None).run(engine_with(rows))[0].tolist() == counts


@pytest.mark.parametrize("cap", [None, 2])
def test_an_empty_table_gives_zeros(cap):
    sums = Sums(people() if cap else rows_alone(), (wards(),), (ages(),), cap)
    assert [part.tolist() for part in sums.run(engine_with([]))] == [[0] * 4, [0] * 4]
    alone = Sums(people() if cap else rows_alone(), (), (ages(),), cap)
    assert [part.tolist() for part in alone.run(engine_with([]))] == [[0], [0]]


# Large sums


def test_sums_beyond_64_bits_are_exact_python_integers():
    top = 2**42
    rows = (
        [(unit, "a", top, 0.0) for unit in range(3) for _ in range(8)] + [(9, "b", -top, 0.0)] * 8 + [(7, "c", 1, 0.0)]
    )
    count, total = Sums(people(), (wards(),), (ages(-top, top),), 8).run(engine_with(rows))
    assert total.dtype == object
    assert total.tolist() == [3 * 8 * WEIGHT * top, -8 * WEIGHT * top, WEIGHT, 0]
    assert count.tolist() == [24 * WEIGHT, 8 * WEIGHT, WEIGHT, 0]


def test_sums_within_64_bits_are_numpy_integers():
    rows = [(unit, "a", -(2**42), 0.0) for unit in range(2)]
    total = Sums(people(), (), (ages(-(2**42), 2**42),), 1).run(engine_with(rows))[1]
    assert total.dtype == np.int64
    assert total.tolist() == [-2 * WEIGHT * 2**42]


def test_exact_sums_are_read_from_any_arrow_type_and_null_is_zero():
    around = [2**63 - 1, -(2**63), 0, None, -1]
    for kind in (pa.decimal128(38, 0), pa.int64()):
        got = integers(pa.chunked_array([pa.array(around, kind)]).slice(1))
        assert (got.dtype, got.tolist()) == (np.int64, [-(2**63), 0, 0, -1])
    for beyond in (2**63, -(2**63) - 1, 10**37):
        got = integers(pa.chunked_array([pa.array([beyond, 5], pa.decimal128(38, 0))]))
        assert (got.dtype, got.tolist()) == (object, [beyond, 5])


# People


def by_hand(rows, groups, cap):
    """How much each group is worth if every person shares `cap` among the groups they are in."""
    pairs = {(row[0], row[1]) for row in rows if row[1] in groups}
    each = weights([unit for unit, _ in pairs], cap)
    return [sum(each[unit] for unit, ward in pairs if ward == group) for group in groups]


@pytest.mark.parametrize("cap", [1, 2, 4])
def test_people_are_counted_once_in_a_group_and_share_what_they_may_count(cap):
    rows = random_rows(3)
    got = DistinctUnits(people(), (wards(),), cap).as_sums().run(engine_with(rows))[0]
    assert got.tolist() == by_hand(rows, (*WARDS, None), cap)


def test_people_without_groups_count_once():
    rows = [(1, "a", 0, 0.0)] * 50 + [(2, None, 0, 0.0)]
    assert DistinctUnits(people(), (), 1).as_sums().run(engine_with(rows))[0].tolist() == [2 * WEIGHT]


# Different values


def kept(rows, groups, most, secret):
    """The (group, value) pairs of every person that count: those whose keyed hashes are smallest."""
    pairs = {(row[0], row[1], row[2]) for row in rows if row[1] in groups and row[2] is not None}
    found = set()
    for unit in {unit for unit, _, _ in pairs}:
        own = [(ward, age) for one, ward, age in pairs if one == unit]
        own.sort(key=lambda pair: hashlib.md5(f"{secret}|{pair[0] or '~'}|{pair[1]}".encode()).hexdigest())
        found |= set(own[:most])
    return [sum(ward == group for ward, _ in found) for group in groups]


@pytest.mark.parametrize("most", [1, 2, 5, 100])
def test_different_values_are_those_of_the_pairs_that_a_keyed_hash_keeps(most):
    rows = random_rows(8, 100)
    pairs = DistinctPairs(people(), (wards(),), column("age"), most, "a secret")
    assert pairs.run(engine_with(rows))[0].tolist() == kept(rows, (*WARDS, None), most, "a secret")


def test_two_people_with_the_same_values_keep_the_same_of_them():
    rows = [(unit, "a", age, 0.0) for unit in (1, 2) for age in range(50)]
    assert DistinctPairs(people(), (), column("age"), 10, "one").run(engine_with(rows))[0].tolist() == [10]


# Sensitivity: stated = observed, for the worst people


def change(sums, base, person):
    """How much a person changes each statistic, all groups together."""
    before, after = (sums.run(engine_with(rows)) for rows in (base, [*base, *person]))
    return [int(np.abs(one - other).sum()) for one, other in zip(before, after, strict=True)]


@pytest.mark.parametrize(("low", "high"), [(0, 100), (-30, 20), (-100, -50)])
def test_the_worst_person_changes_sums_by_exactly_the_stated_sensitivity(low, high):
    cap, base = 5, random_rows(1, 60)
    sums = Sums(people(), (wards(),), (ages(low, high),), cap)
    stated = [sums.sensitivity(), sums.sensitivity(0)]
    assert stated == [cap * WEIGHT, cap * WEIGHT * max(abs(low), abs(high))]
    seen = [0, 0]
    for n in (1, 5, 6, 7, 1023, 6000):
        for age in (-(10**9), 10**9, None):
            person = [(999, WARDS[i % 3] if n % 2 else "a", age, 0.0) for i in range(n)]
            changed = change(sums, base, person)
            assert all(got <= most for got, most in zip(changed, stated, strict=True))
            seen = [max(pair) for pair in zip(seen, changed, strict=True)]
    assert seen == stated


def test_the_worst_row_changes_sums_by_exactly_the_stated_sensitivity():
    both = exp.maybe_parse("SELECT * FROM t UNION ALL SELECT * FROM t")
    rows = exp.select().from_(exp.Subquery(this=both, alias=exp.TableAlias(this=exp.to_identifier("u"))))
    sums = Sums(rows, (wards(),), (ages(),), None, copies=2)
    assert change(sums, random_rows(2, 20), [(5, "b", 10**6, 0.0)]) == [2, 200]
    assert [sums.sensitivity(), sums.sensitivity(0)] == [2, 200]


def test_the_worst_person_changes_numbers_of_people_by_exactly_the_stated_sensitivity():
    base, seen = random_rows(4, 60), 0
    sums = DistinctUnits(people(), (wards(),), 2).as_sums()
    for groups in [("a",), ("a", "b"), ("a", "b", "c"), (*WARDS, None), (*WARDS, None, "elsewhere")]:
        (changed,) = change(sums, base, [(999, ward, 0, 0.0) for ward in groups] * 20)
        assert changed <= sums.sensitivity()
        seen = max(seen, changed)
    assert seen == sums.sensitivity() == 2 * WEIGHT


def test_the_worst_person_changes_numbers_of_values_by_exactly_the_stated_sensitivity():
    pairs = DistinctPairs(people(), (wards(),), column("age"), 4, "a secret")
    person = [(999, WARDS[i % 3], 1000 + i, 0.0) for i in range(200)]
    assert change(pairs, random_rows(5, 60), person) == [pairs.sensitivity()] == [4]


def test_a_person_changes_no_more_than_their_own_groups():
    sums = Sums(people(), (wards(),), (ages(),), 2)
    base = random_rows(6, 100)
    before, after = (sums.run(engine_with(rows)) for rows in (base, [*base, *[(999, "b", 50, 0.0)] * 9]))
    assert [(a != b).nonzero()[0].tolist() for a, b in zip(before, after, strict=True)] == [[1], [1]]


# Refusals


@pytest.mark.parametrize(("low", "high"), [(1, 0), (0, 2**42 + 1), (-(2**42) - 1, 0)])
def test_a_value_without_fitting_limits_is_refused(low, high):
    with pytest.raises(BadBounds, match="low <= high"):
        Value(column("age"), low, high)


def test_a_group_without_values_is_refused():
    with pytest.raises(BadSchema, match="group ward has no values"):
        GroupKey("ward", column("ward"), (), "text")


def test_bounds_in_which_an_engine_could_underflow_are_refused_before_a_row_is_read():
    schema = Schema.load(
        {"unit": "row", "tables": {"t": {"columns": {"x": {"type": "real", "bounds": [-1e300, 1e300]}}}}}
    )
    tables = open_tables(pa.table({"x": [1.0]}), schema)
    for summary in (sums, cross_products):
        with pytest.raises(BadSchema, match="beyond 1e100"):
            summary(tables, "t", ["x"])
    with pytest.raises(BadSchema, match="beyond 1e100"):
        axis(schema.tables["t"].columns["x"], 10)
    tables.close()
