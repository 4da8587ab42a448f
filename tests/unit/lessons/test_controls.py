"""Controls beside noise: they judge requests and noisy answers, never rows."""

import pyarrow as pa
import pytest

from cloister.dataset import open as open_dataset
from cloister.lessons.controls import (
    Audit,
    Controls,
    MinimumSize,
    OnlyAggregates,
    Overlap,
    RandomSample,
    RangeAnswers,
    Rounded,
    SmallCells,
)
from cloister.lessons.controls.cells import Cells, RowSpace, secret_prime
from cloister.privacy.errors import BadBounds, BadName, BadNumber, BadProbability, QueryRefused
from cloister.privacy.loss import epsilon
from cloister.privacy.noise import SeededSource

SCHEMA = {
    "unit": {"name": "person", "max_rows": 1},
    "tables": {
        "staff": {
            "unit": "person",
            "columns": {
                "dept": {"type": "text", "categories": ["it", "hr", "law"], "nullable": False},
                "grade": {"type": "integer", "bounds": [1, 4], "nullable": False},
                "pay": {"type": "integer", "bounds": [0, 100], "nullable": False},
            },
        }
    },
}
N = 600
ROWS = {
    "person": [f"p{i}" for i in range(N)],
    "dept": ["it" if i < 400 else "hr" if i < 597 else "law" for i in range(N)],
    "grade": [1 + i % 4 for i in range(N)],
    "pay": [40 + i % 20 for i in range(N)],
}
SPEND = epsilon(2)


@pytest.fixture
def staff(tmp_path):
    with open_dataset(pa.table(ROWS), schema=SCHEMA, budget=epsilon(1000), ledger=tmp_path) as dataset:
        yield dataset


def ask(guarded, text, analyst="anyone", seed="controls"):
    return guarded.sql(text, spend=SPEND, source=SeededSource(seed), analyst=analyst)


def refused(guarded, text, analyst="anyone"):
    with pytest.raises(QueryRefused) as caught:
        ask(guarded, text, analyst)
    return str(caught.value)


# Requests


def test_only_the_listed_aggregates_are_answered_and_nobody_is_named(staff):
    guarded = Controls([OnlyAggregates(("count", "avg"))]).wrap(staff)
    assert 40 < ask(guarded, "SELECT AVG(pay) AS pay FROM staff").item() < 60
    assert "max(pay) is not among" in refused(guarded, "SELECT MAX(pay) FROM staff").lower()
    assert "may not name people" in refused(guarded, "SELECT AVG(pay) FROM staff WHERE person = 'p1'")
    hidden = "SELECT COUNT(*) FROM (SELECT * FROM staff WHERE person = 'p1') AS one"
    assert "may not name people" in refused(guarded, hidden)


def test_a_refused_question_costs_nothing_and_is_not_remembered(staff):
    guarded, before = Controls([Overlap("staff", ("dept",), 0)]).wrap(staff), staff.left
    refused(guarded, "SELECT COUNT(*) FROM staff WHERE pay > 50")
    assert staff.left == before
    ask(guarded, "SELECT COUNT(*) FROM staff WHERE dept = 'it'")
    refused(guarded, "SELECT COUNT(*) FROM staff")
    ask(guarded, "SELECT COUNT(*) FROM staff WHERE dept = 'hr'")


def test_questions_that_share_too_many_cells_are_refused_and_the_same_ones_are_not(staff):
    guarded = Controls([Overlap("staff", ("dept", "grade"), 2)]).wrap(staff)
    ask(guarded, "SELECT COUNT(*) FROM staff WHERE dept = 'it'")
    assert "shares 3 public cells" in refused(guarded, "SELECT COUNT(*) FROM staff WHERE dept = 'it' AND grade < 4")
    ask(guarded, "SELECT SUM(pay) FROM staff WHERE grade <= 2")
    ask(guarded, "SELECT SUM(pay) FROM staff WHERE NOT dept <> 'it'")


def test_rows_of_one_answer_that_overlap_count_too(staff):
    guarded = Controls([Overlap("staff", ("dept",), 0)]).wrap(staff)
    ask(guarded, "SELECT dept, COUNT(*) AS n FROM staff GROUP BY dept")
    fresh = Controls([Overlap("staff", ("dept",), 0)]).wrap(staff)
    assert "shares 1 public cells" in refused(fresh, "SELECT dept, COUNT(*) AS n FROM staff GROUP BY ROLLUP (dept)")


