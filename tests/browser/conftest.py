"""A hub served as its users meet it, and a Chromium that notices whatever goes wrong on a page.

    place     the demo's hub, one web process and one worker, and a dataset with budget enough for all tests
    visit     visit("ada") is a page of Ada's browser; visit() is a stranger's. When a test ends, nothing may have gone
              wrong on any page: no console error, no failed file, no call to another host, no violated CSP
    picture   picture(page, "name") keeps what is seen as build/screens/hub-name.png

Every test makes the people it needs, so that tests can run alone and in any order.
"""

import itertools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urldefrag, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from playwright.sync_api import expect, sync_playwright

from cloister.client import Client
from cloister.data.hospital import SCHEMA, hospital
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation, Person
from cloister.hub.core.settings import Settings
from cloister.hub.ops.demo import PASSWORD, make_demo
from cloister.hub.users import accounts, sessions, user_actions

SCREENS = Path(__file__).parents[2] / "build" / "screens"
WIDTHS = {"desktop": 1200, "phone": 390, "smallest": 320}
PATIENCE_S = 20
# Those further down load only when they are near.
ALL_IMAGES = """Promise.all([...document.images].map((one) => {
  one.loading = "eager";
  return one.complete || new Promise((done) => { one.onload = one.onerror = done; });
}))"""
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
STAYS = """
dataset: stays
purposes: [health-research]
budget:
  lifetime: {rho: 20}
  approvals: [{above: {rho: 0.5}, needs: 2}]
reviewers: [clara@lake.example, ben@uni.example]
roles:
  own staff:
    who: {organisations: [St. Anna Hospital]}
    may: [see schema, query]
  researchers:
    who: {roles: [data user], organisations: [University]}
    may: [see schema, query, profile, train, synthesise]
"""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    marks = [pytest.mark.browser, pytest.mark.e2e]
    if config.pluginmanager.hasplugin("xdist"):
        marks.append(pytest.mark.xdist_group("browser"))  # one hub and one browser, not one for every core
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            for mark in marks:
                item.add_marker(mark)


# The hub


@dataclass
class Place:
    """A hub that is being served."""

    hub: Hub
    folder: Path
    environment: dict[str, str]
    worker: subprocess.Popen | None = None
    numbers: Iterator[int] = field(default_factory=itertools.count)

    @property
    def address(self) -> str:
        return self.hub.settings.address

    def person(self, who: str | Person) -> Person:
        """Somebody of the demo by first name, or as given."""
        if isinstance(who, Person):
            return who
        with self.hub.database.reading() as session:
            return session.scalars(sa.select(Person).where(Person.email.startswith(f"{who}@"))).one()

    def newcomer(self, name: str = "Nora Lind", roles=("data user",), organisation: str = "University") -> Person:
        """Somebody who has just joined."""
        email = f"{name.split()[0].lower()}-{next(self.numbers)}@new.example"
        with self.hub.database.reading() as session:
            where = session.scalars(sa.select(Organisation).where(Organisation.name == organisation)).one().id
        secret = user_actions.invite(self.hub, None, email=email, organisation=where, roles=roles)
        user_actions.sign_up(
            self.hub, email=email, name=name, password=PASSWORD, address="127.0.0.1", invitation=secret
        )
        with self.hub.database.reading() as session:
            return accounts.find(session, email)

    def cookie(self, who: str | Person) -> dict:
        """A session, for tests that are not about signing in."""
        with self.hub.database.writing() as session:
            secret, _ = sessions.begin(session, self.hub.settings, self.person(who), complete=True)
        return {"name": "cloister-session", "value": secret, "url": self.address, "httpOnly": True, "sameSite": "Lax"}

    def rows(self, statement) -> list:
        with self.hub.database.reading() as session:
            return list(session.scalars(statement))

    def start(self, *command: str) -> subprocess.Popen:
        """`cloister hub …` as a process, whose lines go to a file beside the hub."""
        with (self.folder.parent / "log").open("ab") as log:
            line = [sys.executable, "-c", "from cloister.cli import main; main()", "hub", *command]
            return subprocess.Popen(line, env=self.environment, stdout=log, stderr=log)

    @contextmanager
    def no_worker(self):
        """Nobody takes jobs from the queue."""
        end(self.worker)
        try:
            yield
        finally:
            self.worker = self.start("worker")


def end(process: subprocess.Popen) -> None:
    process.send_signal(signal.SIGTERM)
    process.wait(40)


