"""The review of a model: what more columns tell is never less."""

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.synth import review
from cloister.synth.review import rising


@pytest.mark.parametrize(
    ("given", "right"),
    [
        ([1, 2, 3], [1, 2, 3]),
        ([3, 1, 5], [2, 2, 5]),
        ([3, 5, 1], [3, 3, 3]),
        ([6, 3, 0], [3, 3, 3]),
        ([2], [2]),
    ],
)
def test_numbers_that_fall_are_taken_together(given, right):
    assert rising(np.array(given, dtype=float)).tolist() == right


def test_errors_of_more_columns_are_told_as_no_smaller_however_large_the_noise(tmp_path):
    columns = ["ward", "age", "readmitted"]
    with cl.open(pa.table(hospital(200)), schema=SCHEMA, budget=cl.rho(9), ledger=tmp_path) as data:
        for seed in range(8):
            made = synth.independent(data, spend=cl.rho("0.05"), rows=10, columns=columns, random_state=seed)
            ways = made.made.review.ways
            assert list(ways) == sorted(ways)


def test_triples_that_need_huge_tables_are_left_out_but_never_all(monkeypatch):
    class Model:
        def cells(self, places):
            return 10 ** sum(places)

    sets = [(0,), (1,), (2,), (3,), (0, 1), (2, 3), (0, 1, 2), (0, 1, 3), (1, 2, 3)]
    monkeypatch.setattr(review, "LARGEST", 10**4)
    assert review._answered(sets, Model()) == [*sets[:6], (0, 1, 2), (0, 1, 3)]
    monkeypatch.setattr(review, "LARGEST", 1)
    assert review._answered(sets, Model()) == [*sets[:6], (0, 1, 2)]
    assert review._answered(sets[:6], Model()) == sets[:6]
