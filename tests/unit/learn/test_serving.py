"""Served models: output policies, limits, log, names, the export guard, and private prediction."""

import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from sklearn.compose import TransformedTargetRegressor, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import BaggingClassifier, RandomForestClassifier, VotingClassifier, VotingRegressor
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KernelDensity, KNeighborsClassifier
from sklearn.pipeline import make_pipeline, make_union
from sklearn.preprocessing import MinMaxScaler, QuantileTransformer, StandardScaler
from sklearn.semi_supervised import LabelSpreading, SelfTrainingClassifier
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier

import cloister as cl
from cloister import learn, lessons
from cloister.learn import serving
from cloister.learn.pate import PATEClassifier
from cloister.learn.serving.guard import _PARAMETRIC
from cloister.privacy.errors import BadInput, LookFailed, OutputRefused, OverBudget

RANDOM = np.random.default_rng(1)
ROWS = RANDOM.random((600, 3))
LABELS = np.digitize(ROWS[:, 0], [0.3, 0.7])
PUBLIC = {"bounds": (0, 1), "classes": [0, 1, 2]}
SPEND = cl.rho(1)


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


@pytest.fixture(scope="module")
def model(book: Any) -> Any:
    return learn.LogisticRegression(SPEND, **PUBLIC, ledger=book).fit(ROWS, LABELS)


# Policies.


def test_a_policy_shows_what_it_says_and_no_more(model: Any) -> None:
    asked, told = ROWS[:40], model.predict_proba(ROWS[:40])
    label = learn.serve(model)
    assert (label.predict(asked) == model.predict(asked)).all()
    top = learn.serve(model, serving.top_k(2))
    assert (top.top(asked) == np.argsort(-told, axis=1, kind="stable")[:, :2]).all()
    coarse = learn.serve(model, "rounded 1")
    assert (coarse.predict_proba(asked) == np.round(told, 1)).all()
    whole = learn.serve(model, serving.full())
    assert (whole.predict_proba(asked) == told).all()
    assert (whole.decision_function(asked) == model.decision_function(asked)).all()
    for service, hidden in (
        (label, ("top", "predict_proba", "decision_function")),
        (top, ("predict_proba", "decision_function")),
        (coarse, ("decision_function",)),
    ):
        for verb in hidden:
            with pytest.raises(OutputRefused, match=r"is not shown\. Ask for predict\."):
                getattr(service, verb)(asked)


def test_the_class_of_a_rounded_answer_follows_from_the_rounded_probabilities(model: Any) -> None:
    coarse = learn.serve(model, serving.rounded(0))
    shown = np.round(model.predict_proba(ROWS), 0)
    assert (coarse.predict(ROWS) == shown.argmax(axis=1)).all()
    assert (coarse.top(ROWS) == np.argsort(-shown, axis=1, kind="stable")).all()


def test_numbers_are_rounded_to_significant_digits_or_shown_in_full() -> None:
    line = LinearRegression().fit(ROWS, 1234.5678 * ROWS[:, 0])
    told = learn.serve(line, serving.rounded(2)).predict(ROWS)
    assert all(len(f"{value:g}".replace(".", "").replace("-", "").strip("0")) <= 2 for value in told)
    assert (learn.serve(line, serving.full()).predict(ROWS) == line.predict(ROWS)).all()
    with pytest.raises(BadInput, match="predicts numbers"):
        learn.serve(line)


@pytest.mark.parametrize(
    "policy", ["", "top", "top 0", "top -1", "rounded 9", "rounded x", "label 2", "Full", 3, object()]
)
def test_an_unknown_policy_is_refused(model: Any, policy: Any) -> None:
    with pytest.raises(BadInput):
        learn.serve(model, policy)


@pytest.mark.parametrize(
    "policy", [serving.label_only(), serving.top_k(3), serving.rounded(2), serving.full()], ids=str
)
def test_a_policy_is_read_as_it_is_written(policy: Any) -> None:
    assert serving.OutputPolicy.parse(str(policy)) == policy


def test_a_model_without_probabilities_shows_labels_alone(book: Any) -> None:
    model = learn.LinearSVC(SPEND, **PUBLIC, ledger=book).fit(ROWS, LABELS)
    learn.serve(model).predict(ROWS)
    with pytest.raises(BadInput, match="needs probabilities"):
        learn.serve(model, "rounded 2")


# Limits and log.


