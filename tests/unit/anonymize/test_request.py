"""Requests read from text: every model, hierarchies, shares."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import (
    AlphaK,
    BetaLikeness,
    DeltaPresence,
    DistinctDiversity,
    EntropyDiversity,
    FrequencyDiversity,
    KAnonymity,
    KMap,
    Model,
    RecursiveDiversity,
    Requirement,
    TCloseness,
)
from cloister.anonymize.planning.request import models_of, parse_hierarchy, parse_models, parse_named, parse_share
from cloister.privacy.errors import BadInput

TREE = Hierarchy.tree({"lung": ["flu", "cold"], "stomach": ["ulcer"]})
EVERY = [
    KAnonymity(5),
    DistinctDiversity(3, "disease"),
    FrequencyDiversity(2.5, "disease"),
    EntropyDiversity(3, "disease"),
    RecursiveDiversity(2.5, 3, "disease"),
    TCloseness(0.2, "disease"),
    TCloseness(0.2, "disease", "ordered"),
    TCloseness(0.2, "disease", "total variation"),
    TCloseness(0.2, "disease", "kl"),
    TCloseness(0.2, "disease", "hierarchical", TREE),
    AlphaK(0.5, 5, "disease"),
    BetaLikeness(1.5, "disease"),
    BetaLikeness(1, "disease", enhanced=False),
    KMap(5),
    DeltaPresence(0.1, 0.5),
]


@pytest.mark.parametrize("model", EVERY, ids=lambda model: model.label)
def test_every_model_is_read_from_its_label(model: Model) -> None:
    assert parse_models(model.label, ["disease"], {"disease": TREE}) == (model,)
    assert parse_models(model.label, [], {"disease": TREE}) == (model,)


def test_the_label_of_all_models_together_is_read_back() -> None:
    requirement = Requirement(tuple(EVERY))
    assert parse_models(requirement.label, ["disease"], {"disease": TREE}) == requirement.models


NAMES = st.sampled_from(
    ["disease", "income (USD)", "a, b", "x, ordered", "open (", "close)", "t=1 (q)", "k=5", "naïve ward"]
)


@given(
    st.lists(
        st.one_of(
            st.builds(KAnonymity, st.integers(1, 10**6)),
            st.builds(DistinctDiversity, st.integers(1, 99), NAMES),
            st.builds(EntropyDiversity, st.floats(1, 1e6), NAMES),
            st.builds(RecursiveDiversity, st.floats(0, 1e9), st.integers(1, 99), NAMES),
            st.builds(TCloseness, st.floats(0, 1), NAMES, st.sampled_from(["equal", "ordered", "kl"])),
            st.builds(AlphaK, st.floats(0, 1), st.integers(1, 99), NAMES),
            st.builds(BetaLikeness, st.floats(0, 1e9), NAMES, st.booleans()),
            st.builds(DeltaPresence, st.floats(0, 0.5), st.floats(0.5, 1)),
        ),
        min_size=1,
        max_size=6,
        unique_by=lambda model: model.label,
    )
)
@settings(deadline=None, max_examples=100)
def test_any_label_is_read_back_as_the_same_label(several: list[Model]) -> None:
    requirement = Requirement(tuple(several))
    if "x, ordered" in requirement.columns:  # `t=0.2 (x, ordered)` is read as the column that exists
        several = [model for model in several if model.column != "x, ordered"] or [KAnonymity(2)]
        requirement = Requirement(tuple(several))
    columns = sorted({*requirement.columns, "disease"})
    assert Requirement(parse_models(requirement.label, columns)).label == requirement.label


def test_a_known_column_whose_name_ends_as_a_distance_is_a_column() -> None:
    assert parse_models("t=0.2 (x, ordered)", ["x, ordered"]) == (TCloseness(0.2, "x, ordered"),)
    assert parse_models("t=0.2 (x, ordered)", ["x"]) == (TCloseness(0.2, "x", "ordered"),)


def test_a_model_without_a_column_holds_for_every_sensitive_column() -> None:
    assert parse_models("k=5, l=2", ["a", "b"]) == (KAnonymity(5), DistinctDiversity(2, "a"), DistinctDiversity(2, "b"))
    assert parse_models("alpha=0.5, k=5; t=0.1", ["a"]) == (AlphaK(0.5, 5, "a"), TCloseness(0.1, "a"))


def test_upper_case_and_spaces_do_not_matter() -> None:
    assert parse_models(" K = 5 ,L=2 ( a )", ["a"]) == (KAnonymity(5), DistinctDiversity(2, "a"))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "say what the release must satisfy"),
        ("k=5,", "missing after the last comma"),
        ("k", "cannot be read as a model"),
        ("k=2.5", "k must be a whole number"),
        ("k=0", "whole number of at least 1"),
        ("k=5 l=3", "cannot be read as a model"),
        ("k=5 (disease)", "cannot be read as a model"),
        ("l=3 (income)", "income is no sensitive column. Sensitive columns are: disease"),
        ("l=3 (disease", "not closed"),
        ("alpha=0.5", "alpha is read together with its k"),
        ("t=0.2 (disease, hierarchical)", "needs a hierarchy of disease"),
        ("k=5, k=5", "required twice"),
        ("delta-presence=0.5..0.1", "0 ≤ low"),
        ("epsilon=1", "cannot be read as a model"),
    ],
)
def test_text_that_is_no_model_is_refused_with_the_way_to_write_it(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        parse_models(text, ["disease"])


def test_a_model_of_a_column_needs_a_column() -> None:
    with pytest.raises(BadInput, match="l=3 is about a sensitive column"):
        parse_models("l=3")


@pytest.mark.parametrize("model", [*EVERY, AlphaK(0.5, 5, "disease", ("flu",))], ids=lambda model: model.label)
def test_models_are_read_from_the_file_beside_a_release(model: Model) -> None:
    (read,) = models_of(Requirement((model,)).describe())
    assert read == model
    if isinstance(model, TCloseness) and model.hierarchy is not None:
        assert isinstance(read, TCloseness)
        assert read.hierarchy is not None
        assert read.hierarchy.ancestors == model.hierarchy.ancestors


@pytest.mark.parametrize(
    "entry",
    [
        {"model": "Path"},
        {},
        {"model": "KAnonymity"},
        {"model": "KAnonymity", "k": "5"},
        [],
        "KAnonymity",
        {"model": "AlphaK", "alpha": 0.5, "k": 5, "column": "a", "values": 3},
        {"model": "TCloseness", "t": 0.1, "column": "a", "distance": "hierarchical", "hierarchy": [1]},
        {"model": "TCloseness", "t": 0.1},
    ],
)
def test_a_file_with_something_else_is_refused(entry: dict[str, object]) -> None:
    with pytest.raises(BadInput):
        models_of([entry])


def test_hierarchies_are_made_from_words_or_files(tmp_path) -> None:
    (tmp_path / "zip.csv").write_text("33617;336**\n33620;336**\n", encoding="utf-8")
    assert parse_hierarchy("zip.csv", tmp_path).leaves == {"33617", "33620"}
    assert parse_hierarchy("intervals:0, 100, 5, 10").levels[1](37) == "30-39"
    assert parse_hierarchy("dates").height == 5
    assert parse_hierarchy("dates:month,year").height == 3
    assert parse_hierarchy("flat").height == 1


@pytest.mark.parametrize(
    "text", ["masking", "masking:x", "intervals:0,100", "intervals:a,b,c", "flat:2", "none.csv", ""]
)
def test_other_words_are_no_hierarchy(text: str) -> None:
    with pytest.raises(BadInput, match="is no hierarchy"):
        parse_hierarchy(text)


def test_entries_of_columns_name_each_column_once() -> None:
    assert parse_named(["a=1", "b = 2=3"], "weight", "a=1") == {"a": "1", "b": "2=3"}
    for wrong in (["a"], ["a="], ["=1"], ["a=1", "a=2"]):
        with pytest.raises(BadInput, match="is no weight of a column"):
            parse_named(wrong, "weight", "a=1")


@pytest.mark.parametrize("text", ["100%", "1", "-1", "five", "", "5%%", "1e-3"])
def test_a_share_is_below_one(text: str) -> None:
    with pytest.raises(BadInput):
        parse_share(text)


@given(st.floats(1, 1e9), st.floats(1e-9, 1e9), st.integers(1, 1000))
def test_a_label_states_the_very_numbers_that_decide(size, share, k):
    models = (
        FrequencyDiversity(size, "disease"),
        EntropyDiversity(size, "disease"),
        RecursiveDiversity(share, k, "disease"),
        TCloseness(share, "disease"),
        AlphaK(share, k, "disease"),
        BetaLikeness(share, "disease"),
        DeltaPresence(min(share, 1.0), 1.0),
    )
    assert parse_models(Requirement(models).label, ["disease"]) == models
