"""Other work: a profile of a table; work that is cancelled while it waits, and while it stands in the queue."""

import re

import sqlalchemy as sa
from playwright.sync_api import expect

from cloister.hub.core.models import Job


def test_a_table_is_profiled_with_a_picture_of_every_column(place, visit, width, picture):
    page = visit(place.newcomer(), width)
    page.goto("/datasets/stays")
    page.get_by_role("link", name="Profile a table").click()
    page.get_by_label("Privacy budget").fill("rho 0.2" if width == "desktop" else "rho 0.3")
    page.get_by_label("Purpose").select_option("health-research")
    page.get_by_role("button", name="Plan: what would it cost?").click()
    page.get_by_role("button", name="Run it").click()
    expect(page.locator(".answer-one")).to_have_text(re.compile(r"[\d,]+ \[[\d,]+, [\d,]+\] rows"))
    picture(page, f"profile-{width}")
    pictures = page.get_by_role("main").get_by_role("img")
    expect(pictures).to_have_count(6)
    for one in pictures.all():
        one.scroll_into_view_if_needed()
        expect(one).to_have_js_property("complete", True)
        assert one.evaluate("(one) => one.naturalWidth") > 100
    page.get_by_text("Numbers").first.click()
    expect(page.get_by_role("region", name="Rows by ward")).to_contain_text("cardiology")


def ask(page, spend):
    page.goto("/work/query/stays")
    page.get_by_label("Question").fill("SELECT MAX(age) AS oldest FROM visits")
    page.get_by_label("Privacy budget").fill(spend)
    page.get_by_label("Purpose").select_option("health-research")
    page.get_by_role("button", name="Plan: what would it cost?").click()
    page.locator("button[value=run]").click()


def test_work_that_waits_for_agreement_is_cancelled(place, visit):
    page = visit(place.newcomer())
    ask(page, "rho 0.8")
    page.get_by_role("link", name="See the request").click()
    request = page.url
    page.get_by_role("link", name="The work itself").click()
    page.get_by_role("button", name="Cancel").click()
    expect(page.locator(".heading")).to_contain_text("cancelled")
    expect(page.get_by_text("Nothing was spent.")).to_be_visible()
    page.goto(request)
    expect(page.locator(".heading")).not_to_contain_text("open")


def test_work_in_the_queue_is_cancelled_and_other_work_goes_on(place, visit):
    person = place.newcomer()
    page, other = visit(person), visit(person)
    with place.no_worker():
        ask(page, "rho 0.01")
        expect(page.get_by_text("waiting for a worker")).to_be_visible()
        ask(other, "rho 0.02")
        expect(other.get_by_text("waiting for a worker")).to_be_visible()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator(".heading")).to_contain_text("cancelled")
    # The other page follows its work: it shows the answer as soon as a worker is back.
    expect(other.locator(".heading")).to_contain_text("done", timeout=40_000)
    states = place.rows(sa.select(Job.state).where(Job.person_id == person.id).order_by(Job.id))
    assert states == ["cancelled", "done"]
