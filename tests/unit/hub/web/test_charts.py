"""Pictures and words: what is drawn of an answer, and how numbers are written."""

import re
from typing import Any

import pytest

from cloister.hub.core.cache import Cache
from cloister.hub.web import charts, survey_charts
from cloister.hub.web.words import cell_text, column_digits, group_text, iso, loss_text, number_text, when
from cloister.privacy.loss import Loss, epsilon, rho


def cell(value: Any, width: float | None = None) -> dict[str, Any]:
    return {"value": value} if width is None else {"value": value, "low": value - width, "high": value + width}


def table(groups: list[str], rows: list[list[Any]]) -> dict[str, Any]:
    columns = [{"name": name, "number": False} for name in groups] + [{"name": "n", "number": True}]
    return {"columns": columns, "rows": rows}


WARDS = table(["ward"], [[cell("cardiology"), cell(120.0, 20)], [cell("surgery"), cell(80.0, 20)]])


def test_a_picture_says_what_it_shows_to_those_who_do_not_see_it() -> None:
    (picture,) = charts.pictures(WARDS)
    assert picture.text == "n by ward, with intervals. cardiology: 120 [100, 140]; surgery: 80 [60, 100]."


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("size", ["wide", "half", "narrow"])
def test_a_picture_names_its_groups_in_every_size_and_theme(theme: charts.Theme, size: charts.Size) -> None:
    drawn = charts.svg(WARDS, charts.pictures(WARDS)[0], theme, size)
    assert drawn.startswith("<svg")
    assert all(word in drawn for word in (">cardiology<", ">surgery<"))
    assert ("120 [100, 140]" in drawn) is (size != "narrow")
    assert "http" not in drawn.replace("http://www.w3.org/", "")


def test_an_interval_is_drawn_where_it_lies() -> None:
    """The middle of each line is its point: half-widths to both sides are the same."""
    drawn = charts.svg(WARDS, charts.pictures(WARDS)[0])
    lines = re.findall(
        r'aria-roledescription="rule mark"[^>]*transform="translate\(([\d.]+),[\d.]+\)"[^>]*x2="(-?[\d.]+)"', drawn
    )
    points = re.findall(r'aria-roledescription="point"[^>]*transform="translate\(([\d.]+),', drawn)
    assert len(lines) == len(points) == 2
    for (start, reach), point in zip(lines, points, strict=True):
        assert float(start) + float(reach) / 2 == pytest.approx(float(point), abs=0.5)


def test_numbers_along_an_axis_and_two_groups_by_colour_are_drawn() -> None:
    ages = table(["age"], [[cell(age), cell(300.0 - age, 25)] for age in range(0, 100, 10)])
    assert "age" in charts.svg(ages, charts.pictures(ages)[0])
    two = table(["ward", "year"], [[cell(w), cell(y), cell(10.0, 2)] for w in "ab" for y in (2024, 2025)])
    drawn = charts.svg(two, charts.pictures(two)[0])
    assert ">2024<" in drawn
    assert ">2025<" in drawn


def test_what_cannot_be_compared_has_no_picture() -> None:
    assert charts.pictures(table([], [[cell(5.0, 1)]])) == []
    assert charts.pictures(table(["a"], [[cell("x"), cell(5.0, 1)]])) == []
    assert charts.pictures(table(["a", "b", "c"], [[cell("x")] * 3 + [cell(5.0, 1)]] * 3)) == []
    assert charts.pictures(table(["a"], [[cell(str(i)), cell(5.0, 1)] for i in range(100)])) == []


def test_an_answer_without_limits_is_drawn_as_a_point() -> None:
    bare = table(["ward"], [[cell("a"), {"value": 5.0, "low": None, "high": None}], [cell("b"), cell(None)]])
    assert ">a<" in charts.svg(bare, charts.pictures(bare)[0])


def test_a_histogram_shows_every_bar_and_negative_noise() -> None:
    values = [
        {"label": f"{i} to {i + 1}", "value": 10.0 * i - 5, "low": 10.0 * i - 9, "high": 10.0 * i} for i in range(5)
    ]
    drawn = charts.bars(values, "dark")
    assert all(f">{one['label']}<" in drawn for one in values)


def test_markup_in_a_group_stays_text() -> None:
    nasty = table(["ward"], [[cell("<script>alert(1)</script>"), cell(5.0, 1)], [cell("b"), cell(6.0, 1)]])
    assert "<script" not in charts.svg(nasty, charts.pictures(nasty)[0])


# Words.


@pytest.mark.parametrize(
    ("value", "low", "high", "text"),
    [
        (123.4, 100.2, 146.1, "123 [100, 147]"),
        (5.0217, 4.6, 5.4, "5.02 [4.60, 5.40]"),
        (1234567.0, 1234000.0, 1235000.0, "1,234,567 [1,234,000, 1,235,000]"),
        (5.0, None, None, "5"),
        (None, None, None, "none"),
    ],
)
def test_a_number_is_written_as_exactly_as_its_interval_allows(value: Any, low: Any, high: Any, text: str) -> None:
    assert cell_text({"value": value, "low": low, "high": high}) == text


def test_a_column_has_the_same_decimals_in_every_row() -> None:
    cells = [cell(8.7, 12.9), cell(7.5, 8.6), cell(1.6, 5.0)]
    places = column_digits(cells)
    assert [cell_text(one, places) for one in cells] == ["8.7 [-4.3, 21.6]", "7.5 [-1.1, 16.1]", "1.6 [-3.4, 6.6]"]


def test_losses_times_and_groups_are_written_for_people() -> None:
    assert loss_text(epsilon("0.5", delta="1e-7")) == "ε 0.5, δ 1e-07"
    assert loss_text(rho("0.1").to_json()) == "ρ 0.1"
    assert loss_text(Loss.nothing("rho")) == loss_text(None) == "nothing"
    assert (iso(0), when(0)) == ("1970-01-01T00:00:00Z", "1 January 1970, 00:00 UTC")
    assert (group_text(2025), group_text(None), number_text(True), number_text(2025)) == (
        "2025",
        "missing",
        "yes",
        "2,025",
    )


def test_a_picture_of_a_large_cross_table_draws_its_largest_shares() -> None:
    names = [f"answer {place}" for place in range(400)]
    cells = [{"first": a, "second": b, "share": float(a == b == "answer 399")} for a in names for b in names]
    drawn = survey_charts.heat(cells, ("one", "two"))
    assert "answer 399" in drawn
    assert len(drawn) < 2**20


def test_pictures_are_kept_up_to_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Cache(20_000)
    monkeypatch.setattr(charts, "_PICTURES", few)
    for place in range(6):
        survey_charts.mean({"raw": place, "low": place, "high": place + 1}, (0, 10), "hours")
        assert 0 < few.total <= 20_000
    assert len(few._held) < 6
