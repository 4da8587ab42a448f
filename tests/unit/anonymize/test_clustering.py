"""Classes by clustering: any requirement, NULLs and ties, blobs of rows, and tables that cannot be released."""

import numpy as np
import pyarrow.csv
import pytest
from hypothesis import given, settings

from cloister.anonymize.algorithms.clustering import cluster
from cloister.anonymize.checking.verifier import check
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import DistinctDiversity, KAnonymity, Requirement, TCloseness
from cloister.anonymize.release import mondrian
from cloister.privacy.errors import BadInput

from . import brute_force, toy_tables
from .random_tables import QUASI, assert_sound, released_or_refused, requirements, tables


@settings(deadline=None, max_examples=60)
@given(tables(), requirements())
def test_every_release_satisfies_its_requirement_or_there_is_none(table, require):
    release = released_or_refused(cluster, table, require)
    if release is None:
        return
    assert_sound(table, release)
    least = Requirement.of(require).smallest
    classes = brute_force.classes(release.rows.to_pydict(), QUASI)
    assert min(map(len, classes.values())) >= least


def test_blobs_of_rows_are_the_classes():
    centres = np.repeat(np.arange(40), 5)
    table = {
        "age": (centres * 2 + np.tile([0, 1, 0, 1, 0], 40)).tolist(),
        "city": [f"city {number % 7}" for number in centres],
    }
    release = cluster(table, require=KAnonymity(5), quasi=["age", "city"])
    classes = brute_force.classes(release.rows.to_pydict(), ["age", "city"])
    assert sorted(map(sorted, classes.values())) == np.arange(200).reshape(40, 5).tolist()


def test_rows_that_are_equal_anyway_are_not_changed():
    table = {"age": [31] * 4 + [62] * 4, "city": ["a"] * 4 + ["b"] * 4}
    release = cluster(table, require=KAnonymity(4), quasi=["age", "city"])
    assert release.rows.to_pydict() == table
    assert release.utility.certainty_penalty == 0


def _people(rows, seed=0):
    generator = np.random.default_rng(seed)
    return {
        "age": generator.integers(18, 90, rows).tolist(),
        "zip": [f"33{number:03d}" for number in generator.integers(0, 200, rows)],
        "city": generator.choice(["a", "b", "c", "d", "e", "f"], rows).tolist(),
        "hours": generator.integers(0, 60, rows).tolist(),
        "ill": generator.choice(["flu", "cold", "ulcer", "asthma"], rows, p=[0.6, 0.2, 0.1, 0.1]).tolist(),
    }


@pytest.mark.parametrize(
    "require",
    [
        [KAnonymity(5)],
        [KAnonymity(3), DistinctDiversity(3, "ill")],
        [KAnonymity(3), TCloseness(0.35, "ill")],
    ],
)
def test_several_blocks_of_rows_lose_less_than_with_mondrian(require):
    table, quasi = _people(2_500), ["age", "zip", "city", "hours"]
    release = cluster(table, require=require, quasi=quasi)
    release.verify()
    other = mondrian(table, require=require, quasi=quasi)
    assert release.utility.certainty_penalty < other.utility.certainty_penalty


def test_a_requirement_that_only_the_whole_table_meets_gives_one_class():
    table = {"age": list(range(40)), "ill": ["flu"] * 20 + ["cold"] * 20}
    release = cluster(table, require=[KAnonymity(2), TCloseness(0, "ill")], quasi=["age"])
    release.verify()
    shares = check(release.rows, quasi=["age"], sensitive=["ill"]).diversity["ill"]
    assert shares.t_equal == pytest.approx(0)


def test_a_hierarchy_brings_related_values_together():
    tree = Hierarchy.tree({"west": ["a", "b"], "east": ["c", "d"]})
    table = {"city": ["a", "c", "b", "d"] * 3, "age": [40] * 12}
    release = cluster(table, require=KAnonymity(6), quasi=["city", "age"], hierarchies={"city": tree})
    assert set(release.rows.column("city").to_pylist()) == {"{a, b}", "{c, d}"}


def test_weights_say_which_column_keeps_its_values():
    table = _people(300)
    quasi = ["age", "hours"]
    first = cluster(table, require=KAnonymity(5), quasi=quasi, plain=list(table), weights={"age": 20.0})
    second = cluster(table, require=KAnonymity(5), quasi=quasi, plain=list(table), weights={"hours": 20.0})
    assert first.utility.columns["age"] < second.utility.columns["age"]
    assert first.utility.columns["hours"] > second.utility.columns["hours"]


def test_patients_of_figure_7_13_become_3_anonymous_and_a_written_file_is_so_too(tmp_path):
    release = cluster(
        toy_tables.FIGURE_7_13,
        require=[KAnonymity(3), DistinctDiversity(2, "disease")],
        quasi=["zip", "age", "gender"],
        identifiers=["name"],
    )
    release.to_csv(tmp_path / "patients.csv")
    written = pyarrow.csv.read_csv(tmp_path / "patients.csv")
    assert "name" not in written.column_names
    checked = check(written, quasi=["zip", "age", "gender"], sensitive=["disease"])
    assert checked.meets(k=3, l=2) == []


def test_k_above_the_number_of_rows_is_refused_with_a_way_out():
    with pytest.raises(BadInput, match=r"there are 3 rows\. Ask for less.*Nothing was written"):
        cluster({"age": [1, 2, 3]}, require=KAnonymity(4), quasi=["age"])


def test_a_hierarchy_of_another_column_and_bad_weights_are_refused():
    table = {"age": [1, 2, 3], "sex": ["f", "m", "f"]}
    with pytest.raises(BadInput, match="no quasi-identifier"):
        cluster(table, require=KAnonymity(2), quasi=["age"], plain=["sex"], hierarchies={"sex": Hierarchy.flat()})
    with pytest.raises(BadInput, match="weights"):
        cluster(table, require=KAnonymity(2), quasi=["age"], plain=["sex"], weights={"age": -1.0})


def test_progress_ends_with_everything_done():
    heard = []
    people = _people(100)
    told = {"progress": lambda share, text: heard.append(share), "plain": list(people)}
    cluster(people, require=KAnonymity(5), quasi=["age"], **told)
    assert heard == sorted(heard)
    assert heard[-1] == 1
