"""A researcher asks for access; the owner is told, agrees; the researcher is told and may work."""

from playwright.sync_api import expect


def test_a_researcher_asks_and_the_owner_lets_them_in(place, visit, width, picture):
    nora = place.newcomer()
    mine, owners = visit(nora, width), visit("clara", width)
    mine.goto("/datasets")
    mine.get_by_role("link", name="Check-ups at Lake Clinic").click()
    mine.get_by_role("link", name="Ask for access").click()
    mine.get_by_label("Purpose").select_option("epidemiology")
    mine.get_by_label("What you need the data for").fill("To compare two regions.\nFor my thesis.")
    mine.get_by_role("button", name="Ask for this role").click()
    expect(mine.get_by_text("Sent. You will be told when somebody decides.")).to_be_visible()
    expect(mine.get_by_text("Nobody decides about their own request.")).to_be_visible()
    expect(mine.get_by_role("button", name="Approve")).to_have_count(0)
    address = mine.url

    owners.goto("/")
    owners.get_by_role("link", name="Nora Lind: access to Check-ups at Lake Clinic").last.click()
    assert owners.url == address
    expect(owners.get_by_text("For my thesis.")).to_be_visible()
    owners.get_by_label("Say something").fill("Which regions?")
    owners.get_by_role("button", name="Comment").click()
    expect(owners.get_by_text("Which regions?")).to_be_visible()
    picture(owners, f"request-{width}")
    owners.get_by_label("Reason").fill("A clear question.")
    owners.get_by_label("Days the access lasts").fill("30")
    owners.get_by_role("button", name="Approve").click()
    expect(owners.get_by_text("Granted.")).to_be_visible()

    mine.reload()
    expect(mine.locator(".heading")).to_contain_text("granted")
    expect(mine.get_by_text("A clear question.")).to_be_visible()
    mine.goto("/datasets/check-ups/why?operation=query&purpose=epidemiology")
    expect(mine.get_by_role("heading", level=2)).to_contain_text("allowed")
    mine.goto("/work/query/check-ups")
    # What the policy shows guests, and nothing else: the day of a check-up is not theirs.
    expect(mine.locator(".schema-list code")).to_have_text(["department", "age", "cost"])


def test_notices_tell_of_it_and_lead_there(place, visit, picture):
    page, owners = visit(place.newcomer()), visit("clara")
    page.goto("/datasets/check-ups/requests")
    page.get_by_label("What you need the data for").fill("For a lecture.")
    page.get_by_role("button", name="Ask for this role").click()
    expect(page.get_by_text("Sent.")).to_be_visible()
    request = page.url
    owners.goto(request)
    owners.get_by_label("Say something").fill("Which lecture?")
    owners.get_by_role("button", name="Comment").click()
    owners.get_by_label("Reason").fill("Not yet.")
    owners.get_by_role("button", name="Deny").click()
    expect(owners.get_by_text("Denied.")).to_be_visible()

    page.goto("/")
    page.get_by_role("link", name="Notifications 2 unread").click()
    expect(page.get_by_role("main").get_by_text("new", exact=True)).to_have_count(2)
    picture(page, "notices")
    page.get_by_role("button", name="Have a look").first.click()
    expect(page.get_by_text("Not yet.")).to_be_visible()
    assert page.url.startswith(request)
    page.get_by_role("link", name="Notifications 1 unread").click()
    page.get_by_role("button", name="Mark all as read").click()
    expect(page.get_by_role("link", name="Notifications", exact=True)).to_be_visible()
    expect(page.get_by_role("main").get_by_text("new", exact=True)).to_have_count(0)
