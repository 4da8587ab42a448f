"""What is refused says why, and costs nothing."""

from playwright.sync_api import expect


def plan(page, dataset, question, spend="rho 0.01", purpose=None):
    page.goto(f"/work/query/{dataset}")
    page.get_by_label("Question").fill(question)
    page.get_by_label("Privacy budget").fill(spend)
    page.get_by_label("Purpose").select_option(purpose or "health-research")
    page.get_by_role("button", name="Plan: what would it cost?").click()


def test_what_would_be_refused_is_not_offered_and_a_page_says_why(visit, picture):
    page = visit("ada")
    page.goto("/work/query/visits")
    offered = page.get_by_label("Purpose").locator("option").evaluate_all("(all) => all.map((one) => one.value)")
    assert "health-research" in offered
    assert "quality-assurance" not in offered
    page.goto("/datasets/visits/why?operation=query&purpose=quality-assurance")
    verdict = page.get_by_role("region", name="denied")
    for words in ("Role researchers does not fit", "✓ holds", "✗ does not hold", "Role own staff does not fit"):
        expect(verdict).to_contain_text(words)
    picture(page, "why")


def test_whoever_may_only_know_of_a_dataset_is_told_how_to_ask(place, visit):
    page = visit(place.newcomer())
    page.goto("/datasets/check-ups")
    expect(page.get_by_role("link", name="Ask in SQL")).to_have_count(0)
    page.goto("/datasets/check-ups/why?operation=query&purpose=epidemiology")
    expect(page.get_by_role("region", name="denied")).to_contain_text("Role guests does not fit")
    page.get_by_role("link", name="Ask for access").click()
    expect(page.get_by_role("heading", name="Role “guests”")).to_be_visible()


def test_another_purpose_is_refused_with_every_rule_that_was_tried(place, visit):
    page = visit("ada")
    page.goto("/datasets/visits/why")
    page.get_by_label("May I").select_option("query")
    for purpose, word in (("health-research", "allowed"), ("marketing", "denied")):
        page.get_by_label("for the purpose").select_option(purpose)
        page.get_by_role("button", name="Ask").click()
        expect(page.get_by_role("heading", level=2)).to_contain_text(word)


def test_rows_are_never_shown_and_nothing_is_spent(place, visit):
    person = place.newcomer()
    before = place.hub.ledger.balance("stays").spent
    page = visit(person)
    plan(page, "stays", "SELECT * FROM visits")
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_label("Question")).to_have_value("SELECT * FROM visits")
    plan(page, "stays", "SELECT COUNT(*) AS n FROM visits", "a lot")
    expect(page.get_by_role("alert")).to_contain_text("a lot")
    page.goto("/ledger")
    expect(page.get_by_text("You have spent nothing")).to_be_visible()
    assert place.hub.ledger.balance("stays").spent == before


def test_more_than_the_policy_allows_for_one_request_is_refused(visit):
    page = visit("ada")
    plan(page, "visits", "SELECT COUNT(*) AS n FROM visits", "rho 0.06")
    expect(page.get_by_role("alert")).to_be_focused()
    expect(page.get_by_role("button", name="Run it")).to_have_count(0)
