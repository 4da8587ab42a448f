"""Each classical protection does what it says, and falls to the attack named beside it."""

import inspect
from itertools import combinations

import numpy as np
import pytest

from cloister.attack.queries.averaging import average
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
from cloister.lessons import sql
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
from cloister.privacy.errors import BadName, BadNumber, BadSchema
from cloister.privacy.noise import SeededSource

# Ann is the only woman in law. Everybody knows that; nobody is to know her pay.
STAFF = [
    {
        "name": f"n{i}",
        "dept": ("it", "hr", "law")[i % 3],
        "sex": "m" if i % 3 == 2 else "fm"[i % 2],
        "pay": 40 + 3 * i,
        "ill": i % 4 == 0,
    }
    for i in range(30)
]
STAFF.append({"name": "ann", "dept": "law", "sex": "f", "pay": 173, "ill": True})
LAW, WOMEN, ANN = where("dept", "=", "law"), where("sex", "=", "f"), where("name", "=", "ann")
ILL = TrackerCondition("ill", lambda row: row["ill"])


def someone(*names: int) -> TrackerCondition:
    """Those people, by number."""
    wanted = {f"n{i}" for i in names}
    return TrackerCondition(f"name IN {sorted(wanted)}", lambda row: row["name"] in wanted)


# Size


def test_size_control_refuses_small_and_large_sets_and_answers_exactly_between():
    table = SizeControl(STAFF, least=5)
    assert table.total("pay", LAW & WOMEN) is None
    assert table.total("pay", ~(LAW & WOMEN)) is None
    assert table.total(None, LAW) == 11


def test_an_individual_tracker_reads_what_size_control_refuses():
    table = SizeControl(STAFF, least=5)
    assert individual_tracker(lambda who: table.total(None, who), LAW, WOMEN) == 1
    assert individual_tracker(lambda who: table.total("pay", who), LAW, WOMEN) == 173
    assert individual_tracker(lambda who: table.total(None, who), LAW, WOMEN, secret=ILL) == 1


def test_a_general_tracker_needs_to_know_nothing_of_the_target():
    table = SizeControl(STAFF, least=5)
    tries = [where("pay", ">=", 1_000), where("pay", ">=", 80)]  # the first is too small to be a tracker
    assert general_tracker(lambda who: table.total("pay", who), ANN, tries) == 173
    assert general_tracker(lambda who: table.total(None, who), ANN, tries) == 1
    assert general_tracker(lambda who: table.total("pay", who), ANN, tries[:1]) is None


def test_a_tracker_that_is_refused_learns_nothing():
    table = SizeControl(STAFF, least=15)
    assert individual_tracker(lambda who: table.total(None, who), LAW, WOMEN) is None


# Overlap

FANO = [(0, 1, 2), (0, 3, 4), (0, 5, 6), (1, 3, 5), (1, 4, 6), (2, 3, 6), (2, 4, 5)]


def test_overlap_control_stops_differencing():
    table = OverlapControl(STAFF, least=3, shared=1)
    assert table.total("pay", LAW) is not None
    assert table.total("pay", LAW & ~WOMEN) is None
    assert table.total("pay", LAW) is not None  # asking the same again shows nothing new
    assert table.total("pay", someone(0, 1)) is None


def test_seven_sets_of_three_that_share_one_give_seven_people_away():
    table = OverlapControl(STAFF, least=3, shared=1)
    answers = [table.total("pay", someone(*line)) for line in FANO]
    assert None not in answers
    assert all(len(set(a) & set(b)) == 1 for a, b in combinations(FANO, 2))
    found = solve_totals(FANO, answers, people=7)
    assert found == pytest.approx([40 + 3 * i for i in range(7)])


# Audits


def test_an_audit_of_sums_stops_trackers_and_equations():
    table = SumAudit(STAFF)
    assert individual_tracker(lambda who: table.total("pay", who), LAW, WOMEN) is None
    other = SumAudit(STAFF)
    answers = [other.total("pay", someone(*line)) for line in FANO]
    assert answers[-1] is None
    assert None not in answers[:4]


def test_an_insider_with_one_known_value_walks_past_an_audit_of_sums():
    table = SumAudit(STAFF)
    mine = 40
    assert table.total("pay", ANN) is None
    both = table.total("pay", ANN | someone(0))
    assert both - mine == 173


def test_a_sum_at_its_bound_passes_the_audit_and_tells_everything():
    table = SumAudit([{"name": "n0", "fines": 0}, {"name": "n1", "fines": 0}, {"name": "n2", "fines": 4}])
    assert table.total("fines", someone(0, 1)) == 0  # fines are never negative: both are known


