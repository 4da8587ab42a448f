"""A respondent with a phone: every kind of question, by thumb and by keyboard, in four languages."""

import json
from datetime import date, timedelta

import pytest
from playwright.sync_api import expect

from cloister.client import survey_wire
from cloister.hub.surveys.question import PERIODS, period

from .respondent import (
    KINDS,
    SMOKER,
    answer_everything,
    go_on,
    kept,
    look,
    open_everything,
    open_page,
    open_survey,
    send,
    too_wide,
    usable,
)


@pytest.fixture(scope="module")
def everything(place):
    return open_everything(place)


def test_every_kind_of_question_is_answered_on_a_phone(place, visit, picture):
    name = open_survey(place, about="Ten minutes of your time.")
    page = visit(width="phone")
    open_page(page, name)
    answer_everything(page)
    expect(page.locator("#costs")).to_contain_text("ε 3")
    expect(page.locator("#costs")).to_contain_text("ε 1 of ε 4")
    points = page.locator("#q-sleep .points .tick").all()
    assert len({round(one.bounding_box()["y"]) for one in points}) == 1  # seven points fit side by side
    picture(page, "survey-phone")
    sent = look(page)
    page.get_by_text("Show what leaves this device").click()
    expect(page.locator("#visible")).to_contain_text("That you left out no question.")
    expect(page.locator("#visible")).to_contain_text("network address")
    picture(page, "survey-phone-review")
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
    page.get_by_text("My wallet").click()
    expect(page.locator("#wallet-inside")).to_contain_text("ε 0.5")
    picture(page, "survey-phone-thanks")
    (mine,) = kept(place, name)
    assert {one: level for one, (level, _) in mine.items()} == dict.fromkeys([one["id"] for one in KINDS], "1/2")
    told = {json.loads(one)["question"].split(".")[1]: json.loads(one)["report"] for one in sent["reports"]}
    assert {one: report for one, (_, report) in mine.items()} == told  # what was shown is what is kept


def test_a_receipt_can_be_saved_and_proves_what_was_taken(place, visit):
    name = open_survey(place, SMOKER)
    page = visit()
    open_page(page, name)
    page.get_by_label("No", exact=True).check()
    page.get_by_label("light").check()
    send(page)
    with page.expect_download() as saved:
        page.locator("#save-receipt").click()
    facts = survey_wire.verify_receipt(saved.value.path().read_text(), place.hub.key.public)
    assert (facts["survey"], facts["wave"], facts["levels"]) == (name, 1, {"smoker": "2"})
    page.reload()
    expect(page.get_by_text("You have answered this survey from this browser.")).to_be_visible()
    expect(page.locator("#asking")).to_be_hidden()
    assert len(kept(place, name)) == 1


def test_a_keyboard_is_enough(place, visit):
    name = open_survey(place, [KINDS[0], KINDS[2], KINDS[5]])
    page = visit()
    open_page(page, name)

    def tab_to(wanted):
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.id") == wanted:
                return
        pytest.fail(f"{wanted} cannot be reached by keyboard")

    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    tab_to("a-smoker-1")
    page.keyboard.press("Space")
    tab_to("l-smoker-1")
    page.keyboard.press("ArrowRight")  # from strong to medium
    expect(page.locator("#l-smoker-2")).to_be_checked()
    tab_to("a-food-1")
    page.keyboard.press("Space")
    tab_to("a-hours")
    page.keyboard.type("7.5")
    tab_to("agree")
    page.keyboard.press("Space")
    tab_to("go-on")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Before anything is sent")).to_be_focused()
    expect(page.get_by_text("Sent in its place: a code with noise in it")).to_have_count(1)  # of the number of hours
    expect(page.get_by_text("Sent in its place:")).to_have_count(3)
    expect(page.locator("#yours")).to_contain_text("Yes (level: medium)")
    tab_to("send")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
    (mine,) = kept(place, name)
    assert {one: level for one, (level, _) in mine.items()} == {"smoker": "1", "food": "1/2", "hours": "1/2"}


