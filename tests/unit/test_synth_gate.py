"""The gate: what copies fails, what is independent is private and useless, what is fresh passes."""

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from cloister import epsilon, rho, synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.privacy.errors import BadInput, BadSchema
from cloister.synth import negatives
from cloister.synth.scoring.figure import Figure, share
from cloister.synth.scoring.membership import Membership, beaten

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
    assert failed(verdict) == {"marginals"}
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
    monkeypatch.setattr("cloister.synth.scoring.attacking._MOST_WORK", 200 * len(copied) * 119)
    verdict = gated(larger, copied)
    assert 190 <= verdict.score.attacked <= 210
    assert {"closest rows", "membership"} <= failed(verdict)


def test_a_table_that_is_too_large_to_be_attacked_is_not_decided(tables, monkeypatch):
    monkeypatch.setattr("cloister.synth.scoring.attacking._MOST_WORK", 10**6)
    monkeypatch.setattr("cloister.synth.scoring.attacking._MOST_FITS", 10**4)
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
        (Figure(0.530, 0.516, 0.545), True, "limit: 55\u00a0%)."),
        (Figure(0.555, 0.541, 0.570), True, "above the limit, but not surely; chance may explain it."),
        (Figure(0.565, 0.551, 0.580), False, "surely above the limit."),
        (Figure(0.540, 0.450, 0.630), None, "too few rows were attacked to tell."),
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
    assert "100\u00a0% of what lies between columns is kept, and it is closer to these very rows" in marginals.reason


def test_a_correlation_that_is_far_off_is_told(tables):
    made = tables["fresh"].set_column(2, "stay_days", shuffled(tables["fresh"])["stay_days"])
    verdict = gated(tables, made)
    (note,) = (one for one in verdict.checks if one.about == "note")
    assert "stay_days and cost have 0." in note.reason
    assert "  note  correlations: " in str(verdict)
    assert "correlations: stay_days and cost" in str(verdict.score)
    assert not any(one.about == "note" for one in gated(tables, tables["fresh"]).checks)


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
