"""Cross-validation that charges its fits and puts noise on its scores."""

import numpy as np
import pandas as pd
import polars as pl
import pytest
from sklearn.linear_model import LogisticRegression as Plain
from sklearn.pipeline import make_pipeline

import cloister as cl
from cloister import learn
from cloister.privacy.budget_split import budget_share
from cloister.privacy.errors import BadInput, BadLoss, BadSchema, NotPrivate, OverBudget
from cloister.privacy.release import Release

SPEND = cl.epsilon(1, delta="1e-6")
PUBLIC = {"bounds": (0, 1), "classes": [0, 1]}


def made(n=4_000, d=3, seed=0):
    random = np.random.default_rng(seed)
    rows = random.random((n, d))
    labels = (random.random(n) < 1 / (1 + np.exp(-(rows - 0.5) @ np.full(d, 6.0)))).astype(int)
    return rows, labels


@pytest.mark.parametrize("spend", [SPEND, cl.epsilon(2), cl.rho("0.05")], ids=["delta", "pure", "rho"])
def test_scores_are_near_the_truth(tmp_path, spend):
    rows, labels = made()
    truth = Plain().fit(rows, labels).score(rows, labels)
    model = learn.LogisticRegression(spend, **PUBLIC)
    scores = learn.cross_val_score(model, rows, labels, cv=3, ledger=tmp_path, random_state=0)
    assert isinstance(scores, Release)
    assert scores.value.shape == scores.standard_error.shape == (3,)
    assert abs(scores.value.mean() - truth) < 0.04
    assert ((scores.standard_error > 0) & (scores.standard_error < 0.05)).all()


def test_the_fits_and_the_scores_are_charged_together(tmp_path):
    rows, labels = made(300)
    book = cl.Ledger.in_folder(tmp_path)
    account = book.open_account("rows", cl.rho("0.2"))
    model = learn.LogisticRegression(cl.rho("0.02"), **PUBLIC)
    scores = learn.cross_val_score(model, rows, labels, cv=4, score_spend=cl.rho("0.01"), account=account)
    assert scores.loss == cl.rho("0.09")
    assert account.spent == cl.rho("0.09")
    assert scores.private
    scores.receipt.verify(book.key.public)
    with pytest.raises(OverBudget):
        learn.cross_val_score(model, rows, labels, cv=8, account=account)
    assert account.spent == cl.rho("0.09")


def test_the_noise_on_the_scores_is_what_it_says(tmp_path):
    rows, labels = made(400)
    model = learn.LinearSVC(cl.rho(100), **PUBLIC)
    told = {"cv": 2, "ledger": cl.Ledger.in_folder(tmp_path)}
    exact = [
        learn.cross_val_score(model, rows, labels, score_spend=cl.rho(1000), random_state=i, **told).value
        for i in range(30)
    ]
    noisy = [
        learn.cross_val_score(model, rows, labels, score_spend=cl.rho("0.01"), random_state=i, **told)
        for i in range(30)
    ]
    # The seed throws the same folds, and the fits come first: only the noise on the scores differs.
    errors = np.array([one.value - other for one, other in zip(noisy, exact, strict=True)]).ravel()
    stated = np.array([one.standard_error for one in noisy]).ravel()
    assert 0.7 < np.sqrt((errors**2).mean()) / np.sqrt((stated**2).mean()) < 1.4


@pytest.mark.parametrize(
    ("model", "scoring", "low", "high"),
    [
        (learn.LogisticRegression(SPEND, **PUBLIC), "neg_log_loss", -0.7, -0.3),
        (learn.LinearRegression(SPEND, bounds=(0, 1), target_bounds=(0, 1)), None, -0.25, -0.1),
    ],
    ids=["log loss", "squared error"],
)
def test_other_scores_are_in_the_units_people_know(tmp_path, model, scoring, low, high):
    rows, labels = made()
    several = [
        learn.cross_val_score(model, rows, labels, scoring=scoring, ledger=tmp_path, random_state=seed)
        for seed in range(4)  # one fold's noise can reach the end of the scale
    ]
    assert low < np.mean([scores.value for scores in several]) < high


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame, list], ids=["pandas", "polars", "lists"])
def test_frames_and_lists_are_taken(tmp_path, frame):
    rows, labels = made(300)
    table = frame({"a": rows[:, 0], "b": rows[:, 1]}) if frame is not list else rows[:, :2].tolist()
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    scores = learn.cross_val_score(model, table, list(labels), cv=2, ledger=tmp_path, random_state=0)
    assert ((scores.value >= 0) & (scores.value <= 1)).all()


def test_pipelines_pay_for_every_part(tmp_path):
    rows, labels = made(300)
    line = make_pipeline(
        learn.StandardScaler(cl.rho("0.01"), bounds=(0, 1)),
        learn.LogisticRegression(cl.rho("0.02"), bounds=(-4, 4), classes=[0, 1]),
    )
    scores = learn.cross_val_score(line, rows, labels, cv=2, ledger=tmp_path, random_state=0)
    assert scores.loss == cl.rho("0.063")
    with pytest.raises(NotPrivate, match="learns from rows without paying"):
        learn.cross_val_score(Plain(), rows, labels)


def test_neither_no_rows_nor_one_class_makes_it_fail(tmp_path):
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    for rows, labels in ((np.zeros((0, 2)), np.zeros(0, dtype=int)), (np.zeros((3, 2)), np.ones(3, dtype=int))):
        scores = learn.cross_val_score(model, rows, labels, ledger=tmp_path)
        assert np.isfinite(scores.value).all()


def test_what_is_wrong_is_told_before_anything_is_charged(tmp_path):
    rows, labels = made(50)
    model = learn.LogisticRegression(SPEND, **PUBLIC)
    for change, error in (
        ({"cv": 1}, BadInput),
        ({"cv": True}, BadInput),
        ({"score_spend": cl.epsilon(1)}, BadLoss),
        ({"scoring": "roc_auc"}, BadInput),
    ):
        with pytest.raises(error):
            learn.cross_val_score(model, rows, labels, ledger=tmp_path / "unused", **change)
    with pytest.raises(BadInput):
        learn.cross_val_score(model, rows, labels[:-1], ledger=tmp_path / "unused")
    with pytest.raises(BadSchema):
        learn.cross_val_score(learn.LogisticRegression(SPEND, bounds=(0, 1)), rows, labels, ledger=tmp_path / "unused")
    assert not (tmp_path / "unused").exists()
    assert budget_share(SPEND).loss.measure == "rho"
