"""A synthetic table as whoever is handed it reads it: the same rows, errors and costs, from both kinds of files."""

import io
import json
import math
from datetime import date, datetime
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import cloister as cl
from cloister import synth
from cloister.data.schema import Schema
from cloister.privacy.errors import BadSource, CloisterError, ReceiptRejected, SealBroken
from cloister.synth.console import add_score
from cloister.synth.output.shared_table import parse_table, pure_of, sign_side
from cloister.synth.scoring.report.provenance import told_making

ROWS = 400
_g = np.random.default_rng(5)
CODES = ["007", "7", "nan", "NA", 'a, "b"', "x\ny"]
COLUMNS = {
    "code": {"type": "text", "categories": CODES},
    "age": {"type": "integer", "bounds": [0, 99]},
    "stars": {"type": "integer", "categories": [1, 5]},
    "cost": {"type": "real", "bounds": [0, 80]},
    "back": {"type": "boolean"},
    "seen": {"type": "date", "bounds": ["2025-01-01", "2025-12-31"]},
    "at": {"type": "timestamp", "bounds": ["2025-01-01 00:00:00", "2025-12-31 23:59:59"]},
    "badge": {"type": "text", "nullable": False},
}
SCHEMA = Schema.load({"unit": "row", "tables": {"visits": {"columns": COLUMNS}}})


def _gaps(values, kind=None):
    return pa.array(values, kind, mask=_g.random(ROWS) < 0.2)


TABLE = pa.table(
    {
        "code": _gaps(_g.choice(CODES, ROWS)),
        "age": _gaps(_g.integers(0, 100, ROWS)),
        "stars": _gaps(_g.choice([1, 5], ROWS)),
        "cost": _gaps(_g.random(ROWS) * 80),
        "back": _gaps(_g.random(ROWS) < 0.5),
        "seen": _gaps(np.array([date(2025, 1, 1 + int(x)) for x in _g.integers(0, 30, ROWS)]), pa.date32()),
        "at": _gaps(
            np.array([datetime(2025, 1 + int(x), 1, int(x), 30) for x in _g.integers(0, 12, ROWS)]), pa.timestamp("us")
        ),
        "badge": [f"b{i}" for i in range(ROWS)],
    }
)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    with cl.open(TABLE, schema=SCHEMA, budget=cl.rho(100), ledger=tmp_path_factory.mktemp("handed")) as opened:
        yield opened


@pytest.fixture(scope="module")
def table(data):
    return synth.independent(data, spend=cl.epsilon(5, delta="1e-9"), rows=300)


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_every_type_of_value_comes_back_as_it_was_written(table, data, tmp_path, kind):
    path = tmp_path / f"made.{kind}"
    (table.to_csv if kind == "csv" else table.to_parquet)(path)
    again = synth.read_table(path)
    again.verify(data.account.book.key.public)
    assert again.to_arrow().equals(table.to_arrow())
    assert {"007", "7", "nan", "NA", None} <= set(again.to_arrow()["code"].to_pylist())


@pytest.mark.parametrize("name", COLUMNS)
def test_one_column_comes_back_with_its_missing_values(data, tmp_path, name):
    beside = [] if name != "badge" else ["back"]
    made = synth.independent(data, spend=cl.rho(1), rows=100, columns=[name, *beside])
    made.to_csv(tmp_path / "made.csv")
    assert synth.read_table(tmp_path / "made.csv").to_arrow().equals(made.to_arrow())


def test_rows_from_a_csv_file_score_as_those_in_memory_do(table, tmp_path):
    table.to_csv(tmp_path / "made.csv")
    asked = {"schema": SCHEMA, "columns": ["code", "age", "seen", "back"], "models": False}
    scores = [synth.score(TABLE, one, **asked).to_json() for one in (table, synth.read_table(tmp_path / "made.csv"))]
    assert scores[0]["marginals"] == scores[1]["marginals"]


