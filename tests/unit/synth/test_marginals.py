"""Marginals under one charge: exact totals before the noise, stated sensitivity, nothing beyond the spend."""

from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import cloister as cl
from cloister.data.schema import Schema
from cloister.privacy.errors import BadInput, BadLoss, BadSchema, LookFailed, OverBudget
from cloister.privacy.filter import budget_share, release_steps
from cloister.privacy.noise import SeededSource
from cloister.synth.domain.domain import read_domain
from cloister.synth.measure.error_estimate import estimate_error
from cloister.synth.measure.marginals import Measurer, merged_counts
from cloister.synth.model.inference import fit
from cloister.synth.run import GeneratorResult, synthesise

COLUMNS = {
    "ward": {"type": "text", "categories": ["a", "b", "c"], "nullable": False},
    "age": {"type": "integer", "bounds": [0, 9], "nullable": False},
}
BY_ROW = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS}}})
BY_PERSON = Schema.load(
    {"unit": {"name": "person", "max_rows": 2}, "tables": {"visits": {"unit": "person", "columns": COLUMNS}}}
)
TABLE = pa.table(
    {
        "person": [1, 1, 1, 1, 2, 2, 3],
        "ward": ["a", "a", "a", "b", "b", "c", "c"],
        "age": [1, 1, 2, 2, 3, 3, 9],
    }
)


def opened(folder, schema=BY_ROW, rows=TABLE, budget="1"):
    return cl.open(rows, schema=schema, budget=cl.rho(budget), ledger=folder)


def surveyed(data, steps, spend="0.5", **more):
    domain, relation = read_domain(data)
    budget = budget_share(cl.rho(spend))
    return release_steps(
        lambda meter: steps(Measurer(domain, relation, meter, budget)),
        accounts=[data.account],
        spend=budget.loss,
        request="test",
        **more,
    )[0]


def test_marginals_are_exact_before_the_noise(tmp_path):
    def steps(survey):
        survey.count([(0, 1)])
        return survey.exact((0, 1))

    counts = surveyed(opened(tmp_path), steps)
    assert counts.sum() == 7
    assert counts[0, 1] == 2
    assert counts[2, 9] == 1


def test_people_with_more_rows_than_they_may_have_count_less(tmp_path):
    def steps(survey):
        return survey.most, survey.whole, survey.exact((0,))

    most, whole, counts = surveyed(opened(tmp_path, BY_PERSON), steps)
    assert most == 2 * whole
    # Person 1 has four rows and counts for two: each of them half.
    assert counts.tolist() == [1.5, 1.5, 2.0]


@pytest.mark.parametrize("k", [1, 3])
def test_the_noise_of_several_marginals_is_for_all_of_them(tmp_path, k):
    def steps(survey):
        return survey.measure([(0,), (1,), (0, 1)][:k], survey.budget.loss)

    released = surveyed(opened(tmp_path, budget="10"), steps, spend="0.5")
    # sigma² = k/(2 rho): a row counts once in each marginal.
    assert released[0].sigma == pytest.approx(np.sqrt(k), rel=1e-3)


def test_cells_are_taken_together_before_the_noise(tmp_path):
    merge = np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1])
    with_noise = surveyed(
        opened(tmp_path, budget="1000000"),
        lambda survey: survey.measure([(0, 1)], survey.budget.loss, [(None, merge)])[0],
        spend="400000",
    )
    assert with_noise.counts.shape == (3, 2)
    assert np.abs(with_noise.counts - [[3, 0], [2, 0], [1, 1]]).max() == 0
    assert with_noise.merge(1) is merge
    assert with_noise.merge(0) is None


def test_merged_counts_keep_the_total():
    counts = np.arange(24).reshape(2, 3, 4)
    merged = merged_counts(counts, (None, np.array([0, 1, 0]), np.array([0, 0, 1, 1])))
    assert merged.shape == (2, 2, 2)
    assert merged.sum() == counts.sum()
    assert merged[0, 0, 0] == counts[0, [0, 2]][:, :2].sum()


