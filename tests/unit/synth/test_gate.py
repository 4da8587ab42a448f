"""The gate: what copies fails, what is independent is private and useless, what is fresh passes."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cloister import epsilon, rho, synth
from cloister.attack.report.interval import Interval, share
from cloister.attack.report.page import to_html as attacks_page
from cloister.attack.tables.synthetic.copies import held_back_in
from cloister.attack.tables.synthetic.membership import Membership, beaten
from cloister.data.hospital import SCHEMA, hospital
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.loss import Unit
from cloister.synth.domain.axis import read_axis
from cloister.synth.scoring import negatives
from cloister.synth.scoring.rows import read_rows, sides_of
from cloister.synth.scoring.utility.numbers import SHARES, number_distances
from cloister.synth.scoring.verdict import judge

VISITS = {"unit": "row", "tables": {"visits": {"columns": SCHEMA["tables"]["visits"]["columns"]}}}


def visits(seed):
    made = hospital(1000, seed)
    return pa.table({name: made[name] for name in made if name != "patient"})


@pytest.fixture(scope="module")
def tables():
    return {name: visits(name) for name in ("real", "held back", "fresh")}


def gated(tables, made, **more):
    return synth.gate(tables["real"], made, VISITS, tables["held back"], **more)


def failed(verdict):
    return {one.name for one in verdict.checks if one.passed is False}


def shuffled(table, seed=0):
    random = np.random.default_rng(seed)
    return pa.table({name: table[name].take(pa.array(random.permutation(len(table)))) for name in table.column_names})


def test_a_copy_fails(tables):
    verdict = gated(tables, negatives.copying(tables["real"]))
    assert failed(verdict) == {"exact copies", "closest rows", "membership", "singling out"}
    assert verdict.useful
    assert not verdict.private
    assert not verdict.passed


def test_a_copy_is_found_by_every_attack_and_refutes_a_claim(tables):
    made = negatives.copying(tables["real"])
    score = synth.score(tables["real"], made, VISITS, tables["held back"], models=False)
    found = {finding.attack: finding for finding in replace(score, claim=epsilon(1)).findings()}
    assert set(found) == {"exact copies", "closest rows", "membership by closest row", "singling out"}
    assert all(finding.learned and finding.remedies for finding in found.values())
    assert found["exact copies"].success == 1.0
    guessed = found["membership by closest row"]
    assert guessed.broken
    assert guessed.epsilon.lower > 3
    doubled = replace(score, claim=epsilon(1), unit=Unit("person", 5)).findings()
    assert doubled[2].epsilon.allowed == 2 * guessed.epsilon.allowed  # a row of a person is replaced
    assert score.findings()[2].epsilon is None
    assert "synthetic table of visits" in attacks_page(score.findings())


def test_rows_held_back_from_another_population_refute_no_claim():
    def people(seed, older=0):
        draw = np.random.default_rng(seed)
        age = np.clip(draw.normal(40 + older, 10, 1_500), 0, 100).astype(int)
        return pa.table({"age": age, "cost": draw.uniform(0, 1_000, 1_500), "sex": draw.choice(["m", "f"], 1_500)})

    columns = {
        "age": {"type": "integer", "bounds": [0, 100]},
        "cost": {"type": "real", "bounds": [0, 1000]},
        "sex": {"type": "text", "categories": ["m", "f"]},
    }
    schema = {"unit": "row", "tables": {"visits": {"columns": columns}}}
    # The table has seen none of either.
    score = replace(synth.score(people(1), people(2), schema, people(3, 15), models=False), claim=epsilon("0.1"))
    assert score.membership.right.low > 0.55
    assert score.membership.blind > score.membership.right.value
    for finding in score.findings():
        assert not finding.broken
        assert any("Hold rows out by chance" in note for note in finding.notes)
        assert not finding.learned or finding.attack == "singling out"
    assert {check.name: check.passed for check in judge(score).checks}["the claim"] is None
    alike = replace(synth.score(people(1), people(1), schema, people(3), models=False), claim=epsilon("0.1"))
    assert alike.membership.blind == 0.5
    assert any(finding.broken for finding in alike.findings())


def test_fresh_rows_are_found_by_no_attack_and_refute_no_claim(tables):
    verdict = gated(tables, tables["fresh"])
    found = replace(verdict, score=replace(verdict.score, claim=rho("0.01"))).findings()
    assert len(found) == 4
    assert not any(finding.learned or finding.broken for finding in found), found


def test_without_rows_that_were_held_back_there_are_no_findings(tables):
    made = tables["fresh"]
    assert synth.score(tables["real"], made, VISITS, models=False).findings() == ()
    assert synth.score(tables["real"], made, VISITS, tables["real"], models=False).findings() == ()


def test_a_bootstrap_fails(tables):
    verdict = gated(tables, negatives.bootstrap(tables["real"]))
    assert {"exact copies", "closest rows", "membership"} <= failed(verdict)
    assert not verdict.passed


def test_smote_fails_without_a_single_copy(tables):
    verdict = gated(tables, negatives.smote(tables["real"], VISITS))
    assert verdict.score.copies.real.value < 0.01
    assert "closest rows" in failed(verdict)
    assert not verdict.private


def test_half_a_copy_fails(tables):
    real, fresh = tables["real"], tables["fresh"]
    verdict = gated(tables, pa.concat_tables([real.slice(0, len(real) // 2), fresh]))
    assert {"exact copies", "closest rows", "membership"} <= failed(verdict)


def test_a_few_copies_among_fresh_rows_fail(tables):
    made = pa.concat_tables([tables["real"].slice(0, 30), tables["fresh"]])
    assert "exact copies" in failed(gated(tables, made))


def test_independent_columns_are_private_and_useless(tables):
    # Made of a population that is not the real rows: shuffled real columns would give away rare exact values.
    verdict = gated(tables, shuffled(tables["fresh"]))
    assert verdict.private
    assert not verdict.useful
    assert failed(verdict) == {"marginals", "correlations"}
    assert "Not fit" in verdict.headline


def test_shuffled_real_columns_give_rare_values_away(tables):
    assert "singling out" in failed(gated(tables, shuffled(tables["real"])))


def test_fresh_rows_pass(tables):
    verdict = gated(tables, tables["fresh"])
    assert verdict.passed
    assert "Fit to hand on" in verdict.headline


def test_wrong_columns_fail_alone(tables):
    made = tables["fresh"].set_column(1, "age", pa.array([3] * len(tables["fresh"])))
    made = made.set_column(2, "stay_days", pa.array([60] * len(made)))
    assert {"marginals", "single columns"} <= failed(gated(tables, made))


def test_copies_that_lack_a_required_value_are_not_called_private(tables):
    copies = tables["real"].slice(0, 500)
    copies = copies.set_column(1, "age", pa.nulls(len(copies), copies.schema.field("age").type))
    verdict = gated(tables, pa.concat_tables([tables["fresh"], copies]))
    assert verdict.score.invalid == 500
    assert not verdict.private


def test_rows_that_break_the_schema_fail(tables):
    ages = [None, *tables["fresh"]["age"].to_pylist()[1:]]
    verdict = gated(tables, tables["fresh"].set_column(1, "age", pa.array(ages)))
    assert failed(verdict) == {"valid rows"}


def test_too_few_rows_settle_nothing(tables):
    verdict = synth.gate(tables["real"], tables["fresh"], VISITS, tables["held back"].slice(0, 40))
    assert not verdict.passed
    assert None in {one.passed for one in verdict.checks}
    assert "Not settled" in verdict.headline


def test_one_row_in_six_held_back_settles_it(tables):
    held = tables["held back"].slice(0, len(tables["real"]) // 5)  # one in five, and by chance a few less, is advised
    verdict = synth.gate(tables["real"], tables["fresh"], VISITS, held.slice(10))
    (marginals,) = (one for one in verdict.checks if one.name == "marginals")
    assert marginals.passed
    assert 0.5 < verdict.score.kept < 1.1


def test_what_reaches_the_higher_mark_of_a_bootstrap_is_useful_however_few_are_held_back(tables):
    held, low = tables["held back"].slice(0, 40), synth.Limits(usefulness=0.1)
    verdict = synth.gate(tables["real"], tables["fresh"], VISITS, held, limits=low)
    assert verdict.score.kept is None
    assert verdict.useful


def test_a_gate_needs_held_back_rows(tables):
    with pytest.raises(BadInput, match="did not see"):
        synth.gate(tables["real"], tables["fresh"], VISITS, None)


def every_fifth(table):
    index = np.arange(len(table))
    return table.take(index[index % 5 != 0]), table.take(index[index % 5 == 0])


@pytest.mark.parametrize("columns", [["age", "cost"], ["ward", "age", "stay_days"]])
def test_rows_held_back_that_are_still_in_the_real_table_give_no_verdict(tables, columns):
    real = tables["real"]
    rest, held = every_fifth(real)
    for made in (real, tables["fresh"]):
        verdict = synth.gate(real, made, VISITS, held, columns=columns)
        assert not verdict.passed
        assert verdict.headline.startswith("No verdict: 100\u00a0% of the rows held back are among the real rows")
        assert "No verdict" in str(verdict.score)
        assert not any(one.passed for one in verdict.checks if one.about == "privacy")
    assert synth.gate(rest, tables["fresh"], VISITS, held, columns=columns).score.not_held is None


@pytest.mark.parametrize("columns", [["ward"], ["ward", "age"], ["ward", "age", "stay_days", "cost"]])
@pytest.mark.parametrize("seed", range(5))
def test_rows_that_are_alike_are_no_sign_that_none_were_held_back(columns, seed):
    known = Schema.load(VISITS).tables["visits"]
    table = shuffled_rows(visits(f"split {seed}"), seed)
    rest, held = (read_rows(one, known, sides_of(known, columns, 32)) for one in every_fifth(table))
    assert held_back_in(rest, held) is None


def shuffled_rows(table, seed):
    return table.take(np.random.default_rng(seed).permutation(len(table)))


def test_limits_are_the_owners_to_set(tables):
    strict = gated(tables, tables["fresh"], limits=synth.Limits(usefulness=2.0))
    assert failed(strict) == {"marginals"}


def test_a_verdict_is_the_owners_and_gives_reasons(tables):
    verdict = gated(tables, tables["fresh"])
    assert str(verdict).startswith("OWNER'S VIEW")
    assert max(map(len, str(verdict).splitlines())) <= 80
    told = verdict.to_json()
    assert next(iter(told)) == "view"
    assert told["publishable"] is False
    assert all(one["reason"] for one in told["checks"])
    json.dumps(told, allow_nan=False)


@pytest.fixture(scope="module")
def larger():
    """Far more rows than are attacked, one patient in five held back."""
    made = pa.table(hospital(8000, "larger"))
    held = pa.compute.is_in(pa.compute.utf8_slice_codeunits(made["patient"], 5, 6), pa.array(["3", "8"]))
    real, kept = (made.filter(one).drop_columns(["patient"]) for one in (pa.compute.invert(held), held))
    return {"real": real, "held back": kept, "fresh": visits("other")}


def test_few_attacked_rows_do_not_disarm_the_attacks_on_smote(larger):
    verdict = gated(larger, negatives.smote(larger["real"], VISITS), most_rows=500)
    assert verdict.score.attacked == 500
    assert {"closest rows", "membership"} <= failed(verdict)
    assert not verdict.private


def test_few_attacked_rows_do_not_disarm_the_attacks_on_a_copy(larger):
    verdict = gated(larger, negatives.copying(larger["real"]), most_rows=300)
    assert failed(verdict) == {"exact copies", "closest rows", "membership", "singling out"}
    assert verdict.score.membership.right.low > 0.97
    assert verdict.score.singling_out.risk > 0.9


def test_few_attacked_rows_do_not_accuse_fresh_rows(larger):
    verdict = gated(larger, larger["fresh"], most_rows=1000)
    assert not {one.name for one in verdict.checks if one.about == "privacy" and one.passed is not True}


def test_where_work_is_short_fewer_people_are_attacked_and_no_synthetic_row_is_left_out(larger, monkeypatch):
    copied = negatives.copying(larger["real"])
    monkeypatch.setattr("cloister.attack.tables.synthetic.attack_sample._MOST_WORK", 200 * len(copied) * 119)
    verdict = gated(larger, copied)
    assert 190 <= verdict.score.attacked <= 210
    assert {"closest rows", "membership"} <= failed(verdict)


def test_a_table_that_is_too_large_to_be_attacked_is_not_decided(tables, monkeypatch):
    monkeypatch.setattr("cloister.attack.tables.synthetic.attack_sample._MOST_WORK", 10**6)
    monkeypatch.setattr("cloister.attack.tables.synthetic.attack_sample._MOST_FITS", 10**4)
    verdict = gated(tables, tables["fresh"])
    words = {one.name: one.passed for one in verdict.checks}
    assert [words[name] for name in ("closest rows", "membership", "singling out")] == [None] * 3
    assert not verdict.private
    assert "too many rows to be attacked" in verdict.headline
    assert "not tried: too many rows" in str(verdict.score)
    assert "Too many rows to be tried: closest rows, membership, singling out." in verdict.score.to_html()
    json.dumps(verdict.to_json(), allow_nan=False)


def test_a_few_attacked_rows_settle_nothing(tables):
    verdict = gated(tables, tables["fresh"], most_rows=20)
    words = {one.name: one.passed for one in verdict.checks}
    assert words["closest rows"] is None
    assert words["membership"] is None


@pytest.mark.parametrize(
    ("nearer", "passed", "words"),
    [
        (Interval(0.530, 0.516, 0.545), True, "limit: 55\u00a0%)."),
        (Interval(0.555, 0.541, 0.570), True, "above the limit, but not surely; chance may explain it."),
        (Interval(0.565, 0.551, 0.580), False, "surely above the limit."),
        (Interval(0.540, 0.450, 0.630), None, "too few rows were attacked to tell."),
    ],
)
def test_a_reader_sees_on_which_side_of_its_limit_a_number_is(tables, nearer, passed, words):
    found = gated(tables, tables["fresh"]).score
    closest = next(
        one
        for one in synth.judge(replace(found, closeness=replace(found.closeness, nearer=nearer))).checks
        if one.name == "closest rows"
    )
    assert closest.passed is passed
    assert closest.reason.endswith(words)


def test_a_copy_is_not_praised_for_keeping_more_than_everything(larger):
    verdict = gated(larger, negatives.copying(larger["real"]), most_rows=300)
    assert verdict.score.kept > 1.2
    (marginals,) = (one for one in verdict.checks if one.name == "marginals")
    assert "100\u00a0% of what is between columns is kept, and it is closer to these very rows" in marginals.reason


def test_a_correlation_that_is_far_off_is_told(tables):
    made = tables["fresh"].set_column(2, "stay_days", shuffled(tables["fresh"])["stay_days"])
    verdict = gated(tables, made)
    assert "correlations" in failed(verdict)
    assert "correlations" not in failed(synth.judge(verdict.score, synth.Limits(correlation=1.5)))
    (note,) = (one for one in verdict.checks if one.about == "note")
    assert "stay_days and cost have 0." in note.reason
    assert "  note  correlations: " in str(verdict)
    assert "correlations: stay_days and cost" in str(verdict.score)
    assert not any(one.about == "note" for one in gated(tables, tables["fresh"]).checks)


def test_equal_tables_have_no_correlation_that_is_off(tables):
    found = synth.score(tables["real"], tables["real"], VISITS, boxes=10, rules=10, models=False)
    assert "correlations" not in {one.name for one in synth.judge(found).checks}


def test_a_table_of_some_columns_is_attacked_with_those(tables):
    verdict = gated(tables, tables["fresh"].select(["ward", "age", "cost"]))
    assert verdict.score.columns == ("ward", "age", "cost")
    assert verdict.score.absent == ("stay_days", "admitted", "readmitted")
    assert "not in the synthetic table: stay_days" in str(verdict.score)
    with pytest.raises(BadSchema, match="not in the synthetic table"):
        gated(tables, tables["fresh"].select(["age", "cost"]), target="ward")
    with pytest.raises(BadSchema, match="no column with public values"):
        gated(tables, pa.table({"other": [1, 2]}))


def guesses(correct, of=2000):
    nothing = share(0, 1)
    return Membership("closest row", share(correct, of), correct, of, nothing, nothing, {})


def test_a_claim_is_refuted_by_more_right_guesses_than_it_allows():
    # e/(1 + e) of 2,000 is 1,462: no attack on epsilon 1 is right much more often.
    assert beaten(guesses(1_462), epsilon(1)) > 0.4
    assert beaten(guesses(1_600), epsilon(1)) < 1e-9
    assert beaten(guesses(1_600), epsilon(3)) > 0.99
    assert beaten(guesses(1_990), rho("0.01")) < 1e-5


class Claims:
    """A copy that says it costs next to nothing."""

    def __init__(self, table):
        self.table, self.loss = table, epsilon("0.5")


def test_a_copy_that_claims_an_epsilon_is_refuted(tables):
    verdict = gated(tables, Claims(tables["real"]))
    assert "the claim" in failed(verdict)
    honest = gated(tables, Claims(tables["fresh"]))
    assert "the claim" not in failed(honest)


# Inside the bins

SALES = {
    "unit": "row",
    "tables": {
        "sales": {
            "columns": {
                "quantity": {"type": "integer", "bounds": [-10_000, 10_000], "nullable": False},
                "price": {"type": "real", "bounds": [0, 1_000], "nullable": False},
                "shop": {"type": "text", "categories": ["a", "b", "c"], "nullable": False},
                "sold": {"type": "timestamp", "bounds": ["2025-01-01", "2025-12-31"], "nullable": False},
            }
        }
    },
}


def sales(seed, rows=2000):
    """Log-normal prices and quantities that depend on the shop: nearly all in one of 32 equal bins."""
    random = np.random.default_rng(seed)
    shop = random.integers(3, size=rows)
    return pa.table(
        {
            "quantity": np.minimum(1 + np.exp(random.normal(1 + shop / 2, 1, rows)).astype(np.int64), 10_000),
            "price": np.minimum(np.round(np.exp(random.normal(1 - shop / 4, 0.8, rows)), 2), 1_000),
            "shop": np.take(["a", "b", "c"], shop),
            "sold": np.datetime64("2025-01-01T00:00:00", "us") + random.integers(3 * 10**13, size=rows),
        }
    )


def spread_in_bins(table, schema, bins, seed=0):
    """Each number drawn anew, evenly inside its bin: what a perfect generator without noise makes of these bins."""
    (known,) = Schema.load(schema).tables.values()
    random = np.random.default_rng(seed)
    columns = {}
    for name in table.column_names:
        axis = read_axis(known.columns[name], bins)
        columns[name] = axis.draw(axis.place(table[name]), random)
    return pa.table(columns)


@pytest.fixture(scope="module")
def skewed():
    real, held, fresh = (sales(seed) for seed in range(3))
    return {"real": real, "held back": held, "fresh": fresh, "spread": spread_in_bins(fresh, SALES, 32)}


def test_skewed_numbers_spread_evenly_in_their_bins_fail(skewed):
    verdict = synth.gate(skewed["real"], skewed["spread"], SALES, skewed["held back"])
    assert verdict.private
    assert {"KS distance", "Wasserstein distance", "marginals", "single columns", "propensity"} <= failed(verdict)
    (numbers,) = (one for one in verdict.checks if one.name == "KS distance")
    assert "its median is" in numbers.reason
    assert "Not fit to hand on" in verdict.headline
    assert verdict.score.ranges.mean.value > 5 * verdict.score.ranges.fresh


def test_skewed_numbers_that_are_drawn_well_pass(skewed):
    verdict = synth.gate(skewed["real"], skewed["fresh"], SALES, skewed["held back"])
    assert not {one.name for one in verdict.checks if one.about == "usefulness" and not one.passed}
    fine = spread_in_bins(skewed["fresh"], SALES, 4000)
    assert not {"KS distance", "Wasserstein distance"} & failed(
        synth.gate(skewed["real"], fine, SALES, skewed["held back"])
    )


def test_even_bins_of_tame_numbers_pass(tables):
    assert not failed(gated(tables, spread_in_bins(tables["fresh"], VISITS, 32)))


def test_public_bins_alone_do_not_see_it(skewed):
    # What quantile cuts and distances are for: without them the table looks as good as fresh rows.
    blind = synth.score(skewed["real"], skewed["spread"], SALES, skewed["held back"], quantiles=1)
    assert blind.marginals[0].mean.value < 0.03
    assert blind.marginals[-1].mean.value < 0.2
    assert blind.ranges.mean.value < 0.02


def test_one_skewed_number_among_many_tame_ones_fails(tables):
    cost = spread_in_bins(sales(3, len(tables["fresh"])), SALES, 32)["price"]
    schema = {"unit": "row", "tables": {"t": {"columns": dict(VISITS["tables"]["visits"]["columns"])}}}
    schema["tables"]["t"]["columns"]["price"] = SALES["tables"]["sales"]["columns"]["price"]
    real, held = (
        tables[name].append_column("price", sales(seed, len(tables[name]))["price"])
        for seed, name in enumerate(("real", "held back"))
    )
    verdict = synth.gate(real, tables["fresh"].append_column("price", cost), schema, held)
    assert {"KS distance", "Wasserstein distance"} <= failed(verdict)


def test_rows_in_the_tail_that_are_not_real_are_seen_by_their_distance(skewed):
    prices = skewed["fresh"]["price"].to_numpy().copy()
    prices[:40] = 999.0
    made = skewed["fresh"].set_column(1, "price", pa.array(prices))
    verdict = synth.gate(skewed["real"], made, SALES, skewed["held back"])
    assert failed(verdict) == {"Wasserstein distance"}


def test_limits_of_numbers_and_models_are_the_owners_to_set(skewed):
    found = synth.score(skewed["real"], skewed["spread"], SALES, skewed["held back"])
    lax = synth.Limits(usefulness=-1e9, ks=1, wasserstein=1e9, correlation=2, told_apart=1)
    assert failed(synth.judge(found, lax)) == {"single columns"}


def test_quantiles_stand_beside_each_other_in_text_page_and_file(skewed):
    found = synth.score(skewed["real"], skewed["spread"], SALES, skewed["held back"], boxes=10, rules=10)
    by_name = {one.name: one for one in found.numbers}
    assert by_name["price"].real == tuple(np.quantile(skewed["real"]["price"], SHARES, method="inverted_cdf"))
    assert by_name["quantity"].real[2] < 10 < 100 < by_name["quantity"].synthetic[2]
    assert by_name["sold"].real[2].year == 2025
    text, page = str(found), found.to_html()
    assert max(map(len, text.splitlines())) <= 80
    for one in found.numbers:
        for _, values in one.table:
            assert all(value in text and f"<td>{value}</td>" in page for value in values)
    told = {one["column"]: one for one in found.to_json()["numbers"]}
    assert [one["share"] for one in told["sold"]["quantiles"]] == list(SHARES)
    json.dumps(found.to_json(), allow_nan=False)


def test_numbers_that_are_constant_or_missing_are_compared_too():
    schema = {"unit": "row", "tables": {"t": {"columns": {c: {"type": "real", "bounds": [0, 9]} for c in "xy"}}}}
    one = pa.table({"x": [5.0] * 300, "y": pa.array([None] * 300, pa.float64())})
    same = synth.score(one, one, schema, models=False)
    assert [(x.ks, x.wasserstein) for x in same.numbers] == [(0.0, None), (0.0, None)]
    moved = synth.score(one, one.set_column(0, "x", pa.array([6.0] * 300)), schema, models=False)
    assert moved.numbers[0].ks == 1
    assert "KS distance" in failed(synth.judge(moved))
    json.dumps(moved.to_json(), allow_nan=False)
    assert moved.to_html()


def test_chance_alone_breaks_no_limit_of_numbers():
    # Two hundred pairs of samples of one population, with far fewer rows than are advised.
    random = np.random.default_rng(5)
    table = Schema.load(SALES).tables["sales"]
    everybody = read_rows(sales(4, 60_000), table, sides_of(table, None, 32))
    for samples in np.split(np.arange(60_000), 200):
        real, made = everybody.take(samples[:150]), everybody.take(samples[150:])
        for one in number_distances(real, made, real.take(random.integers(150, size=150))):
            assert one.ks <= one.ks_margin
            assert one.wasserstein <= 0.5 + one.wasserstein_margin
