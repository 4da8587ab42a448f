"""The report of a release: one page that says what holds, what is left, and what to do next; safe to open."""

import re
from html.parser import HTMLParser

import numpy as np
import pytest

from cloister.anonymize.algorithms.lattice import Evaluated, Search
from cloister.anonymize.checking.verifier import check
from cloister.anonymize.models import DistinctDiversity, KAnonymity
from cloister.anonymize.release import mondrian, recode
from cloister.anonymize.report.charts import lattice_chart, sizes_chart
from cloister.anonymize.report.page import release_page, risk_page
from cloister.anonymize.risks.attackers import risk
from cloister.anonymize.table import AnonymizedTable
from cloister.data.rows import to_arrow

pytest.importorskip("altair", reason="charts need Altair")
HOSTILE = '<script>alert("x")</script>'
TRICKY = "a\"><img src=x onerror=alert(1)>'&"


def patients(
    rows: int = 240, names: tuple[str, ...] = ("age", "zip", "disease", "name", "note")
) -> dict[str, list[object]]:
    draw = np.random.default_rng(3)
    age, zip_code, disease, name, note = names
    return {
        age: draw.integers(20, 60, rows).tolist(),
        zip_code: [f"{code}" for code in draw.integers(33600, 33620, rows)],
        disease: draw.choice(["flu", HOSTILE, "cancer"], rows).tolist(),
        name: [f"person {number} {TRICKY}" for number in range(rows)],
        note: [TRICKY] * rows,
    }


def released(rows: dict[str, list[object]] | None = None) -> AnonymizedTable:
    table = rows or patients()
    age, zip_code, disease, name, _ = table
    return recode(
        table,
        quasi=[age, zip_code],
        sensitive=[disease],
        identifiers=[name],
        require=[KAnonymity(5), DistinctDiversity(2, disease)],
        suppression=0.1,
    )


class Reader(HTMLParser):
    """The tags and attributes of a page, and the nesting of its tags."""

    VOID = frozenset({"meta", "br", "img", "link", "input"})

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(page)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def test_the_page_shows_the_label_large_and_what_the_verifier_confirms() -> None:
    release = released()
    page = Reader(release_page(release, title="visits.csv"))
    assert "k=5, l=2 (disease): not differentially private" in page.text
    assert "Confirmed by the independent verifier." in page.text
    assert ("p", {"class": "label"}) in page.tags
    assert f"{release.rows.num_rows:,}" in page.text


def test_the_page_has_gauges_attacks_losses_and_the_lattice() -> None:
    page = Reader(release_page(released()))
    for heading in ("Who could be found", "Attacks that remain", "What was lost", "How the levels were chosen"):
        assert heading in page.text
    assert "homogeneity of disease" in page.text
    assert "prosecutor" in page.text
    assert "Each dot is one combination of levels" in page.text
    assert len([tag for tag, _ in page.tags if tag == "svg"]) >= 5


def test_there_is_one_next_step() -> None:
    page = release_page(released())
    assert page.count('class="next"') == 1


def test_a_release_that_is_not_confirmed_says_so() -> None:
    release = released()
    object.__setattr__(release, "requirement", type(release.requirement)((KAnonymity(100),)))
    page = Reader(release_page(release)).text
    assert "NOT confirmed." in page
    assert "Do not publish it: k is" in page


@pytest.mark.parametrize(
    "names",
    [
        ("age", "zip", "disease", "name", "note"),
        (HOSTILE, TRICKY, "</style><script>1</script>", "</title><b>", "<!--"),
    ],
)
def test_hostile_values_and_names_stay_text(names: tuple[str, ...]) -> None:
    rows = patients(names=names)
    page = release_page(released(rows), title=TRICKY, originals=to_arrow(rows))
    read = Reader(page)
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "img", "iframe", "b" if "b" not in page else "object"}
    assert not [name for _, attributes in read.tags for name in attributes if name.startswith("on")]
    assert HOSTILE in read.text


def test_the_page_loads_nothing() -> None:
    page = release_page(released())
    assert "default-src 'none'" in page
    for _, attributes in Reader(page).tags:
        assert not {"src", "href", "xlink:href"} & set(attributes)
    assert not re.search(r"url\((?!#)|@import", page)


def test_original_rows_are_shown_only_if_given_and_identifiers_never() -> None:
    rows = patients()
    assert "Before" not in release_page(released(rows))
    page = release_page(released(rows), originals=to_arrow(rows))
    assert "Before: first rows of the original table" in page
    assert "person 0" not in page


def test_every_picture_has_words_for_those_who_do_not_see_it() -> None:
    read = Reader(release_page(released()))
    figures = [attributes for tag, attributes in read.tags if tag == "figure"]
    assert len(figures) == 4
    assert all(len(figure.get("aria-label") or "") > 40 for figure in figures)
    assert read.tags[0] == ("html", {"lang": "en"})
    assert all(attributes.get("scope") in ("col", "row") for tag, attributes in read.tags if tag == "th")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_has_enough_contrast(scheme: str) -> None:
    style = release_page(released()).partition("<style>")[2].partition("</style>")[0]
    block = style.split("@media")[0] if scheme == "light" else style.split("@media")[1]
    colours = dict(re.findall(r"--(\w+): (#[0-9a-f]{6})", block))
    for text in ("ink", "soft", "bad", "good"):
        for ground in ("card", "back"):
            assert contrast(colours[text], colours[ground]) >= 4.5, (text, ground)


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_mondrian_has_no_lattice() -> None:
    rows = patients()
    release = mondrian(rows, quasi=["age", "zip"], sensitive=["disease"], identifiers=["name"], require=KAnonymity(5))
    page = release_page(release)
    assert "How the levels were chosen" not in page
    assert "Mondrian, strict" in page


def test_the_risks_of_any_table_are_a_page() -> None:
    rows = to_arrow(patients())
    report = risk(rows, quasi=["age", "zip"], sensitive=["disease"])
    checked = check(rows, quasi=["age", "zip"], sensitive=["disease"])
    page = Reader(risk_page(report, checked, rows, title=TRICKY))
    assert "k=1: not differentially private" in page.text
    assert TRICKY in page.text


def test_a_large_lattice_is_drawn_in_part_and_the_chosen_node_always() -> None:
    best = Evaluated((3, 3, 3, 3, 3), 0.2, 0, 9, 0.0)
    draw = np.random.default_rng(1)
    seen = {
        node: Evaluated(node, 0.5 if sum(node) > 14 else np.inf, 0, 5, 0.0)
        for node in {tuple(int(level) for level in draw.integers(0, 8, 5)) for _ in range(4000)}
    }
    seen[best.node] = best
    search = Search(best, 0.1, len(seen), 8**5, 1.0, [], (7,) * 5, seen)
    drawn, caption = lattice_chart(search, ["a", "b", "c", "d", "e"])
    assert len(drawn) < 2_000_000
    assert "of them are drawn" in caption
    assert "at most 100.0 % above" in caption
    assert "kind: chosen" in drawn


def test_one_class_has_one_bar() -> None:
    drawn, caption = sizes_chart(to_arrow({"a": ["*"] * 7}), ["a"], 5)
    assert "7 rows in 1 class of" in caption
    assert "<svg" in drawn
