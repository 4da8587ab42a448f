"""Inversion of table rows: cells of low entropy are right, and noise leaves no more than guessing."""

import csv
import gzip
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from cloister.attack.updates import (
    Category,
    Defence,
    GradientStep,
    Number,
    compare_defences,
    decode,
    dense_network,
    encode,
    invert_table,
    table_leak,
)
from cloister.attack.updates.tabular import mean_over_records
from cloister.learn.deep import private_gradient
from cloister.privacy.errors import BadBounds, BadInput, BadNumber
from cloister.privacy.loss import rho
from cloister.privacy.noise import SeededSource

COLUMNS = [Number("age", 0, 100), Category("ward", 6), Category("sex", 2), Category("job", 9), Number("stay", 0, 30)]
DRAW = np.random.default_rng(11)


def made_up(count: int) -> tuple[np.ndarray, np.ndarray]:
    wards, jobs = DRAW.choice(6, count, p=[0.4, 0.2, 0.2, 0.1, 0.05, 0.05]), DRAW.integers(0, 9, count)
    ages = DRAW.uniform(18, 95, count)
    table = np.column_stack((ages, wards, DRAW.integers(0, 2, count), jobs, DRAW.uniform(0, 30, count)))
    return table, (ages > 60).astype(int)


TABLE, LABELS = made_up(400)
NETWORK = dense_network([19, 64, 64, 2])


def victim(start: int, size: int = 6) -> GradientStep:
    chosen, others = slice(start, start + size), (encode(TABLE[100:300], COLUMNS), LABELS[100:300])
    return GradientStep(NETWORK.loss, NETWORK.params, (encode(TABLE[chosen], COLUMNS), LABELS[chosen]), others)


def test_encoding_is_undone_by_decoding():
    assert np.allclose(decode(encode(TABLE, COLUMNS), COLUMNS), TABLE, atol=1e-4)


def test_cells_of_low_entropy_are_right_and_noise_stops_it():
    attack = partial(table_leak, columns=COLUMNS, public=TABLE[300:], starts=10, steps=400)
    defence = Defence.noise(private_gradient(NETWORK.loss, clip=1.0), rho("0.5"))
    plain, private = compare_defences([victim(0), victim(20)], attack, [defence], source=SeededSource(7))
    assert plain.figures["right in entropy quarter 1"] >= 0.9
    assert plain.figures["right in entropy quarter 1"] >= plain.figures["right in entropy quarter 4"]
    assert plain.learned
    assert plain.success > plain.baseline + 0.3
    assert private.success < private.baseline + 0.15
    assert not private.learned
    assert private.figures["right in entropy quarter 1"] < 0.7


def test_the_attacker_needs_no_truth_for_the_entropy():
    update = victim(0, 3).observe(Defence.none())
    guess = invert_table(update, COLUMNS, starts=6, steps=200)
    assert guess.cells.shape == guess.entropy.shape == (3, 5)
    assert (guess.entropy >= 0).all()
    assert (guess.entropy <= 1 + 1e-9).all()
    assert guess.distance.shape == (6,)
    assert guess.labels.tolist() == sorted(LABELS[:3].tolist())
    one = invert_table(update, COLUMNS, starts=6, keep=0.1, steps=200)
    assert one.entropy[:, [0, 4]].max() < 1e-9  # a single start agrees with itself on every number


def test_intervals_are_over_records_not_cells():
    mean, (low, high) = mean_over_records([1.0, 0.0, 1.0, 0.0])
    assert mean == 0.5
    assert (low, high) == (0.0, 1.0)
    assert mean_over_records([0.5] * 9)[1] == (0.5, 0.5)


def test_bad_tables_are_refused_in_words():
    update = victim(0, 3).observe(Defence.none())
    with pytest.raises(BadInput, match="columns is a list"):
        invert_table(update, [])
    with pytest.raises(BadNumber, match="share of the starts"):
        invert_table(update, COLUMNS, keep=0)
    with pytest.raises(BadInput, match="values of ward"):
        encode([[30, 6, 0, 0, 1]], COLUMNS)
    with pytest.raises(BadInput, match="5 columns"):
        encode([[30, 6]], COLUMNS)
    with pytest.raises(BadNumber, match="at least 2"):
        Category("one", 1)
    with pytest.raises(BadBounds, match="bounds of age"):
        Number("age", 3, 3)


ADULT = ["age", "workclass", "", "education", "education-num", "marital-status", "occupation", "relationship", "race",
         "sex", "", "", "hours", "native", "income"]  # fmt: skip


def adult() -> tuple[list, np.ndarray, np.ndarray] | None:
    """Columns, table and labels of Adult where it is."""
    path = Path(__file__).parents[5] / "shared" / "data" / "adult" / "adult.data.gz"
    if not path.exists():
        return None
    with gzip.open(path, "rt") as file:
        rows = [row for row in csv.reader(file, skipinitialspace=True) if len(row) == 15]
    bounds = {"age": (17, 90), "hours": (1, 99), "education-num": (1, 16)}
    columns: list = []
    cells = []
    for place, name in enumerate(ADULT[:-1]):
        values = [row[place] for row in rows]
        if name in bounds:
            columns.append(Number(name, *bounds[name]))
            cells.append(np.array(values, dtype=float))
        elif name:
            kinds, codes = np.unique(values, return_inverse=True)
            columns.append(Category(name, len(kinds)))
            cells.append(codes.astype(float))
    return columns, np.column_stack(cells), np.array([row[-1] == ">50K" for row in rows], dtype=int)


@pytest.mark.slow
def test_low_entropy_predicts_right_cells_of_a_real_table():
    columns, table, labels = adult() or (COLUMNS, TABLE, LABELS)
    network = dense_network([sum(column.width for column in columns), 100, 100, 2])
    chosen = np.random.default_rng(1).permutation(len(table))[:300]
    others = encode(table[chosen[16:80]], columns), labels[chosen[16:80]]
    clients = [
        GradientStep(network.loss, network.params, (encode(table[part], columns), labels[part]), others)
        for part in chosen[:16].reshape(2, 8)
    ]
    attack = partial(table_leak, columns=columns, public=table[chosen[100:]], starts=16, steps=1000)
    alone, lot = compare_defences(clients, attack, [Defence.larger_lot(32)])
    assert alone.figures["right in entropy quarter 1"] >= 0.9
    assert alone.success > alone.baseline + 0.2
    assert lot.figures["right in entropy quarter 1"] > lot.figures["right in entropy quarter 4"] + 0.2
