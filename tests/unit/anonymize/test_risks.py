"""Risks of a release, and the report that collects all attacks on it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.risks.attackers import journalist, marketer, prosecutor, risk
from cloister.anonymize.risks.population import dankar, pitman, population_uniqueness, snb, zayatz
from cloister.privacy.errors import BadInput

RELEASE = {
    "zip": ["336**"] * 4 + ["337**"] * 4,
    "age": ["<30"] * 4 + [">35"] * 4,
    "disease": ["Heart", "Heart", "Viral", "Viral", *["Cancer"] * 4],
}
PEOPLE = {
    "name": [f"Person{i}" for i in range(8)],
    "zip": ["33601", "33602", "33603", "33604", "33718", "33701", "33702", "33703"],
    "age": [21, 22, 23, 24, 36, 40, 41, 50],
}
EARLIER = {
    "age": ["20-39"] * 5 + [">=40"] * 3,
    "disease": ["Heart", "Cancer", "Viral", "Viral", "Flu", *["Cancer"] * 3],
}
ROWS = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=30)


def _population(kind: str, people: int, rng: np.random.Generator) -> np.ndarray:
    if kind == "columns":
        columns = [rng.choice(c, people, p=rng.dirichlet(np.full(c, 0.7))) for c in (70, 2, 9, 16, 5, 30)]
        return np.unique(np.column_stack(columns), axis=0, return_inverse=True)[1].ravel()
    weights = {"equal": np.ones(people // 3), "zipf": 1 / np.arange(1, people // 2 + 1.0)}[kind]
    return rng.choice(len(weights), people, p=weights / weights.sum())


def _sampled(kind: str, fraction: float, seed: int) -> tuple[int, np.ndarray]:
    rng = np.random.default_rng(seed)
    group = _population(kind, 40_000, rng)
    sizes = np.bincount(rng.choice(group, int(len(group) * fraction), replace=False))
    return int(np.sum(np.bincount(group) == 1)), sizes[sizes > 0]


# Measures


@given(ROWS, ROWS, st.sampled_from([0.2, 0.5, 1.0]))
@settings(max_examples=60, deadline=None)
def test_the_three_attackers_are_those_of_a_double_loop(rows, others, threshold):
    population = rows + others
    release = {"a": [row[0] for row in rows], "b": [row[1] for row in rows]}
    register = {"a": [row[0] for row in population], "b": [row[1] for row in population]}
    inside, outside = [1 / rows.count(row) for row in rows], [1 / population.count(row) for row in rows]
    for expected, measure in [
        (inside, prosecutor(release, quasi=["a", "b"], threshold=threshold)),
        (outside, journalist(release, quasi=["a", "b"], population=register, threshold=threshold)),
        (outside, marketer(release, quasi=["a", "b"], population=register, threshold=threshold)),
        (inside, marketer(release, quasi=["a", "b"], threshold=threshold)),
    ]:
        assert measure.per_record.tolist() == pytest.approx(expected)
        assert measure.highest == pytest.approx(max(expected))
        assert measure.average == pytest.approx(sum(expected) / len(expected))
        assert measure.above == sum(value > threshold for value in expected)
        assert measure.smallest == round(1 / max(expected))


def test_the_marketer_without_a_population_re_identifies_one_row_of_each_class():
    assert marketer(RELEASE, quasi=["zip", "age"]).average == pytest.approx(2 / 8)


def test_a_marketer_is_judged_by_the_average_and_the_others_by_the_worst_record():
    """One small class of eight is a sure find for a prosecutor, and an eighth of what a marketer wants."""
    rows = {"a": ["x"] + ["y"] * 7}
    assert prosecutor(rows, quasi=["a"]).judged == 1.0
    assert marketer(rows, quasi=["a"]).judged == pytest.approx(2 / 8)
    assert "marketer: 25.00% of 8 records re-identified on average" in str(marketer(rows, quasi=["a"]))
    lines = {line["name"]: line["at risk"] for line in risk(rows, quasi=["a"]).table()}
    assert lines["marketer"] == "2 of 8 records expected (25.0%)"


def test_generalised_classes_are_counted_in_a_population_of_exact_values():
    register = {"zip": [*PEOPLE["zip"], "33699"], "age": [*PEOPLE["age"], 29]}
    found = journalist(RELEASE, quasi=["zip", "age"], population=register)
    assert found.per_record.tolist() == pytest.approx([1 / 5] * 4 + [1 / 4] * 4)
    assert found.smallest == 4
    assert found.worst == {"zip": "337**", "age": ">35"}


def test_a_release_is_part_of_its_population_even_if_the_register_has_fewer():
    assert journalist({"a": ["x", "x"]}, quasi=["a"], population={"a": ["x"]}).highest == 0.5


def test_nulls_are_a_class_of_their_own():
    assert prosecutor({"a": [None, None, "x"]}, quasi=["a"]).per_record.tolist() == [0.5, 0.5, 1.0]


@pytest.mark.parametrize("threshold", [0, 1.5, -1])
def test_a_threshold_outside_of_0_and_1_is_refused(threshold):
    with pytest.raises(BadInput, match="threshold"):
        prosecutor(RELEASE, quasi=["zip"], threshold=threshold)


def test_an_empty_release_is_refused():
    with pytest.raises(BadInput, match="no rows"):
        risk({"a": []}, quasi=["a"])


# Uniqueness in the population


@pytest.mark.parametrize("kind", ["columns", "equal", "zipf"])
def test_the_whole_population_as_a_sample_gives_the_exact_number(kind):
    true, sizes = _sampled(kind, 1.0, 4)
    assert zayatz(sizes, 1.0) == pytest.approx(true)
    assert snb(sizes, 1.0) == pytest.approx(true)
    assert dankar(sizes, 1.0) == pytest.approx(true)


@pytest.mark.parametrize(
    ("kind", "fraction", "low", "high"),
    [
        ("columns", 0.5, 0.9, 1.2), ("equal", 0.5, 0.8, 1.2), ("zipf", 0.5, 0.9, 1.25),
        ("columns", 0.2, 0.8, 1.4), ("equal", 0.2, 0.7, 1.4), ("zipf", 0.2, 1.0, 1.6),
        ("columns", 0.05, 0.7, 1.5), ("equal", 0.05, 3.0, 7.0), ("zipf", 0.05, 1.2, 2.6),
    ],
)  # fmt: skip
def test_the_rule_of_dankar_is_as_far_off_as_the_docstring_says(kind, fraction, low, high):
    true, sizes = _sampled(kind, fraction, 7)
    assert low * true < dankar(sizes, fraction) < high * true


def test_pitman_recovers_the_uniques_of_a_pitman_population():
    rng, alpha, theta, people = np.random.default_rng(5), 0.5, 200.0, 20_000
    sizes, group = [], np.empty(people, dtype=int)
    for i in range(people):  # the Chinese restaurant process, which has Pitman's law
        new = rng.random() * (theta + i) < theta + alpha * len(sizes)
        if not new:
            owner = group[rng.integers(i)]
            while rng.random() * sizes[owner] < alpha:  # weight size - alpha, by rejection
                owner = group[rng.integers(i)]
        else:
            owner = len(sizes)
            sizes.append(0)
        sizes[owner] += 1
        group[i] = owner
    sample = np.bincount(rng.choice(group, 2000, replace=False))
    true = sum(size == 1 for size in sizes)
    assert pitman(sample[sample > 0], 0.1) == pytest.approx(true, rel=0.2)


def test_snb_recovers_the_uniques_of_a_slide_negative_binomial_population():
    rng = np.random.default_rng(6)
    population = 1 + rng.negative_binomial(0.8, 0.2, 30_000)
    sample = rng.binomial(population, 0.2)
    fraction = sample.sum() / population.sum()
    assert snb(sample[sample > 0], fraction) == pytest.approx(np.sum(population == 1), rel=0.15)


def test_without_sample_uniques_the_estimates_are_zero():
    found = population_uniqueness(np.array([2, 3, 5]), 0.1)
    assert (found.zayatz, found.pitman, found.snb, found.estimate) == (0, 0, 0, 0)


def test_models_that_do_not_fit_are_replaced():
    found = population_uniqueness(np.ones(50, dtype=np.int64), 0.1)
    assert found.pitman is None
    assert found.chosen == "zayatz"
    assert found.estimate == pytest.approx(500)
    assert "does not fit" in str(found)


@pytest.mark.parametrize("fraction", [0, 1.1, -0.5])
def test_a_wrong_sampling_fraction_is_refused(fraction):
    with pytest.raises(BadInput, match="sampling fraction"):
        population_uniqueness(np.array([1]), fraction)


def test_zayatz_weighs_classes_by_the_hypergeometric_law():
    from scipy.stats import hypergeom

    sizes = np.array([1, 1, 1, 2, 2, 5])
    chances = {size: hypergeom.pmf(1, 60, size, 12) for size in (1, 2, 5)}
    conditional = 3 * chances[1] / (3 * chances[1] + 2 * chances[2] + chances[5])
    assert zayatz(sizes, 0.2) == pytest.approx(3 / 0.2 * conditional)


# Report


def test_the_report_runs_all_attacks_that_the_inputs_allow():
    report = risk(
        RELEASE, quasi=["zip", "age"], sensitive=["disease"], population=PEOPLE, sampling_fraction=0.1,
        auxiliary=PEOPLE, earlier=[EARLIER],
        harmful={"disease": ["Cancer"]}, diversity=2,
        groups={"disease": {"Heart": "organ", "Cancer": "organ"}},
    )  # fmt: skip
    assert [measure.name for measure in report.measures] == ["prosecutor", "journalist", "marketer"]
    assert [attack.name.split()[0] for attack in report.attacks] == [
        "uniqueness", "homogeneity", "background", "skewness", "similarity", "linkage", "identification",
        "intersection", "minimality",
    ]  # fmt: skip
    assert report.skipped == {}
    assert report["homogeneity"].at_risk == 4
    assert report["prosecutor"].highest == 0.25
    assert report.worst.share == 1.0
    with pytest.raises(BadInput, match="It has: prosecutor"):
        report["magic"]


def test_the_report_names_no_person_and_is_json():
    report = risk(
        RELEASE, quasi=["zip", "age"], sensitive=["disease"], auxiliary=PEOPLE, population=PEOPLE, earlier=[EARLIER],
        harmful={"disease": ["Cancer"]}, diversity=2,
    )  # fmt: skip
    text = json.dumps(report.to_json()) + str(report) + str(report.table())
    assert not [secret for secret in (*PEOPLE["name"], *PEOPLE["zip"]) if secret in text]
    assert report.to_json()["differentially_private"] is False
    assert "not differentially private" in str(report)
    assert {"name", "attacker", "at risk", "worst example", "what helps"} == {*report.table()[0]}


def test_attacks_without_their_inputs_are_listed_as_not_run():
    report = risk(RELEASE, quasi=["zip", "age"], sensitive=["disease"])
    assert {*report.skipped} == {
        "journalist", "uniqueness in the population", "similarity of disease", "linkage", "identification",
        "intersection", "minimality",
    }  # fmt: skip
    assert all(reason.startswith("Give `") for reason in report.skipped.values())


def test_frames_are_accepted():
    pandas, polars = pytest.importorskip("pandas"), pytest.importorskip("polars")
    for frame in (pandas.DataFrame(RELEASE), polars.DataFrame(RELEASE)):
        assert risk(frame, quasi=["zip", "age"], sensitive="disease")["homogeneity"].at_risk == 4
