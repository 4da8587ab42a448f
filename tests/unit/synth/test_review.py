"""The review of a model: what more columns tell is never less."""

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.synth.measure import error_estimate
from cloister.synth.measure.error_estimate import rising

from .people import opened, people


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


def test_marginals_that_need_huge_tables_are_left_out_and_every_column_is_looked_at():
    class Model:
        def part_cells(self, positions):
            return 10 ** sum(positions)

    class Domain:
        def cells(self, positions):
            return 2**63 if positions == (0, 1) else 1

    seen = [one for one in error_estimate._looked_at(5) if error_estimate._answerable(one, Model(), Domain())]
    assert seen == [
        *((i,) for i in range(5)),
        *((i, j) for i in range(5) for j in range(i + 1, 5) if 1 < i + j < 7),
        *[(0, 1, 2), (0, 1, 3), (0, 1, 4), (0, 2, 3), (0, 2, 4), (1, 2, 3)],
    ]
    wide = error_estimate._looked_at(130)
    assert len(wide) <= 130 + 2 * 600 == 1330
    assert len(set(wide)) == len(wide)
    assert {position for one in wide if len(one) == 2 for position in one} == set(range(130))


def test_one_column_that_is_far_off_is_not_told_as_the_mean_of_all(tmp_path):
    rows = people(2000)
    ds = opened(tmp_path, rows)
    for spend in ("0.01", "1"):
        made = synth.ron_gauss(ds, spend=cl.rho(spend), rows=2000, bins=16, random_state=spend)
        cells = made.domain.encode(rows)
        for position, axis in enumerate(made.domain.modelled):
            real = np.bincount(cells[:, made.domain.names.index(axis.name)], minlength=axis.size) / len(rows)
            model = made.made.model.asked().marginal((position,))
            off = 0.5 * float(np.abs(real - model / model.sum()).sum())
            assert off < 1.5 * made.error([axis.name]).error, (spend, axis.name)
