"""Models together in every method: joint diversity, populations, named values, types; confirmed or refused by name."""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest

from cloister import anonymize as an
from cloister.anonymize.planning.request import models_of, parse_models
from cloister.privacy.errors import BadInput
from tests.unit.anonymize.tables import QUASI, people

METHODS = {
    "recode": lambda rows, **more: an.recode(rows, suppression=0.1, **more),
    "mondrian": an.mondrian,
    "cluster": an.cluster,
    "top_down": an.top_down,
    "suppress_cells": an.suppress_cells,
}
ROLES = {"quasi": QUASI, "identifiers": ["born"], "plain": ["income"]}


@pytest.mark.parametrize("method", METHODS)
def test_several_sensitive_columns_are_diverse_together(method):
    table = people(300, 4, missing=0.02)
    table["job"] = np.random.default_rng(4).choice(["nurse", "pilot", "cook"], 300).tolist()
    joint = an.JointDiversity(2, ("disease", "job"))
    release = METHODS[method](table, require=[an.KAnonymity(3), joint], sensitive=["disease", "job"], **ROLES)
    release.verify()
    assert min(found.distinct_l for found in release.checked.joint.values()) >= 2
    assert release.label == "k=3, joint l=2 (disease; job): not differentially private"
    assert parse_models(release.label, ["disease", "job"]) == release.requirement.models
    assert models_of(release.describe()["models"]) == release.requirement.models


def test_joint_diversity_is_about_all_sensitive_columns():
    with pytest.raises(BadInput, match="must name all sensitive columns: zip, disease, sex"):
        an.mondrian(people(50), require=an.JointDiversity(2, ("disease", "sex")), quasi=["age"], sensitive=["zip"])
    with pytest.raises(BadInput, match="two sensitive columns or more"):
        an.JointDiversity(2, ("disease",))


@pytest.mark.parametrize("method", ["recode", "mondrian", "top_down"])
@pytest.mark.parametrize("model", [an.KMap(8), an.DeltaPresence(0, 0.5), an.DeltaPresence(0.1, 0.6)])
def test_a_population_is_compared_in_every_method_with_classes_of_its_own(method, model):
    whole = people(600, 5, missing=0.02)
    sample = {name: column[:150] for name, column in whole.items()}
    population = {name: whole[name] for name in QUASI}
    release = METHODS[method](
        sample,
        require=[model, an.DistinctDiversity(2, "disease")],
        population=population,
        sensitive=["disease"],
        **ROLES,
    )
    release.verify()
    assert release.population.num_rows == 600
    assert release.checked.presence.outside == 0


@pytest.mark.parametrize(("method", "why"), [("cluster", "clusters overlap"), ("suppress_cells", "row by row")])
def test_a_method_that_cannot_compare_with_a_population_says_why(method, why):
    with pytest.raises(BadInput, match=rf"k-map=5 is refused here: .*{why}"):
        METHODS[method](people(50), require=an.KMap(5), sensitive=["disease"], **ROLES)


@pytest.mark.parametrize(("text", "word"), [("k^m=5^2", "anonymise_sets"), ("m=3 (disease, invariant)", "republish")])
def test_models_that_are_no_condition_on_classes_are_refused_by_name(text, word):
    with pytest.raises(BadInput, match=word):
        parse_models(text, ["disease"])


def test_people_of_the_population_who_are_missing_are_seen_by_a_lower_bound():
    """Nobody aged 2 is in the release: their share is 0, which suppression cannot raise."""
    rows, people_of = {"age": [1] * 5}, {"age": [1] * 10 + [2] * 3}
    release = an.recode(rows, require=an.DeltaPresence(0.1, 0.9), quasi=["age"], population=people_of)
    release.verify()
    assert release.levels == {"age": release.search.heights[0]} or release.checked.presence.delta_min >= 0.1
    with pytest.raises(BadInput, match="no release satisfies"):
        an.recode(rows, require=an.DeltaPresence(0.45, 0.9), quasi=["age"], population=people_of, suppression=0.4)