def test_days_fall_into_the_periods_that_the_hub_knows(visit, everything):
    page = visit()
    open_page(page, everything)
    days = [date(1999, 12, 20) + timedelta(days=one) for one in range(0, 10_000, 3)]
    said = page.evaluate(
        """async ([days, steps]) => {
          const { period } = await import("/static/respond/asking.mjs");
          return days.map((day) => steps.map((step) => period(day, step)));
        }""",
        [[day.isoformat() for day in days], PERIODS],
    )
    assert said == [[period(day, step) for step in PERIODS] for day in days]


def test_what_is_missing_is_said_where_it_is_missing(visit, everything):
    page = visit(width="smallest")
    open_page(page, everything)
    page.get_by_role("button", name="Go on").click()
    expect(page.locator("#problem")).to_be_focused()
    expect(page.locator("#problem")).to_contain_text("Answer at least one question.")
    for option in ("Figs", "Salsify", "Medlar"):
        page.get_by_label(option).check()
    go_on(page)
    expect(page.locator("#problem")).to_contain_text("choose at most 2")
    page.locator("#problem").get_by_role("link").click()
    expect(page.locator("#a-food-0")).to_be_focused()
    assert page.locator("#a-food-0").get_attribute("aria-invalid") == "true"
    assert usable(page) == []
    page.get_by_label("None of these").check()
    expect(page.get_by_label("Figs")).not_to_be_checked()
    page.locator("#a-moved").fill("2024-12-31")
    go_on(page)
    expect(page.locator("#problem")).to_contain_text("between 2025-01-01 and 2025-12-31")
    page.locator("#q-moved").get_by_label("leave out").check()
    expect(page.locator("#t-moved-0")).to_be_visible()
    look(page)
    expect(page.locator("#visible")).to_contain_text("Which questions you left out: 5.")


@pytest.mark.parametrize(
    ("language", "words"),
    [("en", "Your true answers stay"), ("de", "Ihre wahren Antworten bleiben"),
     ("es", "Sus respuestas verdaderas se quedan"), ("fr", "Vos vraies réponses restent")],
)  # fmt: skip
def test_the_page_speaks_four_languages(place, visit, everything, picture, language, words):
    page = visit(width="smallest", dark=language == "de")
    problems = usable if language in ("en", "de") else too_wide  # words alone cannot harm the rest
    page.goto(f"/s/{everything}?lang={language}")
    expect(page.locator("#go-on")).to_be_visible()
    assert page.locator("html").get_attribute("lang") == language
    assert page.locator("h1").get_attribute("lang") == "de"
    expect(page.locator("h1")).to_have_count(1)
    expect(page.get_by_role("heading", name=words)).to_be_visible()
    page.locator("#a-smoker-1").check()
    page.locator("#a-hours").fill("8")
    page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
    assert not problems(page)
    unlabelled = "[...document.querySelectorAll('input, select')].filter((one) => !one.labels.length).length"
    assert page.evaluate(unlabelled) == 0
    page.locator("#agree").check()
    page.locator("#go-on").click()
    expect(page.locator("#review-title")).to_be_focused()
    assert not problems(page)
    page.locator("#send").click()
    expect(page.locator("#done-title")).to_be_focused()
    assert not problems(page)
    picture(page, f"survey-{language}")


def test_a_browsers_own_language_is_spoken(place, browser, everything):
    context = browser.new_context(locale="fr-CH", base_url=place.address)
    page = context.new_page()
    page.goto(f"/s/{everything}")
    expect(page.get_by_text("Vos vraies réponses restent")).to_be_visible()
    page.get_by_role("link", name="Deutsch").click()
    expect(page.get_by_text("Ihre wahren Antworten bleiben")).to_be_visible()
    context.close()


def test_without_scripts_there_is_a_notice_and_nothing_to_fill_in(visit, everything, picture):
    page = visit(width="phone", scripts=False)
    page.goto(f"/s/{everything}")
    expect(page.get_by_text("This page needs JavaScript.")).to_be_visible()
    expect(page.locator("input, select, textarea, button, form")).to_have_count(0)
    picture(page, "survey-phone-no-script")
