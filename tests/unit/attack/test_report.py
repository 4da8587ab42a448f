"""The report of findings: one file, no network, the verdict first, the claim on the curve, every text escaped."""

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from cloister.attack.finding import EpsilonBound, Finding, Roc
from cloister.attack.models.membership_finding import membership_of_scores
from cloister.attack.report.charts import most_true, roc_chart
from cloister.attack.report.page import headline, save, save_json, to_html, to_json
from cloister.privacy.errors import BadInput, StoreFailed
from cloister.privacy.loss import epsilon, rho

CLAIM = epsilon(1)


def finding(shift: float, name: str = "loss threshold", n: int = 600) -> Finding:
    """Return what an attack finds whose scores differ by a shift."""
    draw = np.random.default_rng(5)
    roc = Roc.of(draw.normal(shift, 1, n), draw.normal(0, 1, n))
    success, interval = roc.balanced_accuracy()
    return Finding(
        attack=name,
        target="a <model> & more",
        access="black box",
        knowledge="rows like those of the table",
        measure="guesses of membership that are right",
        success=success,
        interval=interval,
        baseline=0.5,
        attempts=n,
        roc=roc,
        epsilon=roc.epsilon_bound(claim=CLAIM),
        claim=CLAIM,
        risk=draw.uniform(0, 1, n),
        figures={"shadow models": 32, "queries": np.int64(1200), "loss": 0.25, "kind": "offline"},
        pictures={"A canary.": '<svg viewBox="0 0 1 1"></svg>'},
        remedies=("train with noise",),
        notes=("shadow models share rows",),
    )


class Reader(HTMLParser):
    """Tags and texts of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.style = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep a tag."""
        self.tags.append((tag, dict(attrs)))
        self.style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        """Leave a style sheet."""
        self.style = self.style and tag != "style"

    def handle_data(self, data: str) -> None:
        """Keep a text."""
        if not self.style and data.strip():
            self.text.append(data.strip())


def test_the_page_loads_nothing_and_runs_no_script():
    page = to_html([finding(2), finding(0)])
    tags = {tag for tag, _ in Reader(page).tags}
    assert not tags & {"script", "link", "iframe", "object", "img"}
    assert "default-src 'none'" in page
    assert not re.search(r"https?://", page)


def test_the_verdict_comes_before_any_figure():
    text = Reader(to_html(finding(2), title="Readmission")).text
    place = text.index("The claim is refuted.")
    assert text[place - 1] == "Readmission"
    assert not any("%" in line for line in text[:place])


def test_what_the_attacker_knew_what_helps_and_what_limits_the_run_are_on_the_page():
    text = " ".join(Reader(to_html(finding(2))).text)
    for sentence in ("Black box.", "Rows like those of the table.", "Train with noise.", "Shadow models share rows."):
        assert sentence in text


def test_the_curve_marks_one_in_a_thousand_and_one_in_a_hundred():
    found = finding(2)
    drawn, caption = roc_chart(found.roc, CLAIM)
    assert drawn.count("<circle") == 2
    assert f"{found.roc.tpr_at(0.001):.2%} at 0.1% false positives" in caption
    assert f"{found.roc.tpr_at(0.01):.2%} at 1.0% false positives" in caption
    assert "most that epsilon 1 allows" in drawn
    assert "0.17%" in caption  # 600 records cannot show a rate of 0.1 %


def test_the_curve_begins_and_ends_where_the_rates_do():
    drawn, _ = roc_chart(finding(1).roc)
    way = re.search(r'<path d="(M[^"]+)" fill="none" stroke="var\(--made\)"', drawn)
    assert way is not None
    assert way[1].endswith("H426.0V12.0")  # (1, 1): the upper right corner


@pytest.mark.parametrize("claim", [epsilon(1), epsilon(1, delta="0.01"), rho("0.5")])
def test_no_test_between_two_neighbours_exceeds_what_a_claim_allows(claim):
    """Randomised response reaches the bound of a pure epsilon at its own point, and nothing may be above it."""
    rates = np.linspace(0, 1, 101)
    allowed = most_true(rates, claim)
    assert np.all(np.diff(allowed) >= -1e-12)
    assert np.all(allowed >= rates - 1e-12)
    if claim == epsilon(1):
        lie = 1 / (1 + np.e)
        assert most_true(np.array([lie]), claim)[0] == pytest.approx(1 - lie)