@pytest.fixture(scope="session")
def place(chromium, tmp_path_factory):
    folder = tmp_path_factory.mktemp("browser") / "hub"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = Settings(folder=folder, address=f"http://127.0.0.1:{port}", port=port, country="AT")
    make_demo(settings)
    said = {
        "FOLDER": folder,
        "ADDRESS": settings.address,
        "PORT": port,
        "COUNTRY": "AT",
        "WEB_PROCESSES": 1,
        "WORKER_PROCESSES": 0,
        "REQUESTS_PER_MINUTE": 1_000_000,
        "ANSWERS_PER_MINUTE": 1_000_000,
    }
    environment = {**os.environ, **{f"CLOISTER_{name}": str(value) for name, value in said.items()}}
    with Hub.open(settings) as hub:
        made = Place(hub, folder, environment)
        web, made.worker = made.start("serve"), made.start("worker")
        try:
            wait_for(web, f"{settings.address}/health")
            share(made, tmp_path_factory.mktemp("table"))
            yield made
        finally:
            end(web)
            end(made.worker)


def wait_for(web: subprocess.Popen, address: str) -> None:
    until = time.monotonic() + 60
    while web.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5) as answer:
                assert answer.status == 200
                return
        except OSError:
            assert time.monotonic() < until, f"{address} does not answer"
            time.sleep(0.1)
    pytest.fail(f"`cloister hub serve` ended with {web.returncode}")


def share(place: Place, folder: Path) -> None:
    """The dataset `stays`, sent through the client."""
    token = user_actions.make_token(place.hub, place.person("hanna"), "tests", ("read", "share"), 1)
    table = folder / "visits.parquet"
    pq.write_table(pa.table(hospital(1_500)), table)
    with Client(place.address, token) as client:
        client.create_dataset(
            "stays", policy=STAYS, schema=SCHEMA, tables={"visits": table}, title="Stays", progress=lambda *_: None
        )


# The browser


@pytest.fixture(scope="session")
def chromium():
    """Where the browser is."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        pytest.skip("no Chromium here: on Debian, apt-get install chromium")
    return found


@pytest.fixture(scope="module")
def browser(chromium):
    """A Chromium for one file: while Playwright is open an event loop runs, and tests of others may want their own."""
    expect.set_options(timeout=PATIENCE_S * 1000)
    with sync_playwright() as begun:
        opened = begun.chromium.launch(executable_path=chromium, args=FLAGS)
        yield opened
        opened.close()


class Visits:
    """Browsers of several people at once, and what went wrong on their pages."""

    def __init__(self, place: Place, browser) -> None:
        self.place, self.browser = place, browser
        self.contexts, self.troubles, self.forgiven, self.refused = [], [], [], set()

    def __call__(self, who=None, width="desktop", *, scripts=True, dark=False):
        """A page of somebody's browser; `who` is a first name of the demo, a person, or nobody."""
        pixels = WIDTHS[width]
        small = pixels < 600
        context = self.browser.new_context(
            base_url=self.place.address,
            viewport={"width": pixels, "height": 844 if small else 900},
            has_touch=small,
            is_mobile=small and width != "smallest",
            java_script_enabled=scripts,
            color_scheme="dark" if dark else "light",
            reduced_motion="reduce",
            locale="en-GB",
            timezone_id="Europe/Vienna",
        )
        context.set_default_timeout(PATIENCE_S * 1000)
        self.contexts.append(context)
        if who is not None:
            context.add_cookies([self.place.cookie(who)])
        context.on("console", self._console)
        context.on("weberror", lambda error: self.troubles.append(f"script: {error.error}"))
        context.on("request", self._request)
        context.on("response", self._response)
        return context.new_page()

    def forgive(self, *words: str) -> None:
        """Troubles with these words are what the test is about."""
        self.forgiven += words

    def left(self) -> list[str]:
        return [one for one in self.troubles if not any(words in one for words in self.forgiven)]

    def _console(self, message) -> None:
        # A page that says no carries its number: 403, 404, 422. Chromium writes that down as an error of the page.
        if message.type in ("error", "warning") and urldefrag(message.location["url"]).url not in self.refused:
            self.troubles.append(f"console: {message.text} ({message.location['url']})")

    def _request(self, request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and f"{parts.scheme}://{parts.netloc}" != self.place.address:
            self.troubles.append(f"another host: {request.url}")

    def _response(self, response) -> None:
        if response.status < 400:
            return
        if response.status < 500 and response.request.is_navigation_request():
            self.refused.add(urldefrag(response.url).url)
        else:
            self.troubles.append(f"{response.status}: {response.url}")

    def close(self) -> None:
        for context in self.contexts:
            context.close()


@pytest.fixture
def visit(place, browser):
    made = Visits(place, browser)
    yield made
    made.close()
    assert made.left() == []


@pytest.fixture(params=["desktop", "phone"])
def width(request):
    return request.param


@pytest.fixture(scope="session")
def picture():
    """Keeps what is seen; docs/guides/run-a-hub.md says what for."""

    def keep(page, name: str) -> None:
        page.evaluate(ALL_IMAGES)
        page.screenshot(path=SCREENS / f"hub-{name}.png", full_page=True)

    return keep
