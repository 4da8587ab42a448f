"""Cross-tables of matched reports: unbiased, honest about their error, and silent where they cannot tell."""

import json
import time
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.analysis.linked.cross_table import CrossTable, cross, cross_joint
from cloister.local.analysis.linked.group_means import GroupMeans
from cloister.local.analysis.linked.pairs import matches
from cloister.local.analysis.ratio import ratio
from cloister.local.analysis.scale import scale_mean
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.local.survey import file
from cloister.local.survey.collection import CheckedEnvelope, Collection
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SeededSource

LEVELS = [local.epsilon(amount) for amount in (1, 2, 4)]
SMOKER = local.Question("smoker", [local.RandomisedResponse.for_loss(one) for one in LEVELS], ["no", "yes"])
REGION = local.Question("region", [local.DirectEncoding.for_loss(3, one) for one in LEVELS], ["n", "e", "s"])
JOB = local.Question("job", [local.UnaryEncoding.optimised(4, one) for one in LEVELS])
STARS = local.Question("stars", [local.LocalHashing.for_loss(5, one) for one in LEVELS])
AGE = local.Question("age", [local.Hybrid.for_loss((18, 90), one) for one in LEVELS])
HOBBIES = local.Question(
    "hobbies",
    [OneOfSet.for_loss(3, 2, LEVELS[0]), SetBits.for_loss(3, 2, LEVELS[1]), SetBits.for_loss(3, 2, LEVELS[2])],
    ["art", "chess", "golf"],
)


def told(question: local.Question, values: Any, seed: int, levels: Any = None) -> list[tuple[str, bytes]]:
    """Level and report of each person; levels are drawn unless given."""
    drawn = np.random.default_rng(seed).integers(0, 3, len(values)) if levels is None else np.full(len(values), levels)
    out: list[Any] = [None] * len(values)
    for place, mechanism in enumerate(question.levels):
        here = np.flatnonzero(drawn == place)
        if len(here):
            some = values[here] if isinstance(values, np.ndarray) else [values[one] for one in here]
            wire = mechanism.encode(mechanism.perturb(some, SeededSource(1000 * seed + place)))
            level = str(mechanism.epsilon)
            for person, row in zip(here, wire, strict=True):
                out[person] = level, row.tobytes()
    return out


def matched(first: Any, second: Any) -> list[Any]:
    return [(*one, *two) for one, two in zip(first, second, strict=True)]


def people(n: int, seed: int, related: bool = True) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    smoker = (rng.random(n) < 0.35).astype(np.int64)
    region = rng.choice(3, n, p=[0.2, 0.3, 0.5])
    return smoker, np.where(smoker == 1, rng.choice(3, n, p=[0.6, 0.3, 0.1]), region) if related else region


def share(first: Any, second: Any, sizes: tuple[int, int]) -> Any:
    table = np.zeros(sizes)
    np.add.at(table, (first, second), 1 / len(first))
    return table


# The table.


def test_joint_shares_of_mixed_levels_are_within_their_errors() -> None:
    smoker, region = people(12_000, 1)
    table = cross(SMOKER, REGION, matched(told(SMOKER, smoker, 2), told(REGION, region, 3)))
    assert isinstance(table, CrossTable)
    truth = share(smoker, region, (2, 3))
    assert (np.abs(table.raw - truth) < 4 * table.standard_error).all()
    assert (table.standard_error < 0.012).all()
    assert (table.how, table.n, len(table.people)) == ("matched", 12_000, 9)
    assert sum(table.weights.values()) == pytest.approx(1)
    assert table.weights["4", "4"] > table.weights["1", "1"] * 5
    assert 12_000 / 9 < table.effective < 12_000
    assert table.projected.min() >= 0
    assert table.projected.sum() == pytest.approx(1)
    conditional = truth / truth.sum(axis=1, keepdims=True)
    assert ((table.of_row.low < conditional) & (conditional < table.of_row.high)).mean() > 0.8
    assert np.abs(table.of_column.value - truth / truth.sum(axis=0)).max() < 0.1
    assert table.independence.p < 1e-6


