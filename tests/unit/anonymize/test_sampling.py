import numpy as np
import pytest

from cloister.anonymize.operations.sampling import sample, shuffle
from cloister.privacy.errors import BadNumber, BadProbability, BadSchema

ROWS = {"x": list(range(1000)), "c": [None if i % 10 == 0 else "a" if i % 2 else "b" for i in range(1000)]}


def test_a_sample_has_rows_of_the_table_once_and_in_order():
    result = sample(ROWS, share=0.25)
    drawn = result.rows["x"].to_pylist()
    assert len(drawn) == 250
    assert drawn == sorted(set(drawn))
    assert result.log == ("250 of 1,000 rows sampled at random, without replacement.",)
    assert sample(ROWS, count=7).rows.num_rows == 7
    assert drawn != sample(ROWS, share=0.25).rows["x"].to_pylist()


def test_each_row_is_drawn_equally_often():
    hits = np.zeros(20)
    for seed in range(2000):
        hits[sample({"x": list(range(20))}, count=5, random_state=seed).rows["x"].to_numpy()] += 1
    assert np.abs(hits / 2000 - 0.25).max() < 5 * np.sqrt(0.25 * 0.75 / 2000)


def test_a_stratified_sample_has_the_share_of_each_value_and_of_null():
    drawn = sample(ROWS, share=0.1, by="c").rows["c"].to_pylist()
    assert {value: drawn.count(value) for value in ("a", "b", None)} == {"a": 50, "b": 40, None: 10}


@pytest.mark.parametrize("options", [{}, {"share": 0.5, "count": 3}, {"count": 3, "by": "c"}, {"count": 1001}])
def test_wrong_sizes_are_refused(options):
    with pytest.raises(BadNumber):
        sample(ROWS, **options)
    with pytest.raises(BadProbability):
        sample(ROWS, share=0)
    with pytest.raises(BadSchema):
        sample(ROWS, share=0.5, by="missing")


def test_a_shuffle_moves_whole_rows():
    result = shuffle(ROWS).rows.to_pydict()
    assert result["x"] != ROWS["x"]
    assert sorted(result["x"]) == ROWS["x"]
    assert all(ROWS["c"][x] == c for x, c in zip(result["x"], result["c"], strict=True))
