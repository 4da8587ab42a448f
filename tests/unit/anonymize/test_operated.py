import datetime as dt
import json
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import csv

from cloister.anonymize.operations.anatomy import anatomise
from cloister.anonymize.operations.masking import mask, suppress_columns
from cloister.anonymize.operations.microaggregation import microaggregate
from cloister.anonymize.operations.noise import Noise, perturb
from cloister.anonymize.operations.operated import Operated, codes, from_numbers, pipe, step, to_numbers
from cloister.anonymize.operations.post_randomisation import post_randomise
from cloister.anonymize.operations.pseudonyms import PseudonymKey, pseudonymise
from cloister.anonymize.operations.rounding import recode, round_to
from cloister.anonymize.operations.sampling import shuffle
from cloister.privacy.errors import BadInput, BadNumber, BadSchema, NotPrivate

PEOPLE = {
    "name": ["John", "Alex", "Kishor", "Emily", "Ahmed"],
    "sex": ["M", "M", "M", "F", "M"],
    "zip": ["33617", "32113", "33613", "33617", "33620"],
    "salary": [78, 90, 65, 68, 75],
}


def test_a_chain_records_each_step_in_order_and_collects_the_notes():
    steps = [
        step(suppress_columns, columns="name"),
        step(mask, columns="zip", keep_first=2),
        step(recode, columns="salary", width=20),
    ]
    result = pipe(PEOPLE, steps)
    assert result.rows.to_pydict() == {
        "sex": ["M", "M", "M", "F", "M"],
        "zip": ["33***", "32***", "33***", "33***", "33***"],
        "salary": ["60-80", "80-100", "60-80", "60-80", "60-80"],
    }
    assert [sentence.split()[1] for sentence in result.log] == ["name", "zip", "salary"]
    for operation in steps:
        note = operation(PEOPLE).note
        assert note
        assert note in result.note


def test_a_chain_of_nothing_changes_nothing():
    assert pipe(PEOPLE, []) == Operated(pa.table(PEOPLE), (), "")


def test_a_chain_keeps_what_the_last_step_adds():
    result = pipe(PEOPLE, [step(suppress_columns, columns="zip"), step(post_randomise, column="sex", keep=0.8)])
    assert result.transition.matrix.shape == (2, 2)
    assert len(result.log) == 2


def test_an_anatomy_is_the_last_step():
    anatomy = step(anatomise, quasi="zip", sensitive="salary", l=5)
    assert pipe(PEOPLE, [shuffle, anatomy]).sensitive_table.num_rows == 5
    with pytest.raises(BadSchema, match="last step"):
        pipe(PEOPLE, [anatomy, shuffle])


def test_a_step_that_returns_something_else_is_refused():
    with pytest.raises(BadSchema, match="step 1"):
        pipe(PEOPLE, [lambda rows: rows])


def test_a_step_does_not_print_its_key():
    secret = bytes(range(32, 64))
    text = repr(step(pseudonymise, columns="name", key=PseudonymKey(secret, "k"), purpose="x"))
    assert secret.decode() not in text
    assert secret.hex() not in text


def test_a_missing_column_is_named_with_those_that_exist():
    with pytest.raises(BadSchema, match=r"no column nme.*name, sex"):
        suppress_columns(PEOPLE, "nme")
    with pytest.raises(BadSchema, match="each column once"):
        suppress_columns(PEOPLE, ["name", "name"])
    with pytest.raises(BadSchema):
        suppress_columns(PEOPLE, [])


def test_numbers_are_read_and_written_in_every_type():
    table = pa.table(
        {
            "i": pa.array([3, None], pa.int8()),
            "f": pa.array([0.5, None], pa.float32()),
            "d": pa.array([Decimal("1.25"), None], pa.decimal128(6, 2)),
            "day": pa.array([dt.date(2020, 2, 29), None]),
            "old": pa.array([dt.datetime(1950, 1, 1, 12), None], pa.timestamp("ms")),
            "zone": pa.array([dt.datetime(2020, 1, 1, tzinfo=dt.UTC), None], pa.timestamp("us", "UTC")),
        }
    )
    for name in table.column_names:
        values = to_numbers(table, name)
        assert np.isnan(values[1])
        assert from_numbers(values, table[name].type).equals(table[name].combine_chunks())


def test_text_truth_values_and_infinities_are_no_numbers():
    for cells in (["a"], [True], [float("inf")]):
        with pytest.raises(BadSchema):
            round_to({"x": cells}, "x", 1)


def test_a_result_that_does_not_fit_into_its_type_is_refused():
    for cell, kind in ((99, pa.int8()), (Decimal("99.9"), pa.decimal128(3, 1))):
        rows = pa.table({"x": pa.array([cell], kind)})
        with pytest.raises(BadNumber, match="does not fit"):
            perturb(rows, "x", Noise("uniform", 1e6), keep_type=True, random_state=1)


def test_null_is_a_value_of_its_own():
    positions, values = codes(pa.table({"x": ["a", None, "a", None]}), "x")
    assert values.to_pylist() == ["a", None]
    assert positions.tolist() == [0, 1, 0, 1]


def test_rows_after_an_operation_are_written_only_if_their_file_satisfies_the_models(tmp_path):
    table = {"zip": ["33617", "33613", "34001", "34002"], "ward": ["a", "b", "a", "a"]}
    result = mask(table, "zip", keep_first=2)
    with pytest.raises(NotPrivate, match=r"rows do not satisfy the models.*ward in classes of zip is 1"):
        result.write(tmp_path / "r.csv", require="k=2, l=2", quasi=["zip"], sensitive=["ward"])
    assert list(tmp_path.iterdir()) == []
    result.write(tmp_path / "r.csv", require="k=2", quasi=["zip"], sensitive=["ward"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["r.csv", "r.csv.anonymized.json"]
    facts = json.loads((tmp_path / "r.csv.anonymized.json").read_text(encoding="utf-8"))
    assert facts["label"] == "k=2: not differentially private"
    assert "log" not in facts
    with pytest.raises(BadInput, match="zip has no role"):
        result.write(tmp_path / "s.csv", require="k=2", quasi=["ward"])


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_order_of_the_rows_of_a_file_says_nothing_about_that_of_the_original_ones(tmp_path, ending):
    """An attacker who knows the original order would link every row by it, whatever its values became."""
    rows = {"salary": [90, 10, 94, 12], "level": [4, 1, 3, 2], "shift": ["x", None, "b", "a"]}
    files = []
    for order in ([0, 1, 2, 3], [3, 2, 1, 0], [2, 0, 3, 1]):
        moved = {name: [cells[place] for place in order] for name, cells in rows.items()}
        path = tmp_path / f"{len(files)}.{ending}"
        microaggregate(moved, "salary", 2).write(path, require="k=2", quasi=["salary"])
        files.append(csv.read_csv(path) if ending == "csv" else pq.read_table(path))
    assert files[0].equals(files[1])
    assert files[0].equals(files[2])
