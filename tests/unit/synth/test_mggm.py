"""Gaussians held to counts of single columns: matching, shrinking, and what is worth its noise."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.lessons.public_data import PublicData, bundled
from cloister.lessons.synth_utility import compare
from cloister.synth.domain.domain import read_domain
from cloister.synth.domain.features import ONE, Features
from cloister.synth.measure.attribute_sets import cleared
from cloister.synth.measure.shrinkage import kept, selected, shrunk
from cloister.synth.model.gaussian import raked, ranked

from .people import BY_PERSON, BY_ROW, opened, people
from .transcripts import moved, recorded, replayed

SCHEMA = {
    "unit": "row",
    "tables": {
        "rows": {
            "columns": {
                "gain": {"type": "integer", "bounds": [0, 999], "nullable": False},
                "hours": {"type": "integer", "bounds": [1, 99], "nullable": False},
                "land": {"type": "text", "categories": [f"land {i}" for i in range(30)], "nullable": False},
                "rich": {"type": "boolean", "nullable": False},
            }
        }
    },
}


def skewed(rows: int = 6000) -> dict[str, Any]:
    """A long tail, a peak, and thirty categories of which one has nearly everybody: nothing like a Gaussian."""
    random = np.random.default_rng(3)
    rich = random.random(rows) < 0.25
    gain = np.where(random.random(rows) < 0.05 + 0.3 * rich, random.integers(1, 1000, rows), 0)
    hours = np.where(random.random(rows) < 0.5, 40, np.clip(random.normal(38 + 12 * rich, 12), 1, 99).astype(int))
    land = np.where(random.random(rows) < 0.9, 0, random.integers(0, 30, rows))
    return {"gain": gain, "hours": hours, "land": [f"land {i}" for i in land], "rich": rich}


def far(one: Any, two: Any) -> float:
    """Half the L1 distance of two columns' shares."""
    first, second = (dict(zip(*np.unique(x, return_counts=True), strict=True)) for x in (one, two))
    return sum(abs(first.get(k, 0) - second.get(k, 0)) for k in {*first, *second}) / 2 / len(one)


@pytest.mark.parametrize("label", [None, "rich"])
def test_columns_that_are_no_gaussians_come_out_as_they_are(label, tmp_path):
    true = skewed()
    with cl.open(pa.table(true), schema=SCHEMA, budget=cl.rho(100), ledger=tmp_path) as ds:
        asked = {"spend": cl.rho("0.05"), "rows": 6000, "bins": 32, "random_state": 1}
        made = synth.mggm(ds, **asked, label=label, reviewed=False).to_pandas()
        apart = synth.independent(ds, **asked).to_pandas()
    binned = {"gain": 999 / 32, "hours": 98 / 32}
    for name, width in binned.items():
        real, ours, theirs = (np.floor(np.asarray(x[name]) / width) for x in (true, made, apart))
        assert far(real, ours) < far(real, theirs) + 0.04
    assert far(true["land"], made["land"]) < 0.08
    hours = np.asarray(true["hours"]), np.asarray(true["rich"])
    gap = hours[0][hours[1]].mean() - hours[0][~hours[1]].mean()
    assert made.hours[made.rich].mean() - made.hours[~made.rich].mean() == pytest.approx(gap, abs=0.5 * gap)


@pytest.mark.parametrize("spend", [cl.rho("0.002"), cl.rho("0.3"), cl.rho(50), cl.epsilon(3)], ids=str)
@pytest.mark.parametrize("label", [None, "ward"])
def test_whatever_is_worth_buying_one_unit_moves_it_by_no_more_than_its_noise(label, spend, tmp_path, monkeypatch):
    rows = people(300)
    odd = {"person": 10**6, "ward": "cardiology", "building": "north", "age": 89, "cost": 100.0, "back": True}
    more = pa.concat_tables([rows, pa.Table.from_pylist([{**odd, "admitted": None, "note": None}] * 5, rows.schema)])
    columns = ["ward", "age", "cost", "back"]

    def make(ds: Any) -> Any:
        return synth.mggm(ds, spend=spend, columns=columns, bins=8, group_size=20, label=label)

    first, other = opened(tmp_path / "1", rows, BY_PERSON), opened(tmp_path / "2", more, BY_PERSON)
    with first, other:
        made, run = recorded(monkeypatch, lambda: make(first))
        again, steps = replayed(monkeypatch, run, lambda: make(other))
    shares = [moved(one, two) for one, two in zip(run.steps, steps.steps, strict=True)]
    assert 0.05 < max(shares) <= 1
    assert run.spent == {spend.measure: spend.amount}, "all of the spend is used, whatever is left out"
    assert made.made.chosen == again.made.chosen


