"""A collector learns a classifier from reports that each say one thing about one person, with noise."""

import subprocess
import sys
from itertools import product
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from cloister import local
from cloister.lessons.local_accuracy import evaluate, without_privacy
from cloister.local.analysis.directions import discriminant, principal
from cloister.local.analysis.naive_bayes import Beliefs, LocalNaiveBayes, conditional
from cloister.local.base.columns import Choices, Cut, Span, equal_frequency, equal_width
from cloister.local.mechanisms.labelled import STEPS, LabelledNumber
from cloister.local.survey.form import FormAnswer, form_of
from cloister.privacy.errors import BadBounds, BadCandidates, BadInput, BadLoss, NotPrivate
from cloister.privacy.noise import SeededSource

# Table 5.1: age, income, gender, and whether a payment was missed.
MORTGAGE = [
    "Young Low Male yes", "Young High Female yes", "Medium High Male no", "Old Medium Male no", "Old High Male no",
    "Old Low Female yes", "Medium Low Female no", "Medium Medium Male yes", "Young Low Male no", "Old High Female no",
]  # fmt: skip
ROWS = [line.split()[:3] for line in MORTGAGE]
MISSED = [line.split()[3] for line in MORTGAGE]
CATEGORIES = [["Young", "Medium", "Old"], ["Low", "Medium", "High"], ["Male", "Female"]]
ASKED = ["Young", "Medium", "Female"]


def mortgage(amount: Any = 20, **more: Any) -> LocalNaiveBayes:
    return LocalNaiveBayes(amount, classes=["yes", "no"], categories=CATEGORIES, **more)


def test_the_worked_example_predicts_a_missed_payment() -> None:
    """Spec LDP-20 and E-05: the source prints 0.055 for the other class, and concludes the opposite."""
    form = mortgage().form()
    read, own = form.read(ROWS), form.classes.codes(MISSED)
    prior = np.bincount(own) / 10
    assert prior.tolist() == [0.4, 0.6]
    tables = {}
    for place, column in enumerate(form.columns):
        assert isinstance(column, Choices)
        cells = np.bincount(read[place] * 2 + own, minlength=2 * column.size).reshape(-1, 2)
        tables[place] = (cells / cells.sum(axis=0)).T
    assert tables[0].tolist() == pytest.approx(np.array([[2 / 4, 1 / 4, 1 / 4], [1 / 6, 2 / 6, 3 / 6]]))
    missed, paid = np.exp(Beliefs(prior, tables).scores(form.read(ASKED)))[0]
    assert missed == pytest.approx(0.025)
    assert paid == pytest.approx(0.6 / 6 / 6 / 3)
    assert missed > paid


def test_the_worked_example_is_learned_from_reports() -> None:
    model = mortgage(random_state=1).fit(ROWS * 2000, MISSED * 2000)
    assert model.predict([ASKED]).tolist() == ["yes"]
    missed, paid = model.predict_proba([ASKED])[0]
    assert missed / paid == pytest.approx(4.5, rel=0.15)
    assert model.class_prior_ == pytest.approx([0.4, 0.6], abs=0.01)
    assert model.feature_prob_[0][0] == pytest.approx([0.5, 0.25, 0.25], abs=0.03)


def test_joint_codes_are_those_of_table_5_3() -> None:
    """Young with C1 is 1, with C2 2, Medium with C1 3 and so on: ours count from 0."""
    form = mortgage().form()
    ages, classes = Choices(tuple(CATEGORIES[0])), form.classes
    codes = [ages.codes([age])[0] * 2 + classes.codes([one])[0] + 1 for age in CATEGORIES[0] for one in ("yes", "no")]
    assert codes == [1, 2, 3, 4, 5, 6]
    assert [question.oracle.domain for question in form.questions] == [2, 6, 6, 4]


