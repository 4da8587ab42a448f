"""Columns as a schema names them become the features that a model knows."""

import numpy as np
import pandas as pd
import pytest

from cloister import learn
from cloister.privacy.errors import BadInput


class Model:
    """All that matters of a model here."""

    def __init__(self, *names):
        self.feature_names_in_ = np.array(names, dtype=object)


ROWS = {"age": [40, 80], "ward": ["surgery", None], "ward=x": ["a", "b"], "insured": [True, False], "other": [1, 2]}


def test_a_column_stays_and_a_value_of_one_becomes_an_indicator():
    model = Model("ward=surgery", "age", "ward=maternity", "insured=True")
    for rows in (ROWS, pd.DataFrame(ROWS)):
        np.testing.assert_array_equal(learn.prepare(model, rows), [[1, 40, 0, 1], [0, 80, 0, 0]])


def test_the_longest_name_of_a_column_counts():
    np.testing.assert_array_equal(learn.prepare(Model("ward=x=b"), ROWS), [[0], [1]])


def test_words_stay_words_where_the_model_takes_them():
    made = learn.prepare(Model("ward", "age"), ROWS)
    assert made.dtype == object
    assert made.tolist() == [["surgery", 40], [None, 80]]


def test_a_feature_without_a_column_is_refused():
    with pytest.raises(BadInput, match="no column for the feature height"):
        learn.prepare(Model("height"), ROWS)
    with pytest.raises(BadInput, match="does not know the names"):
        learn.prepare(object(), ROWS)
