"""A model: planned, trained before one's eyes, read on its card, downloaded, loaded; and what is refused."""

import re

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from cloister import learn
from cloister.data.hospital import hospital
from cloister.privacy.errors import SealBroken

OPEN_EVERYTHING = "for (const one of document.querySelectorAll('main details')) one.open = true"


def troubles(page):
    """What axe has to say about everything on the page."""
    page.evaluate(OPEN_EVERYTHING)
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    said = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["id"], node["html"][:200]) for one in said for node in one["nodes"]]


def fill(page, dataset="stays", **form):
    page.goto(f"/datasets/{dataset}")
    page.get_by_role("link", name="Train a model").click()
    labels = {"target": "Target", "features": "Features", "spend": "Privacy budget", "evaluate": "Share to evaluate",
              "group": "Compare groups of"}  # fmt: skip
    page.get_by_label("Estimator").select_option(form.pop("estimator"))
    for name, value in form.items():
        page.get_by_label(labels[name]).fill(value)
    page.get_by_label("Purpose").select_option("health-research")


def plan(page):
    page.get_by_role("button", name="Plan: what would it cost?").click()


def test_a_model_is_planned_trained_read_and_loaded(place, visit, width, picture, tmp_path):
    page = visit(place.newcomer(), width)
    fill(page, estimator="MixedNB", target="readmitted", features="age, stay_days, ward", spend="rho 0.48",
         evaluate="0.7", group="ward")  # fmt: skip
    picture(page, f"train-{width}")
    plan(page)
    planned = page.get_by_role("region", name="The plan").first
    expect(planned).to_contain_text("ρ 0.48")
    expect(planned).to_contain_text("rows of a class")
    expect(planned).to_contain_text("percentage points")
    assert troubles(page) == []
    with place.no_worker():
        page.get_by_role("button", name="Run it").click()
        expect(page.get_by_text("waiting for a worker")).to_be_visible()
    # The page follows the work by itself, and shows the card when it is done.
    expect(page.get_by_role("heading", level=1)).to_have_text("Model from Stays", timeout=60_000)
    expect(page.locator(".answer-one")).to_have_text(re.compile("MixedNB predicts readmitted"))
    card = page.get_by_role("region", name="Model card")
    for words in ("one patient (at most 8 rows)", "ρ 0.48", "health-research", "An attack on made-up rows"):
        expect(card).to_contain_text(words)
    tried = page.get_by_role("region", name="How good it is")
    share = re.compile(r"\d+\.\d\s% \[\d+\.\d\s%, \d+\.\d\s%\]")
    expect(tried.get_by_role("row", name="Everybody")).to_contain_text(share)
    expect(tried.get_by_role("row", name="cardiology")).to_be_visible()
    expect(tried.get_by_role("row", name="Gap")).to_be_visible()
    drawn = page.get_by_role("main").get_by_role("img").first
    drawn.scroll_into_view_if_needed()
    expect(drawn).to_have_js_property("complete", True)
    assert drawn.evaluate("(one) => one.naturalWidth") > 100
    picture(page, f"model-{width}")
    assert troubles(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")

    address = page.url
    page.get_by_role("link", name="Predict", exact=True).click()
    expect(page.get_by_role("main").get_by_role("button").first).to_be_visible()
    assert troubles(page) == []
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.goto(address)

    with page.expect_download() as begun:
        page.get_by_role("link", name="Download the model").click()
    path = tmp_path / begun.value.suggested_filename
    begun.value.save_as(path)
    assert path.name.startswith("stays-readmitted-")
    shown = page.get_by_role("region", name="Python", exact=True).inner_text()
    assert path.name in shown
    key = re.search(r"ed25519:[^\"]+", shown)[0]
    assert key == str(place.hub.key.public)
    model = learn.load(path, key)
    rows = {name: values[:50] for name, values in hospital(60).items()}
    assert model.predict_proba(learn.prepare(model, rows)).shape == (50, 2)
    assert np.isfinite(model.predict_proba(learn.prepare(model, rows))).all()
    model.release_.receipt.verify(place.hub.key.public)
    path.write_bytes(path.read_bytes().replace(b"class_prior_", b"class_priar_"))
    with pytest.raises(SealBroken):
        learn.load(path, key)


def test_coefficients_come_with_intervals_and_a_picture(place, visit, picture):
    page = visit(place.newcomer())
    fill(page, estimator="LinearRegression", target="cost", features="age, stay_days", spend="rho 0.3")
    plan(page)
    expect(page.get_by_role("region", name="Expected error of one answer").get_by_role("row")).to_have_count(3)
    page.get_by_role("button", name="Run it").click()
    expect(page.get_by_text("No evaluation was requested.")).to_be_visible(timeout=60_000)
    effects = page.get_by_role("region", name="effects")
    expect(effects.get_by_role("img")).to_be_visible()
    page.locator("summary", has_text="Coefficients").click()
    cell = page.get_by_role("region", name="Coefficients").get_by_role("row", name="stay_days")
    expect(cell).to_contain_text(re.compile(r"-?[\d,.]+ \[-?[\d,.]+, -?[\d,.]+\]"))
    picture(page, "model-coefficients")


def test_what_cannot_be_learned_or_paid_for_is_refused_and_costs_nothing(place, visit):
    person = place.newcomer()
    before = place.hub.ledger.balance("stays").spent
    page = visit(person)
    fill(page, estimator="LogisticRegression", target="cost", spend="rho 0.1")
    plan(page)
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_role("alert")).to_contain_text("no public list of values to tell apart")
    expect(page.get_by_label("Target")).to_have_value("cost")
    fill(page, estimator="MixedNB", target="readmitted", spend="rho 25")
    plan(page)
    expect(page.get_by_role("region", name="The plan").first).to_contain_text(re.compile("left", re.I))
    expect(page.get_by_role("alert")).to_contain_text("This cannot run now")
    expect(page.locator("button[value=run]")).to_have_count(0)
    assert place.hub.ledger.balance("stays").spent == before


def test_a_policy_that_does_not_say_train_lets_nobody_train(place, visit):
    page = visit(place.newcomer("Nils Roth", organisation="St. Anna Hospital"))
    answer = page.goto("/work/train/stays")
    assert answer.status == 403
    expect(page.get_by_label("Purpose")).to_have_count(0)
    page.get_by_role("link", name="Why?").click()
    expect(page.get_by_role("region", name="denied")).to_contain_text("own staff")
