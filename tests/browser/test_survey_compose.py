"""A survey is composed, published and read in a real browser: by mouse and keyboard, on a phone, in the dark, live."""

import re

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from cloister.client import survey_wire
from cloister.hub.ops.demo_survey import NAME
from cloister.hub.surveys import survey
from cloister.hub.surveys.device import submissions

OPEN_EVERYTHING = "for (const one of document.querySelectorAll('main details')) one.open = true"
WIDER = "document.documentElement.scrollWidth - document.documentElement.clientWidth"


def troubles(page):
    """What axe has to say about everything on the page."""
    page.evaluate(OPEN_EVERYTHING)
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    said = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")["violations"]
    return [(one["id"], node["html"][:200]) for one in said for node in one["nodes"]]


def tab_to(page, selector, most=60):
    for _ in range(most):
        if page.evaluate("(wanted) => document.activeElement.matches(wanted)", selector):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"{selector} cannot be reached with Tab")


def answer(place, name, people):
    """People whose devices send reports, over HTTP like any other."""
    with place.hub.database.reading() as session:
        told = survey.public(survey.find(session, name))
    return submissions(told, people)


def test_a_survey_is_composed_published_and_answered_before_ones_eyes(place, visit, width, picture):
    page = visit(place.newcomer(), width)
    page.goto("/surveys")
    page.get_by_role("link", name="Compose a survey").click()
    page.get_by_label("Title").fill(f"Lunch at work, {width}")
    page.get_by_label("Purpose").fill("To plan the canteen.")
    page.get_by_label("People hoped for").fill("300")
    expect(page.get_by_label("Consent")).to_have_value(re.compile("voluntary"))
    page.get_by_role("button", name="Make the draft").click()
    expect(page.get_by_text("Now add its questions")).to_be_visible()

    page.get_by_role("link", name="One choice").click()
    page.get_by_label("Question", exact=True).fill("What do you eat?")
    page.get_by_label("Options").fill("bread\nsoup\nrice")
    advice = page.get_by_role("region", name="Expected error at each level")
    expect(advice).to_contain_text(re.compile(r"strong ε 0\.5±\s\d"))
    before = advice.inner_text()
    page.get_by_label("Number of people").fill("30000")  # more people, less error, while one types
    expect(advice).not_to_have_text(before, use_inner_text=True)
    expect(page.get_by_text(re.compile("For an error of ± 3 points"))).to_be_visible()
    page.get_by_label("Levels a person may choose from").fill("strong")
    expect(page.get_by_text("a level is a word and an epsilon")).to_be_visible()
    page.get_by_label("Levels a person may choose from").fill("strong 0.5\nopen 4")
    expect(advice).to_contain_text("open ε 4")
    assert page.evaluate(WIDER) <= 0
    assert troubles(page) == []
    picture(page, f"survey-question-{width}")
    page.get_by_role("button", name="Save the question").click()

    page.get_by_role("link", name="Scale", exact=True).click()
    page.get_by_label("Question", exact=True).fill("How good is it?")
    page.get_by_label("What the highest means").fill("very")
    page.get_by_label("What the lowest means").fill("not at all")
    page.get_by_role("button", name="Save the question").click()
    expect(page.get_by_role("heading", level=3)).to_have_text(["What do you eat?", "How good is it?", "Add a question"])
    page.get_by_role("button", name="Up").click()
    expect(page.get_by_role("heading", level=3).first).to_have_text("How good is it?")
    assert page.evaluate(WIDER) <= 0
    assert troubles(page) == []
    picture(page, f"survey-compose-{width}")

    page.get_by_role("link", name="Preview").first.click()
    expect(page.get_by_role("group", name="1. How good is it?")).to_be_visible()
    assert troubles(page) == []
    page.go_back()
    page.get_by_role("link", name="Publish…").click()
    expect(page.get_by_text("What becomes fixed, for good")).to_be_visible()
    assert troubles(page) == []
    page.get_by_label("The questions are final").check()
    page.get_by_role("button", name="Publish the survey").click()
    expect(page.get_by_text("The survey is open.")).to_be_visible()
    link = page.locator("#link").inner_text()
    assert troubles(page) == []

    page.get_by_role("link", name="See the results").click()
    expect(page.get_by_text("There are no answers to this question to show yet.")).to_have_count(2)
    name = link.rpartition("/")[2]
    people = [{"eat": (("bread", "soup")[at % 4 > 2], "open"), "good": ("4", "medium")} for at in range(60)]
    for raw in answer(place, name, people):
        sent = page.request.post(f"/s/{name}/answers", data=raw, headers={"content-type": "application/json"})
        assert sent.ok
    # The page follows along by itself, and says so to whoever listens.
    expect(page.get_by_role("status").last).to_contain_text("60 people have answered, of 300", timeout=30_000)
    expect(page.get_by_text("“bread” is the answer of about")).to_be_visible(timeout=30_000)
    chart = page.get_by_role("img", name=re.compile("Estimated shares with intervals. bread"))
    expect(chart).to_be_visible()
    drawn = chart.evaluate("(one) => one.decode().then(() => one.naturalWidth)")
    assert drawn > 600 if width == "desktop" else 150 < drawn < 400  # the picture for this page, not for another