TRACKER = [
    "SELECT SUM(pay) AS s FROM staff WHERE dept <> 'law'",
    "SELECT SUM(pay) AS s FROM staff WHERE dept <> 'law' OR grade = 3",
    "SELECT SUM(pay) AS s FROM staff WHERE dept <> 'law' OR grade IN (2, 3)",
]


def test_the_audit_refuses_what_completes_a_difference(staff):
    guarded = Controls([Audit("staff", ("dept", "grade"))]).wrap(staff)
    ask(guarded, TRACKER[0])
    assert "a single cell of dept, grade would follow" in refused(guarded, TRACKER[1])
    ask(guarded, TRACKER[2])  # two cells at once do not single one out
    assert "a single cell" in refused(guarded, "SELECT COUNT(*) FROM staff WHERE dept = 'law' AND grade = 1")


def test_the_audit_sees_through_groups_aliases_and_rollups(staff):
    guarded = Controls([Audit("staff", ("dept", "grade"))]).wrap(staff)
    senior = "SELECT grade >= 2 AS senior, COUNT(*) AS n FROM staff WHERE dept = 'it' AND grade <> 1 GROUP BY"
    ask(guarded, f"{senior} 1")
    ask(guarded, f"{senior} ROLLUP (senior)")
    assert "a single cell" in refused(guarded, "SELECT SUM(pay) FROM staff WHERE dept = 'it'")
    assert "a single cell" in refused(guarded, "SELECT dept, grade, COUNT(*) AS n FROM staff GROUP BY dept, grade")


@pytest.mark.parametrize(
    ("question", "reason"),
    [
        ("SELECT COUNT(*) FROM staff WHERE pay > 3", "chosen by pay"),
        ("SELECT pay > 3 AS rich, COUNT(*) AS n FROM staff GROUP BY rich", "chosen by pay"),
        ("SELECT SUM(CASE WHEN grade = 1 THEN pay ELSE 0 END) FROM staff", "takes * or one column"),
        ("SELECT SUM(pay * 2) FROM staff", "takes * or one column"),
        ("SELECT MEDIAN(grade) FROM staff", "takes * or one column"),
        ("SELECT COUNT(*) FROM (SELECT * FROM staff WHERE grade = 1) AS few", "no subquery"),
        ("WITH few AS (SELECT * FROM staff WHERE grade = 1) SELECT COUNT(*) FROM few", "no subquery"),
        ("SELECT COUNT(*) FROM staff AS a JOIN staff AS b ON a.grade = b.grade", "no join"),
    ],
)
def test_what_the_audit_cannot_follow_is_refused(staff, question, reason):
    assert reason in refused(Controls([Audit("staff", ("dept", "grade"))]).wrap(staff), question)


def test_columns_without_public_values_cannot_be_watched(staff):
    assert "public list of values for name" in refused(
        Controls([Audit("staff", ("name",))]).wrap(staff), "SELECT COUNT(*) FROM staff"
    )


def test_analysts_are_judged_alone_unless_they_share_a_pool(staff):
    rules = [Audit("staff", ("dept", "grade"))]
    apart = Controls(rules).wrap(staff)
    ask(apart, TRACKER[0], analyst="ada")
    ask(apart, TRACKER[1], analyst="bob")
    pooled = Controls(rules, pools=[("ada", "bob")]).wrap(staff)
    ask(pooled, TRACKER[0], analyst="ada")
    ask(pooled, TRACKER[1], analyst="eve")
    assert "a single cell" in refused(pooled, TRACKER[1], analyst="bob")


def test_refusals_are_the_same_whatever_the_rows(tmp_path):
    sentences = []
    for rows in (ROWS, {name: column[:1] for name, column in ROWS.items()}):
        folder = tmp_path / str(len(rows["person"]))
        with open_dataset(pa.table(rows), schema=SCHEMA, budget=epsilon(100), ledger=folder) as dataset:
            guarded = Controls([Audit("staff", ("dept", "grade")), Overlap("staff", ("dept", "grade"), 5)]).wrap(
                dataset
            )
            said = []
            for text in [*TRACKER, "SELECT COUNT(*) FROM staff WHERE grade = 1"]:
                try:
                    ask(guarded, text)
                    said.append("answered")
                except QueryRefused as no:
                    said.append(str(no))
            sentences.append(said)
    assert sentences[0] == sentences[1]
    assert "answered" in sentences[0]
    assert len(set(sentences[0])) > 1


