"""The policy's rule for anonymised releases: how it is read, what satisfies it, what it tells to whom."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.coded import CodedTable
from cloister.anonymize.models import EquivalenceClasses, Requirement
from cloister.anonymize.planning.request import parse_models
from cloister.data.schema import Schema
from cloister.hub.policy.anonymised import Anonymised, Protection, _implies, unmet
from cloister.hub.policy.decide import Environment, Subject, decide
from cloister.hub.policy.text.reader import look, read, write
from cloister.privacy.errors import BadPolicy

PAGE = """
dataset: visits
purposes: [health-research]
budget: {lifetime: {epsilon: 2, delta: 1e-7}}
reviewers: [steward@hospital.example]
anonymised: {at_least: "k=5, l=3", suppression_at_most: 10%, reviewers: 2}
roles:
  publishers:
    who: {roles: [data user]}
    may: [see schema, anonymise]
"""
BLOCK = '{at_least: "k=5, l=3", suppression_at_most: 10%, reviewers: 2}'
HERE = Environment(time=0)
USER = Subject("ada@uni.example", roles=("data user",))


def asks(models="k=5, l=3", sensitive=("disease",), quasi=("age",), plain=(), suppression="0.1"):
    return Protection(parse_models(models, sensitive), quasi, sensitive, plain, Fraction(suppression))


# Reading


def test_the_block_is_read_and_written_back():
    policy = read(PAGE)
    assert policy.anonymised == Anonymised("k=5, l=3", Fraction(1, 10), 2)
    odd = read(PAGE.replace("10%", "0.25%").replace("l=3", "t=0.2 (disease, ordered)"))
    for one in (policy, odd, read(PAGE.replace(f"anonymised: {BLOCK}\n", ""))):
        assert read(write(one)) == one


def test_without_a_block_k_is_five_and_two_people_look():
    assert read(PAGE.replace(f"anonymised: {BLOCK}\n", "")).anonymised == Anonymised("k=5", Fraction(1, 10), 2)


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ("{at_least: k, reviewers: 2}", "cannot be read as a model"),
        ("{at_least: k-map=5}", "population"),
        ("{suppression_at_most: 100%}", "below 1"),
        ("{suppression_at_most: much}", "no share"),
        ("{reviewers: 1}", "from 2 to 9"),
        ("{reviewers: 3}", "Name reviewers"),
        ("{atleast: k=5}", "Did you mean at_least"),
        ("{}", "state a rule"),
        ("k=5", "write names"),
    ],
)
def test_a_block_that_is_not_understood_is_refused_with_a_way_out(block, words):
    with pytest.raises(BadPolicy, match=words):
        read(PAGE.replace(BLOCK, block))


def test_a_column_that_the_schema_does_not_have_is_refused():
    schema = Schema.load("unit: row\ntables: {visits: {columns: {age: {type: integer, bounds: [0, 9]}}}}")
    with pytest.raises(BadPolicy, match="no column disease"):
        read(PAGE.replace("l=3", "l=3 (disease)"), schema)


def test_an_owner_without_reviewers_is_told_that_nobody_can_make_one():
    page = PAGE.replace("reviewers: [steward@hospital.example]\n", "").replace(f"anonymised: {BLOCK}\n", "")
    assert any("nobody can make one" in note for note in look(page).notes)


# Deciding


def test_nobody_may_anonymise_unless_a_role_says_so():
    page = PAGE.replace("see schema, anonymise", "see schema, query, profile, train, synthesise")
    assert not decide(read(page), 1, USER, "anonymise", "health-research", HERE).allowed


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        (asks("k=4, l=3"), "at least k=5 is required"),
        (asks("k=5, l=2"), r"at least l=3 \(disease\) is required"),
        (asks("k=5", ()), "l=3 (every sensitive column)"),
        (asks("k=5, l=3 (disease)", ("disease", "cost")), "l=3 (cost) is required"),
        (asks(suppression="0.2"), "at most 10% of the rows"),
    ],
)
def test_a_weaker_request_is_denied_with_what_it_lacks(request_, words):
    verdict = decide(read(PAGE), 1, USER, "anonymise", "health-research", HERE, protection=request_)
    assert (verdict.allowed, verdict.rule) == (False, "anonymised")
    assert words.replace("\\", "") in verdict.reasons[0]


@pytest.mark.parametrize("models", ["k=5, l=3", "k=50, l=4", "alpha=0.2, k=6 (disease), l=3", "k=5, entropy l=4"])
def test_a_request_that_is_as_strict_is_allowed(models):
    assert decide(read(PAGE), 1, USER, "anonymise", "health-research", HERE, protection=asks(models)).allowed


def test_why_names_the_rule_without_the_columns_in_it():
    policy = read(PAGE.replace("l=3", "l=3 (hidden_disease), recursive (2, 3) (hidden_disease)"))
    verdict = decide(policy, 1, USER, "anonymise", "health-research", HERE)
    assert "k=5, l=3, recursive (2, 3)" in verdict.reasons[0]
    assert "hidden" not in " ".join(verdict.reasons)
    refused = decide(policy, 1, USER, "anonymise", "health-research", HERE, protection=asks("k=2", (), ("age",)))
    assert not refused.allowed
    assert "hidden" not in " ".join(refused.reasons)


def test_a_column_that_the_rule_names_is_sensitive_wherever_it_is_released():
    rule = Anonymised("k=5, l=3 (disease)")
    assert not unmet(rule, asks("k=5", (), ("age",)))
    assert "list it under sensitive" in unmet(rule, asks("k=5", (), ("age", "disease")))[0]
    assert "list it under sensitive" in unmet(rule, asks("k=5", (), ("age",), ("disease",)))[0]


# Which model is at least as strict as which

MODELS = [
    *("k=2", "k=3", "l=2", "l=3", "frequency l=2", "frequency l=3", "entropy l=2", "entropy l=3"),
    *("recursive (2, 2)", "recursive (1, 2)", "recursive (2, 3)", "alpha=0.5, k=2 (s)", "alpha=0.4, k=3 (s)"),
    *("t=0.2", "t=0.4", "t=0.3 (s, ordered)", "t=0.3 (s, total variation)", "t=0.3 (s, kl)"),
    *("beta=1", "beta=0.5", "basic beta=1"),
]


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from(["a", "b", "c", "d", None])), min_size=1, max_size=24))
def test_a_table_that_satisfies_a_model_satisfies_all_that_it_implies(rows):
    coded = CodedTable.of(pa.table({"s": pa.array([value for _, value in rows], pa.string())}), ["s"])
    _, of_row = np.unique([number for number, _ in rows], return_inverse=True)
    classes = EquivalenceClasses(of_row, int(of_row.max()) + 1, {"s": coded.columns["s"]})
    models = [parse_models(text, ["s"])[0] for text in MODELS]
    holds = [bool(Requirement((model,)).holds(classes).all()) for model in models]
    for model, satisfied in zip(models, holds, strict=True):
        for required, met in zip(models, holds, strict=True):
            if satisfied and _implies(model, required):
                assert met, (model.label, required.label)


def test_every_model_implies_itself():
    for text in MODELS:
        (model,) = parse_models(text, ["s"])
        assert _implies(model, model), text


@pytest.mark.parametrize(
    "models",
    ["alpha=0.3333334, k=3 (disease)", "t=0.20000001 (disease)", "beta=0.1234567891 (disease)",
     "entropy l=2.99999999 (disease)", "frequency l=2.99999999 (disease)", "recursive (2.00000001, 3) (disease)"],
)  # fmt: skip
def test_a_sealed_protection_is_decided_on_as_it_was_asked(models):
    protection = asks(f"k=5, {models}")
    assert Protection.from_json(protection.to_json()) == protection


def test_a_release_that_is_weaker_by_the_seventh_digit_is_refused_when_it_is_released():
    rule = Anonymised("alpha=0.333333, k=3 (disease)")
    stored = Protection.from_json(asks("alpha=0.3333334, k=3 (disease)").to_json())
    assert unmet(rule, stored)


def test_the_numbers_of_recursive_diversity_are_no_column():
    assert Anonymised("k=5, recursive (1e-05, 3) (ward)").sentence.startswith(
        "a release satisfies at least k=5, recursive (1e-05, 3),"
    )
