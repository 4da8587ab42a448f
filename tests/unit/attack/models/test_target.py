"""Estimators, functions and endpoints are asked in one way, and every row that is asked is counted."""

import json
import threading
import warnings
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC

from cloister import learn
from cloister.attack.models.membership import membership
from cloister.attack.models.stealing import steal
from cloister.attack.models.target import Target
from cloister.learn import serving
from cloister.privacy.errors import BadInput, PeerLost

DRAW = np.random.default_rng(1)
X = DRAW.normal(size=(200, 3))
Y = np.where(X[:, 0] + DRAW.normal(0, 0.5, 200) > 0, "yes", "no")
MODEL = LogisticRegression().fit(X, Y)


class Service(BaseHTTPRequestHandler):
    """Answers as the path says."""

    visited: ClassVar[list[str]] = []

    def do_GET(self):
        self.visited.append(self.path)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"labels": []}')

    def do_POST(self):
        rows = np.array(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["rows"])
        found = {
            "/full": lambda: json.dumps({"probabilities": MODEL.predict_proba(rows).tolist()}),
            "/labels": lambda: json.dumps({"labels": MODEL.predict(rows).tolist()}),
            "/list": lambda: "[1, 2]",
            "/other": lambda: '{"answer": 1}',
            "/text": lambda: '{"labels": "yes"}',
            "/ragged": lambda: '{"probabilities": [[1], [0.5, 0.5]]}',
            "/broken": lambda: "{",
            "/deep": lambda: "[" * 200_000,
            "/lists": lambda: '{"labels": [[1], [2, 3]]}',
            "/few": lambda: '{"probabilities": [[0.5, 0.5]]}',
        }.get(self.path)
        if self.path.startswith("/moved/"):
            self.send_response(int(self.path[7:]))
            self.send_header("Location", "/full")
            self.end_headers()
            return
        self.send_response(200 if found else 500)
        self.end_headers()
        if found:
            self.wfile.write(found().encode())

    def log_message(self, *args):
        """Say nothing."""


@pytest.fixture(scope="module")
def address():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


def test_an_endpoint_is_asked_like_the_model_behind_it(address):
    target = Target.of(f"{address}/full", classes=["no", "yes"])
    assert np.allclose(target.probabilities(X), MODEL.predict_proba(X))
    assert (target.labels(X) == MODEL.predict(X)).all()
    assert np.allclose(target.losses(X, Y), Target.of(MODEL).losses(X, Y))
    assert target.queries == 600


def test_an_endpoint_is_attacked_and_stolen(address):
    found = membership(f"{address}/full", members=(X[:100], Y[:100]), others=(X[100:], Y[100:]), method="lira",
                       fit=LogisticRegression(), shadows=4, classes=["no", "yes"], random_state=0)  # fmt: skip
    assert found.target == f"{address}/full"
    copy = steal(f"{address}/full", test=X, box=(-3, 3), classes=["no", "yes"], random_state=0)
    assert copy.success == 1
    assert copy.figures["queries"] == 4


def test_an_endpoint_of_labels_is_attacked_by_labels(address):
    target = Target.of(f"{address}/labels", classes=["no", "yes"])
    assert (target.labels(X) == MODEL.predict(X)).all()
    with pytest.raises(BadInput, match="shows labels only"):
        target.probabilities(X)
    found = membership(f"{address}/labels", members=(X[:100], Y[:100]), others=(X[100:], Y[100:]), method="labels",
                       access="labels only", perturbations=3, classes=["no", "yes"], random_state=0)  # fmt: skip
    assert found.attempts == 200


@pytest.mark.parametrize("path", ["/broken", "/deep", "/nowhere"])
def test_an_endpoint_that_gives_no_json_is_lost(address, path):
    with pytest.raises(PeerLost, match="gave no answer in JSON"):
        Target.of(address + path).labels(X)


@pytest.mark.parametrize("path", ["/list", "/other", "/text", "/ragged", "/few"])
def test_an_endpoint_that_answers_something_else_is_refused(address, path):
    with pytest.raises(BadInput, match="must answer"):
        Target.of(address + path).probabilities(X)


def test_labels_that_are_lists_are_refused(address):
    with pytest.raises(BadInput, match="one label for each row"):
        Target.of(f"{address}/lists").labels(X[:2])


@pytest.mark.parametrize("code", [301, 302, 303, 307, 308])
def test_a_redirect_is_not_followed(address, code):
    with pytest.raises(PeerLost, match="HTTPError"):
        Target.of(f"{address}/moved/{code}").labels(X)
    assert not Service.visited


def test_a_function_beside_an_estimator_gets_the_rows_as_they_are():
    model = LogisticRegression().fit(pd.DataFrame(X, columns=["a", "b", "c"]), Y)
    seen = []

    def features(rows):
        seen.append(rows)
        return model.predict_proba(pd.DataFrame(rows[:, :3], columns=["a", "b", "c"]))

    target = Target(name="inner", access="black box", classes=model.classes_, model=model, _scores=features)
    assert target.probabilities(np.column_stack((X, X))).shape == (200, 2)
    assert isinstance(seen[0], np.ndarray)


def test_an_address_where_nobody_listens_is_lost():
    with pytest.raises(PeerLost):
        Target.of("http://127.0.0.1:9/predict").labels(X)