def test_a_choice_takes_the_better_candidate_when_it_can_afford_to(tmp_path):
    def scores(inside):
        return [0, inside.parts * int(inside.exact((0,))[0]), 1]

    data = opened(tmp_path, budget="100000")
    assert surveyed(data, lambda survey: survey.choose(scores, survey.budget.loss), spend="10000") == 1


def test_steps_cannot_go_beyond_the_spend(tmp_path):
    def steps(survey):
        survey.measure([(0,)], survey.budget.part(Fraction(2, 3)))
        survey.measure([(1,)], survey.budget.part(Fraction(2, 3)))

    with pytest.raises(LookFailed) as failed:
        surveyed(opened(tmp_path), steps)
    assert "OverBudget" in failed.value.owner_detail


def test_exactly_the_spend_is_charged(tmp_path):
    data = opened(tmp_path)
    table = cl.synth.independent(data, spend=cl.rho("0.25"), rows=5)
    assert data.account.spent.amount == Fraction(1, 4)
    assert table.loss == cl.rho("0.25")
    table.receipt.verify(data.account.book.key.public)


def test_a_refused_spend_reads_and_draws_nothing(tmp_path):
    data = opened(tmp_path)
    seen = []
    data.tables.engine.run = lambda sql: seen.append(sql)  # type: ignore[method-assign]
    with pytest.raises(OverBudget):
        cl.synth.independent(data, spend=cl.rho("1.5"))
    assert not seen
    assert not data.account.spent.amount


def test_what_is_wrong_is_said_before_the_charge(tmp_path):
    data = opened(tmp_path)
    with pytest.raises(BadLoss, match="synthetic table"):
        cl.synth.independent(data, spend=None)
    with pytest.raises(BadInput, match="rows is a whole number"):
        cl.synth.independent(data, spend=cl.rho("0.1"), rows=0)
    with pytest.raises(BadSchema, match="no column"):
        cl.synth.independent(data, spend=cl.rho("0.1"), columns=["nothing"])
    with pytest.raises(BadInput, match="Cloister dataset"):
        cl.synth.independent(TABLE, spend=cl.rho("0.1"))
    assert not data.account.spent.amount


def test_neighbours_have_the_same_domain_and_ask_the_same(tmp_path):
    asked = []
    for number, rows in enumerate((TABLE, TABLE.slice(1), TABLE.slice(0, 0))):
        data = opened(tmp_path / str(number), rows=rows)
        table = cl.synth.independent(data, spend=cl.rho("0.1"), rows=9)
        asked.append((table.domain, table.receipt.body["request"], table.receipt.body["parameters"], len(table)))
    assert asked[0] == asked[1] == asked[2]


def test_the_review_tells_how_far_a_model_is_off(tmp_path):
    def steps(survey):
        model = fit(survey.domain.shape, survey.measure([(0,), (1,)], survey.budget.part(Fraction(1, 2))), enough=0)
        return estimate_error(survey, model, survey.budget.part(Fraction(1, 2))), model, survey.exact((0, 1))

    told, model, true = surveyed(opened(tmp_path, budget="1000000"), steps, spend="400000")
    assert told.ways[0] == pytest.approx(0, abs=0.02)
    gap = 0.5 * np.abs(model.marginal((0, 1)) - true).sum() / 7
    assert told.ways[1] == pytest.approx(gap, abs=0.02)
    assert len(told.columns) == 2


def test_a_generator_is_a_function_of_a_survey(tmp_path):
    told = []

    def steps(survey, tell):
        measured = survey.measure([(0, 1)], survey.budget.loss)
        tell(0.5, "measured")
        return GeneratorResult(fit(survey.domain.shape, measured), measured)

    table = synthesise(
        opened(tmp_path),
        steps,
        method="own",
        spend=cl.rho("0.1"),
        rows=20,
        progress=lambda share, word: told.append(share),
    )
    assert len(table) == 20
    assert told == sorted(told)
    assert told[-1] == 1.0


def test_a_seed_repeats_the_table_and_marks_it(tmp_path):
    first, second = (
        cl.synth.independent(opened(tmp_path / name), spend=cl.rho("0.1"), rows=30, random_state=7) for name in "ab"
    )
    assert first.to_arrow().equals(second.to_arrow())
    assert not first.private
    assert str(first).startswith("NOT PRIVATE")
    assert SeededSource("7").private is False
