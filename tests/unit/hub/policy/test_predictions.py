"""The policy's rule for predictions of models: how it is read, written, edited and tested; what it shows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.datastructures import FormData

from cloister.hub.policy.decide import Environment, Subject, decide
from cloister.hub.policy.predictions import PredictionRule, read_show, shows
from cloister.hub.policy.text.check import run
from cloister.hub.policy.text.form import edited
from cloister.hub.policy.text.reader import look, read, write
from cloister.hub.web.forms import Form
from cloister.learn.serving import OutputPolicy
from cloister.privacy.errors import BadInput, BadPolicy

PAGE = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {epsilon: 2, delta: 1e-7}}
predictions: {show: rounded 2, rows_per_day: 1000}
roles:
  clinicians:
    who: {roles: [data user]}
    may: [see schema, predict]
"""
BLOCK = "{show: rounded 2, rows_per_day: 1000}"
HERE = Environment(time=0)
USER = Subject("ada@uni.example", roles=("data user",))


def test_the_rule_is_read_and_written_back():
    assert read(PAGE).predictions == PredictionRule("rounded 2", 1000)
    assert read(PAGE.replace(BLOCK, "{show: full}")).predictions == PredictionRule("full", None)
    assert read(PAGE.replace(f"predictions: {BLOCK}\n", "")).predictions == PredictionRule("label", None)
    for page in (PAGE, PAGE.replace(BLOCK, "{rows_per_day: 5}"), PAGE.replace(BLOCK, "{show: ' top  3'}")):
        assert read(write(read(page))) == read(page)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{show: everything}", "nothing that can be shown"),
        ("{show: top 0}", "Write label, top 3"),
        ("{show: rounded 7}", "Write label, top 3"),
        ("{show: ''}", "write a word here"),
        ("{rows_per_day: 0}", "from 1"),
        ("{rows_per_day: many}", "from 1"),
        ("{shows: label}", "Did you mean show"),
        ("{}", "state a rule"),
        ("label", "write names"),
    ],
)
def test_a_rule_that_is_not_understood_is_refused_with_a_way_out(block, words):
    with pytest.raises(BadPolicy, match=words):
        read(PAGE.replace(BLOCK, block))


def test_an_owner_is_told_of_a_rule_that_concerns_nobody():
    assert any("no role may predict" in note for note in look(PAGE.replace(", predict", "")).notes)
    assert not any("predict" in note for note in look(PAGE).notes)


TEXTS = st.one_of(
    st.sampled_from(["label", "full"]),
    st.builds("top {}".format, st.integers(0, 1200)),
    st.builds("rounded {}".format, st.integers(0, 9)),
    st.text(max_size=12),
)


@given(TEXTS)
def test_a_policy_reads_what_a_served_model_reads(text):
    try:
        expected = str(OutputPolicy.parse(text))
    except BadInput:
        with pytest.raises(BadInput):
            read_show(text)
    else:
        assert read_show(text) == expected


ASKED = ["label", "top 1", "top 3", "rounded 0", "rounded 2", "full"]


def test_less_is_shown_where_more_is_granted_and_never_the_reverse():
    for i, granted in enumerate(ASKED):
        assert [shows(granted, asked) for asked in ASKED] == [k <= i for k in range(len(ASKED))]


@pytest.mark.parametrize(("show", "allowed"), [("", True), ("label", True), ("rounded 2", True), ("rounded 3", False)])
def test_the_verdict_names_the_rule(show, allowed):
    verdict = decide(read(PAGE), 1, USER, "predict", "health-research", HERE, show=show)
    assert (verdict.allowed, verdict.rule) == (allowed, "clinicians" if allowed else "predictions")
    assert any("answers show at most rounded 2, for at most 1,000 rows a day" in reason for reason in verdict.reasons)


def test_the_form_edits_the_rule_and_keeps_it():
    policy = read(PAGE)

    def sent(show, rows):
        role = {
            "role": "1",
            "role-1-name": "clinicians",
            "role-1-was": "clinicians",
            "role-1-may": "see schema, predict",
        }
        fields = {"purposes": "health-research", "predictions_show": show, "predictions_rows": rows, **role}
        return Form(FormData([*fields.items(), ("role-1-roles", "data user")]))

    assert read(edited(policy, sent("rounded 2", "1000"))) == policy
    assert read(edited(policy, sent("top 3", ""))).predictions == PredictionRule("top 3")
    assert read(edited(policy, sent("", ""))).predictions == PredictionRule()
    with pytest.raises(BadPolicy, match=r"predictions\.show"):
        read(edited(policy, sent("all", "")))


def test_cases_of_a_policy_state_what_is_shown():
    tests = """
given: {person: ada@uni.example, roles: [data user], purpose: health-research}
cases:
  - {given: {show: top 3}, operation: predict, expect: allowed, by: clinicians}
  - {given: {show: full}, operation: predict, expect: denied, by: predictions}
"""
    assert run(PAGE, tests).passed
    with pytest.raises(BadPolicy, match="nothing that can be shown"):
        run(PAGE, tests.replace("top 3", "top x"))
