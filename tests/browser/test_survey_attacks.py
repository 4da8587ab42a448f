"""A hub that says one thing on a survey's page and asks for another."""

from playwright.sync_api import expect

from .respondent import SMOKER, open_survey, posts, recorded


def test_a_page_that_names_a_lower_price_than_its_mechanism_has_is_refused(place, visit):
    name = open_survey(place, SMOKER)

    def cheapen(route):
        answer = route.fetch()
        page = answer.text()
        assert 'data-price="2"' in page
        route.fulfill(response=answer, body=page.replace('data-price="2"', 'data-price="1/8"'))

    page = visit()
    page.route(f"**/s/{name}", cheapen)
    requests = recorded(page)
    page.goto(f"/s/{name}")
    expect(page.locator("#problem")).to_contain_text("Your browser does not trust how this survey makes its noise")
    expect(page.locator("#problem")).to_contain_text("another price")
    expect(page.locator("#asking")).to_be_hidden()
    assert posts(requests) == []
