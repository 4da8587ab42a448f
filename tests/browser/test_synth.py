"""A synthetic table: planned, made before one's eyes, read on its page, downloaded, verified; and what is refused."""

import re

import pyarrow as pa
import pyarrow.csv
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.privacy.errors import SealBroken
from cloister.synth.output.shared_table import read_table, side_path

OPEN_EVERYTHING = "for (const one of document.querySelectorAll('main details')) one.open = true"


def troubles(page):
    """What axe has to say about everything on the page."""
    page.evaluate(OPEN_EVERYTHING)
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    said = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["id"], node["html"][:200]) for one in said for node in one["nodes"]]


def fill(page, **form):
    page.goto("/datasets/stays")
    page.get_by_role("link", name="Make a synthetic table").click()
    labels = {"columns": "Columns", "spend": "Privacy budget", "rows": "Rows", "score": "Share to score"}
    page.get_by_label("Method").select_option(form.pop("method", "aim"))
    for name, value in form.items():
        page.get_by_label(labels[name]).fill(value)
    page.get_by_label("Purpose").select_option("health-research")


def plan(page):
    page.get_by_role("button", name="Plan: what would it cost?").click()


def test_a_table_is_planned_made_read_downloaded_and_verified(place, visit, width, picture, tmp_path):
    page = visit(place.newcomer(), width)
    fill(page, columns="ward, age, stay_days, readmitted", spend="rho 0.48", rows="1200", score="0.1")
    plan(page)
    planned = page.get_by_role("region", name="The plan").first
    expect(planned).to_contain_text("ρ 0.48")
    expect(planned).to_contain_text(re.compile(r"stay_days, \d+ cells"))
    expect(planned).to_contain_text("chosen privately as it goes")
    picture(page, f"synth-plan-{width}")
    assert troubles(page) == []
    with place.no_worker():
        page.get_by_role("button", name="Run it").click()
        expect(page.get_by_text("waiting for a worker")).to_be_visible()
    # The page follows the work by itself, and shows the table when it is there.
    expect(page.get_by_role("heading", level=1)).to_have_text("Synthetic table from Stays", timeout=60_000)
    expect(page.locator(".answer-one")).to_have_text(re.compile("1,200 synthetic rows"))
    about = page.get_by_role("region", name="What it is")
    for words in ("one patient (at most 8 rows)", "ρ 0.48", "0.432 for the table", "health-research"):
        expect(about).to_contain_text(words)
    good = page.get_by_role("region", name="How good it is")
    share = re.compile(r"[\d.e+-]+\s% \[[\d.e+-]+\s%, [\d.e+-]+\s%\]")
    expect(good.get_by_role("row", name="One column, on average")).to_contain_text(share)
    expect(good.get_by_role("row", name="2 columns")).to_contain_text(share)
    drawn = page.get_by_role("main").get_by_role("img").first
    drawn.scroll_into_view_if_needed()
    expect(drawn).to_have_js_property("complete", True)
    assert drawn.evaluate("(one) => one.naturalWidth") > 100
    expect(page.get_by_role("region", name="The first rows").get_by_role("row")).to_have_count(13)
    picture(page, "synth" if width == "desktop" else f"synth-{width}")
    assert troubles(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    for link in ("Download as Parquet", "Download the metadata file", "Download as CSV"):
        with page.expect_download() as begun:
            page.get_by_role("link", name=link).click()
        begun.value.save_as(tmp_path / begun.value.suggested_filename)
    (path,) = tmp_path.glob("*.parquet")
    shown = page.get_by_role("region", name="Python", exact=True).inner_text()
    assert path.name in shown
    table = read_table(path)
    table.verify(re.search(r"ed25519:[^\"]+", shown)[0])
    assert len(table) == 1200
    (text,) = tmp_path.glob("*.csv")
    assert pyarrow.csv.read_csv(text).num_rows == 1200
    assert 0 < table.error(["ward", "age"]).error < 1
    side = path.with_name(f"{path.name}.side.json")
    side.write_text(side.read_text(encoding="utf-8").replace('"rows": 1200', '"rows": 1201'), encoding="utf-8")
    with pytest.raises(SealBroken):
        read_table(path).verify(str(place.hub.key.public))


def test_what_cannot_be_made_or_paid_for_is_refused_and_costs_nothing(place, visit):
    before = place.hub.ledger.balance("stays").spent
    page = visit(place.newcomer())
    fill(page, columns="patient", spend="rho 0.1")
    plan(page)
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("There are: ward")
    expect(page.get_by_label("Columns")).to_have_value("patient")
    fill(page, method="independent", columns="ward", spend="rho 25")
    plan(page)
    expect(page.get_by_role("alert")).to_contain_text("This cannot run now")
    expect(page.locator("button[value=run]")).to_have_count(0)
    assert place.hub.ledger.balance("stays").spent == before


def test_a_policy_that_does_not_say_synthesise_lets_nobody_have_a_table(place, visit):
    page = visit(place.newcomer("Nils Roth", organisation="St. Anna Hospital"))
    answer = page.goto("/work/synthesise/stays")
    assert answer.status == 403
    expect(page.get_by_label("Purpose")).to_have_count(0)
    page.get_by_role("link", name="Why?").click()
    expect(page.get_by_role("region", name="denied")).to_contain_text("own staff")


def test_an_owner_hands_in_a_table_made_at_home_and_a_researcher_takes_it(place, visit, width, picture, tmp_path):
    path = tmp_path / "made.parquet"
    with cl.open(pa.table(hospital(400)), schema=SCHEMA, budget=cl.rho(1), ledger=tmp_path, name="stays") as data:
        synth.independent(data, spend=cl.rho("0.04"), rows=250, columns=["ward", "age"]).to_parquet(path)
        key = str(data.account.book.key.public)
    before = place.hub.ledger.balance("stays").spent
    page = visit("hanna", width)
    page.goto("/datasets/stays")
    page.get_by_role("link", name="Synthetic tables").click()
    form = page.get_by_role("region", name="Upload a synthetic table that you made")
    form.get_by_label("Table").set_input_files(path)
    form.get_by_label("Metadata file").set_input_files(side_path(path))
    form.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("public key that signed it")
    assert place.hub.ledger.balance("stays").spent == before
    assert troubles(page) == []
    form.get_by_label("Table").set_input_files(path)
    form.get_by_label("Metadata file").set_input_files(side_path(path))
    form.get_by_label("Key").fill(key)
    form.get_by_role("button", name="Upload").click()
    expect(page.get_by_text("It is uploaded, and charged.")).to_be_visible()
    assert place.hub.ledger.balance("stays").spent == before + cl.rho("0.04")
    number = page.url.rpartition("/")[2]

    page = visit(place.newcomer(), width)
    page.goto("/datasets/stays")
    page.get_by_role("link", name="Synthetic tables").click()
    page.get_by_role("link", name=f"visits {number}", exact=True).click()
    expect(page.locator(".answer-one")).to_have_text(re.compile("250 synthetic rows"))
    expect(page.get_by_text("Made outside this hub: the hub vouches for the charge")).to_be_visible()
    about = page.get_by_role("region", name="What it is")
    for words in ("independent", "one patient (at most 8 rows)", "ρ 0.04", key):
        expect(about).to_contain_text(words)
    drawn = page.get_by_role("main").get_by_role("img").first
    drawn.scroll_into_view_if_needed()
    expect(drawn).to_have_js_property("complete", True)
    assert drawn.evaluate("(one) => one.naturalWidth") > 100
    picture(page, f"synth-handed-{width}")
    assert troubles(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    (tmp_path / "taken").mkdir()
    for link in ("Download as Parquet", "Download the metadata file"):
        with page.expect_download() as begun:
            page.get_by_role("link", name=link).click()
        begun.value.save_as(tmp_path / "taken" / begun.value.suggested_filename)
    (taken,) = (tmp_path / "taken").glob("*.parquet")
    assert taken.read_bytes() == path.read_bytes()
    read_table(taken).verify(str(place.hub.key.public))

    page = visit(place.newcomer("Nils Roth", organisation="St. Anna Hospital"))
    assert page.goto(f"/datasets/stays/tables/{number}").status == 403
