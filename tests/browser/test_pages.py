"""Every page, for whom it is made: usable by everybody, at every width, light and dark, and nothing goes wrong."""

import importlib
import pkgutil
import re

import pyarrow as pa
import pytest
import sqlalchemy as sa
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import expect

import cloister as cl
from cloister import synth
from cloister.attack import membership_of_scores
from cloister.attack.tables import homogeneity
from cloister.data.hospital import SCHEMA, hospital
from cloister.hub.core.models import Attack, Job
from cloister.hub.jobs.attacks import running
from cloister.hub.jobs.attacks.package import packed
from cloister.hub.jobs.external_tables.submission import hand_in
from cloister.hub.ops.setup import invitation_link
from cloister.hub.surveys import survey as surveys
from cloister.hub.users import sessions, totp, user_actions
from cloister.hub.web import pages
from cloister.hub.web.pages.subject import card_link
from cloister.synth.output.shared_table import side_path

# Who looks at what; NAME and the like are filled in below. A page that is not here fails the last test of this file.
PAGES = {
    "nobody": ["/", "/sign-in", "/trust", "/no-such-page", "/invitation/SECRET", "/reset/SECRET", "/subject-card"],
    "ada": [
        "/",
        "/datasets",
        "/datasets/visits",
        "/datasets/visits/policy",
        "/datasets/visits/schema",
        "/datasets/visits/ledger",
        "/datasets/visits/subject",
        "/datasets/visits/why?operation=query&purpose=marketing",
        "/datasets/visits/tables",
        "/datasets/stays/tables",
        "/datasets/stays/tables/HANDED",
        "/datasets/check-ups/requests",
        "/work/query/visits?job=1",
        "/work/profile/visits",
        "/work/train/visits",
        "/work/synthesise/visits",
        "/jobs",
        "/jobs/1",
        "/jobs/2",
        "/jobs/5",
        "/jobs/6",
        "/requests",
        "/requests/2",
        "/ledger",
        "/notices",
        "/account",
        "/surveys",
        "/surveys/new",
        "/surveys/sleep-2026",
        "/surveys/sleep-2026/preview",
        "/surveys/sleep-2026/results?first=shifts&second=home",
        "/surveys/sleep-2026/model",
        "/surveys/sleep-2026/beside",
        "/surveys/not-yet-open/add?type=choice",
        "/surveys/not-yet-open/questions/smoker",
        "/surveys/not-yet-open/publish",
    ],
    "ben": ["/jobs/4", "/datasets/check-ups/why?operation=query&purpose=epidemiology"],
    "hanna": [
        "/",
        "/datasets/new",
        "/datasets/visits",
        "/datasets/visits/policy",
        "/datasets/visits/policy/1",
        "/datasets/visits/schema",
        "/datasets/visits/versions",
        "/datasets/visits/ledger",
        "/datasets/visits/activity",
        "/datasets/visits/attacks",
        "/datasets/visits/attacks/DONE",
        "/datasets/visits/attacks/UNDER-WAY",
        "/datasets/visits/requests",
        "/datasets/visits/subject",
        "/datasets/stays/tables",
        "/requests/3",
    ],
    "iris": ["/ledger", "/audit?action=job"],
    "otto": ["/", "/people", "/people/3"],
    "pia": ["/second-factor"],
}
# Files, pictures and answers for machines; not pages.
FILES = re.compile(
    r"\.(csv|svg|parquet|side\.json)$|/report\.(html|json)$|/(receipt|reports|estimates|label|model|copy|head|export|mock/\{table\}|\{file\})$|^/(health|metrics)"
)
# They lead to another page.
DETOURS = {f"/datasets/{{name}}/{kind}" for kind in ("query", "profile", "train", "predict", "synthesise", "anonymise")}
# Only where anybody may join, which is not so here; the first has an invitation's form, the second a button.
CLOSED = {"/sign-up", "/verify/{secret}"}
# The demo has no model: tests/browser/test_train.py looks at its page.
ELSEWHERE = {"/jobs/{number}/predictions"}
OPEN_EVERYTHING = "for (const one of document.querySelectorAll('main details')) one.open = true"
EVERYTHING = {"resultTypes": ["violations"]}
COLOURS = {"resultTypes": ["violations"], "runOnly": ["color-contrast"]}


