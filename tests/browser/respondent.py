"""What respondents do on their page, and what a hub keeps of it: steps for the tests of page, line and wallet."""

import json
import secrets
import time

import sqlalchemy as sa
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

from cloister.hub.core.models import Submission, Survey
from cloister.hub.surveys import ballots, survey

KINDS = [
    {"id": "smoker", "type": "yes_no", "text": "Do you smoke?", "help": "Cigarettes, pipes, anything."},
    {"id": "way", "type": "choice", "text": "How do you get to work?", "options": ["On foot", "Zeppelin", "By train"]},
    {"id": "food", "type": "choices", "most": 2, "text": "What do you eat?", "options": ["Figs", "Salsify", "Medlar"]},
    {"id": "sleep", "type": "scale", "text": "How do you sleep?", "low": 1, "high": 7, "options": ["badly", "well"]},
    {"id": "moved", "type": "date", "text": "When did you move in?", "low": "2025-01-01", "high": "2025-12-31",
     "step": "quarter"},
    {"id": "hours", "type": "number", "text": "How long do you work?", "low": "0", "high": "24", "unit": "hours"},
]  # fmt: skip
SMOKER = KINDS[:1]
TEXTS = {"title": "Health at work", "purpose": "To plan the canteen.", "consent": "I agree to be counted."}
WALLET = "JSON.parse(localStorage.getItem('cloister-wallet'))"
AXE = {"resultTypes": ["violations"]}
ENVELOPE = {"id", "level", "mechanism", "private", "question", "report", "version"}


def open_survey(place, asked=KINDS, **facts):
    """A new survey that takes answers; its name."""
    name = f"answering-{secrets.token_hex(4)}"
    with place.hub.database.writing() as session:
        owner = session.merge(place.person("ada"))
        made = survey.create(place.hub, session, owner, name, {**TEXTS, "asked": asked, **facts})
        survey.publish(place.hub, session, made)
    return name


def open_everything(place):
    """One with every kind of question, in German; many tests can share it, since every browser is new."""
    return open_survey(place, about="Ten minutes.", title="Gesundheit", language="de", ends=time.time() + 86_400)


def found(place, name):
    return place.rows(sa.select(Survey).where(Survey.name == name))[0]


def kept(place, name):
    """What the hub keeps of each submission: {question: [level, report]}."""
    mine = sa.select(Submission).where(Submission.survey_id == found(place, name).id)
    return [json.loads(row.reports) for row in place.rows(mine.order_by(Submission.wave))]


def next_wave(place, name):
    with place.hub.database.writing() as session:
        survey.next_wave(place.hub, session, session.merge(found(place, name)))
    time.sleep(1.1)  # a survey is remembered for a second


def invite(place, name):
    with place.hub.database.writing() as session:
        (link,) = ballots.invite(place.hub, session, session.merge(found(place, name)), 1)
    return link


def recorded(page):
    """Every request of a page's browser from now on."""
    requests = []
    page.context.on("request", lambda request: requests.append(request))
    return requests


def posts(requests):
    return [(one.url.rsplit("/", 1)[1], one.post_data) for one in requests if one.method != "GET"]


def open_page(page, name):
    page.goto(f"/s/{name}")
    expect(page.get_by_role("button", name="Go on")).to_be_visible()


def go_on(page):
    page.get_by_label("I have read what this survey is for").check()
    page.get_by_role("button", name="Go on").click()


def look(page):
    go_on(page)
    expect(page.get_by_role("heading", name="Before anything is sent")).to_be_focused()
    return json.loads(page.locator("#leaves").text_content())


def send(page):
    look(page)
    page.get_by_role("button", name="Send the noisy reports").click()
    expect(page.get_by_role("heading", name="Thank you")).to_be_focused()


def answer_everything(page):
    page.get_by_label("Yes", exact=True).check()
    page.get_by_label("Zeppelin").check()
    page.get_by_label("Salsify").check()
    page.get_by_label("Medlar").check()
    page.locator("#q-sleep").get_by_label("6").check()
    page.locator("#a-moved").fill("2025-08-17")
    page.locator("#a-hours").fill("13.37")


def too_wide(page):
    return page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def usable(page):
    """What axe has to say, and whether the page is wider than the screen."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    said = page.evaluate("(options) => axe.run(document, options)", AXE)["violations"]
    return [(one["id"], node["html"][:200]) for one in said for node in one["nodes"]] + ["too wide"] * too_wide(page)