def test_more_noise_means_fewer_steps(tmp_path, monkeypatch):
    ds = opened(tmp_path, people(2000))
    looks = []
    for spend in ("0.0005", "0.05", "500"):
        _, run = recorded(
            monkeypatch,
            lambda spend=spend: synth.mggm(ds, spend=cl.rho(spend), columns=["age", "cost"], rows=9, reviewed=False),
        )
        looks.append(len(run.steps))
    # Counts and moments; counts once more; cuts and moments of groups.
    assert looks[0] == 2
    assert looks[1] == 3
    assert looks[2] > 4


def test_a_number_stands_at_its_rank_and_a_rare_category_has_no_indicator(tmp_path):
    domain, relation = read_domain(opened(tmp_path, people(50), BY_ROW), columns=["ward", "age"], bins=8)
    wards, ages = domain.shape
    shares = np.full(wards, 0.01), np.r_[0.9, np.full(ages - 1, 0.1 / (ages - 1))]
    shares[0][1], shares[0][2] = 0.7, 0.2
    features = Features(domain, shares, least=0.05)
    assert features.cells(0) == [2]
    assert features.reference(0) == 1
    line = features.coordinates(1)
    assert (np.diff(line) > 0).all()
    assert abs(line).max() <= 1
    assert line[1] - line[0] > 4 * (line[2] - line[1]), "most rows are in the first cell"
    # As the engine sees it, whole numbers of 1/1024.
    seen = features.rows(relation, [1])
    found = seen.sums([], [features.value(number) for number in features.of([1])]).run(seen.engine)
    cells = domain.modelled[1].place(people(50)["age"])
    assert int(found[1].sum()) == int(np.rint(line[cells] * ONE).sum()) * relation.whole


def test_ranks_are_kept_and_cells_come_as_often_as_wanted():
    random = np.random.default_rng(0)
    values, kind = random.normal(size=3000), random.integers(0, 2, 3000)
    wanted = np.array([[0.7, 0.2, 0.0, 0.1], [0.1, 0.1, 0.8, 0.0]])  # the last cell is a missing number
    cell = ranked(values, np.full(3000, 0.3), kind, wanted, 3, random)
    for one in (0, 1):
        shares = np.bincount(cell[kind == one], minlength=4) / (kind == one).sum()
        assert shares == pytest.approx(wanted[one], abs=0.03)
        known = (kind == one) & (cell < 3)
        assert (np.diff(cell[known][np.argsort(values[known])]) >= 0).all()


def test_chances_are_scaled_to_what_is_wanted():
    chances = np.random.default_rng(0).dirichlet([1, 2, 3], 2000)
    kind = np.repeat([0, 1], 1000)
    wanted = np.array([[0.5, 0.25, 0.25], [0.0, 0.1, 0.9]])
    found = raked(chances, kind, wanted)
    assert found.sum(axis=1) == pytest.approx(np.ones(2000))
    for one in (0, 1):
        assert found[kind == one].mean(axis=0) == pytest.approx(wanted[one], abs=0.02)
    assert np.corrcoef(found[:1000, 0], chances[:1000, 0])[0, 1] > 0.8, "rows keep what tells them apart"


def test_a_selection_of_a_gaussian_has_lawleys_moments():
    mean, covariance = np.array([0.1, -0.1]), np.array([[0.1, 0.06], [0.06, 0.08]])
    rows = np.random.default_rng(0).multivariate_normal(mean, covariance, 400_000)
    inside = rows[(rows[:, 0] >= 0) & (rows[:, 0] < 0.5)]
    found = selected((mean, covariance), [(0.0, 0.5), (-1.0, 1 + 1 / ONE)])
    assert found[0] == pytest.approx(inside.mean(axis=0), abs=0.003)
    assert found[1] == pytest.approx(np.cov(inside.T), abs=0.001)
    free = selected((mean, covariance), [(-1.0, 1 + 1 / ONE)] * 2)
    assert (free[1] == covariance).all()


def test_what_noise_explains_is_not_kept():
    random = np.random.default_rng(0)
    assert abs(kept(random.normal(0, 0.1, 400), 0.1)).max() < 0.05
    strong = 1 + random.normal(0, 0.1, 400)
    assert kept(strong, 0.1) == pytest.approx(strong, rel=0.02)
    usual = np.zeros(2), np.eye(2) * 0.2
    bounds, columns = [(-1.0, 1 + 1 / ONE)] * 2, [[0], [1]]
    second = np.array([[0.3, 0.15], [0.15, 0.3]])
    _, quiet = shrunk(np.zeros(2), second, (1e-4, 1e-4), usual, bounds, columns)
    _, loud = shrunk(np.zeros(2), second, (1.0, 1.0), usual, bounds, columns)
    assert quiet == pytest.approx(second, abs=1e-3)
    assert loud == pytest.approx(usual[1])


