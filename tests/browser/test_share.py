"""An owner shares a dataset: a policy, a file in pieces, what is public of it, a sealed version, another policy."""

import re

import pyarrow as pa
import pyarrow.csv
import pytest
from playwright.sync_api import expect

from cloister.data.hospital import hospital

PIECE = 8 * 1024 * 1024  # as in upload.js
POLICY = """dataset: NAME
purposes: [health-research]
budget:
  lifetime: {epsilon: 2, delta: 1e-7}
roles:
  visitors:
    who: anyone
    may: [see schema]
"""


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Visits with long notes that nobody needs: 20 MB, three pieces."""
    rows = pa.table(hospital(1_500)).select(["patient", "ward", "age"])
    notes = pa.array([f"{number:05} " + "what the doctor said " * 430 for number in range(rows.num_rows)])
    path = tmp_path_factory.mktemp("send") / "visits.csv"
    pyarrow.csv.write_csv(rows.append_column("note", notes), path)
    assert 2 * PIECE < path.stat().st_size < 3 * PIECE
    return path


@pytest.fixture
def owner(place):
    return place.newcomer("Olga Prem", ("data owner",), "St. Anna Hospital")


def make(page, name):
    """A new dataset, with its policy as YAML; a page that is not right yet is given back with what is wrong."""
    page.goto("/datasets/new")
    page.get_by_label("Name").fill(name)
    page.get_by_label("Title").fill("Visits of Olga")
    text = POLICY.replace("NAME", name)
    page.get_by_label("Policy").fill(text.replace("health-research", "helth-research") + "retention: for ever\n")
    page.get_by_role("button", name="Make the dataset").click()
    problem = page.get_by_role("alert")
    expect(problem).to_contain_text("helth-research")
    expect(problem).to_contain_text("retention")
    expect(problem).to_be_focused()
    page.get_by_label("Policy").fill(text)
    page.get_by_role("button", name="Make the dataset").click()
    expect(page.get_by_text("The dataset is made. Now send its tables.")).to_be_visible()
    page.wait_for_load_state()  # with its scripts; before that a file would go with the form


def test_a_file_goes_in_pieces_and_goes_on_after_a_cut(place, visit, owner, table):
    page = visit(owner)
    make(page, f"cut-{owner.id}")
    visit.forgive("ERR_FAILED")
    pieces, held = [], []

    def second_is_held(route):
        pieces.append(int(route.request.url.partition("offset=")[2]))
        held.append(route) if pieces[-1] == PIECE else route.continue_()

    page.route("**/api/uploads/*", second_is_held)
    page.get_by_label("File", exact=True).set_input_files(table)
    expect(page.get_by_role("button", name="Stop")).to_be_hidden()
    page.get_by_role("button", name="Send").click()
    share = f"{100 * PIECE // table.stat().st_size} %"
    expect(page.get_by_text(f"Sending visits.csv: {share}")).to_be_visible()
    assert page.get_by_role("progressbar").get_attribute("value").startswith("0.")
    expect(page.get_by_role("button", name="Stop")).to_be_visible()
    while not held:  # what was sent is shown a moment before the next piece leaves
        page.wait_for_timeout(20)
    held[0].abort()
    page.reload()  # the browser goes away in the middle
    page.unroute("**/api/uploads/*")

    row = page.get_by_role("row").filter(has_text="visits.csv")
    expect(row).to_contain_text("open")
    expect(row).to_contain_text("% received")
    pieces.clear()

    def first_is_cut(route):
        pieces.append(route.request.url.partition("offset=")[2])
        route.abort() if len(pieces) == 1 else route.continue_()

    page.route(re.compile(r"/api/uploads/.*offset="), first_is_cut)
    page.get_by_label("File", exact=True).set_input_files(table)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("row").filter(has_text="visits.csv")).to_contain_text("complete")
    assert pieces == [str(PIECE), str(PIECE), str(2 * PIECE)]


def test_what_is_public_is_confirmed_by_the_owner_and_then_sealed(place, visit, owner, table, picture):
    page, name = visit(owner), f"whole-{owner.id}"
    make(page, name)
    page.get_by_label("File", exact=True).set_input_files(table)
    page.get_by_role("button", name="Send").click()
    expect(page.get_by_role("row").filter(has_text="visits.csv")).to_contain_text("complete")

    page.get_by_role("link", name="Say what is public").click()
    page.get_by_role("button", name="Look at values too").click()
    expect(page.get_by_text("This is a draft and is not saved.")).to_be_visible()
    page.get_by_label("Unit", exact=True).fill("patient")
    page.get_by_label("Rows that count for each").fill("8")
    page.get_by_label("Column with the unit").select_option("patient")
    age, ward, note = (page.get_by_role("group", name=re.compile(f"^{one}")) for one in ("age", "ward", "note"))
    expect(ward.get_by_text("to confirm")).to_be_visible()
    expect(ward.get_by_label("Lower bound")).to_be_hidden()  # a text has none
    expect(ward.get_by_role("textbox", name="Categories")).to_have_value(
        re.compile("cardiology\nemergency\ngeriatrics")
    )
    age.get_by_label("Lower bound").fill("0")
    age.get_by_label("Upper bound").fill("100")
    note.get_by_label("Use this column").uncheck()
    picture(page, "schema-editor")
    page.get_by_role("button", name="Save the schema").click()
    expect(page.get_by_role("alert")).to_contain_text("confirm")

    for mark in page.get_by_label("These bounds or categories are public").all():
        mark.check()
    page.get_by_role("button", name="Save the schema").click()
    expect(page.get_by_text("The schema is saved.")).to_be_visible()
    page.get_by_role("button", name="Make a version").click()
    expect(page.get_by_role("row").filter(has_text="sealed here")).to_contain_text("ready")

    page.goto(f"/datasets/{name}")
    columns = page.get_by_role("region", name="Columns of visits")
    expect(columns.get_by_role("row")).to_have_count(3)  # its head, age and ward; not the notes
    expect(columns).to_contain_text("0 to 100")
    with page.expect_download() as sent:
        page.get_by_role("link", name="Download 1,000 invented rows").click()
    assert pyarrow.csv.read_csv(sent.value.path()).column_names == ["patient", "ward", "age"]


def test_a_policy_is_changed_in_the_form_and_as_a_page(place, visit, owner, picture):
    page, name = visit(owner), f"ruled-{owner.id}"
    make(page, name)
    page.goto(f"/datasets/{name}/policy")
    page.get_by_text("Edit the common parts in a form").click()
    page.get_by_label("One request").fill("rho 0.02")
    new = page.get_by_role("group", name="A new role")
    new.get_by_label("Name").fill("researchers")
    new.get_by_label(re.compile("^May")).fill("see schema, query")
    new.get_by_label(re.compile("^Organisations")).fill("University")
    new.get_by_label("data user").check()
    page.get_by_role("button", name="Publish what the form says").click()
    expect(page.get_by_text("Policy 2 is published and decides from now on.")).to_be_visible()
    text = page.get_by_label("The page").input_value()
    assert "per_request" in text
    assert "organisations" in text

    page.get_by_label("The page").fill(text.replace("see schema, query", "see schema, query, profyle"))
    page.get_by_role("button", name="Check").click()
    expect(page.get_by_role("status").or_(page.get_by_role("alert"))).to_contain_text("profyle")
    page.get_by_label("The page").fill(text + "reviewers: [clara@lake.example]\n")
    page.get_by_role("button", name="Publish", exact=True).click()
    expect(page.get_by_text("Policy 3 is published and decides from now on.")).to_be_visible()
    page.get_by_role("link", name="Policy 3").click()
    expect(page.locator("ins")).to_contain_text("reviewers")
    page.goto(f"/datasets/{name}/policy")
    page.get_by_text("What it says, in words").click()
    picture(page, "policy")

    reader = visit(place.newcomer())
    reader.goto(f"/datasets/{name}/policy")
    expect(reader.get_by_role("row").filter(has_text="researchers")).to_contain_text("query")
    expect(reader.get_by_text("clara@lake.example")).to_have_count(0)