def test_both_binners_cut_the_fixture_as_printed() -> None:
    fixture = [0, 4, 12, 16, 16, 18, 24, 26, 28]
    width = Cut(equal_width(0, 28, 3)).codes(fixture)
    frequency = Cut(equal_frequency(fixture, 3)).codes(fixture)
    assert width.tolist() == [0, 0, 1, 1, 1, 1, 2, 2, 2]
    assert frequency.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    with pytest.raises(BadInput):
        equal_frequency([1, 2], 3)
    with pytest.raises(BadBounds):
        equal_width(3, 3, 2)


def test_each_person_answers_exactly_one_question_that_is_drawn_without_looking() -> None:
    model = mortgage(1)
    one = model.report(ROWS[0], "yes")
    assert len(one) == 1
    assert len(one[0].reports) == 1
    many = model.report(ROWS * 100, MISSED * 100, SeededSource(3))
    other = model.report([ROWS[4]] * 1000, ["no"] * 1000, SeededSource(3))
    sizes = [(answer.question, len(answer.reports)) for answer in many]
    assert sum(size for _, size in sizes) == 1000
    assert sizes == [(answer.question, len(answer.reports)) for answer in other]
    assert all(size == pytest.approx(250, abs=70) for _, size in sizes)


def test_a_report_of_a_whole_form_is_listed_and_certified() -> None:
    form = form_of(Choices(("a", "b")), [Choices(("x", "y")), Cut((0.0, 1.0))], local.epsilon("1.5"), "OUE")
    certificate = local.verify(form)
    assert (certificate.holds, certificate.method) == (True, "listed")
    assert certificate.ratio == max(question.oracle.largest_ratio() for question in form.questions)
    assert all(one.holds for one in form.certificates())
    cheaper = local.verify(form_of(form.classes, form.columns, local.epsilon("1.4"), "OUE"))
    assert cheaper.epsilon is not None
    assert certificate.epsilon is not None
    assert cheaper.epsilon < certificate.epsilon


@pytest.mark.parametrize("oracle", ["DE", "SHE", "THE", "SUE", "OUE", "OLH", "HR", "SS", "advised"])
def test_every_oracle_serves_by_name(oracle: str) -> None:
    model = mortgage(4, oracle=oracle, random_state=2).fit(ROWS * 400, MISSED * 400)
    assert all(one.holds for one in model.form_.certificates())
    assert model.predict([ASKED]).tolist() == ["yes"]
    assert model.n_reports_ == 4000
    assert np.allclose(model.feature_prob_[1].sum(axis=1), 1)


def test_an_oracle_may_be_a_function_and_must_be_known() -> None:
    def the(domain: int, loss: Any) -> local.Oracle:
        return local.ThresholdEncoding.for_loss(domain, loss, theta="0.25")

    assert {question.oracle.name for question in mortgage(oracle=the).form().questions} == {"threshold-encoding"}
    with pytest.raises(BadInput):
        mortgage(oracle="RAPPOR").form()


# Labelled numbers.