def test_the_refusal_of_an_audit_that_looks_is_the_answer():
    table = MaxAudit(STAFF, "pay")
    top_law = table.largest(LAW)
    assert top_law == 173
    assert refusal(MaxAudit(STAFF, "pay").largest, LAW, ANN) == 173
    assert (
        refusal(MaxAudit(STAFF, "pay").largest, LAW, someone(2)) is None
    )  # he has not the largest: answered, nothing new


def test_the_audit_of_maxima_never_answers_what_discloses():
    table = MaxAudit(STAFF, "pay")
    assert table.largest(ANN) is None
    assert table.largest(someone(99)) is None
    asked = [table.largest(someone(0, 1, 2)), table.largest(someone(0, 1))]
    assert asked == [46, None]


# Noise by feel


def test_a_perturbed_copy_gives_the_same_answer_each_time_and_one_rows_noise_to_differencing():
    table = PerturbedCopy(STAFF, "pay", spread=5)
    assert table.total("pay", LAW) == table.total("pay", LAW) != Exact(STAFF).total("pay", LAW)
    found = individual_tracker(lambda who: table.total("pay", who), LAW, WOMEN)
    assert abs(found - 173) <= 5
    assert table.total(None, LAW) == 11


def test_noise_without_a_budget_is_averaged_away():
    table = NoisyOutput(STAFF, spread=50)
    answers = [table.total("pay", ANN) for _ in range(4_000)]
    assert max(answers) - min(answers) > 90
    found = average(answers, confidence=0.999)
    assert abs(found.mean - 173) < 2.5
    assert found.interval[0] < 173 < found.interval[1]


def test_a_sample_per_question_is_averaged_away_in_other_words():
    table = SampledAnswers(STAFF, rate=0.8, key=b"lesson")
    assert table.total("pay", LAW) == table.total("pay", LAW)
    single = [
        individual_tracker(lambda who, n=n: table.total("pay", who.reworded(n)), LAW, WOMEN) for n in range(2_000)
    ]
    assert np.std(single) > 100
    assert abs(np.mean(single) - 173) < 20


# Coarser answers


def paddings(most=30):
    """Sets of people whose pay the attacker knows: sums in steps of 3 and more."""
    sets = [(i,) for i in range(most)] + list(combinations(range(12), 2))
    return [(someone(*one), float(sum(40 + 3 * i for i in one))) for one in sets]


def test_ranges_are_narrowed_to_the_value_by_adding_people_one_knows():
    table = Ranges(STAFF, width=100)
    assert table.range("pay", ANN) == (100, 200)
    low, high = narrowed(lambda who: table.range("pay", who), ANN, paddings())
    assert low <= 173 < high
    assert high - low <= 3


def test_rounded_sums_are_narrowed_the_same_way():
    table = RoundedAnswers(STAFF, base=50)
    assert table.total("pay", ANN) == 150
    low, high = narrowed(lambda who: table.range("pay", who), ANN, paddings())
    assert low <= 173 <= high
    assert high - low <= 3


def test_two_recodings_with_other_edges_intersect():
    people = [{"name": "bob", "age": 26}, {"name": "eve", "age": 41}]
    first, second = (Recoded(people, "age", 10, start).table()[0]["age"] for start in (0, 5))
    assert first == (20, 30)
    assert second == (25, 35)
    releases = [Recoded(people, "age", 10, start).table()[0]["age"] for start in range(10)]
    assert (max(low for low, _ in releases), min(high for _, high in releases)) == (26, 27)


def test_an_absent_value_is_undone_by_an_average_published_before():
    ages = [20, 23, 35, 31, 22, 42, 26]
    table = AbsentValue([{"age": age} for age in ages], "age", where("age", "=", 26))
    shown = [row["age"] for row in table.table()]
    assert table.absent not in ages
    assert shown == [*ages[:-1], table.absent]
    others = [age for age in shown if age != table.absent]
    assert the_missing_one(Mean(str(round(table.mean(), 9)), 7), others) == pytest.approx(26)


def test_suppressed_cells_follow_from_the_margins():
    table = SuppressedTable(STAFF, ("dept", "sex"), least=3)
    cells = table.cells()
    assert cells["law", "f"] is None
    assert fill_in(cells, table.margin(0), table.margin(1))["law", "f"] == 1


def test_margins_with_two_gaps_each_way_stay_open():
    gaps = {("a", "x"): None, ("a", "y"): None, ("b", "x"): None, ("b", "y"): None}
    assert fill_in(gaps, {"a": 3, "b": 4}, {"x": 2, "y": 5}) == gaps


# Reconstruction

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
TRUTH = (
    (8, "F", "B", "S"), (18, "M", "W", "S"), (24, "F", "W", "S"), (30, "M", "W", "M"),
    (36, "F", "B", "M"), (66, "F", "B", "M"), (84, "M", "B", "M"),
)  # fmt: skip


