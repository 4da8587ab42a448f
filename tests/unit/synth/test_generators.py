"""Generators beyond marginals in a tree: networks, weights, Gaussians. What one unit moves, and what comes out."""

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.lessons.public_data import bundled, generated
from cloister.lessons.synth_utility import UtilityCurve, evaluate
from cloister.privacy.errors import BadInput
from cloister.synth.generators.ron_gauss import directions
from cloister.synth.measure.attribute_sets import attribute_sets
from cloister.synth.measure.partition import Leaf

from .people import BY_PERSON, BY_ROW, opened, people
from .transcripts import moved, recorded, replayed

COLUMNS = ["ward", "age", "cost", "back"]
OPTIONS: dict[str, dict[str, Any]] = {
    "m_way": {"bins": 4},
    "privbayes": {"bins": 6},
    "mixture": {"bins": 6, "fits": 1},
    "mwem": {"bins": 4, "rounds": 3, "workload": [("ward", "age"), {"age": {"from": 40}, "back": True}, ("cost",)]},
    "mggm": {"bins": 12, "group_size": 30, "cut": 0.95},
    "mggm by ward": {"bins": 12, "group_size": 30, "label": "ward"},
    "ron_gauss": {"bins": 12, "dimensions": 3},
    "ron_gauss by back": {"bins": 12, "label": "back"},
}


def make(name: str, ds: Any, **more: Any) -> Any:
    options = {"columns": COLUMNS, "rows": 20, **OPTIONS[name], **more}
    return getattr(synth, name.split()[0])(ds, **options)


def added(rows: pa.Table, person: int, count: int) -> pa.Table:
    """A stranger with some rows at the outermost corners of everything."""
    odd = [
        {"person": person, "ward": "cardiology", "building": "north", "age": 89, "cost": 100.0, "back": True},
        {"person": person, "ward": "surgery", "building": "north", "age": 0, "cost": None, "back": False},
    ]
    more = [{**odd[i % 2], "admitted": None, "note": None} for i in range(count)]
    return pa.concat_tables([rows, pa.Table.from_pylist(more, rows.schema)])


@pytest.mark.parametrize("spend", [cl.rho(40), cl.epsilon(40)], ids=["gaussian", "laplace"])
@pytest.mark.parametrize("name", OPTIONS)
def test_no_unit_moves_a_step_by_more_than_its_noise_is_made_for(name, spend, tmp_path, monkeypatch):
    rows = people(300)
    for schema, count in ((BY_ROW, 1), (BY_PERSON, 5)):  # five rows count as two
        first = opened(tmp_path / f"{count}", rows, schema)
        other = opened(tmp_path / f"{count} and one", added(rows, 10**6, count), schema)
        one, run = recorded(monkeypatch, lambda: make(name, first, spend=spend, rows=None))  # noqa: B023
        two, more = replayed(monkeypatch, run, lambda: make(name, other, spend=spend, rows=None))  # noqa: B023
        assert len(one) == len(two), "the number of rows does not follow from what was released"
        shares = [moved(before, after) for before, after in zip(run.steps, more.steps, strict=True)]
        assert max(shares) <= 1
        assert max(shares) > 0.05, "the sensitivity is far more than what one unit does"
        assert run.spent[spend.measure] <= spend.amount


def test_a_network_finds_what_goes_together(tmp_path):
    made = make("privbayes", opened(tmp_path, people(4000)), spend=cl.rho(2), rows=4000, bins=10, random_state=1)
    frame = made.to_pandas()
    assert frame[["age", "cost"]].corr().iloc[0, 1] > 0.6
    assert (frame.age[frame.back].mean() - frame.age[~frame.back].mean()) > 15
    assert all(" given " in word for word in made.made.chosen)
    for wrong in ({"degree": 0}, {"degree": True}, {"usefulness": 0}):
        with pytest.raises(BadInput):
            make("privbayes", opened(tmp_path), spend=cl.rho(1), **wrong)


def test_weights_answer_their_workload(tmp_path):
    rows = people(4000)
    asked = {"age": {"from": 45}, "back": True}
    workload = [asked, ("ward", "age")]
    made = make("mwem", opened(tmp_path, rows), spend=cl.rho(2), workload=workload, rounds=4, random_state=1)
    frame = rows.to_pandas()
    assert made.count(asked).value == pytest.approx(((frame.age >= 45) & frame.back).sum(), abs=60)
    assert made.count({"ward": "maternity"}).value == pytest.approx((frame.ward == "maternity").sum(), abs=60)
    ds = opened(tmp_path, rows)
    with pytest.raises(BadInput, match="cells, and 50 are the most"):
        make("mwem", ds, spend=cl.rho(1), most_cells=50)
    for wrong in ([], [("nobody",)], [{"age": {"from": 0}}]):
        with pytest.raises(BadInput):
            make("mwem", ds, spend=cl.rho(1), workload=wrong)