def test_rows_that_json_does_not_hold_are_refused(address):
    with pytest.raises(BadInput, match="asked in JSON"):
        Target.of(f"{address}/full").labels(np.array([[object()]]))


def test_margins_become_probabilities_that_order_alike():
    model = LinearSVC().fit(X, Y)
    found = Target.of(model).probabilities(X)
    assert np.allclose(found.sum(axis=1), 1)
    assert (np.argsort(found[:, 1]) == np.argsort(model.decision_function(X))).all()


def test_a_function_of_one_column_is_the_probability_of_the_second_class():
    target = Target.of(lambda rows: np.full(len(rows), 0.75))
    assert target.probabilities(X[:2]).tolist() == [[0.25, 0.75]] * 2
    assert target.labels(X[:2]).tolist() == [1, 1]
    assert target.logits(X[:1], [1])[0] == pytest.approx(np.log(3))


def test_a_function_whose_probabilities_are_hidden_still_gives_labels():
    target = Target.of(MODEL.predict_proba, classes=["no", "yes"], labels_only=True)
    assert (target.labels(X) == MODEL.predict(X)).all()
    with pytest.raises(BadInput, match="shows labels only"):
        target.probabilities(X)


def test_a_model_of_numbers_has_squared_errors_as_losses():
    model = LinearRegression().fit(X, X[:, 0])
    target = Target.of(model)
    assert target.answers_numbers
    assert np.allclose(target.losses(X, X[:, 0] + 2), 4)


def test_a_served_model_is_asked_as_its_policy_allows():
    service = learn.serve(MODEL, policy=serving.rounded(1))
    found = Target.of(service).probabilities(X)
    assert np.allclose(found * 10, np.rint(found * 10))


def test_frames_are_passed_on_as_they_are():
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LogisticRegression().fit(frame, Y)
    assert np.allclose(Target.of(model).probabilities(frame), model.predict_proba(frame))


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (lambda rows: rows * 5, "not from 0 to 1. Apply softmax"),
        (lambda rows: rows * np.nan, "not from 0 to 1"),
        (lambda rows: rows[:1], r"got the shape \(1, 3\) for 200 rows"),
        (lambda rows: 0.5, "got the shape"),
        (lambda rows: np.zeros((200, 0)), "got the shape"),
        (lambda rows: [["a"]] * 200, "no matrix of numbers"),
        (lambda rows: [[1], [0, 1]], "no matrix of numbers"),
        (lambda rows: None, "not from 0 to 1|got the shape"),
    ],
)
def test_a_function_that_answers_no_probabilities_is_told_so(answer, sentence):
    with pytest.raises(BadInput, match=sentence):
        Target.of(answer).probabilities(X)


@pytest.mark.parametrize("thing", [3, None, [1], "ftp://host/model", "model.pkl"])
def test_what_is_no_target_is_refused(thing):
    with pytest.raises(BadInput, match=r"a target is an estimator|begins with http"):
        Target.of(thing)


def test_classes_and_columns_must_agree():
    with pytest.raises(BadInput, match="3 classes and answers 2"):
        Target.of(lambda rows: np.full((len(rows), 2), 0.5), classes=["a", "b", "c"]).probabilities(X)
    with pytest.raises(BadInput, match="none of the classes"):
        Target.of(MODEL).losses(X, ["maybe"] * 200)


def test_models_that_cannot_answer_are_refused_in_a_sentence():
    with pytest.raises(BadInput, match="LogisticRegression is not fitted"):
        Target.of(LogisticRegression()).labels(X)
    with pytest.raises(BadInput, match=r"failed on rows of 2 columns.*without the label"):
        Target.of(MODEL).labels(X[:, :2])
    with pytest.raises(BadInput, match="<lambda> failed on rows of 3 columns"):
        Target.of(lambda rows: 1 / 0).probabilities(X)


def test_a_model_of_named_columns_is_asked_by_name():
    frame = pd.DataFrame(X, columns=["age", "cost", "stay"])
    model = LogisticRegression().fit(frame, Y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert (Target.of(model).labels(X) == model.predict(frame)).all()
    members, others = (X[:100], Y[:100]), (X[100:], Y[100:])
    by_name = make_pipeline(make_column_transformer((StandardScaler(), ["age", "stay"])), LogisticRegression())
    by_name.fit(frame[:100], Y[:100])
    assert membership(by_name, members=members, others=others, method="lira", shadows=4).roc.auc < 0.7
    with pytest.raises(BadInput, match=r"fitted with the columns age, cost, stay, and is asked about rows with .*ill"):
        Target.of(model).labels(frame.assign(ill=Y))
    with pytest.raises(BadInput, match="fitted with 3 columns, age, cost, stay, and is asked about rows of 2"):
        Target.of(model).labels(X[:, :2])


def test_labels_that_a_function_does_not_name_are_not_taken_for_safety():
    for ask in (MODEL.predict_proba, lambda rows: MODEL.predict_proba(rows)[:, 1]):
        with pytest.raises(BadInput, match=r"the labels of 100 of 100 members are none of the classes.*classes="):
            membership(ask, members=(X[:100], Y[:100]), others=(X[100:], Y[100:]))
        membership(ask, members=(X[:100], Y[:100]), others=(X[100:], Y[100:]), classes=["no", "yes"])
