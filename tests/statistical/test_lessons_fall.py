"""Every attack that defeats a classical protection, turned on private answers about the same people: it finds noise.

A private answer here is the exact sum plus discrete Laplace noise for its share of epsilon 1; pay is within 0 and 200.
Each test states how far off the attack must be, and in how many of its runs; the classical twin in the same test is
where the attack succeeds.
"""

from functools import partial

import numpy as np
import pyarrow as pa
import pytest

from cloister.attack.queries.differencing import Mean, the_missing_one
from cloister.attack.queries.reconstruction import Published, fill_in, reconstruct, solve_totals
from cloister.attack.queries.tracker import (
    EVERYBODY,
    TrackerCondition,
    general_tracker,
    individual_tracker,
    narrowed,
    refusal,
    where,
)
from cloister.dataset import open as open_dataset
from cloister.lessons.sql import (
    AbsentValue,
    Exact,
    MaxAudit,
    NoisyOutput,
    OverlapControl,
    PerturbedCopy,
    Ranges,
    Recoded,
    RoundedAnswers,
    SampledAnswers,
    SizeControl,
    SumAudit,
    SuppressedTable,
)
from cloister.privacy.loss import epsilon
from cloister.privacy.mechanisms import DiscreteLaplace
from cloister.privacy.noise import SeededSource

pytestmark = pytest.mark.statistical

STAFF = [
    {
        "name": f"n{i}",
        "dept": ("it", "hr", "law")[i % 3],
        "sex": "m" if i % 3 == 2 else "fm"[i % 2],
        "pay": 40 + 3 * i,
        "age": 20 + i,
    }
    for i in range(30)
]
STAFF.append({"name": "ann", "dept": "law", "sex": "f", "pay": 173, "age": 26})
LAW, WOMEN, ANN = where("dept", "=", "law"), where("sex", "=", "f"), where("name", "=", "ann")
PAY, BOUND, RUNS = 173, 200, 300
FANO = [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]


class Private(Exact):
    """Sums with noise; one epsilon for all the questions an attack asks."""

    def __init__(self, rows, questions, source, bound=BOUND):
        super().__init__(rows)
        self.noise = DiscreteLaplace.for_loss(bound, epsilon(1).split(questions))
        self.source = source

    def total(self, column, condition):
        return float(self.noise.release(int(self._exact(column, condition)), self.source))


def someone(*names: int) -> TrackerCondition:
    wanted = {f"n{i}" for i in names}
    return TrackerCondition(f"name IN {sorted(wanted)}", lambda row: row["name"] in wanted)


def share_far_off(found, truth, distance) -> float:
    return float(np.mean([abs(one - truth) > distance for one in found]))


def runs(attack, questions, seed, count=RUNS, **kwargs):
    """The attack against private answers, again and again."""
    source = SeededSource(seed)
    return [attack(partial(Private(STAFF, questions, source, **kwargs).total, "pay")) for _ in range(count)]


def individual(ask):
    return individual_tracker(ask, LAW, WOMEN)


def test_an_individual_tracker_is_off_by_more_than_half_the_range():
    assert individual(partial(SizeControl(STAFF, 5).total, "pay")) == PAY
    # Two noises of scale b = 400: Pr[|error| > t] = (1 + t/2b) e^(-t/b) = 0.876 at t = 100.
    assert 0.8 < share_far_off(runs(individual, 2, "individual"), PAY, 100) < 0.95


def test_a_general_tracker_is_off_by_more_than_the_range():
    def attack(ask):
        return general_tracker(ask, ANN, [where("pay", ">=", 80)])

    assert attack(partial(SizeControl(STAFF, 5).total, "pay")) == PAY
    assert share_far_off(runs(attack, 4, "general"), PAY, BOUND) > 0.75


def test_a_perturbed_copy_is_read_to_within_its_noise_and_a_private_answer_is_not():
    assert abs(individual(partial(PerturbedCopy(STAFF, "pay", 5).total, "pay")) - PAY) <= 5
    assert share_far_off(runs(individual, 2, "copy"), PAY, 5) > 0.97


def test_equations_over_small_overlaps_are_off_by_more_than_half_the_range():
    def attack(ask):
        return solve_totals(FANO, [ask(someone(*line)) for line in FANO], people=7)

    truth = np.array([40 + 3 * i for i in range(7)])
    assert attack(partial(OverlapControl(STAFF, 3, 1).total, "pay")) == pytest.approx(truth)
    errors = np.abs(np.array(runs(attack, len(FANO), "fano")) - truth)
    assert (errors > BOUND / 2).mean() > 0.85