def test_a_csv_that_does_not_fit_its_side_file_is_refused(table, tmp_path):
    side = table.to_csv(tmp_path / "made.csv").read_bytes()
    content = (tmp_path / "made.csv").read_bytes()
    for wrong in (content.replace(b'"007",', b'"007","7",', 1), content.replace(b"2025-", b"yesterday-")):
        with pytest.raises(BadSource, match="damaged"):
            parse_table(wrong, side, "csv")
    for told in (b"[]", b"{}", b'{"cloister": "synthetic table"}', b"{", b"[" * 10**5):
        with pytest.raises(BadSource):
            parse_table(content, told, "csv")


def test_the_number_of_rows_has_a_standard_error_in_rows_in_the_file_too(table, tmp_path):
    table.to_parquet(tmp_path / "made.parquet")
    there, here = synth.read_table(tmp_path / "made.parquet").count(), table.count()
    assert (there.value, there.error) == (pytest.approx(here.value, abs=0.1), pytest.approx(here.error, abs=0.001))
    assert there.known_from == "noise"
    side = {name: told for name, told in table.side.items() if not name.startswith("standard error")}
    old = parse_table((tmp_path / "made.parquet").read_bytes(), json.dumps(side, default=str).encode())
    assert math.isnan(old.count().error)
    assert old.count().known_from == "nothing"


def test_a_spend_of_epsilon_is_stated_as_one(table, tmp_path):
    table.to_parquet(tmp_path / "made.parquet")
    again = synth.read_table(tmp_path / "made.parquet")
    assert again.side["loss as epsilon"] == {"epsilon": 5, "delta": 1e-9}
    for one in (table, again):
        assert f"  cost      {table.loss} (epsilon 5 with delta 1e-09)\n" in str(one)


def test_a_spend_of_rho_states_no_epsilon_and_a_pure_one_itself(data, tmp_path):
    told = {"columns": ["code"], "rows": 5}
    plain, pure = (synth.independent(data, spend=spend, **told) for spend in (cl.rho(1), cl.epsilon("0.5")))
    assert "loss as epsilon" not in plain.side
    assert "  cost      rho 1\n" in str(plain)
    assert pure.side["loss as epsilon"] == {"epsilon": 0.5, "delta": 0}
    assert "  cost      epsilon 0.5\n" in str(pure)
    pure.to_parquet(tmp_path / "pure.parquet")
    assert "  cost      epsilon 0.5\n" in str(synth.read_table(tmp_path / "pure.parquet"))


def test_an_epsilon_that_json_cannot_hold_is_told_as_no_less(data):
    made = synth.independent(data, spend=cl.epsilon("1/3", delta="1/7000000"), columns=["code"], rows=5)
    told = made.side["loss as epsilon"]
    assert 1 / 3 <= told["epsilon"] < 0.3333333333333335
    parse_table(_parquet(made), json.dumps(made.side, default=str).encode())  # and it is one that the loss keeps


@pytest.mark.parametrize(
    "stated",
    [
        {"epsilon": 4.9, "delta": 1e-9},
        {"epsilon": 5, "delta": 1e-10},
        {"epsilon": 0, "delta": 0},
        {"epsilon": 5},
        None,
        5,
    ],
)
def test_an_epsilon_that_the_loss_does_not_keep_is_refused(table, stated):
    side = json.dumps({**table.side, "loss as epsilon": stated}, default=str).encode()
    with pytest.raises(BadSource, match="epsilon"):
        parse_table(_parquet(table), side)


def _parquet(table):
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(table.to_arrow(), sink)
    return sink.getvalue().to_pybytes()


def told_otherwise(told):
    """Metadata files that say something else of their price than was paid, and those that only spell it otherwise."""
    loss = told["loss"]
    yield {"neighbours": "replace-one"}
    yield {"neighbours": "any change to a whole household of"}
    yield {"neighbours": None}
    yield {"private": 1}
    yield {"private": "true"}
    yield {"unit": "one household (at most 2 rows)"}
    yield {"loss": {**loss, "relation": "replace-one"}}
    yield {"loss": {**loss, "relation": "replace-one"}, "neighbours": "replace-one"}
    yield {"loss": {**loss, "amount": f"{loss['amount']} "}}
    yield {"loss": {**loss, "delta": "0.0"}}
    yield {"loss": {**loss, "note": "and half of it back"}}
    yield {"loss as epsilon": {"epsilon": "5", "delta": 1e-9}}


