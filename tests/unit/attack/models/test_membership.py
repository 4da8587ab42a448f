"""A model that memorises is broken, one of independent rows is not; every finding says what would have helped."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

from cloister import epsilon, rho
from cloister.attack.models.membership import METHODS, membership, membership_suite
from cloister.attack.models.membership_finding import blind_guess, largest_auc, membership_of_scores, record_risk
from cloister.attack.models.rows import Marginals
from cloister.attack.models.target import Target
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, BadProbability

N = 300


def noise_table(seed=0, n=2 * N, width=4):
    """Return rows whose labels are dice of four sides, so that only memory predicts them."""
    draw = np.random.default_rng(seed)
    return draw.normal(size=(n, width)), draw.integers(0, 4, n)


X, Y = noise_table()
MEMBERS, OTHERS = (X[:N], Y[:N]), (X[N:], Y[N:])
MEMORY = DecisionTreeClassifier(random_state=0).fit(*MEMBERS)
REFERENCE = noise_table(9, 400)


def asked(method, model=MEMORY, **more):
    return membership(model, members=MEMBERS, others=OTHERS, method=method, random_state=1, shadows=8, **more)


@pytest.mark.parametrize("method", METHODS)
def test_a_model_that_memorises_is_broken_by_every_method(method):
    found = asked(method, claim=epsilon(1))
    assert found.roc.auc > 0.7
    assert found.learned
    assert found.baseline == 0.5
    if method != "labels":
        assert found.broken
    assert any("learn.serve" in sentence for sentence in found.remedies)
    assert len(found.risk) == 2 * N
    assert found.risk[:N].mean() > 0.7


@pytest.mark.parametrize("method", METHODS)
def test_a_model_of_independent_rows_tells_nothing(method):
    elsewhere = DecisionTreeClassifier(random_state=0).fit(*noise_table(7, N))
    found = asked(method, elsewhere, claim=epsilon(1))
    assert not found.learned
    assert not found.broken
    low, high = found.roc.auc_interval(0.999)
    assert low < 0.5 < high
    assert found.remedies == ()


def test_the_suite_trains_its_shadow_models_once_and_puts_the_strongest_first():
    fits = []

    def fit(rows, labels):
        fits.append(len(rows))
        return DecisionTreeClassifier(random_state=0).fit(rows, labels)

    steps = []
    found = membership_suite(
        MEMORY, members=MEMBERS, others=OTHERS, fit=fit, shadows=6, random_state=1, perturbations=6,
        progress=lambda share, words: steps.append((share, words)),
    )  # fmt: skip
    assert len(fits) == 6
    assert abs(np.mean(fits) - N) < 20  # half of the records each
    assert len(found) == len(METHODS)
    assert [f.roc.auc for f in found] == sorted((f.roc.auc for f in found), reverse=True)
    assert (1.0, "shadow model 6 of 6") in steps


def test_the_same_seed_gives_the_same_finding():
    assert asked("lira").to_json() == asked("lira").to_json()


@pytest.mark.parametrize("kind", ["noise", "statistics", "inversion"])
def test_shadow_models_of_rows_that_are_made_up_still_break_a_model_that_memorises(kind):
    found = asked("rmia", reference=REFERENCE, shadow_data=kind)
    assert found.roc.auc > 0.6
    assert found.learned


def test_published_marginals_are_enough_for_shadow_rows():
    columns = [((-1.5, -0.5, 0.5, 1.5), (1, 2, 2, 1))] * 4
    found = asked("shadow", marginals=columns, shadow_data="statistics")
    assert found.learned
    assert "statistics of single columns" in found.knowledge


def test_a_pair_of_own_rows_serves_as_shadow_data():
    assert asked("lira-offline", shadow_data=REFERENCE).roc.auc > 0.7


def test_frames_with_text_are_attacked_as_they_are():
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"ward": draw.choice(["a", "b", "c"], 2 * N), "age": draw.normal(50, 9, 2 * N)})
    frame["street"] = draw.integers(0, 200, 2 * N).astype(str)
    labels = np.array(["north", "east", "south", "west"])[Y]
    model = make_pipeline(
        OneHotEncoder(handle_unknown="ignore"), DecisionTreeClassifier(random_state=0)
    ).fit(frame[:N], labels[:N])  # fmt: skip
    sides = {"members": (frame[:N], labels[:N]), "others": (frame[N:], labels[N:])}
    found = membership_suite(model, **sides, shadows=4, perturbations=4, random_state=0)
    assert all(finding.learned for finding in found if "offline" not in finding.attack)


@pytest.mark.parametrize("kind", ["noise", "statistics", "inversion"])
def test_rows_that_are_made_up_keep_the_types_of_a_frame(kind):
    draw = np.random.default_rng(1)
    frame = pd.DataFrame({"age": draw.normal(50, 9, 2 * N), "old": draw.random(2 * N) > 0.5, "stays": Y})
    frame["ward"] = pd.Categorical(draw.choice(["a", "b", "c"], 2 * N))
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features="from_dtype").fit(frame[:N], Y[:N])
    found = membership(
        model, members=(frame[:N], Y[:N]), others=(frame[N:], Y[N:]), method="rmia", shadows=3, random_state=0,
        shadow_data=kind, reference=(frame[N:], Y[N:]),
    )  # fmt: skip
    assert found.attempts == 2 * N


def test_sparse_rows_are_attacked_as_they_are():
    model = LogisticRegression(C=1e6, max_iter=500).fit(sparse.csr_array(X[:60]), Y[:60])
    wide = np.hstack((X[:120], np.eye(120)))
    model = LogisticRegression(C=1e6, max_iter=500).fit(sparse.csr_matrix(wide[:60]), Y[:60])
    found = membership(
        model, members=(sparse.csr_matrix(wide[:60]), Y[:60]), others=(sparse.csr_matrix(wide[60:]), Y[60:120])
    )
    assert found.roc.auc > 0.8


def test_a_function_is_attacked_with_shadow_functions():
    def fit(rows, labels):
        memory = KNeighborsClassifier(1).fit(rows, labels)
        return lambda asked: memory.predict_proba(asked)

    found = membership(fit(*MEMBERS), members=MEMBERS, others=OTHERS, method="lira", fit=fit, shadows=8)
    assert found.roc.auc > 0.7
    assert found.target == "<lambda>"


def test_models_of_numbers_are_attacked_by_their_errors():
    draw = np.random.default_rng(2)
    goal = draw.normal(size=2 * N)
    model = KNeighborsRegressor(1).fit(X[:N], goal[:N])
    sides = {"members": (X[:N], goal[:N]), "others": (X[N:], goal[N:])}
    for method in ("loss", "quantile", "shadow", "lira", "rmia"):
        assert membership(model, **sides, method=method, shadows=8, random_state=0).learned, method
    fair = LinearRegression().fit(X[:N], goal[:N])
    assert not membership(fair, **sides, random_state=0).learned
    with pytest.raises(BadInput, match="predicts numbers"):
        membership(model, **sides, method="labels")
    with pytest.raises(BadInput, match="predicts numbers"):
        membership(model, **sides, method="rmia", shadow_data="inversion", reference=(X, goal))
    assert len(membership_suite(model, **sides, shadows=4, random_state=0)) == 6  # all but labels


def test_less_that_is_shown_tells_less_but_not_nothing():
    from cloister import learn
    from cloister.learn import serving

    draw = np.random.default_rng(8)
    rows, labels = draw.normal(size=(400, 150)), draw.integers(0, 2, 400)
    model = LogisticRegression(C=0.02, max_iter=500).fit(rows[:200], labels[:200])

    def area(policy):
        service = learn.serve(model, policy=policy)
        sides = {"members": (rows[:200], labels[:200]), "others": (rows[200:], labels[200:])}
        hidden = policy == serving.label_only()
        more = {"method": "labels", "access": "labels only"} if hidden else {"method": "loss"}
        return membership(service, **sides, **more, random_state=0).roc.auc

    shown = [area(policy) for policy in (serving.full(), serving.rounded(1), serving.rounded(0))]
    assert shown[0] > shown[1] > shown[2] > 0.6
    assert area(serving.label_only()) > shown[2]  # changed copies of a record find its distance from the boundary


def test_a_target_that_shows_labels_only_is_attacked_by_labels():
    target = Target.of(MEMORY, labels_only=True)
    found = membership(target, members=MEMBERS, others=OTHERS, method="labels", random_state=0)
    assert found.learned
    assert found.access == "labels only"
    assert found.figures["queries"] == 25 * 2 * N
    assert any("TeacherEnsemble" in sentence for sentence in found.remedies)
    (same,) = membership_suite(MEMORY, members=MEMBERS, others=OTHERS, access="labels only", random_state=0)
    assert same.roc.auc == found.roc.auc
    with pytest.raises(BadInput, match="method='labels'"):
        membership(target, members=MEMBERS, others=OTHERS, method="loss")


def test_a_class_that_a_shadow_model_never_saw_has_no_probability_there():
    labels = Y.copy()
    labels[0] = 7
    model = DecisionTreeClassifier(random_state=0).fit(X[:N], labels[:N])
    found = membership(
        model, members=(X[:N], labels[:N]), others=(X[N:], labels[N:]), method="lira", shadows=8, random_state=0
    )
    assert np.isfinite(found.risk).all()


def test_records_that_differ_without_the_target_raise_the_bar():
    shifted = (OTHERS[0] + 1.5, OTHERS[1])
    model = GaussianNB().fit(*noise_table(3))
    found = membership(model, members=MEMBERS, others=shifted, random_state=0)
    assert found.baseline > 0.85
    assert not found.learned
    assert any("differ from others without the target" in note for note in found.notes)


def sided(n, seed=0):
    """Return rows and labels of two populations, and a model of their difference that has seen neither."""
    draw = np.random.default_rng(seed)
    rows = draw.normal(size=(2 * n, 3))
    rows[:, 0] = (np.abs(rows[:, 0]) + 0.5) * np.repeat((1, -1), n)
    likely = lambda asked: 0.5 + 0.4 * np.tanh(asked[:, 0])  # noqa: E731
    model = lambda asked: np.column_stack((likely(asked), 1 - likely(asked)))  # noqa: E731
    return model, (rows[:n], np.zeros(n, int)), (rows[n:], np.zeros(n, int))


@pytest.mark.parametrize("n", [15, 20, 30, 60, 400])
def test_no_claim_is_refuted_because_members_differ_from_others_without_the_target(n):
    model, members, others = sided(n)
    found = membership(model, members=members, others=others, classes=[0, 1], claim=epsilon("0.1"), random_state=0)
    assert found.baseline > 0.8
    assert not found.broken
    assert not found.learned
    assert found.epsilon is None
    assert any("no claim is tested" in note for note in found.notes)
    scores = [np.arange(50, 100), np.arange(50)]
    assert membership_of_scores(*scores, claim=epsilon(1), baseline=0.9).epsilon is None
    assert membership_of_scores(*scores, claim=epsilon(1)).broken


def test_small_differences_in_many_columns_are_guessed_without_the_target():
    draw = np.random.default_rng(3)
    members, others = (draw.normal(side, 1, (300, 60)) for side in (0.15, -0.15))
    likely = lambda asked: 1 / (1 + np.exp(-10 * asked.mean(axis=1)))  # noqa: E731
    found = membership(
        lambda asked: np.column_stack((likely(asked), 1 - likely(asked))), members=(members, np.zeros(300, int)),
        others=(others, np.zeros(300, int)), classes=[0, 1], random_state=0,
    )  # fmt: skip
    assert found.baseline > 0.8
    assert not found.learned


def test_records_of_one_population_are_guessed_at_chance_without_the_target():
    draw = np.random.default_rng(4)
    guessed = [blind_guess(draw.normal(size=(n, 4)), n // 2, draw)[0] for n in (16, 40, 200) for _ in range(40)]
    assert sum(guess > 0.5 for guess in guessed) <= 12


def test_rows_that_one_person_may_have_left_several_times_are_named():
    elsewhere = DecisionTreeClassifier(random_state=0).fit(*noise_table(7, N))
    repeated = [(np.repeat(rows[:50], 6, axis=0), np.repeat(labels[:50], 6)) for rows, labels in (MEMBERS, OTHERS)]
    found = membership(elsewhere, members=repeated[0], others=repeated[1], random_state=0)
    assert any("100% of the records are equal to another" in note for note in found.notes)
    draw = np.random.default_rng(5)  # people of three columns are alike by chance, on both sides
    few = [(draw.integers(0, 2, (N, 3)).astype(float), draw.integers(0, 2, N)) for _ in range(2)]
    coin = lambda rows: np.full((len(rows), 2), 0.5)  # noqa: E731
    found = membership(coin, members=few[0], others=few[1], random_state=0)
    assert not any("are equal to another" in note for note in found.notes)


def test_a_private_model_states_its_claim_itself():
    model = DecisionTreeClassifier(random_state=0).fit(*MEMBERS)
    model.loss_ = epsilon("0.5")
    found = asked("loss", model)
    assert found.claim == epsilon("0.5")
    assert found.broken


def test_a_private_model_is_not_refitted_for_shadow_models(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # where the ledger of the fit is written
    from cloister.learn import GaussianNB as PrivateNB

    model = PrivateNB(epsilon(50), bounds=(-4, 4), classes=[0, 1, 2, 3], random_state=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(*MEMBERS)
    for one in (model, make_pipeline(StandardScaler(), model)):
        with pytest.raises(BadInput, match="charged to an account"):
            asked("lira", Target.of(one))
    assert not asked("lira", model, fit=GaussianNB()).broken


# Scores.


def test_the_largest_area_under_a_claim_is_that_of_randomised_response():
    assert largest_auc(epsilon(1)) == pytest.approx(np.e / (1 + np.e), abs=1e-3)
    assert largest_auc(epsilon(1, delta="0.1")) > largest_auc(epsilon(1))
    assert 0.5 < largest_auc(rho("0.01")) < largest_auc(rho("0.1")) < 0.75


def test_scores_of_another_tool_are_judged():
    draw = np.random.default_rng(0)
    found = membership_of_scores(draw.normal(2, 1, 4000), draw.normal(0, 1, 4000), claim=epsilon(1), attack="theirs")
    assert found.roc.auc == pytest.approx(0.921, abs=0.01)
    assert found.broken
    assert found.figures["largest area that the claim allows"] == pytest.approx(0.731, abs=1e-3)
    assert str(found).startswith("theirs against a model")


def test_the_risk_of_a_record_is_the_posterior_of_its_truth():
    draw = np.random.default_rng(1)
    members, others = draw.normal(1, 1, 20_000), draw.normal(0, 1, 5_000)
    risk = record_risk(members, others)
    scores = np.concatenate((members, others))
    exact = 1 / (1 + np.exp(0.5 - scores))
    exact[20_000:] = 1 - exact[20_000:]
    middle = np.abs(scores) < 2
    assert np.abs(risk - exact)[middle].mean() < 0.03
    assert (risk > 0).all()
    assert (risk < 1).all()


def test_a_rounded_score_tells_less_about_a_record():
    sure = record_risk(np.arange(100.0, 200), np.arange(100.0))
    tied = record_risk(np.ones(100), np.ones(100))
    assert sure.mean() > 0.97
    assert np.allclose(tied, 0.5)


# Input that does not fit.


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        ({"method": "magic"}, "method is one of 'loss'"),
        ({"method": ["loss"]}, "method is one of"),
        ({"access": "release"}, "access is 'black box', 'labels only' or 'white box'"),
        ({"method": "gradient"}, "needs access='white box'"),
        ({"members": X[:N]}, "members is a pair"),
        ({"members": (X[:N], Y[:5])}, "one for each row"),
        ({"members": (X[:3], Y[:3])}, "at least 8 rows"),
        ({"members": (Y[:N], Y[:N])}, "a matrix or a frame"),
        ({"members": ([[1], [1, 2]], [0, 1])}, "same length"),
        ({"others": (X[N:, :2], Y[N:])}, "same columns"),
        ({"others": (X[N:], Y[N:].astype(str))}, "all numbers or all text"),
        ({"others": (pd.DataFrame(X[N:]), Y[N:])}, "all frames or all arrays"),
        ({"method": "lira", "shadow_data": REFERENCE}, "lira-offline"),
        ({"method": "rmia", "shadow_data": "dreams"}, "'noise', 'statistics', 'inversion'"),
        ({"method": "rmia", "shadow_data": "noise"}, "pass reference="),
        ({"method": "rmia", "shadow_data": "statistics"}, "pass marginals="),
        ({"method": "rmia", "shadow_data": "statistics", "marginals": [(1, 2, 3)]}, "a pair of values"),
        ({"method": "rmia", "shadow_data": "statistics", "marginals": [([1], [-1])]}, "at least 0"),
        ({"method": "lira", "fit": 3}, "fit is a function"),
        ({"method": "lira", "fit": lambda rows, labels: int("x")}, r"could not fit .*ValueError"),
    ],
)
def test_input_that_does_not_fit_is_refused_with_a_sentence(more, sentence):
    with pytest.raises(BadInput, match=sentence):
        membership(MEMORY, **{"members": MEMBERS, "others": OTHERS, "shadows": 2} | more)


def test_a_target_that_cannot_be_refitted_needs_a_fit():
    with pytest.raises(BadInput, match="Pass fit="):
        membership(lambda rows: MEMORY.predict_proba(rows), members=MEMBERS, others=OTHERS, method="lira")


@pytest.mark.parametrize("wrong", [0, 1, -3, 2.5, True, None, 10**6])
def test_the_number_of_shadow_models_is_checked(wrong):
    with pytest.raises(BadNumber, match="shadows is a whole number"):
        membership(MEMORY, members=MEMBERS, others=OTHERS, method="lira", shadows=wrong)


@pytest.mark.parametrize("wrong", [-1, 1.5, True, "7"])
def test_a_seed_is_a_whole_number(wrong):
    with pytest.raises(BadNumber, match="random_state"):
        membership(MEMORY, members=MEMBERS, others=OTHERS, random_state=wrong)


def test_claims_and_confidences_are_checked():
    with pytest.raises(BadLoss, match="a claim must be a loss"):
        asked("loss", claim=1.0)
    for wrong in (0, 1, "x", True):
        with pytest.raises(BadProbability, match="confidence"):
            asked("loss", confidence=wrong)
    with pytest.raises(BadProbability, match="delta"):
        asked("loss", delta=1)
    with pytest.raises(BadInput, match="at least 8 members"):
        membership_of_scores([1, 2], [3])
    with pytest.raises(BadInput, match="scores are numbers"):
        membership_of_scores(["a"] * 9, [1] * 9)
    for methods in ("lira", ("lira", "magic"), ()):
        with pytest.raises(BadInput, match="methods are some of"):
            membership_suite(MEMORY, members=MEMBERS, others=OTHERS, methods=methods)


def test_marginals_are_counted_and_drawn():
    draw = np.random.default_rng(0)
    rows = np.column_stack((draw.integers(0, 3, 5000), draw.normal(10, 2, 5000)))
    made = Marginals.of(rows).draw(5000, draw)
    assert set(made[:, 0]) == {0, 1, 2}
    assert made[:, 1].mean() == pytest.approx(10, abs=0.15)
    assert made[:, 1].std() == pytest.approx(2, abs=0.2)
    assert abs(np.corrcoef(made.T)[0, 1]) < 0.05
    low, high = Marginals.of(rows).box
    assert low[0] == 0
    assert high[0] == 2
    with pytest.raises(BadInput, match="column of text"):
        Marginals.of(np.array([["a"], ["b"]])).box  # noqa: B018
    with pytest.raises(BadInput, match="at least one column"):
        Marginals.published([])
