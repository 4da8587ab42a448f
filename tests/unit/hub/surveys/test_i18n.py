"""What the respondent's page says: the same in four languages, every place filled, and true of the mechanisms."""

import json
import re
from fractions import Fraction
from functools import cache
from importlib.resources import files
from math import exp, sqrt
from pathlib import Path

import pytest

from cloister import local
from cloister.hub import web
from cloister.hub.surveys import explain_level
from cloister.hub.surveys.i18n import NAMES, PLACE, choose, words_in
from cloister.hub.surveys.question import MECHANISMS, PERIODS, SurveyQuestion
from cloister.hub.surveys.survey import LANGUAGES
from cloister.privacy.errors import BadInput

WEB = Path(web.__file__).parent
ENGLISH = words_in("en")
SAID = re.compile(r"""\b(?:say|count)\(\s*["']([a-z_.]+)["']""")
OPTIONS = [f"option {one}" for one in range(5)]
KINDS = [
    {"id": "a", "type": "yes_no", "text": "?"},
    {"id": "b", "type": "choice", "text": "?", "options": OPTIONS},
    {"id": "c", "type": "choices", "text": "?", "options": OPTIONS, "most": 2},
    {"id": "d", "type": "choices", "text": "?", "options": [f"{one}" for one in range(30)], "most": 4},
    {"id": "e", "type": "scale", "text": "?", "low": 1, "high": 7},
    {"id": "f", "type": "date", "text": "?", "low": "2025-01-01", "high": "2025-12-31", "step": "week"},
    {"id": "g", "type": "number", "text": "?", "low": "0", "high": "24", "unit": "h"},
    *(
        {"id": "h", "type": "choice", "text": "?", "options": OPTIONS, "mechanism": name}
        for name in ("direct-encoding", "unary-encoding", "local-hashing", "hadamard-response", "subset-selection")
    ),
]


@cache
def composed(text, lasting):
    made = SurveyQuestion.read(json.loads(text))
    return made, made.question("s", 500, lasting)


def told(asked, lasting=False, language="en"):
    made, question = composed(json.dumps(asked), lasting)
    return explain_level.told(made, question, words_in(language)), question


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_sentence_is_there_in_every_language_with_the_same_places(language):
    words = words_in(language)
    assert list(words.texts) == list(ENGLISH.texts)  # in the same order too, so that files can be read side by side
    for key, text in words.texts.items():
        assert text.strip() == text != "", key
        assert sorted(PLACE.findall(text)) == sorted(PLACE.findall(ENGLISH.texts[key])), key
        assert text.count("{") == text.count("}") == len(PLACE.findall(text)), key
        assert not re.search(r"[<>&]", text), key


@pytest.mark.parametrize("language", LANGUAGES)
def test_no_sentence_was_left_in_english(language):
    if language == "en":
        return
    long = {key for key, text in ENGLISH.texts.items() if len(PLACE.sub("", text)) > 20}
    assert not [key for key in long if words_in(language).texts[key] == ENGLISH.texts[key]]


def test_no_message_file_says_a_key_twice():
    for language in LANGUAGES:
        text = (files("cloister.hub.surveys") / "messages" / f"{language}.json").read_text(encoding="utf-8")
        pairs = json.loads(text, object_pairs_hook=list)
        assert len(pairs) == len(dict(pairs))


def test_whatever_comes_in_two_forms_has_both():
    one = {key.removesuffix(".one") for key in ENGLISH.texts if key.endswith(".one")}
    assert one == {
        key.removesuffix(".other") for key in ENGLISH.texts if key.endswith(".other") and key != "tells.other"
    }
    assert one


def test_whatever_page_and_scripts_say_has_words_and_all_words_are_said():
    texts = [file.read_text(encoding="utf-8") for file in (WEB / "templates").glob("respond*.html")]
    texts += [file.read_text(encoding="utf-8") for file in (WEB / "static" / "respond").glob("*.mjs")]
    whole = "\n".join(texts)
    assert {key for key in SAID.findall(whole) if not key.endswith(".")} <= {
        form for key in ENGLISH.texts for form in (key, key.removesuffix(".one"))
    }
    computed = ("page.period.", "device.ballot.")  # the end of these keys is put together
    unsaid = {
        key
        for key in ENGLISH.texts
        if key.startswith(("page.", "device."))
        and not key.startswith(computed)
        and f'"{re.sub(r"[.](one|other)$", "", key)}"' not in whole
        and f"'{re.sub(r'[.](one|other)$', '', key)}'" not in whole
    }
    assert not unsaid
    assert {f"page.period.{step}" for step in PERIODS} <= set(ENGLISH.texts)
    reasons = set(re.findall(r'refused: "(\w+)"', whole)) | {"later", "closed", "link"}
    assert {f"device.ballot.{one}" for one in reasons - {"taken", "unfit"}} <= set(ENGLISH.texts)


def test_a_place_without_a_value_is_a_mistake_and_values_are_not_read_as_places():
    assert ENGLISH.say("page.by", by="{purpose} {0} {by.__class__}") == "A survey by {purpose} {0} {by.__class__}"
    with pytest.raises(KeyError):
        ENGLISH.say("page.by")


@pytest.mark.parametrize(
    ("language", "none", "single", "several"),
    [("en", "other", "one", "other"), ("de", "other", "one", "other"), ("es", "other", "one", "other"),
     ("fr", "one", "one", "other")],
)  # fmt: skip
def test_one_and_several_have_their_own_form(language, none, single, several):
    words = words_in(language)
    for n, form in ((0, none), (1, single), (2, several)):
        assert words.count("page.questions", n) == words.say(f"page.questions.{form}", n=n)


