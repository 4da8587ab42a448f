"""Every label that a release prints is read back as a set that contains the original value."""

import datetime as dt
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.coded import CodedColumn
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import KAnonymity
from cloister.anonymize.release import mondrian
from cloister.attack.tables.generalised import Domain, containment

_DATES = st.dates(dt.date(1600, 1, 1), dt.date(2400, 12, 31))
_TIMES = st.datetimes(dt.datetime(1600, 1, 1), dt.datetime(2400, 12, 31))
_ZONED = st.datetimes(dt.datetime(1900, 1, 1), dt.datetime(2100, 1, 1), timezones=st.just(dt.UTC))
_WORDS = st.text("ab1 ,{}\"'-*é", min_size=1, max_size=6)
_CODES = st.text("AB01", min_size=1, max_size=8)
_UNITS = ("month", "quarter", "year", "decade", "century")


def _tree(values):
    """Return a hierarchy whose labels look like numbers, years and words."""
    return Hierarchy.table({v: [("20-29", "2001", "some words")[len(v) % 3], "a, b"] for v in values})


KINDS = {
    "intervals of whole numbers": (st.integers(-60, 160), lambda _: Hierarchy.intervals(-20, 130, [5, 10, 50])),
    "intervals of real numbers": (
        st.floats(-5, 15).map(lambda x: round(x, 2)), lambda _: Hierarchy.intervals(0, 10, [0.25, 0.5, 5])),
    "whole intervals of real numbers": (
        st.floats(-20, 120).map(lambda x: round(x, 3)), lambda _: Hierarchy.intervals(0, 100, [5, 10])),
    "dates": (_DATES, lambda _: Hierarchy.dates(*_UNITS)),
    "times": (_TIMES, lambda _: Hierarchy.dates(*_UNITS)),
    "times with a zone": (_ZONED, lambda _: Hierarchy.dates(*_UNITS)),
    "dates as text": (_DATES.map(str), lambda _: Hierarchy.dates(*_UNITS)),
    "masking": (_CODES, lambda _: Hierarchy.masking(5)),
    "masking from the left": (_CODES, lambda _: Hierarchy.masking(5, from_right=False)),
    "masking of numbers": (st.integers(0, 99_999), lambda _: Hierarchy.masking(5)),
    "flat": (_WORDS, lambda _: Hierarchy.flat()),
}  # fmt: skip


def _labels(hierarchy, column):
    coded = hierarchy.over(column)
    for level in range(coded.height + 1):
        words = column.values if level == 0 else coded.labels[level]
        yield [words[number] for number in coded.maps[level]]


@pytest.mark.parametrize("kind", KINDS)
@given(st.data())
@settings(max_examples=80, deadline=None)
def test_each_value_is_a_member_of_its_own_label_at_every_level(kind, data):
    values, hierarchy = KINDS[kind]
    cells = pa.array(data.draw(st.lists(values, min_size=1, max_size=12)))
    column = CodedColumn.of("x", cells)
    domain = Domain(cells)
    for labels in _labels(hierarchy(column.values), column):
        for value, label in zip(column.values, labels, strict=True):
            assert value in [cells[int(i)].as_py() for i in domain.members(label)], (value, label)


@given(st.lists(_WORDS, min_size=1, max_size=12))
@settings(max_examples=80, deadline=None)
def test_each_value_is_a_member_of_the_labels_of_a_table(words):
    hierarchy = _tree(words)
    column = CodedColumn.of("x", pa.array(words))
    for labels in _labels(hierarchy, column):
        for value, label in zip(column.values, labels, strict=True):
            reading = Domain(pa.array(words), hierarchy.ancestors).read(label)
            assert reading.kind in ("exact", "label")
            assert value in [words[int(i)] for i in reading.positions], (value, label)


TYPES = {
    "whole numbers": st.integers(-(2**62), 2**62),
    "real numbers": st.floats(-1e150, 1e150).map(lambda x: 0.0 if abs(x) < 1e-150 else x),
    "decimals": st.decimals(-1000, 1000, places=2).map(lambda x: Decimal("0.00") if x == 0 else x),
    "dates": st.dates(dt.date(1000, 1, 1)),
    "times": st.datetimes(dt.datetime(1700, 1, 1), dt.datetime(2200, 1, 1)),
    "times with a zone": _ZONED,
    "times of day": st.times(),
    "durations": st.timedeltas(dt.timedelta(days=-99_999), dt.timedelta(days=99_999)),
    "words": _WORDS,
    "yes and no": st.booleans(),
}


@pytest.mark.parametrize("kind", TYPES)
@given(st.data())
@settings(max_examples=60, deadline=None)
def test_each_value_is_a_member_of_its_box_whatever_its_type(kind, data):
    cells = pa.array(data.draw(st.lists(st.one_of(st.none(), TYPES[kind]), min_size=2, max_size=12)))
    if pa.types.is_null(cells.type):
        return
    released = mondrian(pa.table({"x": cells}), require=KAnonymity(2), quasi=["x"]).rows.column("x").to_pylist()
    domain = Domain(cells)
    for value, label in zip(cells.to_pylist(), released, strict=True):
        assert value in [cells[int(i)].as_py() for i in domain.members(label)], (value, label)


@given(st.lists(_TIMES, min_size=2, max_size=10), st.sampled_from(range(len(_UNITS))))
@settings(max_examples=60, deadline=None)
def test_periods_are_read_exactly(times, level):
    name = Hierarchy.dates(*_UNITS).levels[level]
    cells = pa.array(times)
    labels = list(dict.fromkeys(map(name, times)))
    pairs = containment(pa.array(labels), cells)
    found = {(labels[a], times[b]) for a, b in zip(pairs.released, pairs.known, strict=True)}
    assert found == {(name(time), time) for time in times}
