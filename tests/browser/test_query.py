"""A researcher plans and runs a question, with the keyboard alone; and without scripts."""

import re

import pyarrow.csv
import pytest
from playwright.sync_api import expect

from cloister.hub.ops.demo import PASSWORD
from cloister.privacy.errors import ReceiptRejected
from cloister.privacy.receipt import Receipt

QUESTION = "SELECT ward, COUNT(*) AS n FROM visits GROUP BY ward"
# Another one for each width: what was answered before is answered again for nothing, without a receipt.
PARTS = {"desktop": "", "phone": " WHERE age > 30"}


def tab_to(page, selector, most=40):
    """Press Tab until the focus is there."""
    for _ in range(most):
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} cannot be reached with Tab")


def keep(page, press):
    """What is downloaded when something is pressed."""
    with page.expect_download() as sent:
        press()
    return sent.value


def test_the_keyboard_alone_is_enough(place, visit, width, picture):
    page = visit(place.newcomer(), width)
    page.goto("/work/query/stays")
    keys = page.keyboard
    keys.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    keys.press("Enter")
    tab_to(page, "textarea")
    box, offers = page.get_by_label("Question"), page.get_by_role("listbox", name="Suggestions")

    keys.type("SELECT ")
    expect(offers).to_be_hidden()
    keys.press("Control+Space")
    expect(offers.get_by_role("option").first).to_contain_text("visits")
    keys.type("wa")
    keys.press("ArrowDown")
    chosen = offers.get_by_role("option", selected=True)
    expect(chosen).to_contain_text("ward")
    assert box.get_attribute("aria-activedescendant") == chosen.get_attribute("id")
    picture(page, f"completion-{width}")
    keys.press("Enter")
    keys.type(", COU")
    keys.press("ArrowUp")  # from the top to the last, then round again
    keys.press("ArrowDown")
    keys.press("Enter")
    keys.type(" AS n FROM vis")
    keys.press("Tab")  # the first of what is offered
    keys.type(PARTS[width] + " GROUP BY wa")
    keys.press("Escape")
    expect(offers).to_be_hidden()
    keys.type("r")
    keys.press("Tab")
    assert box.input_value() == QUESTION.replace(" GROUP", PARTS[width] + " GROUP")
    expect(box).to_be_focused()

    keys.press("Tab")
    expect(page.get_by_label("Privacy budget")).to_be_focused()
    keys.press("Control+a")
    keys.type("rho 0.05")
    tab_to(page, "select[name=purpose]")
    keys.type("Res")  # "Research on health and disease"
    tab_to(page, "button[value=plan]")
    keys.press("Enter")

    plan = page.get_by_role("region", name="The plan").first
    expect(plan).to_contain_text("ρ 0.05")
    expect(plan.get_by_role("region", name="Expected error of one answer")).to_contain_text("COUNT(*)")
    expect(page.get_by_role("button", name="Run it")).to_be_in_viewport()
    picture(page, f"plan-{width}")
    tab_to(page, "button[value=run]")
    keys.press("Enter")

    answer = page.get_by_role("region", name="The answer")
    expect(answer.get_by_role("row")).to_have_count(7)
    expect(answer.get_by_role("row").nth(1)).to_have_text(re.compile(r"cardiology\s*[\d,]+ \[[\d,]+, [\d,]+\]"))
    picture(page, f"answer-{width}")
    chart = page.get_by_role("img", name="n by ward, with intervals.")
    expect(chart).to_be_visible()
    assert chart.evaluate("(one) => one.naturalWidth") > 200
    drawn = page.request.get(chart.evaluate("(one) => one.currentSrc")).text()
    assert drawn.count('aria-roledescription="rule mark"') == 6  # an interval for each ward

    tab_to(page, "a[href$=receipt]")
    file = keep(page, lambda: keys.press("Enter"))
    assert file.suggested_filename.endswith(".receipt.json")
    receipt = Receipt.parse(file.path().read_bytes())
    receipt.verify(place.hub.key.public)
    with pytest.raises(ReceiptRejected):
        Receipt.parse(file.path().read_text().replace('"0.05"', '"0.04"').replace("1/20", "1/25")).verify(
            place.hub.key.public
        )
    table = pyarrow.csv.read_csv(keep(page, page.get_by_role("link", name="Download as CSV").click).path())
    assert table.num_rows == 6
    assert {"ward", "n", "n_low", "n_high"} <= set(table.column_names)


def test_control_enter_plans_and_a_question_can_be_kept_and_asked_again(place, visit):
    page = visit(place.newcomer())
    page.goto("/work/query/stays")
    page.get_by_label("Purpose").select_option("health-research")
    page.get_by_label("Question").fill(QUESTION)
    page.get_by_label("Question").press("Control+Enter")
    expect(page.get_by_role("heading", name="The plan")).to_be_visible()
    page.get_by_text("Keep this question").click()
    page.get_by_label("Its name").fill("Wards")
    page.get_by_role("button", name="Keep").click()
    expect(page.get_by_text("Saved as “Wards”.")).to_be_visible()
    page.goto("/work/query/stays")
    expect(page.get_by_label("Question")).to_have_value("")
    page.get_by_role("link", name="Wards").click()
    expect(page.get_by_label("Question")).to_have_value(QUESTION)
    page.get_by_role("button", name="Forget").click()
    expect(page.get_by_role("link", name="Wards")).to_have_count(0)


def test_labels_hints_and_boxes_stand_in_line(place, visit):
    """Side by side, however long the words are."""
    page = visit(place.newcomer())
    page.goto("/work/query/stays")
    for left, right in (("Privacy budget", "Or: error within"), ("Confidence", "Purpose")):
        places = [page.get_by_label(one).bounding_box() for one in (left, right)]
        labels = [page.locator("label", has_text=one).bounding_box() for one in (left, right)]
        assert places[0]["y"] == places[1]["y"]
        assert labels[0]["y"] == labels[1]["y"]
        assert labels[0]["height"] == labels[1]["height"]  # neither is broken into two lines


def test_everything_needed_works_without_scripts(place, visit, width):
    person = place.newcomer()
    page = visit(width=width, scripts=False)
    page.goto("/work/query/stays")
    page.get_by_label("E-mail address").fill(person.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    page.get_by_label("Question").fill("SELECT AVG(age) AS age FROM visits" + PARTS[width])
    page.get_by_label("Purpose").select_option("health-research")
    page.get_by_role("button", name="Plan: what would it cost?").click()
    expect(page.get_by_role("heading", name="The plan")).to_be_visible()
    page.get_by_role("button", name="Run it").click()
    expect(page.locator(".answer-one")).to_have_text(re.compile(r"\d+\.\d+ \[\d+\.\d+, \d+\.\d+\]"))
    file = keep(page, page.get_by_role("link", name="Download the receipt").click)
    Receipt.parse(file.path().read_bytes()).verify(place.hub.key.public)
    if width == "phone":
        page.get_by_text("Menu").click()
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()