def test_intervals_of_the_table_and_of_its_rows_hold_what_they_promise_with_mixed_levels() -> None:
    held, in_row, in_column, cells = 0, 0, 0, 0
    means, in_means = 0, 0
    for run in range(200):
        smoker, region = people(500, 10 + run)
        sent = told(SMOKER, smoker, 5 + run)
        table: Any = cross(SMOKER, REGION, matched(sent, told(REGION, region, 9000 + run)))
        shares = np.array([0.65, 0.35])[:, None] * np.array([[0.2, 0.3, 0.5], [0.6, 0.3, 0.1]])
        held += int(((table.interval[0] <= shares) & (shares <= table.interval[1])).sum())
        rows, columns = shares / shares.sum(axis=1, keepdims=True), shares / shares.sum(axis=0)
        in_row += int((~((table.of_row.low > rows) | (table.of_row.high < rows))).sum())
        in_column += int((~((table.of_column.low > columns) | (table.of_column.high < columns))).sum())
        cells += 6
        if run % 2:
            continue
        ages = np.where(smoker == 1, 60.0, 40.0)
        by: Any = cross(SMOKER, AGE, matched(sent, told(AGE, ages, 70_000 + run)))
        means += 2
        in_means += int((~((by.means.low > [40, 60]) | (by.means.high < [40, 60]))).sum())
    assert 0.92 <= held / cells <= 0.985
    assert in_row / cells >= 0.92
    assert in_column / cells >= 0.92
    assert in_means / means >= 0.92


def test_the_standard_error_is_the_spread_over_repetitions() -> None:
    smoker, region = people(500, 4)
    found = []
    for run in range(100):
        table: Any = cross(SMOKER, JOB, matched(told(SMOKER, smoker, 2 * run), told(JOB, region, 2 * run + 1)))
        found.append((table.raw, table.standard_error))
    spread = np.std([one[0] for one in found], axis=0, ddof=1)
    said = np.mean([one[1] for one in found], axis=0)
    # What is said includes the chance of who answered, so it may be larger and not smaller.
    assert (said > 0.85 * spread).all()
    assert (said < 1.35 * spread).all()
    assert np.abs(np.mean([one[0] for one in found], axis=0) - share(smoker, region, (2, 4))).max() < 4 * (
        spread.max() / 100**0.5
    )


def test_a_ratio_with_next_to_nothing_below_is_too_few_and_no_number() -> None:
    smoker, region = people(300, 1)
    table: Any = cross(SMOKER, STARS, matched(told(SMOKER, smoker, 1, 0), told(STARS, region, 2, 0)))
    assert np.isnan(table.of_column.value[:, 4]).all()  # nobody gave five stars
    assert [row["of column"] for row in table.rows() if row["stars"] == "4"] == [None, None]
    assert "too few" in str(cross(STARS, SMOKER, matched(told(STARS, region, 2, 0), told(SMOKER, smoker, 1, 0))))
    one, zero = np.ones(1), np.zeros(1)
    assert np.isnan(ratio(one, zero, one, zero, one, 1.96).value[0])
    assert np.isnan(ratio(one, -one, one, zero, zero, 1.96).value[0])
    sure = ratio(one, 2 * one, one * 1e-4, zero, zero, 1.96)
    assert sure.value[0] == 0.5
    assert (sure.low[0], sure.high[0]) == pytest.approx((0.5 - 0.0098, 0.5 + 0.0098))


@pytest.mark.parametrize("questions", [(SMOKER, REGION), (JOB, REGION), (REGION, AGE), (HOBBIES, SMOKER)])
def test_unrelated_answers_are_called_related_as_rarely_as_the_test_says(questions: Any) -> None:
    rare = 0
    for run in range(80):
        rng = np.random.default_rng(run)
        values: list[Any] = []
        for question in questions:
            if question.kind == "number":
                values.append(rng.normal(50, 15, 300))
            elif question.kind == "set":
                values.append([set(rng.permutation(3)[: rng.integers(0, 3)].tolist()) for _ in range(300)])
            else:
                values.append(rng.integers(0, question.levels[0].domain, 300))
        sent = [
            told(question, one, 7 * run + place)
            for place, (question, one) in enumerate(zip(questions, values, strict=True))
        ]
        rare += cross(*questions, matched(*sent)).independence.p < 0.05
    assert rare <= 12  # 4 are expected; 13 and more would come once in 5,000


def test_too_many_covariances_are_tested_by_the_largest() -> None:
    wide = [local.Question(name, [local.DirectEncoding.for_loss(24, local.epsilon(5))]) for name in "ab"]
    rng = np.random.default_rng(1)
    first = rng.integers(0, 24, 3000)
    for second, related in ((first, True), (rng.integers(0, 24, 3000), False)):
        sent = [
            [("5", row.tobytes()) for row in one.levels[0].encode(one.levels[0].perturb(values, SeededSource(seed)))]
            for seed, (one, values) in enumerate(zip(wide, (first, second), strict=True))
        ]
        found = cross(wide[0], wide[1], matched(*sent)).independence
        assert found.freedom is None
        assert (found.p < 1e-6) == related