@pytest.mark.parametrize(
    ("own", "others"),
    [
        ([Decimal("1.50")], [Decimal("1.5")] * 2),
        ([1, 2], [1.0, 1.0, 2.0, 2.0]),
        ([1.5, 1e20], [1.5, 1.5, 1e20, 1e20]),
        ([True, False], [True, True, False, False]),
        ([None, 1], [None, None, 1, 1]),
        ([dt.date(2020, 1, 1)], [dt.date(2020, 1, 1)] * 2),
        ([dt.datetime(2020, 1, 1, 1)], [dt.datetime(2020, 1, 1, 1)] * 2),
    ],
)
def test_equal_values_of_a_population_are_equal_however_they_are_written(own, others):
    release = an.recode({"a": own}, require=an.KMap(2), quasi=["a"], population={"a": others})
    release.verify()
    assert release.levels == {"a": 0}


def test_a_population_of_another_type_is_refused_in_a_sentence():
    with pytest.raises(BadInput, match="a is int64 in the rows and string in the population"):
        an.recode({"a": [1, 2]}, require=an.KMap(2), quasi=["a"], population={"a": ["1", "1", "2", "2"]})


@pytest.mark.parametrize(
    ("cells", "named"),
    [
        ([1.0, 1.0, 2.5, 2.5], "1.0"),
        ([1, 1, 2, 2], "1"),
        ([1, 1, 2, 2], True),
        (["x", "x", "y", "y"], "zzz"),
        ([dt.date(2020, 1, 1)] * 4, "2020-01-01"),
    ],
)
def test_a_named_value_that_the_column_does_not_have_is_refused(cells, named):
    model = an.AlphaK(0.4, 2, "s", (named,))
    for method in METHODS.values():
        with pytest.raises(BadInput, match="s has no value"):
            method({"a": [1, 1, 2, 2], "s": cells}, require=model, quasi=["a"])


@pytest.mark.parametrize("named", [1e20, 1.5, 3, Decimal("1.5")])
def test_a_named_value_is_found_by_the_algorithm_and_by_the_verifier(named):
    table = {"a": [1, 1, 2, 2], "s": [float(named)] * 2 + [7.0] * 2}
    release = an.mondrian(table, require=an.AlphaK(0.5, 2, "s", (named,)), quasi=["a"])
    release.verify()
    assert set(release.rows.column("a").to_pylist()) == {"1-2"}


@pytest.mark.parametrize(
    ("values", "tree"),
    [
        ([1, 11, 2, 12], an.Hierarchy.intervals(0, 20, [5, 10])),
        ([1.5, 11.0, 2.0, 12.5], an.Hierarchy.intervals(0, 20, [10])),
        (["flu", "cold", "flu", "ulcer"], an.Hierarchy.flat()),
        ([dt.date(2020, 1, day) for day in (1, 2, 1, 3)], an.Hierarchy.dates("month", "year")),
        (["33617", None, "33620", "33617"], an.Hierarchy.masking(5)),
    ],
)
def test_hierarchical_closeness_is_verified_whatever_makes_the_labels(values, tree):
    model = an.TCloseness(0.5, "s", "hierarchical", tree)
    for method in METHODS.values():
        release = method({"a": [1, 2, 3, 4], "s": values}, require=[an.KAnonymity(2), model], quasi=["a"])
        release.verify()
        again = models_of(release.describe()["models"])
        assert again[1].hierarchy.ancestors == release.requirement.models[1].hierarchy.ancestors