def test_rows_are_counted_and_refused_beyond_the_limit(model: Any) -> None:
    service = learn.serve(model, queries=25, queries_each=15)
    service.predict(ROWS[:10], caller="ann")
    with pytest.raises(OutputRefused, match="5 more rows may be asked about by this caller, and these are 6"):
        service.predict(ROWS[:6], caller="ann")
    service.predict(ROWS[:15], caller="bob")
    with pytest.raises(OutputRefused, match="0 more rows"):
        service.predict(ROWS[:1], caller="cyd")
    assert service.left == 0
    told = [(entry.caller, entry.verb, entry.rows, entry.answered) for entry in service.log]
    assert told == [
        ("ann", "predict", 10, True),
        ("ann", "predict", 6, False),
        ("bob", "predict", 15, True),
        ("cyd", "predict", 1, False),
    ]


def test_a_refused_kind_of_answer_counts_no_rows(model: Any) -> None:
    service = learn.serve(model, queries=10)
    with pytest.raises(OutputRefused):
        service.predict_proba(ROWS[:5])
    assert service.left == 10


def test_callers_in_threads_never_get_more_than_the_limit(model: Any) -> None:
    service, answered = learn.serve(model, queries=100), []

    def ask() -> None:
        for _ in range(20):
            try:
                answered.append(len(service.predict(ROWS[:3])))
            except OutputRefused:
                return

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(answered) == 99
    assert service.left == 1
    assert sum(entry.rows for entry in service.log if entry.answered) == 99


def test_a_service_is_neither_pickled_nor_shows_its_model(model: Any) -> None:
    service = learn.serve(model, queries=5)
    with pytest.raises(OutputRefused, match="not pickled"):
        pickle.dumps(service)
    assert repr(service) == "<ModelService: policy label, 5 rows left>"
    assert not hasattr(service, "model")


@pytest.mark.parametrize("rows", [ROWS[:2, :2], [["a", "b"]], np.zeros(3), 5])
def test_rows_of_another_form_are_refused_and_not_counted(model: Any, rows: Any) -> None:
    service = learn.serve(model, queries=5)
    with pytest.raises(BadInput):
        service.predict(rows)
    assert service.left == 5


# Names.


