"""Plans of synthetic tables: what would be measured, with which noise, from public facts alone."""

import math

import pyarrow as pa
import pytest

import cloister as cl
from cloister import synth
from cloister.data.hospital import SCHEMA, hospital
from cloister.privacy.errors import BadInput, BadSchema, WrongMeasure
from cloister.synth.planning import METHODS, plan

FEW = ["ward", "age", "readmitted"]


def opened(folder, rows=300, budget=None, schema=SCHEMA):
    return cl.open(pa.table(hospital(rows)), schema=schema, budget=budget or cl.rho(50), ledger=folder, name="visits")


def singles(measured):
    return {one.positions: float(one.sigma) for one in measured if len(one.positions) == 1}


def test_the_noise_of_independent_columns_is_that_of_theory(tmp_path):
    with opened(tmp_path) as data:
        made = plan(data, "independent", spend=cl.rho("0.1"))
    # Six columns, people with eight rows, 19 parts in 20 of the spend: sigma = sqrt(6) · 8 / sqrt(2 · 0.095).
    sigma = math.sqrt(6) * 8 / math.sqrt(2 * 0.095)
    assert [float(one.sigma) for one in made.measured] == pytest.approx([sigma] * 6, rel=1e-3)
    cells = made.domain.axis("age").size
    share = 0.5 * math.sqrt(2 / math.pi) * sigma * cells / 6000
    assert dict(made.errors())[f"age, {cells} cells"] == f"up to {100 * share:.2g} % of the rows"


@pytest.mark.parametrize("method", METHODS)
def test_a_plan_tells_the_noise_and_the_cost_of_the_run(tmp_path, method):
    with opened(tmp_path) as data:
        made = plan(data, method, spend=cl.rho(1), columns=FEW, rows=100)
        assert not data.account.spent.amount
        assert str(made) == str(plan(data, method, spend=cl.rho(1), columns=FEW, rows=100))
        real = getattr(synth, method)(data, spend=cl.rho(1), columns=FEW, rows=100)
        assert data.account.spent == made.loss == cl.rho(1)
    assert set(made.noise) == {one["mechanism"] for one in real.receipt.body["parameters"]}
    if method in ("mst", "independent"):  # others share noise between columns by what they see
        assert singles(real.made.measured) == pytest.approx(singles(made.measured))


def test_the_plan_of_a_method_that_shares_by_the_number_of_rows_is_that_of_a_table_of_the_public_size(tmp_path):
    facts = {**SCHEMA["tables"]["visits"], "rows": 3000}
    with opened(tmp_path, rows=2000, schema={**SCHEMA, "tables": {"visits": facts}}) as data:
        made = plan(data, "aim", spend=cl.rho(5), columns=FEW)
        real = synth.aim(data, spend=cl.rho(5), columns=FEW)
    assert singles(real.made.measured) == pytest.approx(singles(made.measured), rel=0.05)
    planned, used = (
        [float(one.sigma) for one in x if len(one.positions) > 1] for x in (made.measured, real.made.measured)
    )
    assert max(used) == pytest.approx(max(planned), rel=0.05)
    assert len(used) >= len(planned)  # what there is to find takes more rounds
    assert f"at least {len(planned)} chosen marginals" in str(made)


def test_whoever_is_in_the_table_the_plan_is_the_same(tmp_path):
    plans = set()
    for rows in (1, 300):
        with opened(tmp_path / str(rows), rows) as data:
            plans.add(str(plan(data, "aim", spend=cl.epsilon(1, delta="1e-9"))))
    assert len(plans) == 1


def test_without_a_public_size_errors_are_told_in_rows(tmp_path):
    facts = {**SCHEMA["tables"]["visits"]}
    del facts["rows"]
    with opened(tmp_path, schema={**SCHEMA, "tables": {"visits": facts}}) as data:
        made = plan(data, "mst", spend=cl.epsilon(1), columns=FEW)
    assert all("rows" in error and "%" not in error for _, error in made.errors())
    assert "not public here" in made.notes()[0]
    assert "as many as a noisy count says" in str(made)


def test_a_plan_says_that_nobody_s_rows_are_made_together(tmp_path):
    with opened(tmp_path) as data:
        told = str(plan(data, "mst", spend=cl.epsilon(1, delta="1e-9"), columns=FEW))
        assert "No column will say which patient a row is of" in told
        assert "(epsilon 1 with delta 1e-09)" in told
        with pytest.raises(BadSchema, match=r"visits\.patient says whose a row is"):
            plan(data, "aim", spend=cl.rho("0.1"), columns=["patient"])


@pytest.mark.parametrize(
    ("asked", "error"),
    [
        ({"method": "copy"}, BadInput),
        ({"method": "aim", "rows": 0}, BadInput),
        ({"method": "aim", "columns": ["patient"]}, BadSchema),
        ({"method": "aim", "table": "wards"}, BadSchema),
        ({"method": "aim", "bins": 0}, BadInput),
    ],
)
def test_what_cannot_be_made_is_refused(tmp_path, asked, error):
    with opened(tmp_path) as data, pytest.raises(error):
        plan(data, spend=cl.rho("0.1"), **asked)


def test_a_spend_that_the_account_cannot_count_is_refused(tmp_path):
    with opened(tmp_path, budget=cl.epsilon(3)) as data, pytest.raises(WrongMeasure):
        plan(data, "aim", spend=cl.rho("0.1"))


def test_a_wide_table_is_planned_in_time(tmp_path):
    columns = {f"c{i}": {"type": "integer", "bounds": [0, 900], "nullable": False} for i in range(25)}
    schema = {"unit": "row", "tables": {"t": {"columns": columns}}}
    with cl.open(pa.table({name: [1] for name in columns}), schema=schema, budget=cl.rho(9), ledger=tmp_path) as data:
        made = plan(data, "aim", spend=cl.rho("0.1"), rows=30_000)
    assert len(made.errors()) >= 25
