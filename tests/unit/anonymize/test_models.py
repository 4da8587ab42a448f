"""Models as predicates: every class that they accept or reject, against definitions written out in plain Python."""

import math
from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.coded import CodedColumn
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import (
    AlphaK,
    BetaLikeness,
    DeltaPresence,
    DistinctDiversity,
    EntropyDiversity,
    EquivalenceClasses,
    FrequencyDiversity,
    KAnonymity,
    KMap,
    RecursiveDiversity,
    Requirement,
    TCloseness,
)
from cloister.anonymize.suppression import suppress
from cloister.privacy.errors import BadInput

TREE = Hierarchy.tree({"lung": ["a", "b"], "stomach": ["c", "d"]})


def shares(values):
    counts = Counter(values)
    return {value: count / len(values) for value, count in counts.items()}


def entropy(values):
    return -sum(share * math.log(share) for share in shares(values).values())


def recursive(values, c, least):
    counts = sorted(Counter(values).values(), reverse=True)
    return counts[0] < c * sum(counts[least - 1 :])


def equal_distance(values, everything):
    own, whole = shares(values), shares(everything)
    return sum(abs(own.get(value, 0) - whole[value]) for value in whole) / 2


def ordered_distance(values, everything):
    own, whole = shares(values), shares(everything)
    order, carried, total = sorted(whole), 0.0, 0.0
    for value in order[:-1]:
        carried += own.get(value, 0) - whole[value]
        total += abs(carried)
    return total / max(1, len(order) - 1)


def divergence(values, everything):
    whole = shares(everything)
    return sum(share * math.log(share / whole[value]) for value, share in shares(values).items())


def likeness(values, everything, beta):
    whole = shares(everything)
    gains = {value: share / whole[value] - 1 for value, share in shares(values).items()}
    return all(gain <= min(beta, -math.log(whole[value])) + 1e-9 for value, gain in gains.items())


EXAMPLES = [
    (KAnonymity(3), lambda values, _: len(values) >= 3),
    (DistinctDiversity(2, "s"), lambda values, _: len(set(values)) >= 2),
    (FrequencyDiversity(2, "s"), lambda values, _: max(shares(values).values()) <= 0.5 + 1e-9),
    (EntropyDiversity(2, "s"), lambda values, _: entropy(values) >= math.log(2) - 1e-9),
    (RecursiveDiversity(2, 2, "s"), lambda values, _: recursive(values, 2, 2)),
    (TCloseness(0.3, "s"), lambda values, whole: equal_distance(values, whole) <= 0.3 + 1e-9),
    (TCloseness(0.2, "s", "ordered"), lambda values, whole: ordered_distance(values, whole) <= 0.2 + 1e-9),
    (TCloseness(0.3, "s", "kl"), lambda values, whole: divergence(values, whole) <= 0.3 + 1e-9),
    (AlphaK(0.6, 2, "s"), lambda values, _: len(values) >= 2 and max(shares(values).values()) <= 0.6 + 1e-9),
    (BetaLikeness(1.0, "s"), lambda values, whole: likeness(values, whole, 1.0)),
]


@pytest.mark.parametrize(("model", "oracle"), EXAMPLES, ids=lambda example: getattr(example, "label", ""))
@settings(deadline=None, max_examples=60)
@given(rows=st.lists(st.tuples(st.integers(0, 4), st.sampled_from("abcd")), min_size=1, max_size=40))
def test_a_model_accepts_the_classes_that_its_definition_accepts(model, oracle, rows):
    numbers = sorted({number for number, _ in rows})
    of_row = np.array([numbers.index(number) for number, _ in rows])
    everything = [value for _, value in rows]
    classes = EquivalenceClasses(of_row, len(numbers), {"s": CodedColumn.of("s", pa.array(everything))})
    expected = [
        oracle([value for place, value in zip(of_row, everything, strict=True) if place == number], everything)
        for number in range(len(numbers))
    ]
    assert Requirement.of(model).holds(classes).tolist() == expected