def test_two_labelled_numbers_differ_by_at_most_two_whatever_their_classes() -> None:
    hidden = LabelledNumber(3, 1, local.epsilon(1))
    grid = [(j, b) for j in range(3) for b in (-STEPS, -STEPS // 2, 0, 7, STEPS)]
    vectors = [np.eye(3, dtype=int)[j] * b for j, b in grid]
    assert max(int(np.abs(v - w).sum()) for v, w in product(vectors, vectors)) == hidden.sensitivity
    assert local.verify(hidden).holds
    for amount in ("0.01", "1/3", "0.7", "7"):
        for numbers in (1, 5):
            certificate = local.verify(LabelledNumber(2, numbers, local.epsilon(amount)))
            assert certificate.holds
            assert certificate.epsilon == pytest.approx(float(local.epsilon(amount).amount), rel=1e-9)
    with pytest.raises(BadLoss):
        LabelledNumber(2, 4096, local.epsilon("0.001"))


def test_labelled_numbers_survive_the_wire_and_add_up() -> None:
    hidden = LabelledNumber(3, 2, local.epsilon(20))
    people = 6000
    classes, numbers = np.arange(people) % 3, np.column_stack([np.full(people, 0.5), np.arange(people) % 2 - 0.5])
    reports = hidden.perturb((classes, numbers), SeededSource(4))
    wire = hidden.encode(reports)
    assert wire.shape == (people, hidden.width)
    back, refused = hidden.decode([*(row.tobytes() for row in wire), b"no", b"\xff\xff\xff\x7f" * 6])
    assert refused == 2
    assert np.array_equal(back.data, reports.data)
    means = hidden.estimate(hidden.aggregate(reports))
    assert means.frequencies.reshape(2, 3)[0] == pytest.approx(0.5 / 3, abs=5 * float(means.standard_error[0]))
    assert not means.private
    data = reports.data / STEPS
    assert data[classes == 0][:, 1].var() == pytest.approx(float(hidden.variance(np.zeros(1), 1)[0]), rel=0.25)
    for wrong in (([0, 3], [[0, 0], [0, 0]]), ([0], [[0]]), ([0], [[np.nan, 0]]), (0,), ([0], [["a", "b"]])):
        with pytest.raises(BadInput):
            hidden.perturb(wrong)


def test_gaussian_features_are_learned_with_hidden_labels() -> None:
    random = np.random.default_rng(5)
    y = random.integers(0, 2, 60_000)
    rows = np.column_stack([40 + 20 * y + random.normal(0, 5, y.size), random.normal(0, 1, y.size)])
    model = LocalNaiveBayes(
        10, classes=[0, 1], bounds=[(0, 100), (-5, 5)], bins="gaussian", variance="own", random_state=6
    ).fit(rows, y)
    assert [question.about for question in model.form_.questions] == ["class", *["numbers", "squares"] * 2]
    assert model.theta_[0] == pytest.approx([40, 60], abs=1.5)
    assert model.var_[0] == pytest.approx([25, 25], abs=25)
    assert (model.predict(rows) == y).mean() > 0.95
    assert all(one.holds for one in model.form_.certificates())
    split = clone(model).set_params(split=True, variance="shared").fit(rows, y)
    assert [question.about for question in split.form_.questions] == ["class", "numbers", "squares"]
    assert split.form_.questions[1].oracle.sensitivity == 4 * STEPS  # type: ignore[attr-defined]


def test_a_variance_is_never_below_its_floor() -> None:
    rows, y = np.full((400, 1), 0.5), np.arange(400) % 2
    model = LocalNaiveBayes(1, classes=[0, 1], bounds=[(0, 1)], bins="gaussian", variance="own", random_state=1)
    assert min(model.fit(rows, y).var_[0]) >= 1e-3 / 4
    assert np.isfinite(model.predict_log_proba([[0.0], [1.0]])).all()


# The estimator.


def test_it_is_a_scikit_learn_estimator() -> None:
    model = mortgage(3, oracle="OUE", random_state=1)
    twin = clone(model)
    assert twin.get_params() == model.get_params()
    assert not hasattr(twin, "form_")
    piped = make_pipeline(FunctionTransformer(), model).fit(np.array(ROWS * 50), np.array(MISSED * 50))
    assert piped.predict_proba(np.array([ASKED])).sum() == pytest.approx(1)
    assert 0 <= piped.score(np.array(ROWS), np.array(MISSED)) <= 1
    assert str(model.loss_) == str(local.epsilon(3))
    assert mortgage(local.epsilon(3)).form().loss == model.loss_


def test_bytes_that_arrive_in_parts_make_the_same_model_and_garbage_is_counted() -> None:
    model = mortgage(6)
    answers = model.report(ROWS * 100, MISSED * 100, SeededSource(9))
    whole = clone(model).fit_reports(answers)
    questions = model.form().questions
    bytes_ = [
        FormAnswer(one.question, questions[one.question].oracle.encode(one.reports)[start : start + 50])
        for one in reversed(answers)
        for start in range(0, len(one.reports), 50)
    ]
    junk: list[Any] = [
        FormAnswer(1, None),
        FormAnswer(99, b""),
        FormAnswer("x", b""),
        None,
        FormAnswer(0, [b"far too long"]),
    ]  # type: ignore[arg-type]
    parts = clone(model).fit_reports([*bytes_, *junk])
    assert parts.refused_ == 5
    assert whole.refused_ == 0
    assert np.allclose(parts.predict_proba(ROWS), whole.predict_proba(ROWS))
    with pytest.raises(BadInput, match="no report"):
        clone(model).fit_reports([])


def test_the_mark_of_a_seed_travels_to_the_model() -> None:
    assert mortgage(2).fit(ROWS, MISSED).require_private().private_
    seeded = mortgage(2, random_state=1).fit(ROWS, MISSED)
    assert not seeded.private_
    with pytest.raises(NotPrivate):
        seeded.require_private()


def test_a_question_that_nobody_answered_says_nothing() -> None:
    model = mortgage(20)
    answers = [one for one in model.report(ROWS * 500, MISSED * 500, SeededSource(2)) if one.question != 1]
    model.fit_reports(answers)
    assert model.estimates_[1] is None
    assert np.allclose(model.feature_prob_[0], 1 / 3)


def test_public_facts_are_given_and_never_guessed() -> None:
    with pytest.raises(BadInput):
        LocalNaiveBayes(1, categories=CATEGORIES).form()
    with pytest.raises(BadInput):
        LocalNaiveBayes(classes=[0, 1], categories=CATEGORIES).form()
    for facts in (
        {},
        {"bounds": [None]},
        {"categories": [["a", "b"]], "bounds": [(0, 1)]},
        {"categories": [], "bounds": []},
    ):
        with pytest.raises(BadInput):
            LocalNaiveBayes(1, classes=[0, 1], **facts).form()
    with pytest.raises(BadCandidates) as caught:
        mortgage(1).report(["Ancient123", "Low", "Male"], "yes")
    assert "Ancient" not in str(caught.value)
    with pytest.raises(BadCandidates):
        mortgage(1).report(ROWS[0], "perhaps")
    with pytest.raises(BadInput):
        mortgage(1).report(ROWS, ["yes"])
    with pytest.raises(BadInput):
        mortgage(1).report(["Young", "Low"], "yes")
    with pytest.raises(BadInput, match="missing"):
        LocalNaiveBayes(1, classes=[0, 1], bounds=[(0, 1)]).report([np.nan], 0)
    with pytest.raises(BadInput):
        LocalNaiveBayes(1, classes=[0, 1], bounds=[(0, 1)], variance="some").fit([[0.0]], [0])


def test_mixed_columns_keep_their_types() -> None:
    rows = [["a", 0.1], ["b", 0.9]] * 300
    model = LocalNaiveBayes(
        8, classes=[False, True], categories=[["a", "b"], None], bounds=[None, (0, 1)], random_state=1
    ).fit(rows, [False, True] * 300)
    assert model.predict(rows[:2]).tolist() == [False, True]
    cut = LocalNaiveBayes(8, classes=[0, 1], categories=[["a", "b"], None], edges=[None, (0.5,)], random_state=1)
    assert cut.form().questions[2].oracle.domain == 4


def test_a_projection_is_a_public_matrix_and_nothing_else() -> None:
    from sklearn.decomposition import PCA

    random = np.random.default_rng(7)
    y = random.integers(0, 2, 8000)
    rows = random.normal(0, 1, (8000, 12)) + 0.9 * y[:, None]
    public, labels = rows[:500], y[:500]
    for count, matrix in ((1, discriminant(public, labels, 1)), (2, principal(public, 2))):
        bounds = [(-8.0, 8.0)] * count
        model = LocalNaiveBayes(3, classes=[0, 1], bounds=bounds, bins=16, projection=matrix, random_state=1)
        assert len(model.form().questions) == count + 1
        assert model.fit(rows[500:], y[500:]).score(rows[500:], y[500:]) > 0.85
        assert model.n_features_in_ == 12
        assert clone(model).get_params()["projection"].shape == (12, count)
    for wrong in ("pca", PCA(2), lambda rows: rows, [1.0, 2.0], [["a"]], [[np.nan]]):
        with pytest.raises(BadInput):
            LocalNaiveBayes(3, classes=[0, 1], bounds=[(-8, 8)], projection=wrong).form()
    with pytest.raises(BadInput):
        LocalNaiveBayes(3, classes=[0, 1], categories=[["a", "b"]], projection=[[1.0]]).form()
    with pytest.raises(BadInput):
        model.predict(rows[:, :3])
    with pytest.raises(BadInput):
        discriminant(public, labels, 2)


def test_noise_that_hides_a_column_leaves_no_evidence_in_it() -> None:
    raw = np.array([[0.3, 0.2], [0.22, 0.28]])
    loud = conditional(raw, 1.0, 1000, np.array([0.5, 0.5]))
    quiet = conditional(raw, 0.0, 10**9, np.array([0.52, 0.48]))
    assert loud[0] == pytest.approx(loud[1], abs=0.02)
    assert quiet == pytest.approx((raw / raw.sum(axis=0)).T, abs=0.01)


def test_columns_refuse_what_is_not_public_knowledge() -> None:
    with pytest.raises(BadCandidates):
        Choices(("a", "a"))
    with pytest.raises(BadBounds):
        Cut((2.0, 1.0))
    with pytest.raises(BadBounds):
        Span(1.0, float("inf"))
    with pytest.raises(BadInput):
        Span(0.0, 1.0).scaled(["tall"])


def test_the_experiment_has_curves_and_both_lines_and_a_chart() -> None:
    found = evaluate(mortgage(), ROWS * 40, MISSED * 40, epsilons=("1", "5"), repeats=2)
    assert {name for name, *_ in found.table} == {"DE", "SHE", "THE", "SUE", "OUE"}
    assert found.majority == pytest.approx(0.6, abs=0.1)
    assert found.plain > found.majority
    assert found.mean("DE", 5) >= 0.5
    with pytest.raises(BadInput):
        found.mean("DE", 3)
    spec = found.chart("Mortgages").to_dict()
    assert "without privacy" in spec["title"]["subtitle"]
    assert "http" not in str(spec.get("data", ""))


def test_without_privacy_agrees_with_scikit_learn() -> None:
    from sklearn.naive_bayes import GaussianNB

    random = np.random.default_rng(8)
    y = random.integers(0, 3, 3000)
    rows = np.clip(random.normal(0, 0.2, (3000, 2)) + 0.2 * y[:, None], -1, 1)
    form = form_of(Choices((0, 1, 2)), [Span(-1.0, 1.0)] * 2, local.epsilon(1))
    ours = without_privacy(form, rows, y).scores(form.read(rows))
    theirs = GaussianNB().fit(rows, y).predict_proba(rows)
    assert np.allclose(np.exp(ours - np.logaddexp.reduce(ours, axis=1, keepdims=True)), theirs, atol=1e-3)


def test_a_device_answers_a_form_without_scikit_learn() -> None:
    code = (
        "import sys\n"
        "from cloister.local.survey.form import answer, form_of\n"
        "from cloister.local.base.columns import Choices, Span\n"
        "from cloister.local.base.oracle import epsilon\n"
        "form = form_of(Choices((0, 1)), [Choices(('a', 'b')), Span(0.0, 1.0)], epsilon(1))\n"
        "assert len(answer(form, [['a', 0.3]], [1])) == 1\n"
        "assert not [name for name in sys.modules if name.startswith('sklearn')]\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