def test_sets_cross_with_choices() -> None:
    smoker, _ = people(8_000, 3)
    chosen = [{0, 1} if one else {2} for one in smoker]
    table: Any = cross(HOBBIES, SMOKER, matched(told(HOBBIES, chosen, 1), told(SMOKER, smoker, 2)))
    truth = np.array([[0, smoker.mean()], [0, smoker.mean()], [1 - smoker.mean(), 0]])
    assert (np.abs(table.raw - truth) < 4 * table.standard_error).all()
    assert (table.projected >= 0).all()


def test_the_mean_of_a_number_within_each_group_in_either_order() -> None:
    smoker, _ = people(15_000, 5)
    ages = np.where(smoker == 1, 55.0, 42.0)
    first, second = told(SMOKER, smoker, 1), told(AGE, ages, 2)
    for found in (cross(SMOKER, AGE, matched(first, second)), cross(AGE, SMOKER, matched(second, first))):
        assert isinstance(found, GroupMeans)
        assert found.ids == ("smoker", "age")
        assert (np.abs(found.means.value - [42, 55]) < 4 * found.means.standard_error).all()
        assert found.means.standard_error.max() < 1.5
        assert found.independence.p < 1e-6
        assert (found.moved[0] < found.means.value).all()
        assert (found.means.value < found.moved[1]).all()
        assert "mean of age by smoker" in str(found)
        json.dumps(found.to_json(), allow_nan=False)
    few: Any = cross(SMOKER, AGE, matched(told(SMOKER, smoker[:9] * 0, 1, 0), told(AGE, ages[:9], 2, 0)))
    assert few.rows()[1]["raw"] is None
    assert "too few" in str(few)


def test_a_joint_question_gives_the_same_table_and_says_so() -> None:
    smoker, region = people(9_000, 6)
    both = local.Question("both", [local.DirectEncoding.for_loss(6, one) for one in LEVELS])
    table = cross_joint(
        both, (SMOKER.names, REGION.names), told(both, smoker * 3 + region, 1), ids=("smoker", "region")
    )
    truth = share(smoker, region, (2, 3))
    assert (np.abs(table.raw - truth) < 4 * table.standard_error).all()
    assert (table.how, len(table.people)) == ("joint", 3)
    assert "jointly perturbed" in str(table)
    assert table.independence.p < 1e-6
    assert table.rows_raw == pytest.approx(table.raw.sum(axis=1))
    unrelated = people(4_000, 7, related=False)
    sent = told(both, unrelated[0] * 3 + unrelated[1], 2)
    assert cross_joint(both, (SMOKER.names, REGION.names), sent).independence.p > 0.001
    with pytest.raises(BadInput, match="product of both sizes"):
        cross_joint(both, (SMOKER.names, SMOKER.names), sent)
    with pytest.raises(BadInput, match="nobody"):
        cross_joint(both, (SMOKER.names, REGION.names), [])


def test_made_up_submissions_move_a_share_no_farther_than_the_bound() -> None:
    smoker, region = people(2_000, 8)
    honest = matched(told(SMOKER, smoker, 1, 0), told(REGION, region, 2, 0))
    fake = [("1", b"\x01", "1", b"\x00")] * 40  # smokers in the north, without noise
    clean: Any = cross(SMOKER, REGION, honest)
    dirty: Any = cross(SMOKER, REGION, honest[40:] + fake, fakes=40)
    assert clean.raw[1, 0] + 0.01 < dirty.raw[1, 0]
    others: Any = cross(SMOKER, REGION, honest[40:])
    moved = dirty.raw[1, 0] - others.raw[1, 0] * (1960 / 2000)
    assert moved == pytest.approx(dirty.poisoning.up)  # this very attack is the worst one
    assert dirty.poisoning.honest == pytest.approx(0.02)
    with pytest.raises(BadInput):
        cross(SMOKER, REGION, honest, fakes=2_001)