def test_a_side_file_that_says_anything_else_of_its_price_does_not_verify(table, data, tmp_path):
    side = table.to_parquet(tmp_path / "made.parquet")
    told, content = json.loads(side.read_text()), (tmp_path / "made.parquet").read_bytes()
    key = data.account.book.key.public
    parse_table(content, side.read_bytes()).verify(key)
    for change in told_otherwise(told):
        with pytest.raises((ReceiptRejected, BadSource)):
            parse_table(content, json.dumps({**told, **change}).encode()).verify(key)
    del told["neighbours"]
    with pytest.raises(ReceiptRejected):
        parse_table(content, json.dumps(told).encode()).verify(key)


def test_the_neighbours_that_are_printed_are_those_of_the_loss(table, tmp_path):
    side = table.to_parquet(tmp_path / "made.parquet")
    told = json.loads(side.read_text()) | {"neighbours": "a household of"}
    made = parse_table((tmp_path / "made.parquet").read_bytes(), json.dumps(told).encode())
    assert "  protects  one row, add/remove neighbours\n" in f"{made}\n"
    assert "household" not in str(made)
    assert "household" not in str(told_making(made))


def test_a_pure_table_of_an_account_in_rho_verifies(data, tmp_path):
    made = synth.independent(data, spend=cl.epsilon("0.5"), columns=["code"], rows=5)
    side = made.to_parquet(tmp_path / "pure.parquet")
    synth.read_table(tmp_path / "pure.parquet").verify(data.account.book.key.public)
    told = json.loads(side.read_text())
    side.write_text(
        json.dumps(told | {"loss": {**told["loss"], "amount": "1/4"}, "loss as epsilon": {"epsilon": 0.25, "delta": 0}})
    )
    with pytest.raises(ReceiptRejected):
        synth.read_table(tmp_path / "pure.parquet").verify(data.account.book.key.public)


@pytest.mark.parametrize("amount", ["0.005", "0.02", "0.125", "2"])
def test_gaussian_noise_is_not_handed_on_as_a_pure_epsilon(data, tmp_path, amount):
    """A rho of e²/2 is what an account in rho is charged for a pure e too; the receipt says which noise it was."""
    made = synth.mst(data, spend=cl.rho(amount), columns=["code", "back"], rows=5)
    side = made.to_parquet(tmp_path / "made.parquet")
    told, key = json.loads(side.read_text()), data.account.book.key.public
    synth.read_table(tmp_path / "made.parquet").verify(key)
    pure = cl.epsilon(Fraction(math.isqrt(int(2_000_000 * Fraction(amount))), 1000))
    assert pure.as_rho() == made.loss
    for beside in ({}, {"loss as epsilon": {"epsilon": float(pure.amount), "delta": 0}}):
        side.write_text(json.dumps(told | {"loss": pure.to_json()} | beside))
        with pytest.raises(ReceiptRejected):
            synth.read_table(tmp_path / "made.parquet").verify(key)


def test_a_pure_price_follows_from_the_steps_of_a_receipt():
    laplace = {"mechanism": "discrete-laplace", "epsilon": "1/10", "sensitivity": "1", "scale": "10", "times": "3"}
    choice = {"mechanism": "exponential", "epsilon": "1/5", "sensitivity": "1", "monotone": "false", "times": "1"}
    assert pure_of([laplace, choice]) == Fraction(1, 2)
    gaussian = {"mechanism": "discrete-gaussian", "sensitivity": "1", "sigma": "1", "proof": "zCDP", "times": "1"}
    odd = [{**laplace, "times": "0"}, {**laplace, "epsilon": "-1"}, {**laplace, "epsilon": 1}, {"mechanism": []}, 1]
    for steps in (
        [laplace, gaussian],
        [laplace, {**gaussian, "epsilon": "1/10"}],
        [],
        None,
        "pure",
        *([o] for o in odd),
    ):
        assert pure_of(steps) is None


