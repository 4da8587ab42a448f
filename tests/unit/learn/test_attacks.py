"""Attacks on models from tables: one unit moves what is released by as much as it is charged for, and no more."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import learn, lessons
from cloister.data.private_table import PrivateTable
from cloister.data.schema import Schema
from cloister.learn.base.cells import numbers_in
from cloister.learn.linear_model.engine_moments import EngineDesign
from cloister.learn.model_selection.evaluation import Trial, evaluate
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.noise import SeededSource

N = 900
_source = SeededSource("attacks on models")
CODE = (_source.floats(N) * 3).astype(np.int64) + 1
LARGE = 10**16 + 1 + CODE  # as a float each of them is another number
BACK = CODE == 2
COLUMNS: dict[str, Any] = {
    "code": {"type": "integer", "categories": [1, 2, 3]},
    "large": {"type": "integer", "categories": [10**16 + 2, 10**16 + 3, 10**16 + 4]},
    "few": {"type": "integer", "bounds": [1, 3]},
    "ward": {"type": "text", "categories": ["a", "b", "c"]},
    "sure": {"type": "boolean"},
    "back": {"type": "boolean", "nullable": False},
}


def schema(columns: dict[str, Any], most: int = 1) -> Schema:
    tables = {"visits": {"unit": "person", "columns": columns}}
    return Schema.load({"unit": {"name": "person", "max_rows": most}, "tables": tables})


def opened(folder: Path, columns: dict[str, Any], rows: dict[str, Any], most: int = 1) -> Any:
    return cl.open(pa.table(rows), schema=schema(columns, most), budget=cl.rho(10**6), ledger=folder)


def visits(*, missing: bool) -> dict[str, Any]:
    """Of many people; and perhaps of one more, about whom nothing is known."""
    every: dict[str, list[Any]] = {
        "person": list(range(N)),
        "code": CODE.tolist(),
        "large": LARGE.tolist(),
        "few": CODE.tolist(),
        "ward": np.array(["a", "b", "c"])[CODE - 1].tolist(),
        "sure": BACK.tolist(),
        "back": BACK.tolist(),
    }
    if missing:
        every = {name: [*values, {"person": N, "back": True}.get(name)] for name, values in every.items()}
    return every


class Bare:
    """A meter that tells what a step sees."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def release(self, look: Any, _noise: Any) -> Any:
        self.seen.append(np.asarray(look()))
        return self.seen[-1]


LISTED = ("code", "large", "ward", "sure")
CLASSIFIERS = ("LogisticRegression", "LinearSVC", "MixedNB", "DecisionTreeClassifier", "GradientBoostingClassifier")


@pytest.mark.parametrize(
    ("name", "feature"), [*((name, one) for name in CLASSIFIERS for one in LISTED), ("MixedNB", "few")]
)
def test_a_missing_value_moves_only_its_own_row_in_an_evaluation(tmp_path: Path, name: str, feature: str) -> None:
    with opened(tmp_path / "without", COLUMNS, visits(missing=False)) as without:
        model = getattr(learn, name)(cl.rho(2000), random_state=1).fit(without, target="back", features=[feature])
        found = Bare()
        evaluate(found, cl.rho(1), model, Trial(without.relation("visits", [feature, "back"]), (feature,), "back"))  # type: ignore[arg-type]
    with opened(tmp_path / "beside", COLUMNS, visits(missing=True)) as beside:
        trial = Trial(beside.relation("visits", [feature, "back"]), (feature,), "back")
        evaluate(found, cl.rho(1), model, trial)  # type: ignore[arg-type]
    assert np.abs(found.seen[1] - found.seen[0]).sum() == 1


@pytest.mark.parametrize("called", ["_place", "_place0", "_PLACE0"])
def test_a_column_that_is_called_like_a_row_number_lifts_no_cap(tmp_path: Path, called: str) -> None:
    columns = {called: {"type": "integer", "bounds": [0, 1], "nullable": False}}
    with opened(tmp_path, columns, {"person": [1] * 50, called: [0] * 50}, most=2) as ds:
        relation: PrivateTable = ds.relation("visits", [called])
        assert relation.chosen([called]).run(relation.engine).num_rows == 2


@pytest.mark.parametrize("called", ["_cell0", "_CELL0"])
def test_a_column_that_is_called_like_a_cell_is_not_summed_as_it_is(tmp_path: Path, called: str) -> None:
    """The matrix is the same whatever the columns are called."""
    found = []
    for name in ("plain", called):
        columns = {one: {"type": "real", "bounds": [0, 10**6], "nullable": False} for one in (name, "cost")}
        with opened(tmp_path / name, columns, {"person": [1], name: [1e6], "cost": [1.0]}) as ds:
            found.append(EngineDesign(ds.relation("visits", [name, "cost"]), (name, "cost")).matrix().tolist())
    assert found[0] == found[1]


def test_bounds_in_which_a_small_number_underflows_are_refused_before_the_charge(tmp_path: Path) -> None:
    columns = {
        "wide": {"type": "real", "bounds": [-1e300, 1e300], "nullable": False},
        "back": {"type": "boolean", "nullable": False},
    }
    with opened(tmp_path, columns, {"person": [1], "wide": [1e-90], "back": [True]}) as ds:
        for name in ("LogisticRegression", "GaussianNB", "MixedNB", "LinearSVC"):
            with pytest.raises(BadSchema, match="narrower"):
                getattr(learn, name)(cl.rho(1), random_state=1).fit(ds, target="back", features=["wide"])
        assert not ds.account.spent.amount


def test_a_number_beyond_all_floats_is_infinite_and_makes_no_step_fail() -> None:
    found = numbers_in(np.array([1, 10**400, -(10**400), "x", None], dtype=object))
    assert found.tolist()[:3] == [1.0, np.inf, -np.inf]
    assert np.isnan(found[3:]).all()


def test_a_lesson_is_not_kept_even_if_its_mark_is_taken_off(tmp_path: Path) -> None:
    rows = _source.floats((200, 2))
    lesson = lessons.LogisticRegression(cl.rho(1), bounds=(0, 1), classes=[0, 1], method="output", random_state=1)
    lesson.fit(rows, (rows[:, 0] > 0.5).astype(int))
    del lesson.release_
    with opened(tmp_path / "book", COLUMNS, visits(missing=False)) as ds, pytest.raises(BadInput, match="a lesson"):
        learn.save(lesson, tmp_path / "lesson.model", key=ds.account.book.key)
