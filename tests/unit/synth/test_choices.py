"""Scores of private choices and distances that are told: exact at every spend that is accepted, however far off."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.privacy.errors import CloisterError
from cloister.privacy.filter import PrivacyFilter
from cloister.synth.measure.error_estimate import _distance
from cloister.synth.measure.marginals import MarginalCounts, gaps, l1, parts_of

SIDE = 600
SCHEMA = Schema.load(
    {
        "unit": {"name": "person", "max_rows": 1},
        "tables": {
            "t": {
                "unit": "who",
                "columns": {
                    name: {"type": "integer", "bounds": [0, SIDE - 1], "nullable": False} for name in ("x", "y")
                },
            }
        },
    }
)


class _Stop(Exception):
    pass


def _first_choice(folder: Any, patch: pytest.MonkeyPatch, people: int, make: Any) -> tuple[list[int], Any]:
    """The scores of the first choice, after releases that are the same for every table."""
    found: list[Any] = []

    def release(self: PrivacyFilter, look: Any, mechanism: Any) -> Any:
        seen = look()
        if mechanism.name == "exponential":
            found.append(([int(one) for one in seen], mechanism))
            raise _Stop
        return np.full(np.shape(seen), 1000 * 2**20)

    patch.setattr(PrivacyFilter, "release", release)
    columns = {"x": [i % SIDE for i in range(people)], "y": [7 * i % SIDE for i in range(people)]}
    rows = pa.table({"who": pa.array([f"p{i}" for i in range(people)], pa.string())} | {
        name: pa.array(values, pa.int64()) for name, values in columns.items()
    })  # fmt: skip
    with cl.open({"t": rows}, schema=SCHEMA, budget=cl.epsilon(1), ledger=folder) as data, pytest.raises(CloisterError):
        make(data)
    return found[0]


LEAST = cl.epsilon("1.5e-8")  # that check_noise accepts, about
MAKERS = {
    "mwem": lambda data: synth.mwem(data, spend=LEAST, rows=5, bins=SIDE, rounds=1000),
    "mwem of few rounds": lambda data: synth.mwem(data, spend=LEAST, rows=5, bins=SIDE, rounds=30),
    "aim": lambda data: synth.aim(data, spend=LEAST, rows=5, bins=SIDE, rounds=1000),
    "mst": lambda data: synth.mst(data, spend=LEAST, rows=5, bins=SIDE),
    "privbayes": lambda data: synth.privbayes(data, spend=LEAST, rows=5, bins=SIDE),
}


@pytest.mark.parametrize("name", MAKERS)
def test_one_person_moves_no_score_by_more_than_is_stated_at_the_smallest_spend(name, tmp_path, monkeypatch):
    before, moved = None, []
    for people in range(8, 14):
        scores, mechanism = _first_choice(tmp_path / str(people), monkeypatch, people, MAKERS[name])
        if before is not None:
            moved += [abs(one - other) for one, other in zip(scores, before, strict=True)]
        before = scores
    assert 0 < max(moved) <= mechanism.sensitivity


@pytest.mark.parametrize("whole", [1, 2**20])
@pytest.mark.parametrize("size", [1.0, 1e6, 1e12, 1e18, 1e30, 1e300])
def test_distances_to_a_model_of_any_size_move_by_what_a_unit_counts(whole, size):
    random = np.random.default_rng(3)
    expected = random.random((40, 50))
    expected *= size / expected.sum()
    exact = random.integers(0, 3, (40, 50)) * whole
    moved = set()
    for _ in range(200):
        more = exact.copy()
        more[tuple(random.integers(0, exact.shape))] += whole
        far = [l1(gaps(one, expected, size, whole)) for one in (exact, more)]
        assert abs(far[1] - far[0]) <= parts_of(whole)
        moved.add(far[1] - far[0])
    assert parts_of(whole) in map(abs, moved)


def test_what_is_not_a_number_is_expected_nowhere():
    with np.errstate(all="raise"):
        far = gaps(np.array([1, 1]), np.array([np.nan, np.inf]), np.inf, 1)
    assert far.dtype == np.int64


@pytest.mark.parametrize("total", [3.0, 1e5, 1e15, 1e25])
def test_a_cell_that_a_unit_is_first_in_moves_a_distance_by_no_more_than_the_unit(total):
    """Of large domains only cells with rows are listed: who is the first in a cell adds it to the list."""
    random = np.random.default_rng(4)
    shape = (1000, 1000)
    chances = random.random(10**6) ** 20
    chances /= chances.sum()
    asked: Any = SimpleNamespace(at=lambda positions, cells: chances[np.ravel_multi_index(cells, shape)] * total)
    cells = np.sort(random.choice(10**6, 50, replace=False))
    numbers = random.integers(1, 4, 50)
    for new in random.choice(10**6, 200, replace=False):
        listed = {int(cell): int(number) for cell, number in zip(cells, numbers, strict=True)}
        listed[int(new)] = listed.get(int(new), 0) + 1
        more = np.array(sorted(listed.items()))
        both = [MarginalCounts(shape, cells, numbers), MarginalCounts(shape, more[:, 0], more[:, 1])]
        far = [_distance(asked, total, (0, 1), one, 1) for one in both]
        assert abs(far[1] - far[0]) <= parts_of(1)


@pytest.mark.parametrize("wrong", [0.5, 1.0, None, "1"])
def test_scores_that_are_no_integers_are_refused(wrong):
    from cloister.synth.measure.marginals import Measurer

    seen: list[Any] = []
    meter: Any = SimpleNamespace(release=lambda look, mechanism: seen.append(look()) or 0)
    survey = Measurer(SimpleNamespace(), SimpleNamespace(whole=1, most=1), meter, SimpleNamespace())  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        survey.choose(lambda inside: [0, wrong], cl.epsilon(1))
    survey.choose(lambda inside: [0, 2**200, np.int64(3)], cl.epsilon(1))
    assert seen == [[0, 2**186, 0]]