def test_a_sample_is_the_same_each_time_and_of_about_the_public_rate(staff):
    def count(key):
        guarded = Controls([RandomSample("0.5", key)]).wrap(staff)
        answer = ask(guarded, "SELECT COUNT(*) AS n FROM staff")
        assert "probability 0.5" in answer.notes[-1]
        return answer.item()

    first, other = count("a key of sixteen or more"), count("another key, as long")
    assert 240 < first < 360  # half of 600, six deviations and the noise
    assert first != other
    assert count("a key of sixteen or more") == first


# Answers


def test_small_rows_are_withheld_by_their_noisy_count_only(staff):
    answer = ask(
        Controls([SmallCells(20)]).wrap(staff), "SELECT dept, COUNT(*) AS n, SUM(pay) AS s FROM staff GROUP BY dept"
    )
    shown = {row["dept"]: (row["n"], row["n_low"], row["s"]) for row in answer.rows()}
    assert shown["law"] == (None, None, None)
    assert shown["it"][0] == pytest.approx(400, abs=20)
    assert "below 20" in answer.notes[-1]
    assert answer.loss == SPEND
    assert "law" in str(answer)


def test_one_row_outside_the_limits_withholds_the_whole_answer(staff):
    guarded = Controls([MinimumSize(20, of=N)]).wrap(staff)
    whole = ask(guarded, "SELECT COUNT(*) AS n, SUM(pay) AS s FROM staff")
    assert whole.rows()[0]["s"] is None
    assert "outside 20 to 580" in whole.notes[-1]
    half = ask(guarded, "SELECT COUNT(*) AS n FROM staff WHERE dept = 'it'")
    assert half.item() == pytest.approx(400, abs=20)
    assert "needs COUNT(*)" in refused(guarded, "SELECT SUM(pay) FROM staff")


def test_rounding_moves_limits_outwards(staff):
    text = "SELECT dept, COUNT(*) AS n FROM staff GROUP BY dept"
    exact, rounded = ask(staff_sql(staff), text), ask(Controls([Rounded(10)]).wrap(staff), text)
    for plain, coarse in zip(exact.rows(), rounded.rows(), strict=True):
        assert coarse["n"] % 10 == 0
        assert abs(coarse["n"] - plain["n"]) <= 5
        assert coarse["n_low"] % 10 == coarse["n_high"] % 10 == 0
        assert plain["n_low"] - 10 < coarse["n_low"] <= plain["n_low"] <= plain["n_high"] <= coarse["n_high"]
        assert coarse["n_high"] < plain["n_high"] + 10


def staff_sql(dataset):
    return Controls([]).wrap(dataset)


def test_a_range_holds_the_limits_and_hides_the_number(staff):
    guarded = Controls([RangeAnswers((100, 300, 500))]).wrap(staff)
    answer = ask(guarded, "SELECT dept, COUNT(*) AS n FROM staff GROUP BY dept ORDER BY dept")
    assert answer.column("n") == ["100-300", "300-500", "below 100"]
    assert answer.value.column_names == ["dept", "n"]
    assert "300-500" in str(answer)
    assert ask(guarded, "SELECT COUNT(*) AS n FROM staff").item() == "500 or more"


def test_withholding_comes_before_ranges_whatever_the_order(staff):
    guarded = Controls([RangeAnswers((0, 100, 300, 500)), SmallCells(20)]).wrap(staff)
    answer = ask(guarded, "SELECT dept, COUNT(*) AS n FROM staff GROUP BY dept ORDER BY dept")
    assert answer.column("n") == ["100-300", "300-500", None]


# Policies and bad input


def test_a_policy_names_its_controls(staff):
    policy = {"audit": {"table": "staff", "columns": ["dept", "grade"]}, "rounded": {"base": 5}}
    guarded = Controls.from_policy(policy, pools=[("ada", "bob")]).wrap(staff)
    assert ask(guarded, TRACKER[0], "ada").item() % 5 == 0
    refused(guarded, TRACKER[1], "bob")


