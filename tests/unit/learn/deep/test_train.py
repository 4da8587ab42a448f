"""`train`: one charge before the first look, Poisson lots, refusals before the charge, and nothing unpaid."""

import warnings
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from cloister import epsilon, rho
from cloister.learn.deep import Progress, train
from cloister.learn.deep.rows import PassLots, read_rows
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, CloisterError, LookFailed, OverBudget, WrongMeasure
from cloister.privacy.ledger import Ledger
from cloister.privacy.noise import SeededSource

SOURCE = SeededSource("deep training")
N = 3000
X = (SOURCE.floats((N, 4)) * 2 - 1).astype(np.float32)
Y = (X @ np.array([1.0, -2.0, 0.5, 1.5]) > 0).astype(np.int64)
START = {"w": np.zeros((4, 2), np.float32), "b": np.zeros(2, np.float32)}


def loss(params, x, y):
    return optax.softmax_cross_entropy_with_integer_labels(x @ params["w"] + params["b"], y)


def fit(folder, data=(X, Y), **changed):
    told = {
        "spend": epsilon(1, delta="1e-5"), "rate": "1/30", "steps": 60, "optimizer": optax.sgd(2.0, momentum=0.8),
        "ledger": folder, "random_state": 1,
    }  # fmt: skip
    return train(loss, START, data, **(told | changed))


def right(params):
    return float(((X @ params["w"] + params["b"]).argmax(axis=1) == Y).mean())


def charged(folder):
    with Ledger.in_folder(folder) as book:
        return [account.spent for account in book.accounts()]


def test_a_model_is_trained_and_paid_for_once(tmp_path):
    result = fit(tmp_path, random_state=None, averaging=0.9)
    assert right(result.params) > 0.85
    assert right(result.average) > 0.85
    assert charged(tmp_path) == [epsilon(1, delta="1e-5").as_rho()]
    assert result.loss == epsilon(1, delta="1e-5")
    assert result.release.private
    assert repr(result) == "<TrainResult: 10 parameters in 2 arrays, 60 steps, epsilon 1, delta 1e-05>"
    assert result.receipt.body["mechanism"] == "planned-discrete-gaussian"
    assert "rate 1/30" in result.receipt.body["parameters"][0]["steps"]
    with Ledger.in_folder(tmp_path) as book:
        result.receipt.verify(book.key.public)


