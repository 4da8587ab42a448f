"""What leaves a respondent's page: reports and nothing else, once, however the line breaks."""

import base64
import json
import re
import time

import pytest
from playwright.sync_api import expect
from scipy.stats import binom

from cloister.hub.surveys import survey

from .respondent import (
    ENVELOPE,
    SMOKER,
    answer_everything,
    found,
    go_on,
    invite,
    kept,
    look,
    open_everything,
    open_page,
    open_survey,
    posts,
    recorded,
    send,
)


@pytest.fixture(scope="module")
def everything(place):
    return open_everything(place)


def test_only_reports_leave_the_page(place, visit, everything):
    name = everything
    page = visit("ada")  # even where somebody is signed in, her cookie stays away from what she answers
    requests = recorded(page)
    open_page(page, name)
    answer_everything(page)
    send(page)
    ((path, body),) = posts(requests)
    assert path == "answers"
    told = json.loads(body)
    assert set(told) == {"version", "wave", "reports"}
    public = {one["id"]: one for one in found(place, name).questions}
    for envelope in map(json.loads, told["reports"]):
        assert set(envelope) == ENVELOPE
        level = next(one for one in public[envelope["question"]]["levels"] if one["loss"] == envelope["level"])
        assert envelope["mechanism"] == level  # all but the id and the report is public
        assert len(base64.urlsafe_b64decode(envelope["report"] + "==")) == level["width"]
        assert len(envelope["id"]) == 22
    for request in requests:
        headers = request.all_headers()
        whole = json.dumps([request.url, request.post_data, {**headers, "cookie": ""}])
        for secret in ("13.37", "Zeppelin", "Salsify", "2025-08-17", "2025-Q3"):
            for form in (secret, base64.b64encode(secret.encode()).decode().rstrip("="), secret.encode().hex()):
                assert form not in whole
        assert f"/s/{name}" not in headers.get("referer", "")  # a module names the module that asked for it
        if f"/s/{name}/" in request.url:
            assert "cookie" not in headers
            assert "?" not in request.url


def test_sixty_times_yes_is_sent_as_chance_has_it(place, visit):
    """Reports on the same answer come in the mechanism's own proportion, whatever else the page knows."""
    asked = [{"id": f"q{one}", "type": "yes_no", "text": f"{one}?", "levels": "strong 0.25"} for one in range(60)]
    name = open_survey(place, asked)
    page = visit()
    requests = recorded(page)
    rounds = 2
    for _ in range(rounds):
        open_page(page, name)
        page.evaluate("for (const one of document.querySelectorAll('.answer input[value=\"1\"]')) one.click()")
        page.locator("#cap-16").check()
        send(page)
        page.evaluate("localStorage.clear()")
    bodies = [json.loads(body) for _, body in posts(requests)]
    reports = [json.loads(one)["report"] for body in bodies for one in body["reports"]]
    law = binom(60 * rounds, 1 / (1 + 2.718281828459045**-0.25))
    assert set(reports) == {"AA", "AQ"}
    assert law.ppf(1e-7) <= reports.count("AQ") <= law.ppf(1 - 1e-7)
    assert len({json.loads(one)["id"] for body in bodies for one in body["reports"]}) == 60 * rounds


def test_an_invitation_is_good_for_one_set_of_answers(place, visit, picture):
    name = open_survey(place, SMOKER, invited=True)
    link = invite(place, name)
    secret = link.split("#")[1].split(".")[0]
    page = visit(width="phone")
    requests = recorded(page)
    page.goto(link)
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    assert page.url == f"{place.address}/s/{name}"
    page.get_by_label("Yes", exact=True).check()
    look(page)
    expect(page.locator("#visible")).to_contain_text("not which answers are yours")
    expect(page.locator("#visible")).to_contain_text("match your ballot and your reports by time and address")
    page.reload()  # what was begun is continued: the ballot is kept
    page.get_by_label("Yes", exact=True).check()
    send(page)
    asked, answered = posts(requests)
    assert (asked[0], answered[0]) == ("ballot", "answers")
    assert secret in asked[1]
    ballot = json.loads(answered[1])["ballot"]
    blinded = json.loads(asked[1])["blinded"]
    assert secret not in answered[1]
    assert blinded not in answered[1]
    message = base64.urlsafe_b64decode(ballot["message"] + "==")[32:].decode()
    assert message.startswith(f"cloister ballot v1|{name}|1|")
    for request in requests:
        assert secret not in request.url
        assert secret not in json.dumps(request.all_headers())
    assert secret not in json.dumps(page.evaluate("({...localStorage})"))
    assert len(kept(place, name)) == 1

    other = visit(width="phone")
    visit.forgive("403")
    other.goto(link)
    other.get_by_label("No", exact=True).check()
    go_on(other)
    expect(other.locator("#problem")).to_contain_text("was used on another device")
    expect(other.locator("#problem")).to_be_focused()
    picture(other, "survey-phone-used")
    assert other.evaluate("localStorage.getItem('cloister-wallet')") is None
    assert len(kept(place, name)) == 1