def test_the_hierarchical_distance_is_that_of_the_worked_example():
    """Figures 8.7 and 8.8: with diseases of two organs, moving rows lowers t; with equal distances it does not."""
    stomach, lung = ["ulcer", "gastritis", "cancer"], ["flu", "bronchitis", "pneumonia"]
    tree = Hierarchy.tree({"stomach": stomach, "lung": lung})
    before = [stomach, ["gastritis", "flu", "bronchitis"], ["bronchitis", "pneumonia", "cancer"]]
    after = [
        ["ulcer", "pneumonia", "cancer"],
        ["gastritis", "flu", "bronchitis"],
        ["bronchitis", "gastritis", "cancer"],
    ]
    for groups, equal, tall in (
        (before, [4 / 9, 4 / 9, 4 / 9], [4 / 9, 1 / 3, 1 / 3]),
        (after, [5 / 9, 4 / 9, 1 / 3], [1 / 3, 1 / 3, 2 / 9]),
    ):
        values = [value for members in groups for value in members]
        column = CodedColumn.of("s", pa.array(values))
        classes = EquivalenceClasses(np.repeat(np.arange(3), 3), 3, {"s": column})
        counts, whole = classes.counts("s"), classes.totals("s", np.ones(3, bool))
        assert TCloseness(1, "s").distances(counts, whole, column) == pytest.approx(equal)
        assert TCloseness(1, "s", "hierarchical", tree).distances(counts, whole, column) == pytest.approx(tall)


def test_classes_are_removed_until_those_that_stay_satisfy_every_model():
    values = ["a"] * 8 + ["b"] * 8 + ["a", "b"] * 8
    column = CodedColumn.of("s", pa.array(values))
    classes = EquivalenceClasses(np.array([0] * 8 + [1] * 8 + [2] * 16), 3, {"s": column})
    requirement = Requirement.of([KAnonymity(4), TCloseness(0.1, "s")])
    kept = suppress(requirement, classes).kept
    assert kept.tolist() == [False, False, True]
    assert requirement.holds(classes, kept)[2]


def test_a_population_is_compared_with_the_release():
    of_row, released = np.array([0, 0, 1, 1, 1, 1]), np.array([1, 0, 1, 1, 0, 0])
    classes = EquivalenceClasses(of_row, 2, {}, released, np.ones(6, np.int64))
    everyone = np.ones(2, bool)
    assert KMap(3).holds(classes, everyone).tolist() == [False, True]
    assert DeltaPresence(0, 0.5).holds(classes, everyone).tolist() == [True, True]
    assert DeltaPresence(0, 0.4).holds(classes, everyone).tolist() == [False, False]


def test_counts_in_pieces_are_the_counts(monkeypatch):
    from cloister.anonymize import classes as module

    draw = np.random.default_rng(5)
    column = CodedColumn.of("s", pa.array(draw.integers(0, 9, 500)))
    classes = EquivalenceClasses(draw.integers(0, 50, 500), 50, {"s": column})
    whole = classes.counts("s")
    monkeypatch.setattr(module, "_CHUNK", 40)
    classes = EquivalenceClasses(classes.of_row, 50, {"s": column})
    assert np.concatenate([counts for _, counts in classes.chunks("s")]).tolist() == whole.tolist()


@pytest.mark.parametrize(
    "make",
    [
        lambda: KAnonymity(0),
        lambda: KAnonymity(True),
        lambda: KAnonymity(2.5),
        lambda: DistinctDiversity(-1, "s"),
        lambda: EntropyDiversity(float("nan"), "s"),
        lambda: TCloseness(-0.1, "s"),
        lambda: TCloseness(0.1, "s", "manhattan"),
        lambda: TCloseness(0.1, "s", "hierarchical"),
        lambda: DeltaPresence(0.5, 0.1),
        lambda: Requirement.of([]),
        lambda: Requirement.of(["k=5"]),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make):
    with pytest.raises(BadInput):
        make()


def test_a_label_says_that_a_release_is_not_differentially_private():
    requirement = Requirement.of([KAnonymity(5), DistinctDiversity(3, "disease"), TCloseness(0.2, "disease")])
    assert requirement.label == "k=5, l=3 (disease), t=0.2 (disease): not differentially private"