def test_the_bound_stands_beside_the_claim():
    broken = finding(3)
    assert broken.broken
    text = " ".join(Reader(to_html(broken)).text)
    assert f"ε ≥ {broken.epsilon.lower:.3g}"[:5] in text
    assert "The claim allows 1 and is refuted." in text
    assert "more than 73.1% sure of whether somebody's rows were used" in text


def test_a_bound_without_a_claim_says_so():
    found = replace(finding(2), claim=None, epsilon=EpsilonBound(1.5, 1e-5, 0.95))
    text = " ".join(Reader(to_html(found)).text)
    assert "No claim was given." in text
    assert "1e-05" in text


def test_texts_are_escaped():
    page = to_html(replace(finding(1), notes=("<script>alert(1)</script>",)), title="<i>")
    assert "<script" not in page
    assert "a &lt;model&gt; &amp; more" in page


def test_several_findings_have_an_overview_and_one_headline():
    findings = [finding(3, "likelihood ratio"), finding(0, "labels")]
    page = to_html(findings)
    assert headline(findings) == "1 of 2 attacks refute a claim: likelihood ratio against a <model> & more."
    assert page.count("<section>") == 2
    assert 'class="overview"' in page


def test_a_headline_does_not_claim_safety():
    harmless = replace(finding(0), epsilon=None, claim=None)
    assert headline([harmless, harmless]).endswith("This is no proof of safety.")
    learns = replace(finding(2), epsilon=None, claim=None)
    assert headline([harmless, learns]).startswith("1 of 2 attacks learn")


def test_made_up_rows_need_no_warning():
    assert "VIEW: attacks read" in to_html(finding(1))
    assert "VIEW: attacks read" not in to_html(finding(1), made_up=True)


def test_the_json_has_no_risk_of_records(tmp_path: Path):
    found = finding(1)
    record = json.loads(save_json(found, tmp_path / "found.json").read_text(encoding="utf-8"))
    assert record["findings"][0]["figures"]["queries"] == 1200
    assert "risk" not in record["findings"][0]
    assert record["broken"] is found.broken
    assert record["verdict"] == found.verdict


def test_a_page_is_saved_where_it_was_asked_for(tmp_path: Path):
    path = save([finding(1)], tmp_path / "page.html", title="Model")
    assert "<h1>Model</h1>" in path.read_text(encoding="utf-8")
    with pytest.raises(StoreFailed, match="no report was written"):
        save([finding(1)], tmp_path / "nowhere" / "page.html")


@pytest.mark.parametrize("wrong", [[], [1], "finding"])
def test_a_report_is_about_findings(wrong):
    with pytest.raises(BadInput, match="one finding or several"):
        to_json(wrong)


def test_a_bound_of_nothing_is_told_at_the_smallest_delta_of_the_claim():
    """At a delta of 0.3 a small rho allows no epsilon, and "the claim allows 0" would say nothing."""
    draw = np.random.default_rng(1)
    bound = Roc.of(draw.normal(size=300), draw.normal(size=300)).epsilon_bound(claim=rho("0.02"))
    assert (bound.lower, bound.delta) == (0.0, 1e-5)
    assert bound.allowed == pytest.approx(0.794, abs=1e-3)


@pytest.mark.parametrize(("shift", "members", "others"), [(0.0, 8, 8), (2.5, 8, 8), (2.5, 20, 50), (4.0, 20, 20)])
def test_the_interval_of_the_area_holds_for_few_records(shift: float, members: int, others: int):
    draw, missed, truth = np.random.default_rng(31), 0, float(stats.norm.cdf(shift / 2**0.5))
    for _ in range(600):
        low, high = Roc.of(draw.normal(shift, 1, members), draw.normal(0, 1, others)).auc_interval()
        missed += not low <= truth <= high
    assert missed <= stats.binom.isf(1e-4, 600, 0.05)


def test_a_few_members_who_score_above_all_others_do_not_prove_an_area_of_one():
    roc = Roc.of(np.arange(8, 16), np.arange(8))
    assert roc.auc == 1
    assert 0.5 < roc.auc_interval()[0] < 0.9


def test_a_few_records_that_are_recognised_are_no_guessing():
    draw = np.random.default_rng(1)
    members = draw.normal(size=2_000)
    members[:60] += 20  # a model that remembers 3 % of its people
    found = membership_of_scores(members, draw.normal(size=2_000))
    assert found.interval[0] < 0.5
    assert found.epsilon is not None
    assert found.epsilon.lower > 0
    assert found.learned
    assert found.verdict == "The attack learns something beyond guessing, of a few records only."
    assert found.remedies
    assert "None of" not in headline([found, found])
