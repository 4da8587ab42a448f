"""A respondent's wallet: charged once for what is sent, for life, in every window, and never beyond its cap."""

import pytest
import sqlalchemy as sa
from playwright.sync_api import expect

from cloister.hub.core.models import Refusal

from .respondent import (
    KINDS,
    SMOKER,
    WALLET,
    found,
    go_on,
    kept,
    look,
    next_wave,
    open_everything,
    open_page,
    open_survey,
    posts,
    recorded,
    send,
    usable,
)


@pytest.fixture(scope="module")
def everything(place):
    return open_everything(place)


def test_going_back_draws_no_new_noise_and_costs_nothing(place, visit):
    weeks = {**KINDS[4], "step": "week"}
    name = open_survey(place, [KINDS[1], weeks, KINDS[5]], lasting=True)  # where every copy has noise of its own, too
    page = visit()
    open_page(page, name)
    page.get_by_label("Zeppelin").check()
    page.locator("#a-moved").fill("2025-08-17")
    page.locator("#a-hours").fill("8")

    first = look(page)
    for _ in range(4):
        page.get_by_role("button", name="Change something").click()
        expect(page.get_by_role("button", name="Go on")).to_be_focused()
        again = look(page)
        assert again == first
    page.get_by_role("button", name="Change something").click()
    page.get_by_label("By train").check()
    look(page)
    assert page.evaluate("localStorage.getItem('cloister-wallet')") is None
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
    assert [one["epsilon"] for one in page.evaluate(WALLET)["charges"]] == ["1/2", "1/2", "1/2"]


def test_a_wallet_refuses_beyond_its_cap_and_keeps_it_for_life(place, visit):
    first, second = (open_survey(place, [{**KINDS[0], "levels": "open 3"}]) for _ in range(2))
    page = visit(width="phone")
    open_page(page, first)
    page.get_by_label("Yes", exact=True).check()
    send(page)
    open_page(page, second)
    expect(page.locator("#cap")).to_be_hidden()
    page.get_by_label("Yes", exact=True).check()
    expect(page.locator("#costs")).to_contain_text("not enough left")
    requests = recorded(page)
    go_on(page)
    expect(page.locator("#problem")).to_be_focused()
    expect(page.locator("#problem")).to_contain_text("need ε 3, and ε 1 is left of your limit of ε 4")
    assert posts(requests) == []
    assert kept(place, second) == []
    assert len(page.evaluate(WALLET)["charges"]) == 1


def test_a_damaged_wallet_sends_nothing(visit, everything):
    page = visit()
    open_page(page, everything)
    page.evaluate("localStorage.setItem('cloister-wallet', '{\"cap\": \"4\"}')")
    page.reload()
    expect(page.locator("#problem")).to_contain_text("The wallet in this browser is damaged")
    expect(page.locator("#asking")).to_be_hidden()


def test_noise_that_would_protect_less_than_it_says_is_refused_before_anything_is_asked(place, visit):
    def weaken(route):
        told = route.fetch().json()
        told["questions"][0]["question"]["levels"][0] |= {"p": "255/256", "q": "1/256"}
        route.fulfill(json=told)

    page = visit()
    page.route("**/survey.json", weaken)
    page.goto(f"/s/{open_survey(place, SMOKER)}")
    expect(page.locator("#problem")).to_contain_text("Your browser does not trust how this survey makes its noise")
    expect(page.locator("#problem")).to_contain_text("would tell more than the level says")
    expect(page.locator("#asking")).to_be_hidden()


def test_a_second_wave_repeats_what_was_kept_and_a_change_is_asked_about(place, visit, picture):
    name = open_survey(place, [KINDS[0], KINDS[5]], lasting=True)
    page = visit(width="phone")
    open_page(page, name)
    expect(page.locator("#q-smoker .tells").first).to_contain_text("costs ε 0.5 once, for all rounds")
    page.get_by_label("Yes", exact=True).check()
    page.locator("#a-hours").fill("13.37")
    send(page)
    before = page.evaluate(WALLET)

    next_wave(place, name)
    open_page(page, name)
    page.get_by_role("button", name="Fill in what I answered before").click()
    expect(page.get_by_label("Yes", exact=True)).to_be_checked()
    assert abs(float(page.locator("#a-hours").input_value()) - 13.37) < 0.001
    expect(page.locator("#costs")).to_contain_text("ε 0")
    look(page)
    expect(page.locator("#visible")).to_contain_text("exactly the same report")
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
    assert page.evaluate(WALLET) == before
    first, second = kept(place, name)
    assert first["hours"] == second["hours"]
    assert first["smoker"][0] == second["smoker"][0] == "3/8"  # a fresh noisy copy of what was kept

    next_wave(place, name)
    open_page(page, name)
    page.get_by_label("No", exact=True).check()
    look(page)
    expect(page.locator("#changed")).to_contain_text("that it changed may be seen")
    expect(page.get_by_label("Send what I answered before; it costs nothing")).to_be_checked()
    picture(page, "survey-phone-changed")
    assert usable(page) == []
    page.get_by_label("Send the new answer; it costs ε 0.5 again").check()
    expect(page.locator("#final")).to_contain_text("ε 0.5")
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
    after = page.evaluate(WALLET)
    assert len(after["charges"]) == len(before["charges"]) + 1
    assert set(kept(place, name)[2]) == {"smoker"}


def test_two_windows_do_not_send_twice(place, visit):
    name = open_survey(place, SMOKER)
    page = visit()
    open_page(page, name)
    page.get_by_label("Yes", exact=True).check()
    look(page)
    other = page.context.new_page()
    open_page(other, name)
    other.get_by_label("Yes", exact=True).check()
    send(other)
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.get_by_text("You have answered this survey from this browser.")).to_be_visible()
    assert len(kept(place, name)) == 1
    assert place.rows(sa.select(Refusal).where(Refusal.survey_id == found(place, name).id)) == []
