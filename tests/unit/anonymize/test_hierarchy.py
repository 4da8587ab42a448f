import datetime as dt
import itertools
import re
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.coded import CodedColumn
from cloister.anonymize.hierarchy import Hierarchy, automatic
from cloister.attack.tables.generalised import Domain
from cloister.data.schema import Column
from cloister.privacy.errors import BadInput


def levels(hierarchy, values):
    """Return the labels of each value, level by level."""
    column = CodedColumn.of("c", pa.array(values))
    coded = hierarchy.over(column)
    places = {value: place for place, value in enumerate(column.values)}
    return {
        value: [coded.labels[level][coded.maps[level][places[value]]] for level in range(1, coded.height + 1)]
        for value in values
    }


def test_a_file_in_the_format_of_arx_is_read(tmp_path):
    file = tmp_path / "education.csv"
    file.write_text("\ufeffBachelors;Undergraduate;Higher;*\n11th;High School;Secondary;*\n", encoding="utf-8")
    assert levels(Hierarchy.read_csv(file), ["11th", "Bachelors"]) == {
        "11th": ["High School", "Secondary", "*"],
        "Bachelors": ["Undergraduate", "Higher", "*"],
    }


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("a;x;*\na;y;*\n", "twice"),
        ("a;x;*\nb;*\n", "equally many"),
        ("a;x;top;*\nb;x;other;*\n", "two different parents"),
        ("", "each value"),
    ],
)
def test_a_file_that_is_no_tree_is_refused(tmp_path, text, word):
    file = tmp_path / "h.csv"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(BadInput, match=word):
        Hierarchy.read_csv(file)


def test_a_value_that_is_not_listed_is_refused_without_showing_it():
    column = CodedColumn.of("job", pa.array(["nurse", "pilot"]))
    with pytest.raises(BadInput, match=r"hierarchy of job lacks 1 of its 2 values") as refusal:
        Hierarchy.table({"nurse": ["care"]}).over(column)
    assert "pilot" not in str(refusal.value)  # a value is private


def test_intervals_nest_and_values_beyond_the_bounds_have_labels_of_their_own():
    made = levels(Hierarchy.intervals(0, 100, [5, 10, 50]), [-3, 0, 37, 99, 100])
    assert made[37] == ["35-39", "30-39", "0-49", "*"]
    assert made[-3][:2] == ["<0", "<0"]
    assert made[100][:2] == [">=100", ">=100"]
    assert made[99][0] == "95-99"


def test_intervals_of_reals_have_open_ends():
    assert levels(Hierarchy.intervals(0, 1, [0.25]), [0.25, 0.9]) == {
        0.25: ["[0.25, 0.5)", "*"],
        0.9: ["[0.75, 1)", "*"],
    }


@pytest.mark.parametrize("widths", [[], [0], [5, 7], [10, 5], [float("nan")]])
def test_widths_that_do_not_nest_are_refused(widths):
    with pytest.raises(BadInput, match="width"):
        Hierarchy.intervals(0, 100, widths)


def test_dates_become_months_quarters_years_and_decades():
    day = dt.date(2021, 5, 3)
    assert levels(Hierarchy.dates(), [day])[day] == ["2021-05", "2021-Q2", "2021", "2020-2029", "*"]
    moment = dt.datetime(1999, 12, 31, 23, 59)
    assert levels(Hierarchy.dates("year", "century"), [moment])[moment] == ["1999", "1900-1999", "*"]


def test_masking_hides_one_more_character_at_each_level_and_not_the_length():
    made = levels(Hierarchy.masking(5), ["33617", "336", "336171"])
    assert made["33617"] == ["3361*", "336**", "33***", "3****", "*"]
    assert made["336"][1] == made["336171"][1] == "336**"


def test_a_tree_may_have_branches_of_different_depth():
    tree = Hierarchy.tree({"Europe": {"west": ["fr"], "east": ["pl"]}, "Asia": ["jp"]})
    assert levels(tree, ["fr", "jp"]) == {"fr": ["west", "Europe", "*"], "jp": ["Asia", "Asia", "*"]}


def test_a_missing_value_stays_missing_up_to_the_last_level():
    column = CodedColumn.of("age", pa.array([31, None, 33]))
    coded = Hierarchy.intervals(0, 100, [10]).over(column)
    assert coded.labels[1][coded.maps[1][2]] == ""
    assert coded.maps[1][0] == coded.maps[1][1] != coded.maps[1][2]
    assert coded.labels[2] == ("*",)