def found(page, options=EVERYTHING):
    """What axe has to say: the rule, the element, what to do."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(Axe().axe_script)
    said = page.evaluate("(options) => axe.run(document, options)", options)["violations"]
    return [(one["id"], node["html"][:200], node["failureSummary"]) for one in said for node in one["nodes"]]


def handed_in(place, folder):
    """A table of stays that Hanna made at home and has handed in; its number."""
    path = folder / "stays.parquet"
    with cl.open(pa.table(hospital(300)), schema=SCHEMA, budget=cl.rho(1), ledger=folder, name="stays") as data:
        synth.independent(data, spend=cl.rho("0.01"), rows=100).to_parquet(path)
        key = str(data.account.book.key.public)
    files = path.read_bytes(), side_path(path).read_bytes()
    return hand_in(place.hub, place.person("hanna"), "stays", *files, key).id


def attacked(place, number):
    """An attack of Hanna's on a job on visits, under way; its address."""
    with place.hub.database.writing() as session:
        job = session.scalar(sa.select(Job).where(Job.id == 1))
        facts = {"dataset_id": job.dataset_id, "job_id": job.id, "state": "running"}
        session.add(Attack(id=number, **facts, stage="training twin 2 of at most 9", progress=0.4))
    return f"/datasets/visits/attacks/{number}"


def with_findings(place, number):
    """The same, with findings as if they had been made."""
    address = attacked(place, number)
    scores = membership_of_scores(range(100, 300), range(200), claim=cl.rho("0.1"))
    release = {"age": ["<30", "<30", ">=30"], "ill": ["flu", "TB", "flu"]}
    table = homogeneity(release, quasi=["age"], sensitive="ill").finding("Anonymised release 1")
    running._end(place.hub, number, *packed([scores, table], {"minimality": "it needs harmful values."}, "Model 1"))
    return address


@pytest.fixture(scope="module")
def secrets(place, tmp_path_factory):
    """Addresses that somebody is handed once, and that of a table that was handed in."""
    reset = user_actions.make_reset_link(place.hub, place.person("otto"), place.newcomer())
    facts = {"title": "Not yet open", "purpose": "To look at it.", "consent": "Freely."}
    asked = [{"id": "smoker", "type": "yes_no", "text": "Do you smoke?"}]
    with place.hub.database.writing() as session:
        surveys.create(place.hub, session, place.person("ada"), "not-yet-open", {**facts, "asked": asked})
    handed = handed_in(place, tmp_path_factory.mktemp("own"))
    # As if a worker had them, so that the one of this place leaves them alone.
    with running._alone(place.hub, 901), running._alone(place.hub, 902):
        yield {
            "/invitation/SECRET": invitation_link(place.hub, "guest@new.example", ["data user"], "University"),
            "/reset/SECRET": f"/reset/{reset}",
            "/subject-card": card_link(place.hub, "visits"),
            "/datasets/visits/attacks/DONE": with_findings(place, 901),
            "/datasets/visits/attacks/UNDER-WAY": attacked(place, 902),
            "/datasets/stays/tables/HANDED": f"/datasets/stays/tables/{handed}",
        }


def half_inside(place, visit):
    """The browser of somebody who has given a password, and not yet the code."""
    person = place.newcomer("Pia Sommer")
    with place.hub.database.writing() as session:
        totp.enroll(session, place.hub.keys, person.id)
        secret, _ = sessions.begin(session, place.hub.settings, person, complete=False)
    page = visit()
    page.context.add_cookies([{"name": "cloister-session", "value": secret, "url": place.address}])
    return page


