"""Which classes are suppressed, beside every set of classes that could be: no proven optimum is beaten."""

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
import pyarrow as pa
import pytest

from cloister import anonymize as an
from cloister.anonymize.algorithms.lattice import Lattice, search
from cloister.anonymize.classes import EquivalenceClasses
from cloister.anonymize.coded import CodedColumn, CodedTable
from cloister.anonymize.models import JointDiversity, Requirement
from cloister.anonymize.suppression import suppress
from cloister.privacy.errors import BadInput
from tests.unit.anonymize.brute_force import diversity

FLAT = {"zip": an.Hierarchy.flat()}
OWN = {"quasi": ["zip"], "hierarchies": FLAT}


def test_one_class_is_suppressed_where_all_that_fail_at_first_would_be_too_many():
    """A is all x; without it the others are as the release. At first every class differs from the release."""
    table = {"zip": ["A"] * 10 + ["B"] * 20 + ["C"] * 20, "s": ["x"] * 10 + (["x"] * 10 + ["y"] * 10) * 2}
    release = an.recode(table, require=[an.KAnonymity(5), an.TCloseness(0.05, "s")], suppression=0.2, **OWN)
    assert release.levels == {"zip": 0}
    assert release.suppressed == 10
    assert release.search.optimal
    assert release.search.best.loss == pytest.approx(0.2)


@pytest.mark.parametrize("method", [an.recode, an.top_down])
def test_a_release_is_found_below_a_top_that_fails(method):
    """Without the four rows of zip 9 half of every class has the flu; of the whole table more than half have it."""
    table = {"zip": ["1"] * 8 + ["2"] * 8 + ["9"] * 4, "ill": (["flu"] * 4 + ["cold"] * 4) * 2 + ["flu"] * 4}
    require = [an.KAnonymity(5), an.AlphaK(0.5, 5, "ill")]
    release = method(table, require=require, suppression=0.2, **OWN)
    release.verify()
    assert release.suppressed == 4
    assert release.rows.column("zip").to_pylist() == ["1"] * 8 + ["2"] * 8
    with pytest.raises(BadInput, match="whatever is suppressed"):
        method(table, require=require, suppression=0.1, **OWN)


MODELS = [
    [an.KAnonymity(2)],
    [an.DistinctDiversity(2, "s")],
    [an.KAnonymity(2), an.FrequencyDiversity(1.6, "s")],
    [an.EntropyDiversity(1.7, "s")],
    [an.RecursiveDiversity(1.5, 2, "s")],
    [an.AlphaK(0.6, 2, "s")],
    [an.AlphaK(0.4, 2, "s", ("x",))],
    [an.TCloseness(0.2, "s")],
    [an.KAnonymity(2), an.TCloseness(0.25, "s", "ordered")],
    [an.TCloseness(0.15, "s", "kl")],
    [an.TCloseness(0.2, "s", "hierarchical", an.Hierarchy.tree({"a": ["x", "y"], "b": ["z"]}))],
    [an.BetaLikeness(0.5, "s")],
    [an.BetaLikeness(0.6, "s", enhanced=False)],
    [JointDiversity(2, ("s", "u"))],
]


def satisfied(model, groups, rows):
    """True if classes of rows, as a release, satisfy a model by its definition."""
    values = [row[-2] for members in groups for row in members]
    places = list(itertools.accumulate([0, *map(len, groups)]))
    classes = [range(*pair) for pair in itertools.pairwise(places)]
    domain = sorted(set(values))
    if isinstance(model, JointDiversity):
        for at, other in ((-2, -1), (-1, -2)):
            for members in groups:
                seen = defaultdict(set)
                for row in members:
                    seen[row[other]].add(row[at])
                if min(map(len, seen.values())) < model.l:
                    return False
        return True
    if isinstance(model, an.KAnonymity):
        return min(map(len, groups)) >= model.k
    found = diversity(classes, values, domain)
    far = max(distance(members, values, domain, getattr(model, "distance", "")) for members in classes)
    slack = 1e-9
    match model:
        case an.DistinctDiversity(least):
            return found["distinct_l"] >= least
        case an.FrequencyDiversity(least):
            return found["frequency_l"] >= least - slack
        case an.EntropyDiversity(least):
            return found["entropy_l"] >= least - slack
        case an.RecursiveDiversity(c, least):
            return found["recursive", least] < c
        case an.AlphaK(alpha, k, _, named):
            high = max(found.get(("alpha", value), 0) for value in named or domain)
            return high <= alpha + slack and min(map(len, groups)) >= k
        case an.TCloseness(t, _, "kl"):
            return found["kl"] <= t + slack
        case an.TCloseness(t, _, "ordered" | "hierarchical"):
            return far <= t + 1e-9
        case an.TCloseness(t):
            return found["t_equal"] <= t + slack
        case an.BetaLikeness(beta, _, True):
            return found["beta_enhanced"] <= beta + slack
        case an.BetaLikeness(beta):
            return found["beta"] <= beta + slack
    raise AssertionError(model)