def test_the_penalty_grows_with_the_level_up_to_one():
    column = CodedColumn.of("age", pa.array([31, 33, 80]))
    losses = [loss.tolist() for loss in Hierarchy.intervals(0, 100, [5, 10]).over(column).losses]
    assert losses == [[0, 0, 0], [0.05] * 3, [0.1] * 3, [1.0] * 3]


def test_a_hierarchy_of_the_wrong_kind_is_refused():
    with pytest.raises(BadInput, match="does not fit its type"):
        Hierarchy.intervals(0, 10, [5]).over(CodedColumn.of("name", pa.array(["Alex"])))


@pytest.mark.parametrize(
    ("values", "facts", "kind"),
    [
        ([31, 47], None, "intervals of 5, 10"),
        ([31, 47], Column("c", "integer", bounds=(0, 99)), "intervals of 5, 10, 50"),
        ([0.5, 0.75], None, "intervals"),
        ([dt.date(2020, 1, 1)], None, "dates"),
        (["33617", "33620"], None, "masking of 5"),
        (["nurse", "pilot"], None, "none"),
        ([True, False], None, "none"),
    ],
)
def test_hierarchies_are_made_from_types_and_public_facts(values, facts, kind):
    assert kind in automatic(CodedColumn.of("c", pa.array(values)), facts).kind


def test_automatic_intervals_do_not_show_the_extreme_values():
    first, second = (automatic(CodedColumn.of("c", pa.array(values))) for values in ([3, 41], [0, 77]))
    assert levels(first, [41])[41][:2] == levels(second, [41])[41][:2] == ["40-44", "40-49"]


def test_whole_labels_are_for_whole_numbers_only():
    assert levels(Hierarchy.intervals(0, 100, [5, 10]), [29.0, 30.0])[29.0] == ["25-29", "20-29", "*"]
    assert levels(Hierarchy.intervals(0, 100, [5, 10]), [29.5, 30.0]) == {
        29.5: ["[25, 30)", "[20, 30)", "*"],
        30.0: ["[30, 35)", "[30, 40)", "*"],
    }


def test_edges_are_printed_with_all_their_digits():
    fine = Hierarchy.intervals(1_000_000.5, 2_000_000.5, [1, 10])
    assert [fine.levels[0](value) for value in (1_000_000.6, 1_000_003.6)] == [
        "[1000000.5, 1000001.5)",
        "[1000003.5, 1000004.5)",
    ]
    assert Hierarchy.intervals(0, 1, [0.1]).levels[0](0.3) == "[0.3, 0.4)"
    assert Hierarchy.intervals(0, 1_234_567, [1000]).levels[0](1_234_567) == ">=1234567"
    assert Hierarchy.intervals(0, 10**15, [1]).levels[0](123_456_789_012_345.5) == "[123456789012345, 123456789012346)"


NUMBERS = st.one_of(
    st.integers(-(10**15), 10**15),
    st.floats(-1e15, 1e15),
    st.decimals(-1000, 1000, places=3),
    st.integers(-50, 50).map(lambda number: number / 10),
)


def covers(label, value):
    """True if a label, read as it is printed, contains a value as it is printed."""
    number = Decimal(str(value))
    if label == "*":
        return True
    if label[0] in "<>":
        return number < Decimal(label[1:]) if label[0] == "<" else number >= Decimal(label[2:])
    if label[0] == "[":
        low, high = map(Decimal, label[1:-1].split(", "))
        return low <= number < high
    low, high = re.fullmatch(r"(-?\d+)-(-?\d+)", label).groups()
    return Decimal(low) <= number <= Decimal(high)