@pytest.mark.parametrize("who", PAGES)
def test_every_page_can_be_used_by_everybody(place, visit, secrets, who):
    page = half_inside(place, visit) if who == "pia" else visit(None if who == "nobody" else who)
    problems = {}
    for path in PAGES[who]:
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 1200, "height": 900})
        answer = page.goto(secrets.get(path, path))
        assert answer.status == (404 if path == "/no-such-page" else 200), path
        page.evaluate(OPEN_EVERYTHING)
        problems[path, "desktop"] = found(page)
        page.emulate_media(color_scheme="dark")
        problems[path, "dark"] = found(page, COLOURS)
        page.emulate_media(color_scheme="light")
        page.set_viewport_size({"width": 390, "height": 844})
        problems[path, "phone"] = found(page)
        page.set_viewport_size({"width": 320, "height": 640})
        across = page.evaluate("[document.documentElement.scrollWidth, window.innerWidth]")
        problems[path, "smallest"] = [] if across[0] <= across[1] else [("it is wider than the screen", across)]
    assert {place: said for place, said in problems.items() if said} == {}


def test_the_menu_of_a_phone_works_with_fingers_and_keys(visit):
    page = visit("ada", "phone")
    page.goto("/")
    links = page.get_by_role("navigation", name="Main").get_by_role("link", name="Datasets")
    expect(links).to_be_hidden()
    page.get_by_text("Menu").tap()
    expect(links).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert found(page) == []
    links.focus()
    page.keyboard.press("Escape")
    expect(links).to_be_hidden()
    expect(page.locator("details.menu summary")).to_be_focused()


def test_dark_is_dark_and_its_charts_too(visit, picture):
    page = visit("ada", dark=True)
    page.goto("/jobs/1")
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    ink = page.evaluate("getComputedStyle(document.body).color")
    dark, light = (sum(map(int, re.findall(r"\d+", one)[:3])) for one in (ground, ink))
    assert dark < 150 < 600 < light
    chart = page.get_by_role("main").get_by_role("img").first
    assert "theme=dark" in chart.evaluate("(one) => one.currentSrc")
    picture(page, "answer-dark")
    page.goto("/datasets/visits")
    picture(page, "dataset-dark")


def test_pictures_for_the_guides_are_kept(visit, picture):
    for who, width, paths in (
        (None, "desktop", {"welcome": "/"}),
        ("ada", "desktop", {"dataset": "/datasets/visits"}),
        ("ada", "phone", {"home": "/", "dataset": "/datasets/visits"}),
        ("hanna", "desktop", {"home": "/", "activity": "/datasets/visits/activity"}),
    ):
        page = visit(who, width)
        for name, path in paths.items():
            page.goto(path)
            picture(page, f"{name}-{width}")


def test_whatever_goes_wrong_on_a_page_is_noticed(visit):
    """Else every other test here would prove less than it seems."""
    page = visit()
    page.goto("/")
    page.route("http://elsewhere.example/*", lambda route: route.abort())
    for script in (
        "const one = document.createElement('script'); one.textContent = 'window.evil = 1'; document.body.append(one)",
        "document.body.insertAdjacentHTML('beforeend', '<p style=\"color: red\">red</p>')",
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"http://elsewhere.example/a.png\" alt=\"\">')",
        "fetch('/static/none.js').then(() => 1)",
        "setTimeout(() => { throw new Error('thrown in a script'); })",
    ):
        page.evaluate(script)
    page.wait_for_timeout(300)
    said = "\n".join(visit.troubles)
    assert page.evaluate("window.evil") is None
    for words in ("script-src 'self'", "style-src 'self'", "elsewhere.example", "404: ", "thrown in a script"):
        assert words in said
    visit.forgive("console: ", "another host: ", "404: ", "script: ")


def test_no_page_is_forgotten():
    known = {re.sub(r"\?.*", "", path) for paths in PAGES.values() for path in paths}
    asked = set()
    for module in pkgutil.iter_modules(pages.__path__):
        router = importlib.import_module(f"{pages.__name__}.{module.name}").router
        asked |= {route.path for route in router.routes if "GET" in route.methods}
    missing = {
        path
        for path in asked - DETOURS - CLOSED - ELSEWHERE
        if not FILES.search(path) and not any(re.fullmatch(re.sub(r"\{[^}]+\}", "[^/]+", path), one) for one in known)
    }
    assert len(asked) > 30
    assert missing == set()