@pytest.mark.parametrize(
    ("tree", "height"),
    [
        (an.Hierarchy.table({"flu": ["lung"], "cold": ["lung"], "ulcer": ["stomach"]}), 2),
        (an.Hierarchy.table({"flu": ["lung", "any"], "cold": ["lung", "any"], "ulcer": ["stomach", "any"]}), 2),
        (
            an.Hierarchy.table(
                {"flu": ["lung", "any", "*"], "cold": ["lung", "any", "*"], "ulcer": ["gut", "any", "*"]}
            ),
            3,
        ),
        (an.Hierarchy.table({"flu": ["any"], "cold": ["any"], "ulcer": ["any"]}), 1),
        (an.Hierarchy.intervals(0, 20, [5, 10]), 3),
        (an.Hierarchy.intervals(0, 5, [5]), 2),
    ],
)
def test_the_root_of_a_tree_is_its_one_top_label_or_the_star(tree, height):
    """The distance of two values that share nothing but the root is 1, and that of siblings 1 / height."""
    values = ["flu", "cold", "flu", "cold"] if tree.leaves else [1, 2, 1, 2]
    for t in (0.5 / height, 0.5 / height - 0.01):
        model = an.TCloseness(t, "s", "hierarchical", tree)
        table = {"a": ["x", "y", "x", "y"], "s": values}
        release = an.recode(table, require=model, quasi=["a"])
        assert set(release.rows.column("a").to_pylist()) == ({"x", "y"} if t == 0.5 / height else {"*"})
        release.verify()
        (again,) = models_of(release.describe()["models"])
        assert again.hierarchy.to_root == release.requirement.models[0].hierarchy.to_root


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64(), pa.decimal128(9, 2)], ids=str)
def test_the_order_of_numbers_is_verified_in_every_type(kind):
    table = pa.table({"a": [1, 2, 3, 4], "s": pa.array([0.1, 0.25, None, 0.1], pa.float64()).cast(kind, safe=False)})
    for method in METHODS.values():
        method(table, require=[an.KAnonymity(2), an.TCloseness(0.9, "s", "ordered")], quasi=["a"]).verify()


@pytest.mark.filterwarnings("error::RuntimeWarning")
@pytest.mark.parametrize("numbers", [[1.0, np.inf, 2.0, 3.0], [-np.inf, np.inf, None, 0.0], [1e308, -1e308, 0.0, 5.0]])
def test_infinite_and_huge_numbers_are_generalised(numbers):
    table = pa.table({"a": pa.array(numbers, pa.float64()), "s": list("xyxy")})
    for method in METHODS.values():
        release = method(table, require=[an.KAnonymity(2), an.DistinctDiversity(2, "s")], quasi=["a"])
        release.verify()
        assert 0 <= release.utility.certainty_penalty <= 1


@pytest.mark.parametrize("role", ["quasi", "sensitive", "plain"])
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([[1], [2], [3], [4]]),
        pa.array([{"x": 1}] * 4),
        pa.array([b"a", b"\xff", b"c", b"d"]),
        pa.array([b"aa"] * 4, pa.binary(2)),
        pa.array(np.array([1, 2, 3, 4], np.float16)),
        pa.array([(1, 2, 3)] * 4, pa.month_day_nano_interval()),
        pa.array([[("k", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    ],
    ids=lambda cells: str(cells.type),
)
def test_a_type_that_cannot_be_released_is_refused_in_a_sentence(cells, role):
    table = pa.table({"a": [1, 2, 3, 4], "p": cells})
    for method in METHODS.values():
        with pytest.raises(BadInput, match=r"the column p has the type .*Convert it"):
            method(table, require=an.KAnonymity(2), **({"quasi": ["a"]} | {role: ["p"]}))


@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 2, 3, 4], pa.duration("s")),
        pa.array([1, 2, 3, 4], pa.time32("s")),
        pa.array([Decimal("1.5")] * 3 + [None]),
        pa.array([Decimal("1.5")] * 4, pa.decimal256(50, 2)),
        pa.array([True, False, None, True]),
        pa.array(["a", "b", "a", "b"]).dictionary_encode(),
        pa.array([0, 1, 2, 3], pa.timestamp("s", "UTC")),
        pa.nulls(4),
        pa.array([2**63, 2**63 + 1, 5, 6], pa.uint64()),
        pa.array(["a", "b", "c", "d"], pa.string_view()),
    ],
    ids=lambda cells: str(cells.type),
)
def test_every_other_type_is_released_or_refused_in_a_sentence(cells, tmp_path):
    for method in METHODS.values():
        for roles in ({"quasi": ["p"]}, {"quasi": ["a"], "sensitive": ["p"]}, {"quasi": ["a"]}):
            try:
                release = method(pa.table({"a": [1, 2, 3, 4], "p": cells}), require=an.KAnonymity(2), **roles)
                release.verify()
                release.to_parquet(tmp_path / "p.parquet")
            except BadInput as refusal:
                assert "p" in str(refusal).split()  # noqa: PT017
