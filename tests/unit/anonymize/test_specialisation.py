"""Top-down specialisation: any requirement, cuts beside brute force, and never worse than one level for each column."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.algorithms.lattice import Lattice
from cloister.anonymize.algorithms.specialisation import top_down
from cloister.anonymize.checking.verifier import check
from cloister.anonymize.coded import CodedColumn, CodedTable
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import DistinctDiversity, KAnonymity, Requirement, TCloseness
from cloister.anonymize.release import recode
from cloister.privacy.errors import BadInput

from . import toy_tables
from .random_tables import QUASI, released_or_refused, requirements, tables

_TREE = Hierarchy.tree({"left": {"a": ["a1", "a2"], "b": ["b1", "b2"]}, "right": {"c": ["c1", "c2"], "d": ["d1"]}})
_LEAVES = ["a1", "a2", "b1", "b2", "c1", "c2", "d1"]


@settings(deadline=None, max_examples=40)
@given(tables(), requirements(), st.sampled_from([0.0, 0.2]))
def test_every_release_satisfies_its_requirement_and_stays_within_the_suppression_limit(table, require, suppression):
    release = released_or_refused(top_down, table, require, suppression=suppression)
    if release is None:
        return
    release.verify()
    assert release.suppressed <= suppression * len(table["age"]) + 1e-9
    limit = recode(table, require=require, quasi=QUASI, sensitive=["ill"], suppression=suppression)
    assert release.utility.certainty_penalty <= limit.utility.certainty_penalty + 1e-9


def _greedy_full_domain(table, quasi, require, hierarchies, suppression=0.0):
    """The loss at which a walk ends that lowers the level of one column after the other."""
    coded = CodedTable.of(table, [*quasi, *Requirement.of(require).columns])
    chosen = [hierarchies[name].over(coded.columns[name]) for name in quasi]
    held = {name: coded.columns[name] for name in Requirement.of(require).columns}
    lattice = Lattice(chosen, held, Requirement.of(require), suppression)
    node = lattice.top
    while True:
        below = [(*node[:i], level - 1, *node[i + 1 :]) for i, level in enumerate(node) if level]
        best = min(below, key=lambda child: lattice.evaluate(child).loss, default=node)
        if lattice.evaluate(best).loss >= lattice.evaluate(node).loss:
            return lattice.evaluate(node).loss
        node = best


def _cuts(tree, values):
    """All labellings of values by a cut through a hierarchy, each with its losses."""
    coded = tree.over(CodedColumn("x", tuple(values), np.arange(len(values))))

    def below(inside, level):
        yield {code: (level, int(coded.maps[level][code]), coded.losses[level][code]) for code in inside}
        if level:
            children = sorted({int(coded.maps[level - 1][code]) for code in inside})
            parts = [[code for code in inside if coded.maps[level - 1][code] == child] for child in children]
            for some in itertools.product(*(list(below(part, level - 1)) for part in parts)):
                yield {code: label for part in some for code, label in part.items()}

    return list(below(list(range(len(values))), coded.height))


@settings(deadline=None, max_examples=25)
@given(st.lists(st.tuples(st.sampled_from(_LEAVES), st.sampled_from("xy")), min_size=3, max_size=12), st.integers(2, 3))
def test_the_loss_is_at_least_the_one_of_the_best_cut_and_near_it(rows, k):
    table = {"first": [row[0] for row in rows], "second": [row[1] for row in rows]}
    hierarchies = {"first": _TREE, "second": Hierarchy.flat()}
    release = top_down(table, require=KAnonymity(k), quasi=["first", "second"], hierarchies=hierarchies)
    release.verify()
    first, second = sorted(set(table["first"])), sorted(set(table["second"]))
    best = 1.0
    for one, other in itertools.product(_cuts(_TREE, first), _cuts(Hierarchy.flat(), second)):
        labels = [(one[first.index(a)], other[second.index(b)]) for a, b in rows]
        classes = [tuple(label[:2] for label in pair) for pair in labels]
        if min(classes.count(name) for name in classes) >= k:
            best = min(best, sum(pair[0][2] + pair[1][2] for pair in labels) / (2 * len(rows)))
    greedy = _greedy_full_domain(table, ["first", "second"], [KAnonymity(k)], hierarchies)
    assert best - 1e-9 <= release.utility.certainty_penalty <= greedy + 1e-9


def _people(rows, seed=0):
    generator = np.random.default_rng(seed)
    return {
        "age": np.clip(generator.normal(40, 15, rows), 0, 99).astype(int).tolist(),
        "zip": [f"33{number:03d}" for number in np.clip(generator.gamma(2, 60, rows), 0, 999).astype(int)],
        "sex": generator.choice(["f", "m"], rows).tolist(),
        "ill": generator.choice(["flu", "cold", "ulcer"], rows, p=[0.6, 0.3, 0.1]).tolist(),
    }


_HIERARCHIES = {"age": Hierarchy.intervals(0, 100, [5, 10, 50]), "zip": Hierarchy.masking(5), "sex": Hierarchy.flat()}


@pytest.mark.parametrize("suppression", [0.0, 0.05])
@pytest.mark.parametrize(
    "require",
    [
        [KAnonymity(5)],
        [KAnonymity(5), DistinctDiversity(2, "ill")],
        [KAnonymity(5), TCloseness(0.3, "ill")],
    ],
)
def test_cuts_lose_less_than_the_best_level_of_each_column(require, suppression):
    table, quasi = _people(1_500), ["age", "zip", "sex"]
    options = {"require": require, "quasi": quasi, "hierarchies": _HIERARCHIES, "suppression": suppression}
    release = top_down(table, **options)
    release.verify()
    full_domain = recode(table, **options)
    assert release.utility.certainty_penalty < full_domain.utility.certainty_penalty
    greedy = _greedy_full_domain(table, quasi, require, _HIERARCHIES, suppression)
    assert release.utility.certainty_penalty <= greedy + 1e-9


def test_frequent_values_stay_specific_while_rare_ones_are_generalised():
    table = {"city": ["a1"] * 6 + ["a2"] * 5 + ["b1", "b2", "b1"] + ["c1", "c2", "d1"]}
    release = top_down(table, require=KAnonymity(3), quasi=["city"], hierarchies={"city": _TREE})
    assert release.rows.column("city").to_pylist() == ["a1"] * 6 + ["a2"] * 5 + ["b"] * 3 + ["right"] * 3


def test_a_value_has_one_label_in_the_whole_release():
    table = _people(800)
    release = top_down(table, require=KAnonymity(5), quasi=["age", "zip", "sex"], hierarchies=_HIERARCHIES)
    for name in ("age", "zip", "sex"):
        pairs = set(zip(table[name], release.rows.column(name).to_pylist(), strict=True))
        assert len(pairs) == len(set(table[name]))


def test_patients_of_figure_7_13_become_2_anonymous():
    quasi = ["zip", "age", "gender"]
    release = top_down(
        toy_tables.FIGURE_7_13,
        require=[KAnonymity(2), DistinctDiversity(2, "disease")],
        quasi=quasi,
        identifiers=["name"],
        hierarchies={"zip": Hierarchy.masking(5), "age": Hierarchy.intervals(0, 100, [10, 20])},
    )
    assert check(release.rows, quasi=quasi, sensitive=["disease"]).meets(k=2, l=2) == []
    assert release.rows.num_rows == 9


def test_a_table_that_is_anonymous_already_keeps_its_cells_and_types():
    release = top_down(toy_tables.TABLE_6_1, require=KAnonymity(2), quasi=["zip", "age"])
    assert release.rows.to_pydict() == toy_tables.TABLE_6_1


def test_k_above_the_number_of_rows_and_a_wrong_share_are_refused():
    with pytest.raises(BadInput, match=r"there are 3 rows\. Ask for less.*Nothing was written"):
        top_down({"age": [1, 2, 3]}, require=KAnonymity(4), quasi=["age"])
    with pytest.raises(BadInput, match="suppression"):
        top_down({"age": [1, 2, 3]}, require=KAnonymity(2), quasi=["age"], suppression=1.0)
