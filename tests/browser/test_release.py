"""A release above the threshold needs two people, and nobody agrees to their own."""

from playwright.sync_api import expect


def ask(page, spend):
    page.goto("/work/query/stays")
    page.get_by_label("Question").fill("SELECT ward, SUM(cost) AS cost FROM visits GROUP BY ward")
    page.get_by_label("Privacy budget").fill(spend)
    page.get_by_label("Purpose").select_option("health-research")
    page.get_by_role("button", name="Plan: what would it cost?").click()


def test_two_different_people_agree_and_never_oneself(place, visit, picture):
    asking = place.newcomer("Hedda Ruf", ("data owner",), "St. Anna Hospital")
    mine = visit(asking)
    ask(mine, "rho 0.6")
    expect(mine.get_by_text("the agreement of 2 different people")).to_be_visible()
    mine.get_by_role("button", name="Ask for agreement").click()
    expect(mine.get_by_text("Nothing is charged before it is agreed to.")).to_be_visible()
    job = mine.url
    mine.get_by_role("link", name="See the request").click()
    request = mine.url
    expect(mine.get_by_role("button", name="Approve")).to_have_count(0)

    first = visit("clara")
    first.goto(request)
    expect(first.get_by_text("It costs the dataset")).to_be_visible()
    expect(first.get_by_role("region", name="Expected error of one answer")).to_contain_text("SUM(cost)")
    picture(first, "release")
    first.get_by_role("button", name="Approve").click()
    expect(first.get_by_text("Your agreement counts. It needs another one.")).to_be_visible()
    expect(first.get_by_role("button", name="Approve")).to_have_count(0)

    mine.goto(job)
    expect(mine.get_by_text("Nothing is charged before it is agreed to.")).to_be_visible()
    second = visit("ben")
    second.goto(request)
    second.get_by_role("button", name="Approve").click()
    expect(second.get_by_text("Granted.")).to_be_visible()
    # The page of whoever asked has been waiting, and goes on by itself.
    expect(mine.get_by_role("region", name="The answer")).to_contain_text("cardiology")
    expect(mine.get_by_role("link", name="Notifications 1 unread")).to_have_count(0)
    mine.reload()
    expect(mine.get_by_role("navigation").get_by_text("unread").first).to_be_attached()


def test_the_owner_cannot_agree_to_their_own(place, visit):
    page = visit("hanna")
    ask(page, "rho 0.7")
    page.get_by_role("button", name="Ask for agreement").click()
    page.get_by_role("link", name="See the request").click()
    expect(page.get_by_text("Nobody decides about their own request.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_have_count(0)
    csrf = page.locator("meta[name=csrf]").get_attribute("content")
    forged = page.request.post(f"{page.url}/decide", form={"csrf": csrf, "word": "agree"})
    assert forged.status in (403, 409)
    page.reload()
    expect(page.get_by_text("Nobody has decided yet.")).to_be_visible()
    page.get_by_role("button", name="Withdraw").click()
    expect(page.get_by_text("Withdrawn.")).to_be_visible()