@pytest.mark.parametrize(
    "changed",
    [
        {"clipping": "per-layer"},
        {"clipping": "automatic"},
        {"clipping": "adaptive", "clip": 5.0, "optimizer": optax.adam(0.1)},
        {"spend": rho("0.05"), "rate": 1, "steps": 20},
        {"rate": None, "lot": 100, "rows": N},
        {"units": np.arange(N) // 3, "max_rows": 3},
        {"augment": lambda key, x, y: (x + 0.01 * jax.random.normal(key, x.shape), y), "copies": 2},
        {"micro": 7},
        {"bands": 8, "lot": 100},
        {"bands": 8, "lot": 100, "order": np.arange(N) % 30, "spend": rho("0.1")},
        {"bands": 4, "lot": 33, "units": np.arange(N) // 3, "max_rows": 3},
    ],
    ids=lambda changed: ", ".join(changed),
)
def test_every_way_to_train_learns(changed, tmp_path):
    assert right(fit(tmp_path, **changed).params) > 0.8


def test_a_seed_repeats_a_run_and_says_that_it_is_not_private(tmp_path):
    first, second = fit(tmp_path), fit(tmp_path)
    assert np.array_equal(first.params["w"], second.params["w"])
    assert not first.release.private
    assert not np.array_equal(first.params["w"], fit(tmp_path, random_state=2).params["w"])


def test_all_containers_hold_the_same_rows(tmp_path):
    names = list("abcd")
    np.savez(tmp_path / "rows.npz", x=X, y=Y)
    expected = fit(tmp_path / "ledger").params["w"]
    for data in (
        (X.astype(np.float64), Y.astype(np.int8)),
        (pd.DataFrame(X, columns=names), Y),
        (pa.table(dict(zip(names, X.T, strict=True))), pd.Series(Y)),
        tmp_path / "rows.npz",
    ):
        assert np.allclose(fit(tmp_path / "ledger", data).params["w"], expected, atol=1e-3)


def test_images_keep_their_shape(tmp_path):
    images = X.reshape(N, 2, 2)

    def of_image(params, image, y):
        return loss(params, image.reshape(-1), y)

    told = {"spend": epsilon(1, delta="1e-5"), "rate": "1/30", "steps": 60, "optimizer": optax.sgd(2.0, momentum=0.8)}
    assert right(train(of_image, START, (images, Y), ledger=tmp_path, **told).params) > 0.8


def test_lots_are_poisson_samples():
    lots = read_rows((np.arange(1000, dtype=np.float32),))
    drawn = [rows for (rows,) in lots.lots(Fraction(1, 10), 400, SeededSource(7))]
    sizes = np.array([len(rows) for rows in drawn])
    assert abs(sizes.mean() - 100) < 4 * np.sqrt(90 / 400)
    assert 0.75 < sizes.var() / 90 < 1.3  # binomial, not fixed
    times = np.bincount(np.concatenate(drawn).astype(int), minlength=1000)
    assert 0.8 < times.var() / 36 < 1.2  # each row independently
    assert all(len(np.unique(rows)) == len(rows) for rows in drawn)


def test_in_passes_each_row_enters_one_lot_of_every_pass():
    rows = read_rows((np.arange(N, dtype=np.int32),))
    lots = [lot[0] for lot in PassLots(rows, 20).lots(Fraction(1, 20), 60, SeededSource(5))]
    passes = [np.sort(np.concatenate(lots[start : start + 20])) for start in (0, 20, 40)]
    assert all(np.array_equal(one, np.arange(N)) for one in passes)
    assert all(np.array_equal(lots[step], lots[step + 20]) for step in range(40))
    sizes = np.array([len(lot) for lot in lots[:20]])
    assert abs(sizes - N / 20).max() < 6.2 * (N / 20) ** 0.5
    ordered = PassLots(rows, 20, np.arange(N, dtype=np.int64) // 10)  # rows beyond the last lot stay in it
    found = [lot[0] for lot in ordered.lots(Fraction(1, 20), 20, SeededSource(5))]
    assert found[0].tolist() == list(range(10))
    assert len(found[19]) == N - 190


def test_a_table_with_fewer_rows_than_a_lot_trains_on_what_there_is(tmp_path):
    for rows in (0, 1, 5):
        result = fit(tmp_path, (X[:rows], Y[:rows]), rate=None, lot=100, rows=3000)
        assert result.steps == 60
        assert np.isfinite(result.params["w"]).all()


def test_rows_that_are_no_numbers_count_as_none(tmp_path):
    bad = X.copy()
    bad[::7] = np.nan
    result = fit(tmp_path, (bad, Y))
    assert np.isfinite(result.params["w"]).all()
    assert right(result.params) > 0.8


def test_the_number_of_rows_is_bought_if_it_is_not_said(tmp_path):
    lots = [fit(tmp_path, random_state=seed, steps=2).lot for seed in range(8)]
    assert len(set(lots)) == 8
    assert all(abs(lot - N / 30) < 5 for lot in lots)
    assert fit(tmp_path, rate=None, lot=50, rows=1500, steps=2).lot == 50
    told = fit(tmp_path).release.parameters["steps"]
    assert told.startswith("1 × sigma")


def test_the_loss_is_stated_from_both_sides(tmp_path):
    result = fit(tmp_path)
    lower, upper = result.receipt.body["parameters"][0]["epsilon"].partition(" at")[0].split(" to ")
    assert 0.985 < float(lower) <= float(upper) <= 1


def test_progress_says_steps_and_loss_and_nothing_of_rows(tmp_path):
    seen = []
    fit(tmp_path, progress=seen.append, steps=5)
    assert [one.step for one in seen] == [1, 2, 3, 4, 5]
    assert all(isinstance(one, Progress) and one.steps == 5 for one in seen)
    again = []
    fit(tmp_path, (X * 0, Y), progress=again.append, steps=5)
    assert [one.spent for one in again] == [one.spent for one in seen]


def test_a_bar_is_shown_on_request(tmp_path, capsys):
    fit(tmp_path, progress=True, steps=3)
    assert "training" in capsys.readouterr().out


def test_nothing_but_noisy_sums_leaves(tmp_path):
    result = fit(tmp_path, rate=None, lot=100, rows=N)
    assert set(vars(type(result))["__slots__"]) == {"params", "average", "release", "lot", "clip", "steps"}
    assert result.lot == 100
    assert result.clip == 1.0


def test_an_account_pays_and_a_second_run_beyond_it_is_refused(tmp_path):
    with Ledger.in_folder(tmp_path) as book:
        account = book.open_account("rows", rho("0.7", delta="1e-5"))
        fit(None, account=account)
        with pytest.raises(OverBudget):
            fit(None, account=account)
        assert account.spent == epsilon(1, delta="1e-5").as_rho()
        pure = book.open_account("pure", epsilon(10))
        with pytest.raises(WrongMeasure):
            fit(None, account=pure)


@pytest.mark.parametrize(
    ("changed", "error", "words"),
    [
        ({"spend": epsilon(1)}, BadLoss, "needs an epsilon with a delta"),
        ({"spend": 1.0}, BadLoss, "spend is a loss"),
        ({"rate": None}, BadInput, "number of rows is private"),
        ({"rate": 0}, BadNumber, "rate is a probability"),
        ({"rate": 2}, BadNumber, "rate is a probability"),
        ({"lot": 0}, BadNumber, "lot is a whole number"),
        ({"steps": 0}, BadNumber, "steps is a whole number"),
        ({"epochs": 3}, BadInput, "epochs or steps, not both"),
        ({"steps": None, "epochs": -1}, BadNumber, "epochs is a number above 0"),
        ({"averaging": 1}, BadNumber, "averaging is the decay"),
        ({"optimizer": "adam"}, BadInput, "one of optax"),
        ({"clipping": None}, BadInput, "Without clipping"),
        ({"units": np.arange(N)}, BadInput, "max_rows=8"),
        ({"units": np.arange(5), "max_rows": 1}, BadInput, "one identifier for each row"),
        ({"max_rows": 3}, BadInput, "belongs to units"),
        ({"target": "y"}, BadInput, "columns of a dataset"),
        ({"progress": "yes"}, BadInput, "progress is True for a bar"),
        ({"account": "rows"}, BadInput, "account is one of a ledger"),
        ({"checkpoint": "/nowhere/at/all"}, BadInput, "folder that exists"),
        ({"bands": 8}, BadInput, "passes of a stated number of lots"),
        ({"bands": 1, "lot": 100}, BadNumber, "bands is a whole number"),
        ({"bands": 8, "lot": 100, "rate": "2/31"}, BadInput, "passes of a stated number"),
        ({"bands": 8, "lot": 100, "steps": 61}, BadInput, "whole passes"),
        ({"bands": 8, "lot": 100, "rate": "1/4"}, BadInput, "at least as many lots"),
        ({"bands": 8, "lot": 100, "clipping": "adaptive"}, BadInput, "one clipping norm"),
        ({"bands": 8, "lot": 100, "checkpoint": "run.npz"}, BadInput, "Leave checkpoint out"),
        ({"bands": 8, "lot": 100, "order": np.arange(5)}, BadInput, "one whole number for each row"),
        ({"order": np.arange(N)}, BadInput, "belongs to correlated noise"),
        ({"data": (X, Y[:5])}, BadInput, "all of one length"),
        ({"data": (np.array(["a"]),)}, BadInput, "arrays of numbers"),
        ({"data": "nowhere.npz"}, BadInput, "no npz file"),
        ({"data": X}, BadInput, "loss fails .* TypeError"),
        ({"data": (X[:, :3], Y)}, BadInput, "loss fails"),
    ],
    ids=lambda value: str(value)[:40] if isinstance(value, dict) else "",
)  # fmt: skip
def test_wrong_arguments_are_one_sentence_before_the_charge(changed, error, words, tmp_path):
    with pytest.raises(error, match=words):
        fit(tmp_path, **changed)
    assert charged(tmp_path) == []


@pytest.mark.parametrize("params", [{}, {"w": "no"}, {"w": np.array([np.nan])}, {"w": np.arange(3)}])
def test_params_are_finite_floats(params, tmp_path):
    with pytest.raises(BadInput, match="params is a tree of arrays"):
        train(loss, params, (X, Y), spend=rho(1), rate=1, ledger=tmp_path)


def test_refusals_do_not_depend_on_cells(tmp_path):
    broken = np.full_like(X, np.nan)
    messages = set()
    for rows in (X, broken, X * 1e30):
        with pytest.raises(CloisterError) as failed:
            fit(tmp_path, (rows, Y), spend=epsilon(1))
        messages.add(str(failed.value))
    assert len(messages) == 1


@pytest.mark.parametrize("odd", [1e308, -1e308, np.inf, np.nan, 5e-324, -0.0])
def test_no_number_warns_or_stops_a_run(odd, tmp_path):
    rows, told = X.astype(np.float64), {"spend": rho("0.1"), "rate": 1, "lot": N, "epochs": None, "steps": 1}
    rows[3, 1] = odd
    with warnings.catch_warnings(), np.errstate(all="raise"):
        warnings.simplefilter("error")
        result = fit(tmp_path, (rows, Y), **told)
    assert np.isfinite(result.params["w"]).all()


def test_a_declared_type_decides_and_a_list_has_none(tmp_path):
    """One odd cell in a list would decide how all others are read, or that they are refused."""
    messages = set()
    for odd in (1, 0.5, None, "x", [1], 2**70):
        with pytest.raises(BadInput) as failed:
            fit(tmp_path, (X, [odd, *Y.tolist()[1:]]))
        messages.add(str(failed.value))
    assert len(messages) == 1
    gaps = [None, *Y.tolist()[1:]]
    for column in (pl.Series, pa.array, lambda cells: pd.Series(cells, dtype="Int64")):
        kinds = {read_rows((X, column(cells))).row for cells in (Y.tolist(), gaps)}
        assert kinds == {(((4,), np.dtype(np.float32)), ((), np.dtype(np.float32)))}


@pytest.mark.parametrize("missing", [None, float("nan"), np.nan, pd.NaT, pd.NA, {}, [1, 2], np.datetime64("NaT")])
def test_rows_without_a_unit_are_left_out_whatever_stands_there(missing):
    names = ["a", "b", missing, "a", missing, 7]
    groups = read_rows(X[:6], units=names, max_rows=2).groups
    assert [group.tolist() for group in groups] == [[0, 3], [1], [5]]
    groups = read_rows(X[:3], units=np.array([1.0, np.nan, 1.0]), max_rows=2).groups
    assert [group.tolist() for group in groups] == [[0, 2]]
    moments = np.array(["2020-01-01", "NaT", "2020-01-01"], dtype="datetime64[ns]")
    assert [group.tolist() for group in read_rows(X[:3], units=moments, max_rows=2).groups] == [[0, 2]]


def test_an_error_inside_the_run_keeps_the_charge_and_tells_nothing(tmp_path):
    def interrupt(progress):
        raise ValueError(f"a row is {X[0, 0]}")

    with pytest.raises(LookFailed) as failed:
        fit(tmp_path, progress=interrupt)
    assert str(X[0, 0]) not in str(failed.value)
    assert charged(tmp_path) == [epsilon(1, delta="1e-5").as_rho()]


def test_an_empty_lot_is_noise():
    from cloister.learn.deep import private_gradient

    gradient = private_gradient(lambda params, x: jnp.vdot(params["w"], x))
    empty = gradient.sums({"w": np.zeros(4, np.float32)}, (X[:0],))
    released = gradient.mechanism(rho(1)).release(empty, SeededSource(1))
    assert (released != 0).all()