def test_gaussians_keep_means_spread_and_correlation(tmp_path):
    rows = people(6000)
    true = rows.to_pandas()
    for name in ("mggm", "mggm by ward"):
        made = make(name, opened(tmp_path / name, rows), spend=cl.rho(2), rows=6000, bins=24, random_state=1)
        frame = made.to_pandas()
        assert frame.age.mean() == pytest.approx(true.age.mean(), abs=2)
        assert frame.age.std() == pytest.approx(true.age.std(), rel=0.15)
        assert frame[["age", "cost"]].corr().iloc[0, 1] == pytest.approx(0.85, abs=0.12)
        assert frame.back.mean() == pytest.approx(true.back.mean(), abs=0.04)
        assert frame.cost.isna().mean() == pytest.approx(0.1, abs=0.03)


def test_groups_hold_about_as_many_rows_as_asked(tmp_path):
    ds = opened(tmp_path, people(4000))
    for size, groups in ((2000, 1), (500, 8), (125, 32)):
        made = synth.mggm(ds, spend=cl.rho(1000), columns=["age", "cost"], group_size=size, rows=10, reviewed=False)
        (part,) = made.made.model.parts
        assert groups / 2 <= part.weights.shape[1] <= groups * 2
        assert part.weights.sum() == pytest.approx(1)
        assert (part.weights * 4000).max() < 4 * size
    # Where noise would decide who goes together there is one group.
    noisy = synth.mggm(
        ds, spend=cl.rho("0.00001"), columns=["age"], group_size=50, rows=9, random_state=1, reviewed=False
    )
    assert all(part.weights.shape[1] == 1 for part in noisy.made.model.parts)


def test_a_group_knows_its_own_ends():
    leaf = Leaf(((0, 512, True), (1, -256, False), (0, -512, False)))
    assert leaf.bounds(0) == (-0.5, 0.5)
    assert leaf.bounds(1)[0] == -0.25
    assert Leaf().bounds(3)[0] == -1


def test_columns_are_joined_until_the_cut():
    strength = np.array([[1, 0.9, 0.1, 0.0], [0.9, 1, 0.6, 0.0], [0.1, 0.6, 1, 0.1], [0.0, 0.0, 0.1, 1]])
    assert attribute_sets(strength, "single", 0.5, 9) == [(0, 1, 2), (3,)]
    assert attribute_sets(strength, "complete", 0.5, 9) == [(0, 1), (2,), (3,)]
    assert attribute_sets(strength, "average", 0.66, 9) == [(0, 1, 2), (3,)]
    assert attribute_sets(strength, "single", 1.0, 2) == [(0, 1), (2, 3)]
    assert attribute_sets(strength, "average", 0.0, 9) == [(0,), (1,), (2,), (3,)]


def test_directions_are_orthonormal_and_repeat():
    turned = directions(9, 4, seed=5) / 128
    assert np.allclose(turned.T @ turned, np.eye(4), atol=0.05)
    assert (directions(9, 4, seed=5) == directions(9, 4, seed=5)).all()
    assert (directions(9, 4, seed=5) != directions(9, 4, seed=6)).any()


@pytest.mark.parametrize(
    "wrong", [{"group_size": 1}, {"linkage": "ward"}, {"cut": 2}, {"largest": 0}, {"label": "age"}, {"label": "nobody"}]
)
def test_gaussians_refuse_what_they_cannot_do_before_anything_is_charged(wrong, tmp_path):
    ds = opened(tmp_path)
    before = ds.left
    with pytest.raises(BadInput):
        synth.mggm(ds, spend=cl.rho(1), columns=COLUMNS, **wrong)
    with pytest.raises(BadInput, match="dimensions is a whole number from 1 to 5"):
        synth.ron_gauss(ds, spend=cl.rho(1), columns=COLUMNS, dimensions=6)
    assert ds.left == before


@pytest.mark.long
def test_the_case_study_runs_in_both_scenarios():
    curves = evaluate(
        bundled("breast cancer"),
        synth.ron_gauss,
        epsilons=(1.0,),
        sizes=(0,),
        repeats=1,
        open_dataset=cl.open,
        label="label",
    )
    found = {(one.task, one.scenario): one for one in curves}
    assert set(found) == {(task, k) for task in ("svm", "logistic", "linear", "kmeans") for k in (1, 2)}
    assert all(isinstance(one, UtilityCurve) and one.to_json()["epsilon"] == 1.0 for one in curves)
    assert found["logistic", 2].real > 0.85
    # Real rows to test with, synthetic ones to learn from: well above the larger class, and below what real rows give.
    assert 0.6 < found["logistic", 2].value <= 1
    # A test set of noise is farther from its regression than noise to learn from is.
    assert found["linear", 1].value > found["linear", 2].value > found["linear", 2].real


def test_more_rows_bring_groups_into_play():
    curves = evaluate(
        generated(8000, columns=4),
        synth.mggm,
        epsilons=(0.1, 10.0),
        sizes=(100,),
        repeats=1,
        scenarios=(2,),
        tasks=("logistic",),
        open_dataset=cl.open,
        label="label",
    )
    little, much = (one.value for one in curves)
    assert much > 0.9 * curves[1].real
    assert much >= little - 0.02
    with pytest.raises(BadInput):
        evaluate(generated(10), synth.mggm, tasks=("magic",), open_dataset=cl.open)
    with pytest.raises(BadInput):
        bundled("people")
