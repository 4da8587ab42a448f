"""Coming in: a password, then a code from an app; going out again."""

import time

import pyotp
from playwright.sync_api import expect

from cloister.hub.ops.demo import PASSWORD


def fill_in(page, email, password):
    page.goto("/sign-in")
    page.get_by_label("E-mail address").fill(email)
    page.get_by_label("Password").fill(password)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()


def leave(page, width):
    if width == "phone":
        page.get_by_text("Menu").click()
    page.get_by_role("button", name="Sign out", exact=True).click()
    expect(page.get_by_text("You are signed out.")).to_be_visible()


def test_one_signs_in_with_a_password_and_a_code(place, visit, width, picture):
    person = place.newcomer()
    page = visit(width=width)
    fill_in(page, person.email, PASSWORD)
    expect(page.get_by_role("heading", name="Welcome, Nora Lind")).to_be_visible()

    page.goto("/account")
    page.locator("#f-factor_password").fill(PASSWORD)
    page.get_by_role("button", name="Set up a second factor").click()
    app = pyotp.TOTP(page.locator("#factor-secret").inner_text())
    page.get_by_label("Code that the app shows").fill(app.now())
    page.get_by_role("button", name="Confirm").click()
    expect(page.get_by_text("At sign-in you are asked for a code")).to_be_visible()

    leave(page, width)
    fill_in(page, person.email, PASSWORD)
    expect(page.get_by_role("heading", name="Second factor")).to_be_visible()
    picture(page, f"second-factor-{width}")
    page.get_by_label("Code").fill("000000" if app.now() != "000000" else "000001")
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("alert")).to_be_visible()

    page.goto("/datasets")  # a password alone opens nothing
    expect(page.get_by_role("link", name="Stays")).to_have_count(0)

    page.goto("/second-factor?next=/datasets")
    # Each code works once, and the newest was used a moment ago: the app's next one is good already.
    page.get_by_label("Code").fill(app.at(time.time() + 30))
    page.get_by_role("button", name="Continue").click()
    expect(page.get_by_role("heading", name="Datasets", exact=True)).to_be_visible()
    expect(page.get_by_role("link", name="Stays")).to_be_visible()


def test_a_wrong_password_and_an_unknown_address_are_told_the_same(place, visit):
    page = visit()
    said = []
    for email in (place.newcomer().email, "nobody@new.example"):
        fill_in(page, email, "quite another one")
        said.append(page.get_by_role("alert").inner_text())
        assert page.get_by_label("E-mail address").input_value() == email
        assert page.get_by_label("Password").input_value() == ""
    assert said[0] == said[1]


def test_whoever_is_sent_to_sign_in_arrives_where_they_wanted_to_go(place, visit):
    person = place.newcomer()
    page = visit()
    page.goto("/datasets/stays")
    page.get_by_label("E-mail address").fill(person.email)
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("main").get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Stays")).to_be_visible()