def test_columns_that_noise_ties_together_are_free_again(tmp_path):
    domain, _ = read_domain(opened(tmp_path, people(50)), columns=["ward", "age", "back"], bins=8)
    features = Features(domain)
    size = len(features.listed)
    noise = np.random.default_rng(1).normal(0, 0.02, (size, size))
    covariance = np.eye(size) * 0.2 + (noise + noise.T) / 2
    found = cleared(features, (0, 1, 2), covariance, 0.02)
    wards, age = features.of([0]), features.of([1])
    assert abs(found[np.ix_(wards, age)]).max() < 0.02
    covariance[np.ix_(wards, age)] = covariance[np.ix_(age, wards)].T + 0.5
    assert cleared(features, (0, 1, 2), covariance, 0.02)[np.ix_(wards, age)].min() > 0.4


def case_study(make: Any, **asked: Any) -> dict[tuple[str, int], Any]:
    curves = compare(bundled("breast cancer"), make, method="any", epsilons=(1.0,), **{"repeats": 2, **asked})
    return {(one.task, one.scenario): one for one in curves}


def test_clusters_are_sought_in_all_rows_and_models_see_the_shares_of_their_scenario():
    sources: list[PublicData] = []

    def same(source: PublicData, *_: Any) -> PublicData:
        sources.append(source)
        return source

    found = case_study(same, repeats=1, tasks=("linear", "kmeans"))
    rows = bundled("breast cancer").rows
    assert [len(one.rows) for one in sources] == [int(0.3 * len(rows)), int(0.8 * len(rows)), len(rows)]
    assert (sources[2].rows == rows).all()
    assert found["kmeans", 1].value == found["kmeans", 2].value == found["kmeans", 1].real == 1.0
    assert found["linear", 1].value == found["linear", 1].real != found["linear", 2].real
    assert found["linear", 1].margin is None, "one table has no interval"


def test_rows_without_clusters_are_told_from_those_with_them():
    def shuffled(source: PublicData, epsilon: float, size: int, seed: int) -> PublicData:
        rows = np.random.default_rng(seed).permuted(source.rows, axis=0)
        return PublicData(source.name, rows, source.label)

    found = case_study(shuffled, tasks=("kmeans", "logistic"))
    assert found["kmeans", 2].value < 0.9
    assert found["logistic", 2].value < found["logistic", 2].real - 0.1


def test_the_interval_of_a_figure_is_students():
    figures = iter([0.0, 1.0, 5.0])

    def flipped(source: PublicData, *_: Any) -> PublicData:
        share = next(figures) / 10
        wrong = np.arange(len(source.label)) < share * len(source.label)
        return PublicData(source.name, source.rows, np.where(wrong, 1 - source.label, source.label))

    one = case_study(flipped, repeats=3, scenarios=(1,), tasks=("logistic",))["logistic", 1]
    # Of three figures half of the interval is 4.303 standard errors; they are about 0.93, 0.85 and 0.5.
    assert one.repeats == 3
    assert one.margin == pytest.approx(4.303 * np.std([0.93, 0.85, 0.5], ddof=1) / np.sqrt(3), rel=0.2)


@pytest.mark.parametrize("make", [synth.mggm, synth.ron_gauss])
@pytest.mark.parametrize("reviewed", [True, False])
def test_a_table_is_not_lost_though_almost_every_row_is_impossible(tmp_path, make, reviewed):
    # One combination of 34^4 is left. Even rows never met it: the review failed after the charge, or the side file.
    names = "abcd"
    columns = {name: {"type": "integer", "bounds": [0, 100], "nullable": False} for name in names}
    schema = {
        "unit": "row",
        "tables": {"data": {"never": [{name: {"from": 1}} for name in names], "columns": columns}},
    }
    rows = pa.table({name: [60 + k % 40 for k in range(500)] for name in names})
    with cl.open({"data": rows}, schema=schema, budget=cl.epsilon(100), ledger=tmp_path) as data:
        made = make(data, spend=cl.epsilon(10), rows=50, reviewed=reviewed)
    assert made.rows() == [dict.fromkeys(names, 0)] * 50
    assert made.side["rows"] == 50