def test_numbers_and_days_are_written_as_in_the_language():
    said = {language: words_in(language).number(1234.5) for language in LANGUAGES}
    assert said == {"en": "1,234.5", "de": "1.234,5", "es": "1\xa0234,5", "fr": "1\u202f234,5"}
    assert [ENGLISH.number(8.0), ENGLISH.number(100, 0), ENGLISH.number(-0.25)] == ["8", "100", "-0.25"]
    said = {language: words_in(language).moment(1772323200 + 86399) for language in LANGUAGES}
    assert said["en"] == "1 March 2026, 23:59 UTC"
    assert said["de"] == "1. März 2026, 23:59 UTC"
    assert said["es"] == "1 de marzo de 2026, 23:59 UTC"
    assert said["fr"] == "1er mars 2026, 23:59 UTC"


@pytest.mark.parametrize(
    ("asked", "accepted", "found"),
    [
        ("fr", "de", "fr"),
        ("xx", "de", "de"),
        ("", "de-AT,de;q=0.9,en;q=0.8", "de"),
        ("", "en;q=0.3, es;q=0.8", "es"),
        ("", "it, ja;q=0.5", "fr"),
        ("", "", "fr"),
        ("", "de;q=0, en;q=0.1", "en"),
        ("", "del;q=1, *;q=0.5", "fr"),
        ("", "en;q=nonsense, de;q=0.1", "de"),
    ],
)
def test_the_language_is_the_one_asked_for_or_preferred_or_the_surveys_own(asked, accepted, found):
    assert choose(asked, accepted, "fr") == found


def test_an_unknown_language_is_refused_and_the_known_ones_have_names():
    with pytest.raises(BadInput):
        words_in("it")
    assert tuple(NAMES) == LANGUAGES


@pytest.mark.parametrize("lasting", [False, True])
@pytest.mark.parametrize("asked", KINDS, ids=lambda asked: f"{asked['type']}-{asked.get('mechanism', asked['id'])}")
def test_every_level_says_how_reports_are_made_and_what_nobody_learns(asked, lasting):
    for language in LANGUAGES:
        levels, question = told(asked, lasting, language)
        assert [one.level for one in levels] == list(question.offered)
        for one in levels:
            assert one.way != words_in(language).texts["tells.other"]
            assert "{" not in one.way + one.bound
            assert str(explain_level.sure(Fraction(one.price))) in one.bound


def test_every_mechanism_that_can_be_composed_has_a_sentence_of_its_own():
    numbers = {"hybrid", "piecewise"}
    assert {f"tells.{name}" for name in MECHANISMS if name not in numbers} <= set(ENGLISH.texts)


def test_two_answers_are_told_in_the_cases_that_the_mechanism_tells_them():
    levels, question = told(KINDS[0])
    for one, mechanism in zip(levels, question.levels, strict=True):
        truth = 100 * exp(mechanism.epsilon) / (1 + exp(mechanism.epsilon))
        assert f"in about {round(truth)} of 100 cases" in one.way
        assert mechanism.law(1)[1] == mechanism.law(0)[0] == mechanism.p  # the same for yes and for no


def test_a_list_says_how_often_an_answer_is_on_it():
    asked = {**KINDS[1], "mechanism": "subset-selection", "levels": "strong 0.25\nmedium 0.5"}
    levels, question = told(asked)
    for one, mechanism in zip(levels, question.levels, strict=True):
        chance = [sum(law for report, law in _subsets(mechanism) if value in report) for value in (0, 1)]
        own, other = (round(float(100 * part)) for part in chance)
        assert f"list of {mechanism.size} possible answers" in one.way
        assert f"about {own} of 100 cases" in one.way
        assert f"about {other} of 100." in one.way


def _subsets(mechanism):
    for report, law in enumerate(mechanism.law(0)):
        if law:
            yield {value for value in range(mechanism.domain) if report >> value & 1}, law


def test_a_number_says_how_far_off_a_report_is():
    levels, question = told(KINDS[6])
    assert f"up to {round(sqrt(question.levels[0].worst_variance))}\xa0h" in levels[0].way


def test_a_repeated_survey_charges_and_bounds_the_lifetime():
    levels, _ = told(KINDS[0], lasting=True)
    assert [one.price for one in levels] == ["1/2", "1", "2"]
    assert [one.level for one in levels] == ["3/8", "3/4", "3/2"]
    assert all("all rounds together" in one.bound for one in levels)
    levels, _ = told(KINDS[6], lasting=True)  # numbers have no second layer: what is sent once is sent again
    assert [one.price for one in levels] == [one.level for one in levels] == ["1/2", "1", "2"]


@pytest.mark.parametrize("amount", ["1/100", "1/2", "1", "2", "5"])
def test_the_bound_is_reached_by_no_report_and_is_no_looser_than_a_percent(amount):
    epsilon = Fraction(amount)
    mechanism = local.RandomisedResponse.for_loss(local.epsilon(epsilon))
    yes, no = mechanism.law(1)[1], mechanism.law(0)[1]
    posterior = yes / (yes + no)  # of yes, after a yes, for somebody who began at one half
    assert 100 * posterior <= explain_level.sure(epsilon) < 100 * posterior + 1


def test_names_of_levels_are_translated_if_they_are_ours():
    levels, _ = told({**KINDS[0], "levels": "strong 0.5\nopen 3"}, language="de")
    assert [one.name for one in levels] == ["stark", "open"]
    assert [one.cost for one in levels] == ["0,5", "3"]