FRAMES = {
    "pandas": lambda names: pd.DataFrame(ROWS[:9], columns=names),
    "polars": lambda names: pl.DataFrame(dict(zip(names, ROWS[:9].T, strict=True))),
    "arrow": lambda names: pa.table(dict(zip(names, ROWS[:9].T, strict=True))),
    "batch": lambda names: pa.RecordBatch.from_pydict(dict(zip(names, ROWS[:9].T, strict=True))),
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("own", [True, False])
def test_feature_names_are_replaced_and_never_said(book: Any, frame: str, own: bool) -> None:
    secret = ["salary", "diagnosis", "age"]
    made: Any = learn.LogisticRegression(SPEND, **PUBLIC, ledger=book) if own else LogisticRegression()
    model = made.fit(pd.DataFrame(ROWS, columns=secret), LABELS)
    service = learn.serve(model, names="plain")
    assert service.features == ("f0", "f1", "f2")
    told = service.predict(FRAMES[frame](["f0", "f1", "f2"]))
    np.testing.assert_array_equal(told, model.predict(pd.DataFrame(ROWS[:9], columns=secret)))
    for names in (["f1", "f0", "f2"], secret):
        with pytest.raises(BadInput, match="f0, f1, f2") as refused:
            service.predict(FRAMES[frame](names))
        assert "salary" not in str(refused.value)
    named = learn.serve(model, names={"salary": "a"})
    assert named.features == ("a", "diagnosis", "age")


@pytest.mark.parametrize("names", ["other", {"nobody": "a"}, {"a": "b"}, ["a"]])
def test_names_that_fit_no_feature_are_refused(book: Any, names: Any) -> None:
    model = learn.GaussianNB(SPEND, **PUBLIC, ledger=book).fit(pd.DataFrame(ROWS, columns=["a", "b", "c"]), LABELS)
    with pytest.raises(BadInput):
        learn.serve(model, names=names)


# The export guard.


def fitted(made: Any) -> Any:
    return made.fit(ROWS, LABELS)


CARRIERS = {
    "neighbours": (lambda: fitted(KNeighborsClassifier()), "all rows"),
    "support vectors": (lambda: fitted(SVC()), "support vectors"),
    "gaussian process": (lambda: fitted(GaussianProcessClassifier()), "all rows"),
    "density": (lambda: KernelDensity().fit(ROWS), "all rows"),
    "label spreading": (lambda: fitted(LabelSpreading()), "all rows"),
    "tree": (lambda: fitted(DecisionTreeClassifier()), "as few as one"),
    "forest": (lambda: fitted(RandomForestClassifier(2)), "not known"),
    "smallest and largest": (lambda: fitted(make_pipeline(MinMaxScaler(), LogisticRegression())), "single rows"),
    "last step": (lambda: fitted(make_pipeline(StandardScaler(), KNeighborsClassifier())), "all rows"),
    "first step": (lambda: fitted(make_pipeline(make_union(StandardScaler(), MinMaxScaler()), GaussianNB())), "single"),
    "columns": (
        lambda: fitted(make_pipeline(make_column_transformer((MinMaxScaler(), [0])), GaussianNB())),
        "single rows",
    ),
    "vote": (lambda: fitted(VotingClassifier([("a", GaussianNB()), ("b", KNeighborsClassifier())])), "all rows"),
    "bag": (lambda: fitted(BaggingClassifier(KNeighborsClassifier(), 2)), "all rows"),
    "search": (lambda: fitted(GridSearchCV(KNeighborsClassifier(), {"n_neighbors": [1, 2]}, cv=2)), "all rows"),
    "pickle": (lambda: pickle.dumps(fitted(GaussianNB())), "pickle"),
    "path": (lambda: "model.joblib", "pickle or a file"),
    "class": (lambda: GaussianNB, "not known"),
    "not fitted": (lambda: LogisticRegression(), "not fitted"),
    "something": (lambda: object(), "not known"),
    "seeded": (
        lambda: fitted(learn.GaussianNB(SPEND, **PUBLIC, random_state=1)),
        "not private",
    ),
    "lesson": (
        lambda: lessons.LogisticRegression(
            cl.epsilon(1), bounds=(0, 1), classes=[0, 1], method="output", random_state=1
        ).fit(ROWS, LABELS % 2),
        "class of its own",
    ),
    "unfitted private": (lambda: learn.GaussianNB(SPEND, **PUBLIC), "not fitted"),
    "teachers": (lambda: serving.TeacherEnsemble(bounds=(0, 1), classes=[0, 1, 2]).fit(ROWS, LABELS), "not known"),
}


def with_rows(model: Any) -> Any:
    model.rows_ = ROWS
    return model


CARRIERS |= {
    "table on a pipeline": (lambda: with_rows(fitted(make_pipeline(StandardScaler(), GaussianNB()))), "rows_"),
    "table on a vote": (lambda: with_rows(fitted(VotingClassifier([("a", GaussianNB())]))), "rows_"),
    "self-training": (
        lambda: SelfTrainingClassifier(GaussianNB()).fit(ROWS, np.where(ROWS[:, 1] < 0.5, LABELS, -1)),
        "label of every row",
    ),
    "scores of a search": (lambda: fitted(GridSearchCV(GaussianNB(), {"priors": [None]}, cv=2)), "best_estimator_"),
    "bag's votes on its rows": (lambda: fitted(BaggingClassifier(GaussianNB(), 50, oob_score=True)), "oob_decision"),
    "bag's weights of its rows": (
        lambda: BaggingClassifier(GaussianNB(), 2).fit(ROWS, LABELS, sample_weight=np.ones(len(ROWS))),
        "weight of every row",
    ),
    "fitted model to copy": (
        lambda: fitted(VotingClassifier([("a", with_rows(fitted(GaussianNB())))])),
        "fitted itself",
    ),
    "transformed target": (
        lambda: fitted(TransformedTargetRegressor(Ridge(), transformer=QuantileTransformer(n_quantiles=5))),
        "single rows",
    ),
    "table as a parameter": (lambda: fitted(GaussianNB()).set_params(priors=ROWS), "parameter priors"),
    "function as a parameter": (lambda: fitted(Ridge()).set_params(alpha=lambda: ROWS), "parameter alpha"),
}


@pytest.mark.parametrize(
    "made",
    [
        lambda: make_pipeline(StandardScaler(), LogisticRegression(class_weight={0: 1, 1: 2, 2: 1})),
        lambda: make_pipeline(make_union(StandardScaler(), PCA(2)), GaussianNB(priors=np.array([0.2, 0.3, 0.5]))),
        lambda: make_pipeline(
            make_column_transformer((StandardScaler(), [0]), remainder=StandardScaler()), GaussianNB()
        ),
        lambda: VotingClassifier([("a", GaussianNB()), ("b", make_pipeline(StandardScaler(), LogisticRegression()))]),
        lambda: VotingRegressor([("a", Ridge()), ("b", LinearRegression())]),
        lambda: BaggingClassifier(GaussianNB(), 2, random_state=np.random.RandomState(1)),
        lambda: OneVsRestClassifier(LogisticRegression()),
        lambda: TransformedTargetRegressor(Ridge()),
    ],
)
def test_containers_of_parametric_models_pass_as_their_fit_leaves_them(made: Any) -> None:
    model = fitted(made())
    serving.check_export(model)
    model.rows_ = ROWS
    with pytest.raises(OutputRefused, match="rows_"):
        serving.check_export(model)


@pytest.mark.parametrize("name", CARRIERS)
def test_what_may_carry_rows_does_not_leave(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    made, match = CARRIERS[name]
    model = made()
    with pytest.raises(OutputRefused, match=match):
        serving.check_export(model)
    with pytest.raises(OutputRefused):
        learn.serve(model)
    if hasattr(model, "get_params") and not hasattr(model, "spend"):
        with pytest.raises(BadInput):
            learn.save(model, tmp_path / "file", key=cl.SigningKey.create())
        assert not (tmp_path / "file").exists()


def test_saving_a_model_that_carries_rows_says_what_it_carries(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="stores all rows it was fitted to"):
        learn.save(fitted(KNeighborsClassifier()), tmp_path / "model", key=cl.SigningKey.create())


@pytest.mark.parametrize("name", _PARAMETRIC)
def test_a_parametric_model_passes_as_its_fit_leaves_it_and_with_nothing_more(name: str) -> None:
    import sklearn.discriminant_analysis
    import sklearn.linear_model
    import sklearn.naive_bayes
    import sklearn.preprocessing
    import sklearn.svm

    homes = (sklearn.linear_model, sklearn.naive_bayes, sklearn.discriminant_analysis, sklearn.svm)
    homes += (sklearn.preprocessing, sklearn.decomposition)
    kind = next(getattr(home, name) for home in homes if hasattr(home, name))
    model = fitted(kind())
    serving.check_export(model, rows=len(ROWS))
    model.rows_ = ROWS
    with pytest.raises(OutputRefused, match="rows_, which no fit sets"):
        serving.check_export(model)
    del model.rows_
    model.coef_ = ROWS
    model.mean_ = ROWS
    with pytest.raises(OutputRefused):
        serving.check_export(model, rows=len(ROWS))


def test_private_models_pass_and_with_a_foreign_attribute_do_not(book: Any) -> None:
    made = [
        learn.GaussianNB(SPEND, **PUBLIC, ledger=book),
        learn.DecisionTreeClassifier(SPEND, **PUBLIC, ledger=book),
        make_pipeline(learn.MinMaxScaler(bounds=(0, 1)), learn.LinearSVC(SPEND, **PUBLIC, ledger=book)),
        PATEClassifier(SPEND, public=ROWS[:50], classes=[0, 1, 2], teachers=20, ledger=book, estimator=GaussianNB()),
    ]
    for model in made:
        serving.check_export(fitted(model))
    model = made[0]
    model.rows_ = ROWS
    with pytest.raises(OutputRefused, match="which no fit sets"):
        learn.serve(model)


def test_a_class_of_ones_own_below_a_private_model_does_not_leave(book: Any) -> None:
    class GaussianNB(learn.GaussianNB):  # type: ignore[misc]
        pass

    model = fitted(GaussianNB(SPEND, **PUBLIC, ledger=book))
    with pytest.raises(OutputRefused, match="class of its own"):
        serving.check_export(model)


# Private prediction.


def ensemble(**more: Any) -> Any:
    told = {"teachers": 60, "classes": [0, 1, 2], "bounds": (0, 1), **more}
    return serving.TeacherEnsemble(GaussianNB(), **told)


@pytest.mark.parametrize("each", [cl.rho("0.05"), cl.epsilon("0.3")], ids=str)
def test_every_new_row_is_paid_for_and_an_old_one_is_answered_again(book: Any, each: Any) -> None:
    cap = each * 40 if each.measure == "rho" else cl.epsilon(12)
    account = book.open_account(f"votes-{each.measure}", cap)
    service = learn.serve(ensemble().fit(ROWS, LABELS), serving.private(each, account))
    assert account.spent.amount == 0  # nothing was read
    asked = ROWS[:30]
    told = service.predict(asked)
    assert (told == LABELS[:30]).mean() > 0.7
    assert account.spent == each * 30
    assert (service.predict(asked[::-1]) == told[::-1]).all()
    assert (service.predict(np.repeat(asked[:1], 50, axis=0)) == told[0]).all()
    assert account.spent == each * 30
    service.predict(ROWS[100:110])
    with pytest.raises(OverBudget):
        service.predict(ROWS[200:201])
    assert account.spent == each * 40
    for verb in ("top", "predict_proba", "decision_function"):
        with pytest.raises(OutputRefused):
            getattr(service, verb)(asked)


def test_an_answer_that_another_account_paid_for_is_paid_for_again(book: Any) -> None:
    first, second = (book.open_account(name, cl.rho(1)) for name in ("votes-first", "votes-second"))
    teachers = ensemble().fit(ROWS, LABELS)
    for account in (first, second):
        learn.serve(teachers, serving.private(cl.rho("0.05"), account)).predict(ROWS[:4])
        assert account.spent == cl.rho("0.2")


def test_no_single_model_has_private_prediction(model: Any, book: Any) -> None:
    account = book.open_account("none", SPEND)
    for other in (model, fitted(GaussianNB()), fitted(BaggingClassifier(GaussianNB(), 3))):
        with pytest.raises(OutputRefused, match="no private prediction"):
            learn.serve(other, serving.private(cl.rho("0.1"), account))
    assert account.spent.amount == 0


def test_an_ensemble_answers_through_a_paid_policy_alone(book: Any) -> None:
    teachers = ensemble().fit(ROWS, LABELS)
    for policy in (None, "full", serving.rounded(1)):
        with pytest.raises(OutputRefused, match="teachers without noise"):
            learn.serve(teachers, policy)
    with pytest.raises(OutputRefused, match="not pickled"):
        pickle.dumps(teachers)
    with pytest.raises(BadInput, match="which account pays"):
        learn.serve(teachers, serving.private(cl.rho("0.1"))).predict(ROWS[:1])
    with pytest.raises(BadInput, match="Call fit first"):
        learn.serve(ensemble(), serving.private(cl.rho("0.1")))


def test_an_ensemble_of_a_dataset_pays_from_its_account_for_its_unit(tmp_path: Path) -> None:
    number = {"type": "real", "bounds": [0, 1], "nullable": False}
    columns = {"a": number, "b": number, "c": {"type": "integer", "categories": [0, 1, 2], "nullable": False}}
    facts = {"unit": {"name": "who", "max_rows": 9}, "tables": {"t": {"unit": "who", "columns": columns}}}
    rows = pd.DataFrame({"who": RANDOM.integers(200, size=600), "a": ROWS[:, 0], "b": ROWS[:, 1], "c": LABELS})
    with cl.open(rows, schema=facts, budget=cl.rho(5), ledger=tmp_path) as data:
        teachers = serving.TeacherEnsemble(GaussianNB(), teachers=40).fit(data, target="c", features=["a", "b"])
        service = learn.serve(teachers, serving.private(cl.rho("0.05")), names="plain")
        told = service.predict(pd.DataFrame(ROWS[:20, :2], columns=["f0", "f1"]))
        assert (told == LABELS[:20]).mean() > 0.6
        assert data.account.spent == cl.rho(1)
        assert "one who" in str(teachers.receipts[0])
        twice = learn.serve(teachers, serving.private(cl.rho("0.05"), data.account))
        with pytest.raises(BadInput, match="own account pays"):
            twice.predict(ROWS[:1, :2])


def test_teachers_that_cannot_be_fitted_answer_all_the_same(book: Any) -> None:
    account = book.open_account("odd", cl.rho(10))
    for rows, labels in ((ROWS[:0], LABELS[:0]), (np.full((50, 3), np.nan), LABELS[:50]), (ROWS, LABELS * 0 + 9)):
        service = learn.serve(ensemble().fit(rows, labels), serving.private(cl.rho("0.1"), account))
        try:
            assert service.predict(np.full((2, 3), np.nan)).shape == (2,)
        except LookFailed as failed:
            pytest.fail(failed.owner_detail)


def test_a_linear_svc_is_parametric_and_an_svc_is_not() -> None:
    serving.check_export(fitted(LinearSVC()))
    serving.check_export(fitted(Ridge()))
    with pytest.raises(OutputRefused):
        serving.check_export(fitted(SVC(kernel="linear")))