def test_levels_chosen_for_the_answer_are_noticed_and_weights_by_people_mend_it() -> None:
    smoker, region = people(9_000, 11)
    shy = np.where(smoker == 1, 0, 2)  # smokers choose the strongest protection
    sent: list[Any] = [None] * 9_000
    for level in (0, 2):
        here = np.flatnonzero(shy == level)
        for person, report in zip(here, told(SMOKER, smoker[here], 3 + level, level), strict=True):
            sent[person] = report
    pairs = matched(sent, told(REGION, region, 4))
    biased: Any = cross(SMOKER, REGION, pairs)
    mended: Any = cross(SMOKER, REGION, pairs, weights="people")
    truth = share(smoker, region, (2, 3))
    assert biased.selection < 1e-6
    assert "may be linked" in str(biased)
    assert abs(biased.raw[1, 0] - truth[1, 0]) > 4 * biased.standard_error[1, 0]
    assert (np.abs(mended.raw - truth) < 4 * mended.standard_error).all()
    fair: Any = cross(SMOKER, REGION, matched(told(SMOKER, smoker, 5), told(REGION, region, 6)))
    assert fair.selection > 0.001
    with pytest.raises(BadInput, match="weights are"):
        cross(SMOKER, REGION, pairs, weights="loud")  # type: ignore[arg-type]


