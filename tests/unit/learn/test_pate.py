"""PATE: labels of public rows by noisy votes of disjoint teachers."""

import pickle
import random
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin, clone
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import cloister as cl
from cloister import learn
from cloister.learn.pate import PATEClassifier
from cloister.learn.pate.aggregation import usual_queries
from cloister.learn.pate.student import LinearStudent
from cloister.learn.pate.teachers import Teachers, counted
from cloister.privacy.errors import BadInput, BadLoss, BadSchema, NotPrivate, OverBudget
from cloister.privacy.filter import BudgetShare

RANDOM = np.random.default_rng(3)
ROWS, POOL, ASKED = (RANDOM.normal(size=(n, 3)) for n in (3000, 300, 800))
LABELS, TRUTH = (np.array(["no", "yes"])[(rows[:, 0] > rows[:, 1]).astype(int)] for rows in (ROWS, ASKED))
SPEND = cl.epsilon(3, delta="1e-5")


@pytest.fixture(scope="module")
def book(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with cl.Ledger.in_folder(tmp_path_factory.mktemp("ledger")) as ledger:
        yield ledger


def made(book: Any, spend: Any = SPEND, **more: Any) -> PATEClassifier:
    told = {"public": POOL, "teachers": 50, "estimator": GaussianNB(), "classes": ["no", "yes"], "ledger": book}
    return PATEClassifier(spend, **{**told, **more})


class Odd(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A teacher that misbehaves as it is told."""

    def __init__(self, what: str = "fit", random_state: Any = None) -> None:
        self.what = what
        self.random_state = random_state

    def fit(self, rows: Any, labels: Any) -> "Odd":
        print("rows seen:", len(rows))
        warnings.warn(f"{len(rows)} rows", stacklevel=1)
        if self.what == "fit":
            raise ValueError(f"only {len(rows)} rows")
        self.model_ = GaussianNB().fit(rows, labels)
        return self

    def predict(self, rows: Any) -> Any:
        if self.what == "predict":
            raise ValueError("no")
        if self.what == "unlisted":
            return np.full(len(rows), 7.5)
        return self.model_.predict(rows)


@pytest.mark.parametrize(
    ("spend", "more"),
    [
        (SPEND, {}),
        (SPEND, {"confident": 0.7}),
        (SPEND, {"check_teachers": True}),
        (SPEND, {"student": DecisionTreeClassifier(max_depth=4), "estimator": None}),
        (SPEND, {"student": LinearSVC(), "pseudo_labels": False}),
        (cl.epsilon(20), {}),
        (cl.epsilon(20), {"confident": 0.6, "check_teachers": True}),
    ],
    ids=str,
)
def test_the_student_learns_what_the_teachers_agree_on(book: Any, spend: Any, more: dict[str, Any]) -> None:
    model = made(book, spend, **more).fit(ROWS, LABELS)
    assert (model.predict(ASKED) == TRUTH).mean() > 0.8
    assert set(model.labels_) <= {"no", "yes"}
    assert len(model.labels_) == len(model.labelled_) <= len(POOL)
    assert model.release_.private
    model.release_.receipt.verify(book.key.public)
    assert (model.teacher_agreement_ is None) == ("check_teachers" not in more)
    if "pseudo_labels" not in more:
        np.testing.assert_allclose(model.predict_proba(ASKED).sum(axis=1), 1)


def test_the_whole_spend_is_charged_before_the_first_look(tmp_path: Path) -> None:
    with cl.Ledger.in_folder(tmp_path) as ledger:
        account = ledger.open_account("a", cl.rho("0.1"))
        with pytest.raises(OverBudget):
            made(None, cl.rho("0.2"), ledger=None, account=account).fit(ROWS, LABELS)
        assert account.spent.amount == 0
        made(None, cl.rho("0.1"), ledger=None, account=account).fit(ROWS, LABELS)
        assert account.spent == cl.rho("0.1")


@pytest.mark.parametrize("confident", [None, 0.7])
def test_nothing_of_teachers_votes_or_parts_is_kept(book: Any, confident: Any) -> None:
    model = made(book, estimator=Odd("none"), confident=confident).fit(ROWS, LABELS)
    known = {
        *model.get_params(deep=False),
        "student_",
        "labels_",
        "labelled_",
        "teacher_agreement_",
        "classes_",
        "data_dependent_",
    }
    known |= {"release_", "loss_", "n_features_in_", "_of_dataset", "_features", "_box"}
    assert set(vars(model)) == known
    assert isinstance(model.student_, LinearStudent)
    pickled = pickle.dumps(model)
    assert b"model_" not in pickled.replace(b"Odd", b"")  # the fitted part of a teacher
    assert b"Teachers" not in pickled
    assert (pickle.loads(pickled).predict(ASKED) == model.predict(ASKED)).all()
    # Of 3,000 private rows none is in the file: it is as long as the public rows and the student.
    assert len(pickled) < POOL.nbytes + 20_000


@pytest.mark.parametrize("what", ["fit", "predict", "unlisted"])
def test_teachers_that_fail_vote_by_a_public_rule_and_say_nothing(book: Any, what: str, capsys: Any) -> None:
    model = made(book, estimator=Odd(what)).fit(ROWS, LABELS)
    assert model.predict(ASKED).shape == TRUTH.shape
    assert capsys.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        (np.zeros((0, 3)), LABELS[:0]),
        (ROWS[:5], LABELS[:5]),
        (ROWS, np.full(len(ROWS), "yes")),
        (ROWS, np.full(len(ROWS), "maybe")),
        (np.full((200, 3), np.nan), LABELS[:200]),
        (np.full((200, 3), np.inf), LABELS[:200]),
        (np.zeros((200, 3)), LABELS[:200]),
    ],
    ids=["none", "few", "one class", "unlisted", "missing", "infinite", "constant"],
)
@pytest.mark.parametrize("estimator", [GaussianNB(), None], ids=["bayes", "usual"])
def test_no_rows_make_a_fit_fail(book: Any, rows: Any, labels: Any, estimator: Any) -> None:
    for confident in (None, 0.9):
        model = made(book, estimator=estimator, teachers=10, confident=confident).fit(rows, labels)
        assert model.predict(ASKED).shape == TRUTH.shape


def test_a_teacher_that_changes_its_rows_in_place_moves_its_own_votes_alone(book: Any) -> None:
    learner = make_pipeline(StandardScaler(copy=False), LogisticRegression())
    pool = POOL.copy()

    def votes_of(last: float) -> Any:
        parts = [(ROWS[at : at + 60] * 10.0**at + at, (LABELS[at : at + 60] == "yes").astype(int)) for at in range(4)]
        parts[0][0][-1] = last
        return Teachers.fit(learner, parts, 2, np.random.default_rng(1)).votes(pool)

    votes, others = votes_of(0.0), votes_of(1e6)
    assert np.array_equal(pool, POOL)
    assert not np.array_equal(others[0], votes[0])
    assert np.array_equal(others[1:], votes[1:])
    # The student's rows are the public ones, not what a teacher made of them.
    model = made(book, estimator=learner, pseudo_labels=False, queries=len(POOL)).fit(ROWS, LABELS)
    np.testing.assert_allclose(model.student_.centre, POOL.mean(axis=0))


class Drawing(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A teacher that draws from the generators of the process, as often as it has rows."""

    def fit(self, rows: Any, labels: Any) -> "Drawing":
        self.model_ = GaussianNB().fit(rows, labels)
        self.shift_ = np.random.normal(size=len(rows))[0] + random.choices([0.0, 0.1], k=len(rows))[0]
        return self

    def predict(self, rows: Any) -> Any:
        noise = np.random.normal(size=len(rows)) * self.shift_ + random.random()
        return (self.model_.predict_proba(rows)[:, 1] + noise > 0.5).astype(int)


def test_a_teacher_that_draws_from_global_generators_moves_its_own_votes_alone() -> None:
    def votes_of(more: int) -> Any:
        parts = [
            (ROWS[at : at + 60 + more * (not at)], (LABELS[at : at + 60 + more * (not at)] == "yes").astype(int))
            for at in (0, 100, 200)
        ]
        np.random.seed(1)
        random.seed(1)
        votes = Teachers.fit(Drawing(), parts, 2, np.random.default_rng(1)).votes(POOL)
        return votes, np.random.random(), random.random()

    (votes, *states), (others, *others_states) = votes_of(0), votes_of(1)
    assert not np.array_equal(votes[0], others[0])
    assert np.array_equal(votes[1:], others[1:])
    np.random.seed(1)
    random.seed(1)
    assert states == others_states == [np.random.random(), random.random()]


def test_a_teacher_without_a_model_votes_by_its_number_or_its_only_class() -> None:
    parts = [
        (np.zeros((0, 1)), np.zeros(0, dtype=np.int64)),
        (np.zeros((0, 1)), np.zeros(0, dtype=np.int64)),
        (np.ones((2, 1)), np.array([0, 0])),
        (np.ones((2, 1)), np.array([0, 2])),
    ]
    teachers = Teachers.fit(Odd("fit"), parts, 3, np.random.default_rng(0))
    assert teachers.votes(np.zeros((2, 1))).tolist() == [[0, 0], [1, 1], [0, 0], [0, 0]]
    assert counted(teachers.votes(np.zeros((1, 1))), 3).tolist() == [[3, 1, 0]]


@pytest.mark.parametrize(
    ("more", "match"),
    [
        ({"public": None}, "public"),
        ({"public": POOL[:, :2]}, "2 features, and X has 3"),
        ({"public": POOL[:0]}, "no rows"),
        ({"teachers": 0}, "teachers"),
        ({"teachers": 2.5}, "teachers"),
        ({"queries": 0}, "queries"),
        ({"confident": 0.0}, "confident"),
        ({"confident": 1.5}, "confident"),
        ({"confident": np.nan}, "confident"),
        ({"estimator": GaussianNB}, "estimator"),
        ({"estimator": "bayes"}, "estimator"),
        ({"estimator": learn.GaussianNB(SPEND)}, "plain classifier"),
        ({"estimator": make_pipeline(learn.StandardScaler(SPEND), GaussianNB())}, "plain classifier"),
        ({"estimator": make_pipeline(GaussianNB(), memory="rows")}, "files"),
        ({"estimator": LinearSVC(verbose=1)}, "prints"),
        ({"student": LinearSVC()}, "pseudo_labels=False"),
        ({"pseudo_labels": "yes"}, "pseudo_labels"),
        ({"check_teachers": 1}, "check_teachers"),
    ],
    ids=str,
)
def test_what_follows_from_the_request_is_refused_before_the_charge(
    tmp_path: Path, more: dict[str, Any], match: str
) -> None:
    with pytest.raises(BadInput, match=match):
        made(tmp_path / "ledger", **more).fit(ROWS, LABELS)
    assert not (tmp_path / "ledger").exists()


def test_classes_and_a_spend_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(BadSchema):
        made(tmp_path / "ledger", classes=None).fit(ROWS, LABELS)
    with pytest.raises(BadLoss):
        made(tmp_path / "ledger", None).fit(ROWS, LABELS)
    assert not (tmp_path / "ledger").exists()


def test_it_is_cloned_and_asked_by_name(book: Any) -> None:
    names = ["a", "b", "c"]
    model = clone(made(book, public=pd.DataFrame(POOL, columns=names)))
    model.fit(pd.DataFrame(ROWS, columns=names), LABELS)
    assert list(model.feature_names_in_) == names
    model.predict(pd.DataFrame(ASKED, columns=names))
    with pytest.raises(BadInput, match="same order"):
        model.predict(pd.DataFrame(ASKED, columns=["b", "a", "c"]))
    with pytest.raises(BadInput, match="other names"):
        made(book, public=pd.DataFrame(POOL, columns=["b", "a", "c"])).fit(pd.DataFrame(ROWS, columns=names), LABELS)


def test_public_rows_with_gaps_are_filled_from_public_rows(book: Any) -> None:
    pool = POOL.copy()
    pool[::7, 0], pool[1, 1] = np.nan, np.inf
    asked = ASKED.copy()
    asked[0] = [np.nan, np.inf, -np.inf]
    model = made(book, public=pool).fit(ROWS, LABELS)
    assert model.predict(asked).shape == TRUTH.shape


def test_the_usual_student_is_kept_in_a_signed_file_and_a_foreign_one_is_not(book: Any, tmp_path: Path) -> None:
    model = made(book).fit(ROWS, LABELS)
    again = learn.load(learn.save(model, tmp_path / "model"), book.key.public)
    np.testing.assert_array_equal(again.predict_proba(ASKED), model.predict_proba(ASKED))
    foreign = made(book, student=DecisionTreeClassifier(max_depth=3)).fit(ROWS, LABELS)
    with pytest.raises(BadInput, match="DecisionTreeClassifier"):
        learn.save(foreign, tmp_path / "foreign")


def test_select_does_not_take_it(book: Any) -> None:
    models = [made(book, teachers=n) for n in (10, 20)]
    with pytest.raises(NotPrivate):
        learn.select(models, ROWS, LABELS, spend=SPEND, ledger=book)


PERSON = RANDOM.integers(300, size=len(ROWS))
NUMBER = {"type": "real", "bounds": [-4, 4], "nullable": False}
COLUMNS = {"a": NUMBER, "b": NUMBER, "back": {"type": "boolean", "nullable": False}}


@pytest.mark.parametrize("unit", ["person", "row"])
def test_a_dataset_pays_for_its_unit_once(tmp_path: Path, unit: str) -> None:
    rows = pd.DataFrame({"who": PERSON, "a": ROWS[:, 0], "b": ROWS[:, 1], "back": LABELS == "yes"})
    facts: dict[str, Any] = {"columns": COLUMNS, **({"unit": "who"} if unit == "person" else {})}
    schema = {"unit": {"name": "who", "max_rows": 30} if unit == "person" else "row", "tables": {"t": facts}}
    pool = pd.DataFrame({"b": POOL[:, 1], "a": POOL[:, 0]})
    with cl.open(rows, schema=schema, budget=cl.rho(1), ledger=tmp_path) as data:
        model = PATEClassifier(cl.rho("0.2"), public=pool, teachers=50, estimator=GaussianNB())
        model.fit(data, target="back", features=["a", "b"])
        assert data.account.spent == cl.rho("0.2")
    assert (model.predict(ASKED[:, :2]) == (TRUTH == "yes")).mean() > 0.8
    assert model.release_.unit.name == ("who" if unit == "person" else "row")
    # No group privacy: the same number of labels as for rows.
    assert len(model.labels_) == usual_queries(BudgetShare(cl.rho("0.2")), 50, 2, len(POOL))