def test_without_an_invitation_or_with_a_key_of_ones_own_nothing_is_sent(place, visit):
    name = open_survey(place, SMOKER, invited=True)
    page = visit()
    requests = recorded(page)
    page.goto(f"/s/{name}")
    expect(page.locator("#problem")).to_contain_text("This survey is for people who were invited.")
    expect(page.locator("#asking")).to_be_hidden()
    secret, _, mark = invite(place, name).split("#")[1].rpartition(".")
    page.goto(f"/s/{name}#{secret}.{mark[::-1]}")  # the same page: a link that is opened in its place
    page.get_by_label("Yes", exact=True).check()
    go_on(page)
    expect(page.locator("#problem")).to_contain_text("not the one that your invitation names")
    assert posts(requests) == []


def test_a_broken_line_sends_the_same_reports_until_they_arrive(place, visit, picture):
    name = open_survey(place, SMOKER)
    page = visit(width="phone")
    visit.forgive("ERR_INTERNET_DISCONNECTED", "503")
    requests = recorded(page)
    open_page(page, name)
    page.get_by_label("Yes", exact=True).check()
    look(page)
    page.context.set_offline(True)
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.locator("#waiting")).to_be_focused()
    expect(page.locator("#waiting")).to_contain_text("the very same ones are sent again in 3 seconds")
    picture(page, "survey-phone-waiting")
    assert kept(place, name) == []
    page.context.set_offline(False)  # the page notices
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()
    assert len({body for _, body in posts(requests)}) == 1
    assert len(posts(requests)) >= 2
    assert len(kept(place, name)) == 1


def test_a_hub_that_cannot_now_gets_the_same_reports_later_even_after_the_page_was_closed(place, visit):
    name = open_survey(place, SMOKER)
    page = visit()
    visit.forgive("503")
    requests = recorded(page)
    open_page(page, name)
    page.get_by_label("Yes", exact=True).check()
    look(page)
    page.route("**/answers", lambda route: route.fulfill(status=503, body="{}"))
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.locator("#waiting")).to_be_visible()
    second = page.context.new_page()
    page.close()
    second.goto(f"/s/{name}")
    expect(second.get_by_role("heading", name="Thank you")).to_be_focused()
    assert len({body for _, body in posts(requests)}) == 1
    assert len(kept(place, name)) == 1


def test_a_survey_that_closed_meanwhile_says_so(place, visit):
    name = open_survey(place, SMOKER)
    page = visit()
    visit.forgive("409")
    open_page(page, name)
    page.get_by_label("Yes", exact=True).check()
    look(page)
    with place.hub.database.writing() as session:
        survey.close(place.hub, session, session.merge(found(place, name)))
    time.sleep(1.1)
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.locator("#problem")).to_contain_text("takes no more answers")
    page.reload()
    expect(page.get_by_text("This survey takes no more answers.")).to_be_visible()
    assert kept(place, name) == []


def test_the_page_is_the_same_for_everybody_and_sets_no_cookie(visit, everything):
    answers = [visit(who).request.get(f"/s/{everything}") for who in (None, "ada")]
    assert answers[0].text() == answers[1].text()
    assert "<form" not in answers[0].text()
    for answer in answers:
        assert "set-cookie" not in answer.headers
        assert "form-action 'none'" in answer.headers["content-security-policy"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"\sstyle=|\son\w+=|<script(?! type=\"module\" src=)", answers[0].text())
    assert visit().request.get("/s/no-such-survey").status == 404
