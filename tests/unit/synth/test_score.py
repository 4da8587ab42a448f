"""The parts of a score, on tiny tables by hand, on a made-up hospital and on scikit-learn's own sets."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.attack.report.interval import share
from cloister.attack.tables.synthetic.closeness import closest, encoded, width
from cloister.attack.tables.synthetic.coded_rows import choose_columns
from cloister.attack.tables.synthetic.copies import count_copies
from cloister.attack.tables.synthetic.membership import area, attack_membership
from cloister.attack.tables.synthetic.singling_out import _chances, _shuffled, attack_singling_out, fits
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput, BadSchema, MissingExtra
from cloister.synth.domain.domain import read_domain
from cloister.synth.measure.marginals import Measurer
from cloister.synth.scoring.rows import only_table, read_rows, sides_of
from cloister.synth.scoring.utility import learning as learning_module
from cloister.synth.scoring.utility.dependence import correlation_map, information_map
from cloister.synth.scoring.utility.marginal_error import box_share, half_l1, marginal_errors

VISITS = {"unit": "row", "tables": {"visits": {"columns": SCHEMA["tables"]["visits"]["columns"]}}}
TINY = {
    "unit": "row",
    "tables": {
        "people": {
            "columns": {
                "sex": {"type": "text", "categories": ["f", "m"]},
                "age": {"type": "integer", "bounds": [0, 99]},
                "paid": {"type": "boolean"},
            }
        }
    },
}


TENS = {"age": list(range(10, 100, 10))}


def tiny(sex, age, paid, bins=TENS):
    table = only_table(Schema.load(TINY), None)
    return read_rows({"sex": sex, "age": age, "paid": paid}, table, sides_of(table, None, bins))


def visits(seed, patients=1200):
    made = hospital(patients, seed)
    return pa.table({name: made[name] for name in made if name != "patient"})


@pytest.fixture(scope="module")
def tables():
    return {name: visits(name) for name in ("real", "held back", "fresh")}


@pytest.fixture(scope="module")
def fresh_score(tables):
    return synth.score(
        tables["real"], tables["fresh"], VISITS, tables["held back"], "ward", boxes=200, rules=200, marginals=15
    )


def test_rows_are_read_through_the_schema():
    rows = tiny(["f", "x", None], [-5, 100, 49], [True, None, False])
    assert rows.codes.tolist() == [[0, 0, 1], [2, 9, 2], [2, 4, 0]]  # unknown is missing, beyond is the nearer bound
    assert rows.points[:, 1].tolist() == [0.0, 1.0, 49 / 99]
    assert math.isnan(rows.points[1, 0])


def test_rows_that_lack_what_may_not_be_missing_are_counted():
    schema = Schema.load({"unit": "row", "tables": {"t": {"columns": {"a": {"type": "boolean", "nullable": False}}}}})
    table = only_table(schema, None)
    rows = read_rows({"a": [True, None, False, None]}, table, sides_of(table, None, 4))
    assert (len(rows), rows.left_out) == (2, 2)


def test_bins_are_those_that_an_engine_cuts(tables, tmp_path):
    data = cl.open(tables["real"], schema=VISITS, budget=cl.rho(1), ledger=tmp_path / "ledger")
    domain, relation = read_domain(data, bins=32)
    survey = Measurer(domain, relation, None, None)
    table = only_table(Schema.load(VISITS), None)
    rows = read_rows(tables["real"], table, sides_of(table, None, 32))
    for position in range(len(domain.modelled)):
        exact = survey.exact((position,))
        assert np.bincount(rows.codes[:, position], minlength=len(exact))[: len(exact)].tolist() == exact.tolist()


def test_half_l1_by_hand():
    one = tiny(["f", "f", "m", "m"], [10, 20, 30, 40], [True] * 4)
    other = tiny(["f", "m", "m", "m"], [10, 25, 30, 90], [True] * 4)
    assert half_l1(one, other, [0]) == 0.25
    assert half_l1(one, other, [1]) == 0.25  # 20 and 25 share a bin
    assert half_l1(one, other, [0, 1]) == 0.5
    assert half_l1(one, one, [0, 1, 2]) == 0.0


def test_half_l1_of_many_cells_lists_only_those_that_occur(monkeypatch):
    one, other = tiny(["f", "m"], [10, 90], [True, False]), tiny(["f", "f"], [10, 10], [True, None])
    listed = half_l1(one, other, [0, 1, 2])
    monkeypatch.setattr("cloister.synth.scoring.utility.marginal_error._MOST_CELLS", 1)
    assert half_l1(one, other, [0, 1, 2]) == listed == 0.5


def test_a_random_choice_of_marginals_is_different_ones_and_has_an_interval(tables):
    random = np.random.default_rng(0)
    chosen = choose_columns(20, 3, 50, random)
    assert len(set(chosen)) == 50
    assert all(len(set(one)) == 3 for one in chosen)
    table = only_table(Schema.load(VISITS), None)
    rows = [read_rows(tables[name], table, sides_of(table, None, 8)) for name in ("real", "fresh")]
    found = marginal_errors(*rows, {"bootstrap": rows[0], "independent": rows[1]}, 3, 5, random)
    assert found.drawn
    assert found.mean.low < found.mean.value < found.mean.high


def test_correlation_and_information_by_hand():
    schema = {
        "unit": "row",
        "tables": {"t": {"columns": {c: {"type": "integer", "bounds": [0, 1]} for c in ("a", "b", "c")}}},
    }
    table = only_table(Schema.load(schema), None)
    sides = sides_of(table, None, 4)
    same = read_rows({"a": [0, 0, 1, 1], "b": [0, 0, 1, 1], "c": [0, 1, 0, 1]}, table, sides)
    turned = read_rows({"a": [0, 0, 1, 1], "b": [1, 1, 0, 0], "c": [0, 1, 0, None]}, table, sides)
    correlations = correlation_map(same, turned, None)
    assert correlations.real[0, 1] == pytest.approx(1)
    assert correlations.synthetic[0, 1] == pytest.approx(-1)
    assert correlations.real[0, 2] == pytest.approx(0)
    assert correlations.worst[:2] == ("a", "b")
    information = information_map(same, turned, None)
    assert information.real[0, 1] == pytest.approx(1.0)  # one bit
    assert information.synthetic[0, 1] == pytest.approx(1.0)
    assert information.real[0, 2] == pytest.approx(0.0)


def test_pairs_of_numbers_are_correlated_where_both_are_known():
    rows = tiny(["f"] * 4, [10, 20, 30, None], [True, False, True, None])
    assert correlation_map(rows, rows, None) is None  # one ordered column only
    from cloister.synth.scoring.utility.dependence import _correlations

    points = np.array([[0.1, 0.2], [0.2, 0.4], [0.3, np.nan], [0.4, 0.8]])
    expected = np.corrcoef([0.1, 0.2, 0.4], [0.2, 0.4, 0.8])[0, 1]
    assert _correlations(points)[0, 1] == pytest.approx(expected)


def test_a_box_holds_its_lower_end_and_not_its_upper_one():
    rows = tiny(["f"] * 4, [30, 39, 40, None], [True] * 4)
    inside = np.zeros(11, dtype=bool)
    inside[3:4] = True  # [30, 40)
    assert box_share(rows, {1: inside}) == 0.5


def test_distances_by_hand():
    one = tiny(["f", "m"], [0, 66], [True, True])
    other = tiny(["f", "m", "m"], [33, 66, None], [True, True, True])
    there, back = closest(one, other)
    assert there == pytest.approx([math.sqrt((1 / 3) ** 2 / 3), 0.0])
    # What is missing is in the middle, and 3/4 beside it.
    assert back == pytest.approx([math.sqrt((1 / 3) ** 2 / 3), 0.0, math.sqrt(((2 / 3 - 1 / 2) ** 2 + 0.75) / 3)])


def test_blocked_distances_are_those_of_every_pair(tables, monkeypatch):
    monkeypatch.setattr("cloister.attack.tables.synthetic.closeness._BLOCK", 37)
    table = only_table(Schema.load(VISITS), None)
    a, b = (
        read_rows(tables[name].slice(0, size), table, sides_of(table, None, 8))
        for name, size in (("real", 210), ("fresh", 160))
    )
    apart = np.zeros((len(a), len(b)))
    for j, side in enumerate(a.sides):
        x, y = a.points[:, j, None], b.points[None, :, j]
        apart += (x - y) ** 2 if side.ordered else x != y
    exact = np.sqrt(apart / len(a.sides))
    there, back = closest(a, b)
    assert there == pytest.approx(exact.min(axis=1), abs=1e-4)
    assert back == pytest.approx(exact.min(axis=0), abs=1e-4)


def test_columns_of_many_categories_are_hashed_and_copies_still_found(monkeypatch):
    columns = {"code": {"type": "integer", "categories": list(range(1000))}, "x": {"type": "real", "bounds": [0, 1]}}
    table = only_table(Schema.load({"unit": "row", "tables": {"t": {"columns": columns}}}), None)
    random = np.random.default_rng(0)
    rows = read_rows(
        {"code": random.integers(1000, size=400), "x": random.random(400)}, table, sides_of(table, None, 8)
    )
    assert encoded(rows, slice(0, 5)).shape[1] == width(rows.sides) < 140
    assert closest(rows, rows)[0] == pytest.approx(np.zeros(400))
    hashed = closest(rows.take(np.arange(200)), rows.take(np.arange(200, 400)))[0]
    monkeypatch.setattr("cloister.attack.tables.synthetic.closeness._MOST_CODES", 2000)
    exact = closest(rows.take(np.arange(200)), rows.take(np.arange(200, 400)))[0]
    assert (hashed >= exact - 1e-9).all()
    assert (hashed**2 <= exact**2 + 0.25 + 1e-6).all()  # half of one of two columns


def test_copies_are_counted_beside_those_that_chance_makes():
    real, synthetic = tiny(["f", "m", "m"], [1, 2, 3], [True] * 3), tiny(["f", "m", "f"], [1, 2, 9], [True] * 3)
    held = tiny(["f", "f", "m"], [9, 8, 7], [True] * 3)
    found = count_copies(real, synthetic, held)
    assert (found.synthetic, found.rows) == (2, 3)
    assert found.real.value == pytest.approx(2 / 3)
    assert found.fresh.value == pytest.approx(1 / 3)
    assert found.chance == pytest.approx(0.5)  # two or three of three hits among the first three of six


def test_values_that_share_a_bin_are_no_copies():
    assert count_copies(tiny(["f"], [41], [True]), tiny(["f"], [42], [True]), None).synthetic == 0


def test_intervals_are_those_of_clopper_and_pearson():
    found = share(8, 10)  # the textbook's example
    assert (found.low, found.high) == pytest.approx((0.4439, 0.9748), abs=1e-4)
    assert share(0, 10).low == 0.0


def test_the_area_is_that_of_scikit_learn():
    from sklearn.metrics import roc_auc_score

    random = np.random.default_rng(0)
    member, stranger = random.integers(0, 9, 300) + 1.0, random.integers(0, 9, 200) * 1.0
    expected = roc_auc_score([1] * 300 + [0] * 200, np.r_[member, stranger])
    found = area(member, stranger)
    assert found.value == pytest.approx(expected)
    assert found.low < expected < found.high


def test_membership_is_told_of_a_copy_and_not_of_fresh_rows(tables):
    table = only_table(Schema.load(VISITS), None)
    rows = {name: read_rows(one, table, sides_of(table, None, 32)) for name, one in tables.items()}
    n = min(map(len, rows.values()))
    rows = {name: one.at_most(n, np.random.default_rng(1)) for name, one in rows.items()}

    def attack(made):
        away = closest(made, rows["real"])[1], closest(made, rows["held back"])[1]
        return attack_membership(rows["real"], rows["held back"], made, away, np.random.default_rng(2))

    copied, fresh = attack(rows["real"]), attack(rows["fresh"])
    assert copied.right.low > 0.97
    assert copied.found.value > 0.9
    assert fresh.right.low < 0.5 < fresh.right.high
    assert fresh.found.value < 0.05
    assert fresh.areas["frequent pairs"].low < 0.5 < fresh.areas["frequent pairs"].high


def test_the_attack_by_pairs_catches_marginals_that_follow_the_real_rows():
    # Few rows, many columns: pairs drawn from exact marginals of the real rows give their owners away.
    columns = {f"c{i}": {"type": "integer", "bounds": [0, 3]} for i in range(24)}
    table = only_table(Schema.load({"unit": "row", "tables": {"t": {"columns": columns}}}), None)
    random = np.random.default_rng(3)
    real, held = (
        read_rows(dict(zip(columns, random.integers(4, size=(24, 60)), strict=True)), table, sides_of(table, None, 8))
        for _ in range(2)
    )
    # Each synthetic row takes neighbouring columns in pairs from different real rows.
    source = random.integers(60, size=(2000, 12)).repeat(2, axis=1)
    made = read_rows(
        {name: real.codes[source[:, j], j] for j, name in enumerate(columns)}, table, sides_of(table, None, 8)
    )
    away = closest(made, real)[1], closest(made, held)[1]
    found = attack_membership(real, held, made, away, random)
    assert found.areas["frequent pairs"].low > 0.6


def test_a_rule_fits_those_it_names():
    rows = tiny(["f", "f", "m"], [20, 60, 60], [True, None, False])
    assert fits(rows, ((0, "=", 0.0), (1, ">=", 0.6))).tolist() == [False, True, False]
    assert fits(rows, ((2, "=", 1.0),)).tolist() == [True, False, False]


def test_singling_out_finds_copies_and_leaves_fresh_rows_alone(tables):
    table = only_table(Schema.load(VISITS), None)
    rows = {name: read_rows(one, table, sides_of(table, None, 32)) for name, one in tables.items()}
    held = rows["held back"].at_most(len(rows["real"]) // 5, np.random.default_rng(1))  # fewer than are real
    copied, fresh = (
        attack_singling_out(rows["real"], held, rows[made], 400, np.random.default_rng(4)) for made in ("real", "fresh")
    )
    assert copied.real.value == 1
    assert copied.risk > 0.9
    assert copied.chance <= 1e-4  # no shuffle of 9,999 has as many
    assert copied.example
    assert fresh.chance > 0.001
    assert fresh.fresh.low < fresh.real.value < fresh.fresh.high


def test_chance_singles_out_as_often_as_a_shuffle_would():
    # Three people fit, two thirds of all are real: one of the three is real with chance 3 · (2/3)(1/3)², about.
    assert _chances(np.array([0, 1, 3]), 2000, 1000) == pytest.approx([0, 2 / 3, 2 / 9], abs=1e-3)


def test_rules_that_fit_the_same_people_are_not_held_for_independent():
    # Fifty rules that fit one and the same person: all hit or none does, and chance decides which.
    same = [np.array([7])] * 50
    counts, chance = _shuffled(same, np.full(50, 0.5), 50, 10, 10, np.random.default_rng(0))
    assert set(counts.tolist()) == {0, 50}
    assert chance == pytest.approx(0.5, abs=0.1)
    each = [np.array([person]) for person in range(20)]
    counts, chance = _shuffled(each, np.full(20, 0.5), 10, 10, 10, np.random.default_rng(0))
    assert set(counts.tolist()) == {10}  # one of them is real for each that is not
    assert chance == 1
    assert _shuffled([np.arange(20)], np.zeros(1), 0, 10, 10, np.random.default_rng(0))[1] == 1


def test_a_table_that_knows_nobody_singles_out_beyond_chance_as_rarely_as_is_said(tables):
    # One population, split anew each time: so many chances below one in ten as one table in ten has, within 4 sigma.
    table = only_table(Schema.load(VISITS), None)
    sides = sides_of(table, ["ward", "age", "cost", "stay_days"], 32)
    everybody, made = read_rows(tables["real"], table, sides), read_rows(tables["fresh"], table, sides)
    chances = []
    for seed in range(60):
        random = np.random.default_rng(seed)
        order = random.permutation(len(everybody))
        real, held = everybody.take(order[:800]), everybody.take(order[800:1000])
        chances.append(
            attack_singling_out(real, held, made.take(random.permutation(len(made))[:800]), 200, random).chance
        )
    assert sum(chance < 0.1 for chance in chances) <= 15
    assert sum(chance < 0.01 for chance in chances) <= 4


def test_fresh_rows_score_about_one_and_are_not_told_apart(fresh_score):
    assert 0.85 < fresh_score.kept < 1.15  # over samples of as many rows, its standard deviation is 0.05
    assert 0.2 < fresh_score.usefulness < fresh_score.kept  # a bootstrap has less chance in it than fresh rows
    for model in fresh_score.propensity:
        assert 0.4 < model.ratio < 2
    assert fresh_score.ranges.mean.value < 2 * fresh_score.ranges.fresh
    learned = fresh_score.learning
    for model, made in learned.synthetic.items():
        assert made.accuracy.high > learned.real[model].accuracy.low
        assert made.accuracy.value > learned.floor + 0.05
        assert made.auc.value > 0.6
    assert set(learned.reverse) == {"logistic regression", "decision tree"}


def test_a_score_is_the_owners_and_says_so_first(fresh_score):
    assert str(fresh_score).startswith("OWNER'S VIEW")
    told = fresh_score.to_json()
    assert next(iter(told)) == "view"
    assert told["publishable"] is False
    json.dumps(told, allow_nan=False)


def test_a_score_fits_a_terminal(fresh_score):
    assert max(len(line) for line in str(fresh_score).splitlines()) <= 80
    assert "fresh rows" in str(fresh_score)


def test_a_score_without_held_back_rows_says_what_it_cannot_tell(tables):
    found = synth.score(tables["real"], tables["fresh"], VISITS, boxes=10, rules=10, marginals=3)
    assert found.membership is None
    assert "cannot be told from likeness" in str(found)
    assert not synth.judge(found).passed
    json.dumps(found.to_json(), allow_nan=False)


def test_progress_rises_to_one(tables):
    seen = []
    synth.score(
        tables["real"].slice(0, 200),
        tables["fresh"].slice(0, 200),
        VISITS,
        tables["held back"].slice(0, 200),
        boxes=5,
        rules=5,
        marginals=3,
        progress=lambda share, text: seen.append((share, text)),
    )
    shares = [one for one, _ in seen]
    assert shares == sorted(shares)
    assert seen[-1] == (1.0, "done")


def test_the_same_seed_gives_the_same_score(tables):
    made = [
        synth.score(
            tables["real"], tables["fresh"].slice(0, 300), VISITS, tables["held back"], boxes=9, rules=9, seed=s
        )
        for s in (7, 7)
    ]
    assert made[0].to_json() == made[1].to_json()


def test_a_classical_set_is_learned_from_a_bootstrap_of_itself():
    from sklearn.datasets import load_breast_cancer

    data = load_breast_cancer()
    names = [f"f{i}" for i in range(8)]
    columns = {name: {"type": "real", "bounds": [0, 4000]} for name in names} | {"y": {"type": "boolean"}}
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    random = np.random.default_rng(0)
    order = random.permutation(len(data.target))

    def part(positions):
        return pa.table({**{n: data.data[positions, i] for i, n in enumerate(names)}, "y": data.target[positions] == 1})

    real, held = part(order[:400]), part(order[400:])
    found = synth.score(real, real.take(random.integers(400, size=400)), schema, held, "y", boxes=20, rules=20)
    assert found.learning.synthetic["decision tree"].accuracy.value > 0.85
    assert found.learning.synthetic["decision tree"].auc.value > 0.85


def test_a_table_of_one_class_teaches_what_it_has_seen(tables):
    surgery = tables["real"].filter(pa.compute.equal(tables["real"]["ward"], "surgery"))
    found = synth.score(tables["real"], surgery, VISITS, tables["held back"], "ward", boxes=5, rules=5, marginals=3)
    made = found.learning.synthetic["logistic regression"]
    expected = sum(one == "surgery" for one in tables["held back"]["ward"].to_pylist()) / len(tables["held back"])
    assert made.accuracy.value == pytest.approx(expected)
    assert made.auc.value == 0.5


@pytest.mark.parametrize(
    ("more", "error", "words"),
    [
        ({"target": "cost"}, BadSchema, "no short list"),
        ({"target": "nobody"}, BadSchema, "no column"),
        ({"columns": ["nobody"]}, BadSchema, "no column"),
        ({"bins": 0}, BadInput, "bins"),
        ({"boxes": 0}, BadInput, "at least"),
        ({"table": "other"}, BadSchema, "say which table"),
    ],
)
def test_a_wrong_question_is_refused_in_words(tables, more, error, words):
    with pytest.raises(error, match=words):
        synth.score(tables["real"], tables["fresh"], VISITS, **more)


def test_empty_tables_are_refused(tables):
    with pytest.raises(BadInput, match="no rows"):
        synth.score(tables["real"], tables["fresh"].slice(0, 0), VISITS)


def test_models_without_scikit_learn_are_refused_in_words(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "sklearn", None)
    with pytest.raises(MissingExtra, match="pip install"):
        learning_module.sklearn_or_refuse()


def test_frames_and_files_are_read_like_tables(tables, tmp_path):
    import pyarrow.parquet as pq

    pq.write_table(tables["fresh"], tmp_path / "made.parquet")
    small = {"boxes": 5, "rules": 5, "marginals": 3}
    found = [
        synth.score(tables["real"], made, VISITS, **small).to_json()
        for made in (tables["fresh"], tables["fresh"].to_pandas(), tmp_path / "made.parquet")
    ]
    assert found[0] == found[1] == found[2]