@settings(deadline=None, max_examples=400)
@given(
    values=st.lists(NUMBERS, min_size=1, max_size=12),
    low=st.sampled_from([0, -7, 0.5, -0.3, 1_000_000.5]),
    span=st.sampled_from([1, 100, 0.7, 2_000_000]),
    widths=st.sampled_from([[1], [0.1, 0.2], [0.3, 0.9], [5, 10, 20], [1000, 100_000]]),
)
def test_every_label_of_an_interval_contains_its_value_and_levels_nest(values, low, span, widths):
    kinds = {"int": int, "float": float, "Decimal": Decimal}
    for kind in kinds:
        own = [value for value in values if type(value).__name__ == kind]
        if not own:
            continue
        column = CodedColumn("x", tuple(sorted(set(own))), np.arange(len(set(own))))
        for hierarchy in (Hierarchy.intervals(low, low + span, widths), automatic(column)):
            coded = hierarchy.over(column)
            for level in range(1, coded.height + 1):
                for place, value in enumerate(column.values):
                    assert covers(coded.labels[level][coded.maps[level][place]], value)
                pairs = set(zip(coded.maps[level - 1].tolist(), coded.maps[level].tolist(), strict=True))
                assert len(pairs) == len(set(coded.maps[level - 1].tolist()))  # one parent each


@settings(deadline=None, max_examples=100)
@given(st.lists(st.datetimes(dt.datetime(1000, 1, 1), dt.datetime(2900, 1, 1)), min_size=1, max_size=10, unique=True))
def test_levels_of_dates_nest(moments):
    for values in (sorted(moments), sorted({moment.date() for moment in moments})):
        coded = Hierarchy.dates(*("month", "quarter", "year", "decade", "century")).over(
            CodedColumn("x", tuple(values), np.arange(len(values)))
        )
        for lower, upper in itertools.pairwise(coded.maps):
            assert len(set(zip(lower.tolist(), upper.tolist(), strict=True))) == len(set(lower.tolist()))


@pytest.mark.parametrize(
    "hierarchy", [Hierarchy.intervals(0, 20, [5, 10]), Hierarchy.flat(), Hierarchy.table({"1": ["a"], "11": ["b"]})]
)
def test_the_labels_of_a_column_are_listed(hierarchy):
    column = CodedColumn.of("s", pa.array([1, 11, None]))
    listed = hierarchy.listed(column)
    assert listed.ancestors == {str(value): tuple(names) for value, names in hierarchy.paths(column).items()}
    assert levels(listed, [1, 11]) == levels(hierarchy, [1, 11])


def test_categories_that_are_numbers_or_paths_have_more_than_one_step():
    grades = Column("c", "integer", categories=(1, 2, 3, 7, 12))
    made = automatic(CodedColumn.of("c", pa.array([2, 12])), grades)
    assert levels(made, [2, 12]) == {2: ["1-5", "1-10", "*"], 12: ["11-12", "11-12", "*"]}
    places = Column("c", "text", categories=("Europe/France/Lyon", "Europe/Spain/Vigo", "Asia/Japan"))
    made = automatic(CodedColumn.of("c", pa.array(["Europe/France/Lyon", "Asia/Japan"])), places)
    assert levels(made, ["Europe/France/Lyon", "Asia/Japan"]) == {
        "Europe/France/Lyon": ["Europe/France", "Europe", "*"],
        "Asia/Japan": ["Asia/Japan", "Asia", "*"],
    }
    jobs = Column("c", "text", categories=("nurse", "pilot"))
    assert automatic(CodedColumn.of("c", pa.array(["nurse"])), jobs).height == 1


@pytest.mark.parametrize(
    "labels",
    [
        {"a": [""], "b": ["x"]},
        {"a": ["x", ""], "b": ["y", ""]},
        {"a": ["", "top"], "b": ["y", "top"]},
    ],
)
def test_an_empty_label_is_refused_as_it_would_be_read_as_a_missing_value(labels):
    column = CodedColumn.of("job", pa.array(["a", "b", None]))
    with pytest.raises(BadInput, match="hierarchy of job has an empty label"):
        Hierarchy.table(labels).over(column)


@pytest.mark.parametrize(
    "values", [[float("inf"), 1.5, None], [1e308, -1e308, 0.5], [float("-inf")], [5e-324, 1.7e308], [1e300, 2.0]]
)
def test_huge_and_infinite_numbers_have_automatic_labels_that_contain_them(values):
    column = CodedColumn.of("x", pa.array(values, pa.float64()))
    coded = automatic(column).over(column)
    domain = Domain(pa.array([value for value in column.values if value is not None]))
    for level in range(1, coded.height + 1):
        for place, value in enumerate(column.values):
            if value is not None:
                assert place in domain.members(coded.labels[level][coded.maps[level][place]])