def test_intervals_hold_for_a_pair_that_hardly_anybody_gave_where_noise_is_small() -> None:
    loud = [local.Question(name, [local.DirectEncoding.for_loss(2, local.epsilon(8))]) for name in "ab"]
    inside = 0
    for run in range(200):
        rng = np.random.default_rng(run)
        both = rng.choice(4, 120, p=[0.5, 0.3, 0.19, 0.01])
        table: Any = cross(*loud, matched(told(loud[0], both // 2, run, 0), told(loud[1], both % 2, 500 + run, 0)))
        inside += bool(table.interval[0][1, 1] <= 0.01 <= table.interval[1][1, 1])
    assert inside >= 184  # three in ten crowds have no such person at all


def test_a_table_is_rows_json_and_words() -> None:
    smoker, region = people(900, 9)
    table: Any = cross(SMOKER, REGION, matched(told(SMOKER, smoker, 1), told(REGION, region, 2)), private=False)
    assert [(row["smoker"], row["region"]) for row in table.rows()][:4] == [
        ("no", "n"),
        ("no", "e"),
        ("no", "s"),
        ("yes", "n"),
    ]
    again = json.loads(json.dumps(table.to_json(), allow_nan=False))
    assert (again["first"], again["how"], again["n"], len(again["cells"])) == ("smoker", "matched", 900, 6)
    assert again["cells"][0]["first"] == "no"
    text = str(table)
    for words in ("from matched reports: each answer was perturbed by itself", "by itself, not all", "not private"):
        assert words in text


def test_questions_that_cannot_be_crossed_are_refused_in_words() -> None:
    with pytest.raises(BadInput, match="nobody answered both"):
        cross(SMOKER, REGION, [])
    with pytest.raises(BadInput, match="two different"):
        cross(SMOKER, SMOKER, [("1", b"\0", "1", b"\0")])
    with pytest.raises(BadInput, match="two numbers"):
        cross(AGE, local.Question("pay", [local.Duchi.for_loss((0, 1), LEVELS[0])]), [])


# A scale.


def test_the_mean_of_a_scale_holds_its_interval_and_its_error() -> None:
    inside, found = 0, []
    for run in range(200):
        stars = np.random.default_rng(run).choice(5, 400, p=[0.1, 0.1, 0.2, 0.3, 0.3])
        one = scale_mean(STARS, told(STARS, stars, run))
        inside += one.interval[0] <= 3.6 <= one.interval[1]
        found.append((one.mean, one.standard_error))
    assert 0.92 <= inside / 200 <= 0.985
    means, errors = np.array(found).T
    assert errors.mean() == pytest.approx(means.std(), rel=0.15)
    assert abs(means.mean() - 3.6) < 4 * means.std() / 200**0.5


def test_a_scale_counts_as_it_is_told_to() -> None:
    sent = told(STARS, np.array([4] * 800), 1)
    high = scale_mean(STARS, sent, values=[0, 0, 0, 0, 10])
    assert abs(high.mean - 10) < 4 * high.standard_error
    assert 0 <= high.projected <= 10
    assert set(high.weights) == {"1", "2", "4"}
    assert high.weights["4"] > high.weights["1"]
    assert json.loads(json.dumps(high.to_json()))["n"] == 800
    with pytest.raises(BadInput, match="5 finite numbers"):
        scale_mean(STARS, sent, values=[1, 2])
    with pytest.raises(BadInput, match="single choice"):
        scale_mean(AGE, [])
    with pytest.raises(BadInput, match="no report"):
        scale_mean(STARS, [])


# What a store keeps.


def test_an_envelope_is_checked_without_being_counted_and_written_again_to_the_byte() -> None:
    collection = Collection([SMOKER, AGE])
    for question, value in ((SMOKER, [1]), (AGE, [40.0])):
        envelope = local.seal(question.id, question.at(2).perturb(value))[0]
        for _ in range(2):  # nothing is remembered, so nothing is replayed
            found = collection.check(envelope)
            assert isinstance(found, CheckedEnvelope)
            assert (found.question, found.level, found.private) == (question.id, "2", True)
            assert collection.text_of(found.question, found.level, found.report, found.id) == envelope
        anew = collection.text_of(found.question, found.level, found.report)
        assert anew != envelope
        assert collection.check(anew) == CheckedEnvelope(
            found.question, "2", found.report, collection.check(anew).id, True
        )  # type: ignore[union-attr]
    assert collection.check(envelope.replace(b'"version":1', b'"version":2')) == "wrong version"
    seeded = local.seal("smoker", SMOKER.at(2).perturb([1], SeededSource(1)))[0]
    assert not collection.check(seeded).private  # type: ignore[union-attr]
    assert (collection.n, collection.refused.total()) == (0, 0)
    for wrong in (("job", "2"), ("smoker", "3"), ("smoker", "2.0")):
        with pytest.raises(BadInput):
            collection.text_of(*wrong, b"\0")
        with pytest.raises(BadInput):
            collection.count(*wrong, [b"\0"])
    with pytest.raises(BadInput, match="16 bytes"):
        collection.text_of("smoker", "2", b"\0", b"short")


def test_stored_reports_count_as_the_envelopes_did(tmp_path: Any) -> None:
    envelopes = [
        one for level in SMOKER.offered for one in local.seal("smoker", SMOKER.at(level).perturb([1, 0, 1] * 50))
    ]
    whole = Collection([SMOKER]).collect(envelopes)
    kept = [one for one in (whole.check(envelope) for envelope in envelopes) if isinstance(one, CheckedEnvelope)]
    stored = Collection([SMOKER]).count_stored({one.question: (one.level, one.report)} for one in kept)
    assert (stored.n, stored.refused.total()) == (450, 0)
    for level, counts in whole.counts("smoker").items():
        assert np.array_equal(stored.counts("smoker")[level].table, counts.table)
        assert stored.counts("smoker")[level].private
    stored.count("smoker", "1", [b"\x01", b"\x07"], private=False)
    assert (stored.n, dict(stored.refused)) == (451, {"out of domain": 1})
    assert not stored.estimate("smoker").raw.private
    file.save(stored, tmp_path / "counts.json")
    again = file.load(tmp_path / "counts.json")
    assert (again.n, (again + whole).n) == (451, 901)


def test_twenty_thousand_submissions_are_counted_in_half_a_second() -> None:
    questions = [
        SMOKER,
        REGION,
        JOB,
        STARS,
        AGE,
        local.Question("wide", [local.SubsetSelection.for_loss(40, one) for one in LEVELS]),
    ]
    n = 20_000
    columns = [
        told(one, np.full(n, 40.0) if one is AGE else np.zeros(n, dtype=np.int64), place)
        for place, one in enumerate(questions)
    ]
    ids = [one.id for one in questions]
    submissions = [dict(zip(ids, row, strict=True)) for row in zip(*columns, strict=True)]
    collection = Collection(questions)
    took = []
    for _ in range(3):
        start = time.process_time()  # of this process: others may be busy
        collection = Collection(questions).count_stored(submissions)
        took.append(time.process_time() - start)
    assert collection.n == 6 * n
    assert min(took) < 0.5
    assert len(matches(submissions, "job", "age")) == n
    assert matches([{"job": ("1", b"\0")}, {"age": ("1", b"\0")}], "job", "age") == []


def test_questions_that_are_called_like_a_number_keep_their_answers_in_rows() -> None:
    first = local.Question("raw", SMOKER.levels, ["no", "yes"])
    second = local.Question("region", REGION.levels, ["n", "e", "s"])
    smoker, region = people(300, 1)
    row = cross(first, second, matched(told(first, smoker, 1), told(second, region, 2))).rows()[0]
    assert (row["answer to raw"], row["region"]) == ("no", "n")
    assert isinstance(row["raw"], float)


def test_a_choice_called_none_is_a_choice_and_an_empty_text_is_none_of_them() -> None:
    named = local.Question("ill", HOBBIES.levels, ["asthma", "diabetes", "none"])
    assert (named.value("none"), named.value(["none"]), named.value(""), named.value("none;asthma")) == (
        {2},
        {2},
        set(),
        {0, 2},
    )
    assert (HOBBIES.value("none"), HOBBIES.value("")) == (set(), None)