def test_the_keyboard_alone_adds_a_question(place, visit):
    page = visit(place.newcomer())
    keys = page.keyboard
    page.goto("/surveys/new")
    tab_to(page, "input[name=title]")
    keys.type("Keys")
    tab_to(page, "textarea[name=purpose]")
    keys.type("To learn.")
    tab_to(page, "input[name=name]")
    keys.type("by-keyboard")
    tab_to(page, "form.card button[type=submit]")
    keys.press("Enter")
    expect(page.get_by_text("No question yet")).to_be_visible()
    tab_to(page, "a[href$='type=yes_no']")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Yes or no")).to_be_visible()
    tab_to(page, "input[name=text]")
    keys.type("Do you use a mouse?")
    tab_to(page, "button[value=save]")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Do you use a mouse?")).to_be_visible()
    tab_to(page, "a[href$='/publish']")
    keys.press("Enter")
    expect(page.get_by_role("heading", name="Publish “Keys”?")).to_be_visible()
    tab_to(page, "input[name=sure]")
    keys.press("Space")
    tab_to(page, "main button[type=submit]")
    keys.press("Enter")
    expect(page.get_by_text("Share this link")).to_be_visible()


@pytest.mark.parametrize(("width", "dark"), [("desktop", False), ("phone", True), ("smallest", False)])
def test_the_results_can_be_shown_to_a_board(place, visit, picture, width, dark):
    page = visit("ada", width, dark=dark)
    page.goto(f"/surveys/{NAME}/results?first=home&second=rested")
    expect(page.get_by_role("status").last).to_contain_text("of 2,000 hoped for")
    expect(page.get_by_text(re.compile("The mean is about .* hours"))).to_be_visible()
    expect(page.get_by_text("From matched reports:")).to_be_visible()
    expect(page.get_by_text(re.compile("all questions together cost one person at most"))).to_be_visible(timeout=60_000)
    for image in page.locator("main img").all():
        image.scroll_into_view_if_needed()
        assert image.evaluate("(one) => one.decode().then(() => one.naturalWidth)") > 100
    assert page.evaluate(WIDER) <= 0
    assert troubles(page) == []
    if width != "smallest":
        picture(page, f"survey-results-{width}")


def test_downloads_a_receipt_and_a_prediction(place, visit, picture):
    page = visit("ada")
    page.goto(f"/surveys/{NAME}/results")
    with page.expect_download() as sent:
        page.get_by_role("link", name="download", exact=True).click()
    body = survey_wire.verify_receipt(sent.value.path().read_bytes(), place.hub.key.public)
    assert body["survey"] == NAME
    with page.expect_download() as sent:
        page.get_by_role("link", name="CSV").first.click()
    assert sent.value.path().read_text().startswith("question,text,value,reports,raw")
    page.get_by_role("navigation", name="Pages about this").get_by_role("link", name="Prediction").click()
    page.get_by_label("What to tell").select_option("shifts")
    page.get_by_label("How rested do you feel in the morning?").check()
    page.get_by_role("button", name="Learn").click()
    expect(page.get_by_text("Line to beat")).to_be_visible()
    page.get_by_label("How rested do you feel in the morning?").last.select_option("1")
    page.get_by_role("button", name="Tell").click()
    expect(page.get_by_text("This is about people like these")).to_be_visible()
    assert troubles(page) == []
    picture(page, "survey-model")


def test_composing_works_without_scripts(place, visit):
    page = visit(place.newcomer(), scripts=False)
    page.goto("/surveys/new")
    page.get_by_label("Title").fill("Plain paper")
    page.get_by_label("Purpose").fill("To learn.")
    page.get_by_role("button", name="Make the draft").click()
    page.get_by_role("link", name="Number").click()
    page.get_by_label("Question", exact=True).fill("How many cups?")
    page.get_by_label("From", exact=True).fill("0")
    page.get_by_label("To", exact=True).fill("20")
    page.get_by_role("button", name="What error to expect?").click()
    expect(page.get_by_role("region", name="Expected error at each level")).to_contain_text("hybrid")
    page.get_by_role("button", name="Save the question").click()
    expect(page.get_by_role("heading", name="How many cups?")).to_be_visible()
    page.get_by_role("button", name="Take out").click()
    expect(page.get_by_text("No question yet")).to_be_visible()
