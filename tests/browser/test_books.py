"""The books: an auditor verifies them, an owner reads them, a person in the data reads the card."""

import json
import re

from playwright.sync_api import expect

from cloister.hub.core.trail import verify_export
from cloister.privacy.ledger.chain import Head
from cloister.privacy.ledger.verify import verify as verify_ledger


def test_an_auditor_verifies_the_ledger_and_takes_it_along(place, visit, tmp_path, picture):
    page = visit("iris")
    page.goto("/ledger")
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("The ledger holds")).to_be_visible()
    accounts = page.get_by_role("region", name="Accounts, recomputed from the entries")
    expect(accounts.get_by_role("cell", name="visits", exact=True)).to_be_visible()
    expect(accounts.get_by_text("NO", exact=True)).to_have_count(0)
    picture(page, "ledger-auditor")
    files = {}
    for link in ("Download the ledger", "Download the head"):
        with page.expect_download() as sent:
            page.get_by_role("link", name=link).click()
        files[link] = tmp_path / sent.value.suggested_filename
        sent.value.save_as(files[link])
    page.get_by_text("Verify it yourself, offline").click()
    expect(page.get_by_role("region", name="Command to verify the ledger")).to_contain_text(str(place.hub.key.public))
    head = Head.parse(files["Download the head"].read_text().strip())
    assert verify_ledger(files["Download the ledger"], place.hub.key.public, head).ok


def test_an_auditor_verifies_searches_and_exports_the_log(place, visit, tmp_path, picture):
    page = visit("iris")
    page.goto("/audit")
    page.get_by_role("button", name="Verify now").click()
    expect(page.get_by_text("The log holds")).to_be_visible()
    page.get_by_label("Action begins with").fill("work.denied")
    page.get_by_label("Person").fill("ben@uni.example")
    page.get_by_role("button", name="Search").click()
    rows = page.get_by_role("region", name="Entries, newest first").get_by_role("row")
    expect(rows).to_have_count(2)
    rows.last.get_by_text("facts").click()
    expect(rows.last).to_contain_text("marketing")
    picture(page, "audit")
    with page.expect_download() as sent:
        page.get_by_role("link", name="Export all").click()
    export = tmp_path / sent.value.suggested_filename
    sent.value.save_as(export)
    assert verify_export(export, str(place.hub.key.public)) >= 30
    assert all(json.loads(line) for line in export.read_text().splitlines())


def test_the_owner_sees_who_spent_what(visit, width, picture):
    page = visit("hanna", width)
    page.goto("/datasets/visits")
    page.get_by_role("link", name="Ledger", exact=True).last.click()
    expect(page.get_by_role("region", name="Privacy budget used by person")).to_contain_text("Ada Brandt")
    expect(page.get_by_role("region", name="Privacy budget used by purpose")).to_contain_text("health-research")
    spends = page.get_by_role("region", name="Every spend, newest first")
    expect(spends.get_by_role("row").filter(has_text="Ben Okafor")).to_contain_text("ρ 0.004")
    for one in page.get_by_role("main").get_by_role("img").all():
        expect(one).to_have_js_property("complete", True)
        assert one.evaluate("(one) => one.naturalWidth") > 100
    picture(page, f"ledger-owner-{width}")


def test_somebody_in_the_data_reads_the_card_without_an_account(visit, width, picture):
    owners = visit("hanna", width)
    owners.goto("/datasets/visits/subject")
    owners.get_by_text("Hand this card to the people in the data").click()
    link = owners.locator("#card-link").inner_text()

    page = visit(width=width)
    page.goto(link)
    expect(page.get_by_role("heading", name="If you are in “Visits to St. Anna Hospital”")).to_be_visible()
    expect(page.get_by_role("region", name="Today")).to_contain_text(
        re.compile(r"fifty-fifty .* at most \d+(\.\d+)? %")
    )
    expect(page.get_by_role("heading", name="What is not promised")).to_be_visible()
    table = page.get_by_role("region", name="How sure somebody can become that you are in this data")
    # The whole table is seen at once: nobody should have to find out that it can be pushed aside.
    assert table.evaluate("(one) => one.scrollWidth <= one.clientWidth")
    picture(page, f"subject-{width}")

    page.goto(re.sub(r"key=.*", "key=" + "0" * 32, link))
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()