@pytest.mark.parametrize("amount", ["0.12345678901234567890123", "1/7", "0.1"])
def test_a_pure_table_of_many_digits_verifies_too(data, tmp_path, amount):
    synth.mst(data, spend=cl.epsilon(amount), columns=["code", "back"], rows=5).to_parquet(tmp_path / "made.parquet")
    synth.read_table(tmp_path / "made.parquet").verify(data.account.book.key.public)


def test_the_price_of_a_score_is_held_against_its_own_receipt(data, tmp_path):
    made = synth.mst(data, spend=cl.rho("0.1"), columns=["code", "back"], rows=5)
    side, key = made.to_parquet(tmp_path / "made.parquet"), data.account.book.key.public
    for seed in (None, "seed"):
        add_score(side, synth.publishable_score(data, made, spend=cl.epsilon("0.3"), random_state=seed))
        told = json.loads(side.read_text())
        again = synth.read_table(tmp_path / "made.parquet")
        again.verify(key)
        assert "  scored    for epsilon 0.3 more\n" in f"{again}\n"
        score, other = told["score"], cl.rho("0.045")
        assert score["private"] is (seed is None)
        for change in (
            {"private": not score["private"]},
            {"loss": {**score["loss"], "amount": "1/1000000000"}},
            {"loss": {**score["loss"], "relation": "replace-one"}},
            {"loss": None},
            {"unit": "one person (at most 999 rows)"},
            {"receipt": None},
            {"receipt": told["receipt"]},
            {"receipt": 5},
        ):
            side.write_text(json.dumps(told | {"score": score | change}))
            with pytest.raises(ReceiptRejected):
                synth.read_table(tmp_path / "made.parquet").verify(key)
        assert other == cl.epsilon("0.3").as_rho()
        side.write_text(json.dumps(told | {"score": score | {"loss": other.to_json()}}))  # the weaker claim, as charged
        synth.read_table(tmp_path / "made.parquet").verify(key)


def test_rows_that_nobody_signed_are_refused_if_that_is_asked(data, tmp_path):
    made = synth.mst(data, spend=cl.rho("0.1"), columns=["code", "back"], rows=5)
    side, key = made.to_parquet(tmp_path / "made.parquet"), data.account.book.key
    content = (tmp_path / "made.parquet").read_bytes()
    signed = sign_side(made.side, content, key)
    parse_table(content, json.dumps(signed).encode()).verify(key.public, rows=True)
    without = {name: value for name, value in signed.items() if name not in ("signature", "sha256")}
    for told in (side.read_bytes(), json.dumps(without).encode()):
        parse_table(content, told).verify(key.public)
        with pytest.raises(SealBroken, match="nobody signed the rows"):
            parse_table(content, told).verify(key.public, rows=True)