def distance(members, values, domain, kind):
    """The ordered distance, or the one in the tree {a: {x, y}, b: {z}}, of some rows from all."""
    own, whole = Counter(values[row] for row in members), Counter(values)
    difference = {value: own[value] / len(members) - whole[value] / len(values) for value in domain}
    if kind == "ordered":
        sums = list(itertools.accumulate(difference.values()))
        return sum(map(abs, sums)) / max(1, len(domain) - 1)
    branch = abs(difference.get("x", 0) + difference.get("y", 0)) + abs(difference.get("z", 0))
    return (sum(map(abs, difference.values())) / 2 + branch / 2) / 2


def true_optimum(rows, models, room, hierarchies):
    """The least loss over all nodes and all sets of classes; infinite if there is none."""
    best = math.inf
    for node in itertools.product((0, 1), repeat=2):
        groups = defaultdict(list)
        for row in rows:
            groups[tuple("*" if level else cell for cell, level in zip(row, node, strict=False))].append(row)
        groups = list(groups.values())
        for size in range(len(groups) + 1):
            for gone in itertools.combinations(range(len(groups)), size):
                lost = sum(len(groups[place]) for place in gone)
                kept = [members for place, members in enumerate(groups) if place not in gone]
                loss = (lost + (len(rows) - lost) * sum(node) / 2) / len(rows)
                if lost <= room and kept and loss < best and all(satisfied(model, kept, rows) for model in models):
                    best = loss
    return best


@pytest.mark.parametrize("models", MODELS, ids=lambda models: ", ".join(model.label for model in models))
def test_no_set_of_classes_beats_an_optimum_that_is_called_proven(models):
    draw = np.random.default_rng(len(models[-1].label))
    proven = 0
    for _ in range(30):
        number = int(draw.integers(5, 15))
        cells = [draw.choice(list(letters), number) for letters in ("ab", "cd", "xxyz", "uv")]
        rows = list(zip(*(column.tolist() for column in cells), strict=True))
        share = float(draw.choice([0.0, 0.2, 0.4]))
        table = {name: column.tolist() for name, column in zip(("p", "q", "s", "u"), cells, strict=True)}
        if not set(getattr(models[0], "values", None) or ()) <= set(table["s"]):
            continue
        coded = CodedTable.of(table, list(table))
        hierarchies = [an.Hierarchy.flat().over(coded.columns[name]) for name in ("p", "q")]
        held = {name: coded.columns[name] for name in ("s", "u")}
        lattice = Lattice(hierarchies, held, Requirement.of(models), share)
        found = search(lattice)
        best = true_optimum(rows, models, lattice.allowed, hierarchies)
        assert found.bound <= best + 1e-9
        if found.best is None:
            assert best == math.inf or not found.hopeless
            continue
        assert found.best.loss >= best - 1e-9
        if found.optimal:
            assert found.best.loss == pytest.approx(best)
            proven += 1
        else:
            assert share
            assert lattice.requirement.relative
            assert found.best.loss <= (1 + found.gap) * best + 1e-9
    assert proven


@pytest.mark.parametrize("models", MODELS, ids=lambda models: ", ".join(model.label for model in models))
def test_no_finer_classes_lose_fewer_rows_than_a_class_is_said_to_lose(models):
    draw = np.random.default_rng(3)
    for _ in range(40):
        number = int(draw.integers(4, 11))
        s, u = draw.choice(list("xxxyz"), number), draw.choice(list("uv"), number)
        if not set(getattr(models[0], "values", None) or ()) <= set(s.tolist()):
            continue
        held = {"s": CodedColumn.of("s", pa.array(s.tolist())), "u": CodedColumn.of("u", pa.array(u.tolist()))}
        coarse = draw.integers(0, 2, number)
        fine = coarse * 3 + draw.integers(0, 3, number)
        room = int(draw.integers(0, number))
        rows = list(zip(s.tolist(), u.tolist(), strict=True))
        names, of_row = np.unique(coarse, return_inverse=True)
        least = Requirement.of(models).least_removed(EquivalenceClasses(of_row, len(names), held), room)
        for classes in (coarse, fine):
            groups = [np.flatnonzero(classes == name) for name in np.unique(classes)]
            for size in range(len(groups)):
                for gone in itertools.combinations(range(len(groups)), size):
                    lost = [row for place in gone for row in groups[place]]
                    kept = [[rows[row] for row in g] for place, g in enumerate(groups) if place not in gone]
                    if len(lost) <= room and all(satisfied(model, kept, rows) for model in models):
                        removed = Counter(of_row[lost].tolist())
                        assert all(removed[place] >= rows_lost for place, rows_lost in enumerate(least))


def test_classes_that_may_stay_after_all_are_put_back():
    values = ["x"] * 6 + ["y"] * 6 + ["x", "y"] * 10
    column = CodedColumn.of("s", pa.array(values))
    classes = EquivalenceClasses(np.repeat([0, 1, 2], [6, 6, 20]), 3, {"s": column})
    solution = suppress(Requirement.of(an.TCloseness(0.1, "s")), classes)
    assert solution.kept.tolist() == [False, False, True]
    assert not suppress(Requirement.of(an.KAnonymity(40)), classes).kept.any()
