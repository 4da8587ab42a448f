"""The report: one file, no network, no script, the owner's view in its first line, a sentence under each chart."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Schema
from cloister.privacy.errors import MissingExtra
from cloister.synth.scoring.report.page import _learned
from cloister.synth.scoring.rows import sides_of
from cloister.synth.scoring.utility.shapes import label

VISITS = {"unit": "row", "tables": {"visits": {"columns": SCHEMA["tables"]["visits"]["columns"]}}}


def visits(seed):
    made = hospital(400, seed)
    return pa.table({name: made[name] for name in made if name != "patient"})


@pytest.fixture(scope="module")
def score():
    return synth.score(visits("real"), visits("made"), VISITS, visits("held back"), "ward", boxes=50, rules=50)


@pytest.fixture(scope="module")
def page(score):
    return score.to_html(title="Visits <synthetic>")


class Reader(HTMLParser):
    def __init__(self):
        super().__init__()
        self.tags, self.text, self.open = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "br", "path", "line", "rect", "text"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        if self.open and self.open[-1] == tag:
            self.open.pop()

    def handle_data(self, data):
        if "style" not in self.open and data.strip():
            self.text.append(data.strip())


@pytest.fixture(scope="module")
def read(page):
    reader = Reader()
    reader.feed(page)
    return reader


def test_the_first_line_says_whose_view_it_is(read):
    body = [one for one in read.text if one != "Visits <synthetic>: score"]
    assert body[0].startswith("OWNER'S VIEW")
    assert "Not to be published" in body[0]
    assert read.text[read.text.index(body[0]) + 1] == "Visits <synthetic>"


def test_it_needs_no_network_and_runs_no_script(page, read):
    assert "default-src 'none'" in page
    tags = {tag for tag, _ in read.tags}
    assert not tags & {"script", "link", "iframe", "object", "image", "img"}
    outside = [value for _, attrs in read.tags for name, value in attrs.items() if name in ("href", "src")]
    assert outside == []
    assert set(re.findall(r"https?://[^\"' )]+", page)) <= {
        "http://www.w3.org/2000/svg",
        "http://www.w3.org/1999/xlink",
    }


def test_there_is_a_sentence_under_each_chart(read):
    tags = [tag for tag, _ in read.tags]
    assert tags.count("svg") == tags.count("figure") == tags.count("figcaption") >= 15
    assert all(attrs["aria-label"].endswith(".") for tag, attrs in read.tags if tag == "figure")


def test_colours_follow_light_dark_and_paper(page):
    for word in ("prefers-color-scheme: dark", "@media print", "var(--ink)", "var(--made)"):
        assert word in page
    assert "#0001" not in page  # no stand-in is left


def test_the_verdict_and_its_reasons_are_on_it(score, page):
    verdict = synth.judge(score)
    assert verdict.headline in page
    assert page.count('class="word') == len(verdict.checks)


def test_it_says_whether_models_tell_the_tables_apart(score, page):
    assert len(score.propensity) == 2
    for one in score.propensity:
        assert f"{one.ratio:.3g} for a {one.model}" in page


def test_a_board_reads_what_it_cost_whom_it_protects_and_how_it_was_made(tmp_path):
    facts = {**SCHEMA["tables"]["visits"], "never": [{"ward": "maternity", "age": {"from": 60}}]}
    schema = {**SCHEMA, "tables": {"visits": facts}}
    with cl.open(pa.table(hospital(400)), schema=schema, budget=cl.rho(9), ledger=tmp_path) as data:
        made = synth.mst(data, spend=cl.epsilon(1, delta="1e-9"), rows=300, columns=["ward", "age", "readmitted"])
    made.to_parquet(tmp_path / "made.parquet")
    for table in (made, synth.read_table(tmp_path / "made.parquet")):
        found = synth.score(visits("real"), table, VISITS, columns=["ward", "age"], boxes=5, rules=5, models=False)
        text = found.to_html()
        assert "an epsilon of 1 at delta 1e-09) for one patient (at most 8 rows)" in text
        assert "<dt>Method</dt><dd>mst: a tree of the strongest pairs of columns</dd>" in text
        assert "<dd>3 columns alone; together " in text
        assert "1 declared in the schema; every row keeps it." in text
        assert found.to_json()["made"] == found.made
    assert (
        "How it was made"
        not in synth.score(
            visits("real"), visits("made"), VISITS, columns=["ward"], boxes=5, rules=5, models=False
        ).to_html()
    )


def test_it_says_when_and_of_what_it_was_made(score, page):
    assert "Table <b>visits</b>, scored on " in page
    assert f'<time datetime="{score.scored.isoformat()}">' in page
    assert f"with Cloister {cl.__version__}." in page
    assert score.to_json()["table"] == "visits"
    assert score.to_json()["cloister"] == cl.__version__


def test_what_models_learn_stands_beside_chance(score, page):
    tile = next(one for one in re.findall(r'<div class="tile">.*?</div>', page) if "predicted" in one)
    assert f"<b>{score.learning.synthetic['logistic regression'].auc.value:.2f}</b>" in tile
    assert "chance is 0.50" in tile
    trained = {
        side: {name: replace(one, auc=None) for name, one in getattr(score.learning, side).items()}
        for side in ("synthetic", "real")
    }
    _, words = _learned(replace(score.learning, **trained))
    assert words.endswith(f"always the most frequent answer {100 * score.learning.floor:.1f}\u00a0%")


def test_only_what_can_be_negative_has_a_colour_for_it(page):
    shared = page[page.index("<h2>What tells of what</h2>") : page.index("<h2>Is it private?</h2>")]
    assert "A full cell is" in shared
    assert " bits." in shared
    assert "is negative" not in shared
    correlations = page[page.index("<h2>Correlations</h2>") : page.index("<h2>What tells of what</h2>")]
    assert "is negative" in correlations


def test_axes_tell_whole_numbers_and_days(score):
    labels = {one.name: one.labels for one in score.shapes}
    assert all(one.replace(",", "").isdigit() for name in ("age", "stay_days") for one in labels[name])
    assert all(re.fullmatch(r"2025-\d\d-\d\d", one) for one in labels["admitted"])


@pytest.mark.parametrize(
    ("bounds", "first", "last"),
    [
        (["2010-12-01", "2011-12-09"], "2010-12-01", "2011-11-2"),
        (["2011-06-01", "2011-06-09"], "06-01 00:00", "06-08 18:00"),
        (["2011-06-01", "2011-06-01T08:00:00"], "00:00:00", "07:45:00"),
    ],
)
def test_labels_of_moments_are_short_enough_to_stand_beside_each_other(bounds, first, last):
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": {"at": {"type": "timestamp", "bounds": bounds}}}}})
    (side,) = sides_of(schema.tables["t"], None, 32)
    labels = [label(side, code) for code in range(len(side.labels))]
    assert len(set(labels)) == len(labels) == 32
    assert max(map(len, labels)) <= 11
    assert labels[0] == first
    assert labels[-1].startswith(last)


def test_the_strongest_pairs_stand_beside_each_other(score, page):
    assert "The strongest in the real rows: stay_days and cost 0.9" in page
    (first, *_) = score.correlations.strongest(5)
    assert first[:2] == ("stay_days", "cost")


def test_of_many_columns_the_worst_are_drawn_and_that_is_said():
    columns = {f"c{i}": {"type": "boolean", "nullable": False} for i in range(26)}
    made, real = (pa.table({name: [True, False, one, True] for name in columns}) for one in (True, False))
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    text = synth.score(real, made, schema, marginals=5, boxes=5, rules=5, models=False).to_html()
    assert "The 24 of 26 columns that are farthest off." in text
    assert (
        text.count("25.0\u00a0% of rows would have to change.") == 2 * 24
    )  # under the chart, and for who cannot see it


def test_names_are_escaped(page):
    assert "<synthetic>" not in page
    assert "Visits &lt;synthetic&gt;" in page


def test_it_is_written_to_a_file_beside_its_json(score, tmp_path):
    text = score.to_html(tmp_path / "score.html")
    assert (tmp_path / "score.html").read_text(encoding="utf-8") == text
    score.write_json(tmp_path / "score.json")
    assert '"publishable": false' in (tmp_path / "score.json").read_text(encoding="utf-8")


def test_a_score_without_held_back_rows_or_target_is_drawn_too():
    found = synth.score(visits("real"), visits("made"), VISITS, columns=["ward"], boxes=5, rules=5, models=False)
    text = found.to_html()
    assert "Not settled" in text
    assert "No rows were held back" in text


def test_without_altair_the_way_to_get_it_is_said(score, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "altair", None)
    with pytest.raises(MissingExtra, match="pip install"):
        score.to_html()