def test_a_receipt_of_another_release_does_not_vouch_for_a_table(data, tmp_path):
    asked = {"columns": ["code", "back"], "rows": 5, "spend": cl.rho("0.1")}
    side = synth.mst(data, **asked, random_state=1).to_parquet(tmp_path / "made.parquet")
    told, key = json.loads(side.read_text()), data.account.book.key.public
    synth.read_table(tmp_path / "made.parquet").verify(key)
    assert told["private"] is False
    query = "SELECT COUNT(*) FROM visits"
    others = [
        data.sql(query, spend=cl.rho("0.1")),
        synth.mst(data, **{**asked, "columns": ["code"]}),
        synth.independent(data, **asked),
        synth.publishable_score(data, synth.mst(data, **asked), spend=cl.rho("0.1")).release,
    ]
    for release in others:
        forged = told | {"private": True, "receipt": json.loads(release.receipt.text())}
        for stated in (told["settings"], query, None, 5):
            side.write_text(json.dumps(forged | {"settings": stated}))
            with pytest.raises(ReceiptRejected, match="another release"):
                synth.read_table(tmp_path / "made.parquet").verify(key)
    side.write_text(json.dumps(told | {"table": "a", "method": "b by mst"}))
    with pytest.raises(ReceiptRejected, match="a method that no generator has"):  # of a table that is called "a by b"
        synth.read_table(tmp_path / "made.parquet").verify(key)
    again = synth.mst(data, **asked).receipt  # of the same request: it fits, as only a price is certified
    side.write_text(json.dumps(told | {"private": True, "receipt": json.loads(again.text())}))
    synth.read_table(tmp_path / "made.parquet").verify(key)
    del told["settings"]
    side.write_text(json.dumps(told))
    with pytest.raises(ReceiptRejected, match="another release"):
        synth.read_table(tmp_path / "made.parquet").verify(key)


def test_a_receipt_of_another_release_does_not_vouch_for_a_score(data, tmp_path):
    made = synth.mst(data, spend=cl.rho("0.1"), columns=["code", "back"], rows=5)
    side, key = made.to_parquet(tmp_path / "made.parquet"), data.account.book.key.public
    add_score(side, synth.publishable_score(data, made, spend=cl.rho("0.2"), random_state=1))
    told = json.loads(side.read_text())
    synth.read_table(tmp_path / "made.parquet").verify(key)
    other = data.sql("SELECT COUNT(*) FROM visits", spend=cl.rho("0.2")).receipt
    forged = told["score"] | {"private": True, "receipt": json.loads(other.text())}
    for settings in (forged["settings"], told["settings"], "SELECT COUNT(*) FROM visits", None):
        side.write_text(json.dumps(told | {"score": forged | {"settings": settings}}))
        with pytest.raises(ReceiptRejected, match="another release"):
            synth.read_table(tmp_path / "made.parquet").verify(key)


def test_rows_with_other_columns_than_the_receipt_do_not_verify(table, data, tmp_path):
    side = json.loads(table.to_parquet(tmp_path / "made.parquet").read_text())
    del side["sha256"]
    names = table.value.column_names
    others = (
        table.value.rename_columns(["diagnosis", *names[1:]]),
        table.value.select(names[1:]),
        table.value.append_column("diagnosis", pa.array(["a"] * table.value.num_rows)),
        table.value.select(names[::-1]),
    )
    for rows in others:
        content = io.BytesIO()
        pq.write_table(rows, content)
        with pytest.raises(ReceiptRejected, match="other columns"):
            parse_table(content.getvalue(), json.dumps(side).encode()).verify(data.account.book.key.public)


def paths_in(value, path=()):
    """Every place in a JSON value: of an object's entries, and of a list's first one."""
    listed = value.items() if isinstance(value, dict) else enumerate(value[:1]) if isinstance(value, list) else ()
    for key, inner in listed:
        yield (*path, key)
        yield from paths_in(inner, (*path, key))


def test_a_damaged_metadata_file_is_refused_in_words(table, data, tmp_path):
    side = json.loads(table.to_parquet(tmp_path / "made.parquet").read_text())
    del side["sha256"]
    content, tried = (tmp_path / "made.parquet").read_bytes(), 0
    for path in paths_in(side):
        for wrong in (None, 7, "x", [], {}, [7], {"x": 7}, True, "gone"):
            changed = json.loads(json.dumps(side))
            inner = changed
            for key in path[:-1]:
                inner = inner[key]
            if wrong == "gone":
                del inner[path[-1]]
            else:
                inner[path[-1]] = wrong
            tried += 1
            try:
                made = parse_table(content, json.dumps(changed).encode())
                str(made)
                made.count()
                made.error(["code"])
                made.verify(data.account.book.key.public)
            except CloisterError:
                pass
    assert tried > 500