def test_seven_lines_of_a_census_table_leave_one_possible_block():
    found = reconstruct(PRINTED, BLOCK)
    assert found.complete
    assert found.tables == (TRUTH,)
    assert found.certain() == tuple(sorted(TRUTH))


def test_coarser_print_leaves_more_blocks_and_fewer_certain_people():
    rounded = [Published(one.who, one.count, one.median, str(one.mean)) for one in PRINTED]  # 38 now means 37.5 to 38.5
    found = reconstruct(rounded, BLOCK)
    assert found.complete
    assert TRUTH in found.tables
    assert len(found.tables) == 3
    assert set(found.certain()) == set(TRUTH) - {(18, "M", "W", "S")}


def test_the_search_agrees_with_trying_every_block():
    from itertools import combinations_with_replacement, product
    from statistics import mean, median

    kinds = list(product("FM"))
    people = [(age, *kind) for age, kind in product(range(5), kinds)]
    for truth in ((0, "F"), (2, "F"), (2, "M"), (4, "M")), ((1, "F"), (3, "F"), (3, "F"), (0, "M")):
        women = [age for age, sex in truth if sex == "F"]
        ages = [age for age, _ in truth]
        published = [
            Published({}, 4, str(median(ages)), None),
            Published({"sex": "F"}, len(women), str(median(women)), f"{mean(women):.1f}"),
        ]
        fits = {
            tuple(sorted(block))
            for block in combinations_with_replacement(people, 4)
            if median(age for age, _ in block) == median(ages)
            and len(own := [age for age, sex in block if sex == "F"]) == len(women)
            and median(own) == median(women)
            and abs(mean(own) - float(f"{mean(women):.1f}")) <= 0.05
        }
        found = reconstruct(published, {"sex": ("F", "M")}, ages=(0, 4), most=100_000)
        assert {tuple(sorted(one)) for one in found.tables} == fits
        assert len(found.tables) == len(fits)


def test_contradictions_leave_no_block_and_a_cut_list_makes_nobody_certain():
    assert reconstruct([Published({}, 2, 10, 10), Published({"sex": "F"}, 3)], BLOCK).tables == ()
    cut = reconstruct([Published({}, 3, None, 20)], BLOCK, most=5)
    assert len(cut.tables) == 5
    assert not cut.complete
    assert cut.certain() == ()


def test_random_sums_with_little_noise_give_everybody_away():
    source, people = SeededSource("bits"), 60
    secret = (source.floats(people) < 0.5).astype(int)
    sets = [np.flatnonzero(source.floats(people) < 0.5).tolist() for _ in range(400)]
    answers = [secret[one].sum() + round(4 * source.floats(1)[0] - 2) for one in sets]
    assert (np.round(solve_totals(sets, answers, people)) == secret).mean() > 0.99


def test_bad_attacks_are_refused_with_a_sentence():
    with pytest.raises(BadName, match="one of = <>"):
        where("age", "~", 3)
    with pytest.raises(BadSchema, match="about everybody"):
        reconstruct([Published({"sex": "F"}, 2)], BLOCK)
    with pytest.raises(BadSchema, match="attributes given"):
        reconstruct([Published({}, 2), Published({"shoe": "F"}, 2)], BLOCK)
    with pytest.raises(BadNumber, match="2 sets need as many answers"):
        solve_totals([(0,), (1,)], [1.0], 2)


# What a lesson is not


def test_no_lesson_takes_a_ledger_or_names_a_loss():
    for name in sql.__all__:
        kind = getattr(sql, name)
        words = {*inspect.signature(kind).parameters, *vars(kind)}
        assert not words & {"ledger", "account", "loss", "spend", "epsilon", "rho", "receipt", "budget"}, name


def test_lessons_do_not_know_losses_ledgers_or_releases():
    import grimp

    graph = grimp.build_graph("cloister", cache_dir=None)
    for module in graph.find_descendants("cloister.lessons.sql"):
        reached = graph.find_modules_directly_imported_by(module)
        assert not {one for one in reached if one.startswith("cloister.privacy") and "noise" not in one}, module


def test_conditions_say_the_same_in_sql_and_in_python():
    import duckdb
    import pyarrow as pa

    conditions = (LAW & ~WOMEN, LAW | where("pay", "<", 60), ~(WOMEN | where("pay", "<>", 43)), EVERYBODY.reworded(3))
    with duckdb.connect() as engine:
        engine.register("staff", pa.Table.from_pylist(STAFF))
        for one in conditions:
            [(counted,)] = engine.sql(f"SELECT COUNT(*) FROM staff WHERE {one.sql}").fetchall()
            assert counted == Exact(STAFF).total(None, one)
    assert where("name", "=", "o'neil").sql == "name = 'o''neil'"