def test_an_insider_learns_little_from_one_private_sum():
    def attack(ask):
        return ask(ANN | someone(0)) - 40

    assert attack(partial(SumAudit(STAFF).total, "pay")) == PAY
    # One noise of scale 200: Pr[|error| > 50] = e^(-1/4) = 0.78.
    assert 0.7 < share_far_off(runs(attack, 1, "insider"), PAY, 50) < 0.86


def test_asking_again_and_again_gets_worse_not_better_under_one_budget():
    times = 400

    def attack(ask):
        return np.mean([ask(ANN) for _ in range(times)])

    assert abs(attack(partial(NoisyOutput(STAFF, 50).total, "pay")) - PAY) < 6
    assert share_far_off(runs(attack, times, "again", count=60), PAY, BOUND) > 0.9


def test_other_words_for_the_same_question_cost_as_much_as_the_first():
    times = 1_000

    def attack(ask):
        return np.mean([individual_tracker(lambda who, n=n: ask(who.reworded(n)), LAW, WOMEN) for n in range(times)])

    assert abs(attack(partial(SampledAnswers(STAFF, 0.8, b"fall").total, "pay")) - PAY) < 25
    assert share_far_off(runs(attack, 2 * times, "words", count=12), PAY, BOUND) > 0.9


@pytest.mark.parametrize("kind", [Ranges, RoundedAnswers])
def test_narrowing_ranges_of_private_answers_misses(kind):
    padding = [(someone(i), 40.0 + 3 * i) for i in range(30)]

    def attack(ask_range):
        low, high = narrowed(ask_range, ANN, padding)
        return low <= PAY <= high and high - low <= 10

    def coarse(ask, who):
        low = 50 * np.floor(ask(who) / 50)
        return low, low + 50

    assert attack(partial(kind(STAFF, 50).range, "pay"))
    hits = runs(lambda ask: attack(partial(coarse, ask)), 1 + len(padding), "narrow")
    assert np.mean(hits) < 0.02


def test_intersecting_recodings_of_private_counts_misses():
    def intersection(bands):
        return max(low for low, _ in bands), min(high for _, high in bands)

    def attack(ask):
        """For each set of edges, the band in which Ann seems to be."""
        bands = []
        for start in range(10):
            listed = [(low, low + 10) for low in range(start, 60, 10)]
            inside = [ANN & where("age", ">=", low) & where("age", "<", high) for low, high in listed]
            bands.append(listed[int(np.argmax([ask(one) for one in inside]))])
        return intersection(bands)

    recoded = [Recoded(STAFF, "age", 10, start).table()[-1]["age"] for start in range(10)]
    assert intersection(recoded) == (26, 27)
    source = SeededSource("bands")
    found = []
    for _ in range(100):  # the bands of one release are disjoint: only the ten releases share epsilon
        table = Private(STAFF, 10, source, bound=1)
        found.append(attack(partial(table.total, None)))
    assert np.mean([one == (26, 27) for one in found]) < 0.05


def test_an_absent_value_stays_absent_beside_a_private_average():
    ages = [20, 23, 35, 31, 22, 42, 26]
    rows = [{"age": age} for age in ages]
    lesson = AbsentValue(rows, "age", where("age", "=", 26))
    others = [row["age"] for row in lesson.table() if row["age"] != lesson.absent]
    assert float(the_missing_one(Mean(str(round(lesson.mean(), 9)), 7), others)) == pytest.approx(26)
    table = Private(rows, 1, SeededSource("absent"), bound=125)
    found = [table.total("age", EVERYBODY) - sum(others) for _ in range(RUNS)]
    assert share_far_off(found, 26, 26) > 0.7


def test_margins_with_noise_do_not_fill_a_cell_in():
    table, source = SuppressedTable(STAFF, ("dept", "sex"), least=3), SeededSource("margins")
    cells, rows, columns = table.cells(), table.margin(0), table.margin(1)
    assert fill_in(cells, rows, columns)["law", "f"] == 1
    noise = DiscreteLaplace.for_loss(1, epsilon(1).split(3))  # cells, rows and columns share epsilon 1

    def noisy(counts):
        return {key: None if one is None else float(noise.release(int(one), source)) for key, one in counts.items()}

    found = [fill_in(noisy(cells), noisy(rows), noisy(columns))["law", "f"] for _ in range(RUNS)]
    # Two noises of scale 3 and more: one person is not to be told from none, or from three.
    assert share_far_off(found, 1, 1) > 0.7