def test_bad_settings_are_refused_with_a_sentence():
    with pytest.raises(BadName, match="no control 'magic'"):
        Controls.from_policy({"magic": {}})
    with pytest.raises(BadName, match="rounded takes base, got bass"):
        Controls.from_policy({"rounded": {"bass": 5}})
    with pytest.raises(BadNumber, match="least must be above 0"):
        MinimumSize(0)
    with pytest.raises(BadNumber, match="base must be above 0"):
        Rounded("-1")
    with pytest.raises(BadBounds, match="rising"):
        RangeAnswers((0, 0))
    with pytest.raises(BadProbability, match="strictly between 0 and 1"):
        RandomSample(1, "k" * 20)
    with pytest.raises(BadProbability, match="16 characters"):
        RandomSample("0.5", "short")


def test_controls_keep_their_secrets_out_of_sight():
    assert "a long secret key" not in repr(RandomSample("0.5", "a long secret key"))
    audit = Audit("staff", ("dept",))
    assert str(audit.prime) not in repr(audit)
    assert Audit("staff", ("dept",)).prime != audit.prime


# Linear algebra


def rows(*members, n=6):
    import numpy as np

    matrix = np.zeros((len(members), n), dtype=bool)
    for row, one in zip(matrix, members, strict=True):
        row[list(one)] = True
    return matrix


def space(*members, n=6):
    return RowSpace(secret_prime(), rows(n=n).astype("int64")).add(rows(*members, n=n))


def test_a_unit_vector_in_the_row_space_is_found_however_it_is_combined():
    assert space((0, 1), (1, 2)).singles() == []
    assert sorted(space((0, 1), (1, 2), (0, 2)).singles()) == [0, 1, 2]  # (a + b - c) / 2: not a plain difference
    assert sorted(space((0, 1, 2, 3), (0, 1), (3, 4)).add(rows((2, 4))).singles()) == [2, 3, 4]
    assert sorted(space((0, 1, 2), (3, 4, 5), (0, 3), (1, 4), (2, 5)).singles()) == []
    assert space((0, 1, 2), (0, 1)).singles() == [2]


def test_the_row_space_agrees_with_exact_rationals():
    from fractions import Fraction
    from itertools import combinations

    def exact(members, n):
        """Whether e_j is a combination, by elimination over the rationals."""
        basis: list[list[Fraction]] = []
        for one in members:
            basis.append([Fraction(int(i in one)) for i in range(n)])
        found = []
        for j in range(n):
            unit = [Fraction(int(i == j)) for i in range(n)]
            found += [j] if rank(basis) == rank([*basis, unit]) else []
        return found

    def rank(matrix):
        matrix, done = [row[:] for row in matrix], 0
        for column in range(len(matrix[0])):
            pivot = next((r for r in range(done, len(matrix)) if matrix[r][column]), None)
            if pivot is None:
                continue
            matrix[done], matrix[pivot] = matrix[pivot], matrix[done]
            for r in range(done + 1, len(matrix)):
                factor = matrix[r][column] / matrix[done][column]
                matrix[r] = [a - factor * b for a, b in zip(matrix[r], matrix[done], strict=True)]
            done += 1
        return done

    source = SeededSource("rows")
    for _ in range(60):
        members = [tuple(i for i in range(6) if source.floats(1)[0] < 0.5) for _ in range(5)]
        assert sorted(space(*members).singles()) == exact(members, 6)
    pairs = list(combinations(range(6), 2))
    assert sorted(space(*pairs).singles()) == list(range(6))


def test_a_secret_prime_is_one():
    prime = secret_prime()
    assert 2**30 < prime < 2**31
    assert all(prime % d for d in range(2, 46_341))


def test_cells_follow_the_condition_with_its_nulls(staff):
    cells = Cells("staff", ("dept", "grade"))
    question = staff.plan("SELECT COUNT(*) FROM staff WHERE grade % 2 = 0 AND NOT dept = 'it'", spend=SPEND).question
    assert cells.sets(question, staff.schema).sum() == 4
    nowhere = staff.plan("SELECT COUNT(*) FROM staff WHERE grade > 7", spend=SPEND).question
    assert cells.sets(nowhere, staff.schema).shape == (0, 12)