BLOCK = {"sex": ("F", "M"), "race": ("B", "W"), "married": ("M", "S")}
PRINTED = [
    Published({}, 7, 30, 38),
    Published({"sex": "F"}, 4, 30, "33.5"),
    Published({"sex": "M"}, 3, 30, 44),
    Published({"race": "B"}, 4, 51, "48.5"),
    Published({"race": "W"}, 3, 24, 24),
    Published({"married": "M"}, 4, 51, 54),
    Published({"sex": "F", "race": "B"}, 3, 36, "36.7"),
]


def test_a_block_is_not_reconstructed_from_private_means():
    """The attacker even gets all counts exactly, and knows the law of the noise on the sums of ages."""
    assert len(reconstruct(PRINTED, BLOCK).certain()) == 7
    noise = DiscreteLaplace.for_loss(125, epsilon(1).split(len(PRINTED)))
    source, reach, sizes = SeededSource("block"), noise.margin("0.99"), []
    for _ in range(10):
        noisy = []
        for one in PRINTED:
            total = round(float(one.mean) * one.count)
            mean = int(noise.release(total, source)) / one.count
            noisy.append(Published(one.who, one.count, None, mean, within=reach / one.count))
        found = reconstruct(noisy, BLOCK, most=200)
        sizes.append(len(found.tables))
        assert found.certain() == ()
        # Read as exact, the same numbers fit no block of people at all.
        literal = [Published(one.who, one.count, None, round(float(one.mean))) for one in noisy]
        assert not reconstruct(literal, BLOCK, most=1).tables
    assert sizes.count(200) >= 8  # more blocks fit than were asked for


def test_bits_are_not_reconstructed_from_private_sums():
    source, people, questions = SeededSource("bits"), 60, 400
    secret = (source.floats(people) < 0.5).astype(int)
    sets = [np.flatnonzero(source.floats(people) < 0.5).tolist() for _ in range(questions)]
    slight = [secret[one].sum() + round(4 * source.floats(1)[0] - 2) for one in sets]
    assert (np.round(solve_totals(sets, slight, people)) == secret).mean() > 0.99
    noise = DiscreteLaplace.for_loss(1, epsilon(1).split(questions))
    right = []
    for _ in range(20):
        answers = [int(noise.release(int(secret[one].sum()), source)) for one in sets]
        right.append(((solve_totals(sets, answers, people) > 0.5) == secret).mean())
    assert 0.4 < np.mean(right) < 0.65


# The same through SQL

SCHEMA = {
    "unit": {"name": "person", "max_rows": 1},
    "tables": {
        "staff": {
            "unit": "name",
            "columns": {
                "dept": {"type": "text", "categories": ["it", "hr", "law"], "nullable": False},
                "sex": {"type": "text", "categories": ["f", "m"], "nullable": False},
                "pay": {"type": "integer", "bounds": [0, BOUND], "nullable": False},
            },
        }
    },
}


@pytest.fixture
def staff(tmp_path):
    rows = pa.Table.from_pylist(STAFF).select(["name", "dept", "sex", "pay"])
    with open_dataset(rows, schema=SCHEMA, budget=epsilon(100), ledger=tmp_path) as dataset:
        yield dataset


def test_a_tracker_written_in_sql_finds_noise(staff):
    source, found = SeededSource("sql"), []
    for run in range(25):

        def ask(who, run=run):
            words = who.reworded(run).sql  # other words, so that the record has no answer yet
            text = f"SELECT SUM(pay) AS s FROM staff WHERE {words}"
            return staff.sql(text, spend=epsilon("0.5"), source=source).item()

        found.append(individual(ask))
    assert len(set(found)) == 25
    assert share_far_off(found, PAY, 50) > 0.6


def test_the_same_question_has_the_same_answer_and_costs_once(staff):
    text = "SELECT SUM(pay) AS s FROM staff WHERE dept = 'law'"
    answers = {staff.sql(text, spend=epsilon("0.5")).item() for _ in range(5)}
    assert len(answers) == 1
    assert staff.account.spent == epsilon("0.5")


def test_a_private_maximum_is_never_refused(staff):
    def largest(who):
        text = f"SELECT MAX(pay) AS top FROM staff WHERE {who.sql}"
        return staff.sql(text, spend=epsilon(1), source=SeededSource(text)).item()

    assert refusal(MaxAudit(STAFF, "pay").largest, LAW, ANN) == PAY
    assert refusal(largest, LAW, ANN) is None
