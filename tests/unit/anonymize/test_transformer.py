"""The scikit-learn transformer: training rows satisfy the models, new rows get the labels that were learned."""

import datetime as dt
import pickle
from decimal import Decimal

import numpy as np
import pandas
import pyarrow as pa
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

from cloister.anonymize.checking.verifier import check
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import DistinctDiversity, KAnonymity
from cloister.anonymize.transformer import Anonymizer
from cloister.privacy.errors import BadInput

QUASI = ["age", "zip", "sex"]


def people(rows: int = 500, seed: int = 2) -> "pandas.DataFrame":
    draw = np.random.default_rng(seed)
    return pandas.DataFrame(
        {
            "age": draw.integers(18, 80, rows),
            "zip": draw.integers(33600, 33630, rows).astype(str),
            "sex": draw.choice(["f", "m"], rows),
            "score": draw.normal(0, 1, rows),
        }
    )


def test_a_column_whose_name_suggests_a_person_needs_a_role() -> None:
    rows = people()
    rows["name"] = "Ann"
    with pytest.raises(BadInput, match="name has no role"):
        Anonymizer("k=5", quasi=QUASI).fit(rows)
    assert "name" in Anonymizer("k=5", quasi=QUASI, plain=["name"]).fit_transform(rows)
    assert "name" not in Anonymizer("k=5", quasi=QUASI, identifiers=["name"]).fit_transform(rows)


@pytest.mark.parametrize("method", ["recode", "mondrian"])
def test_training_rows_satisfy_the_models_and_keep_their_order(method: str) -> None:
    rows = people()
    anonymizer = Anonymizer("k=7", quasi=QUASI, method=method)
    result = anonymizer.fit_transform(rows)
    assert check(result, quasi=QUASI).k >= 7
    assert result.index.equals(rows.index)
    assert result["score"].tolist() == rows["score"].tolist()
    assert anonymizer.label_ == "k=7: not differentially private"
    assert 0 < anonymizer.loss_ < 1


@pytest.mark.parametrize("method", ["recode", "mondrian"])
@pytest.mark.parametrize("seed", range(4))
def test_transform_of_the_training_rows_is_fit_transform(method: str, seed: int) -> None:
    rows = people(seed=seed)
    rows.loc[rows.index % 17 == 0, "zip"] = None
    rows["age"] = rows["age"].astype(float).where(rows.index % 19 != 0)
    anonymizer = Anonymizer("k=4", quasi=QUASI, method=method)
    released = anonymizer.fit_transform(rows)
    again = anonymizer.transform(rows)
    assert check(again, quasi=QUASI).k >= 4
    assert again[QUASI].astype(object).where(again[QUASI].notna(), None).values.tolist() == (
        released[QUASI].astype(object).where(released[QUASI].notna(), None).values.tolist()
    )


@pytest.mark.parametrize("method", ["recode", "mondrian"])
def test_new_rows_only_have_labels_that_were_learned_or_stars(method: str) -> None:
    anonymizer = Anonymizer("k=5", quasi=QUASI, method=method)
    released = anonymizer.fit_transform(people())
    new = people(60, seed=9)
    new.loc[0, ["sex", "zip", "age"]] = ["x", "99999", 200]
    result = anonymizer.transform(new)
    assert len(result) == 60
    for name in QUASI:
        assert set(result[name].astype(str)) <= {*released[name].astype(str), "*"}
    assert result.loc[0, "sex"] == "*"


def test_a_missing_number_is_a_star_if_no_training_row_lacks_it() -> None:
    anonymizer = Anonymizer("k=5", quasi=["age", "sex"], plain=["zip"], method="mondrian").fit(people())
    assert anonymizer.transform(people(2).assign(age=[np.nan, 40.0]))["age"].tolist()[0] == "*"


def test_a_value_beyond_all_training_values_becomes_a_star_at_a_learned_level() -> None:
    anonymizer = Anonymizer("k=5", quasi=["age"], plain=["zip", "sex"],
                            hierarchies={"age": Hierarchy.intervals(0, 120, [10])})  # fmt: skip
    anonymizer.fit(people())
    result = anonymizer.transform(pandas.DataFrame({**people(2), "age": [35, 119]}))
    assert result["age"].tolist()[1] == "*"


def test_no_row_is_kept() -> None:
    rows = people()
    rows["secret"] = [f"secret {number}" for number in range(len(rows))]
    for method in ("recode", "mondrian"):
        anonymizer = Anonymizer("k=25", quasi=QUASI, identifiers=["secret"], method=method).fit(rows)
        kept = repr(vars(anonymizer))
        assert "secret 1" not in kept
        assert all(str(round(score, 6)) not in kept for score in rows["score"][:20])


def test_arrays_come_in_and_go_out() -> None:
    rows = people()[QUASI].to_numpy()
    anonymizer = Anonymizer("k=5", quasi=[0, 1, 2])
    result = anonymizer.fit_transform(rows)
    assert isinstance(result, np.ndarray)
    assert result.shape == rows.shape
    assert list(anonymizer.get_feature_names_out()) == ["x0", "x1", "x2"]
    assert check({f"x{at}": result[:, at].tolist() for at in range(3)}, quasi=["x0", "x1", "x2"]).k >= 5


def test_identifiers_are_dropped_and_names_say_so() -> None:
    rows = people().assign(name="somebody")
    anonymizer = Anonymizer(KAnonymity(5), quasi=["age"], identifiers=["name"], plain=["zip", "sex"]).fit(rows)
    assert "name" not in anonymizer.get_feature_names_out()
    assert "name" not in anonymizer.transform(rows).columns


def test_models_of_sensitive_columns_hold_in_training_rows() -> None:
    rows = people().assign(disease=np.random.default_rng(1).choice(["flu", "cold", "ulcer"], 500))
    anonymizer = Anonymizer([KAnonymity(3), DistinctDiversity(2, "disease")], quasi=QUASI, method="mondrian")
    result = anonymizer.fit_transform(rows)
    assert check(result, quasi=QUASI, sensitive=["disease"]).meets(k=3, l=2) == []


def test_it_works_in_a_pipeline_and_can_be_cloned() -> None:
    rows = people(800)
    labels = (rows["age"] > 45).to_numpy()
    pipeline = make_pipeline(
        Anonymizer("k=10", quasi=QUASI), OneHotEncoder(handle_unknown="ignore"), LogisticRegression(max_iter=500)
    )
    assert cross_val_score(clone(pipeline), rows[QUASI], labels, cv=3).mean() > 0.85


@pytest.mark.parametrize("method", ["recode", "mondrian"])
def test_numbers_can_stay_numbers(method: str) -> None:
    rows = people()
    rows["age"] = rows["age"].astype(float).where(rows.index % 50 != 0)
    anonymizer = Anonymizer("k=5", quasi=["age", "sex"], plain=["zip"], method=method, numbers="middle")
    result = anonymizer.fit_transform(rows)
    assert result["age"].dtype == float
    assert check(result, quasi=["age", "sex"]).k >= 5
    assert np.nanmax(np.abs(result["age"] - rows["age"])) <= 31
    assert anonymizer.transform(rows)["age"].equals(result["age"])
    stranger = anonymizer.transform(rows.assign(age=1e6))["age"]
    assert stranger.between(18, 80).all()


def test_a_polars_frame_goes_out_as_one() -> None:
    polars = pytest.importorskip("polars", reason="polars is not installed")
    rows = polars.from_pandas(people())
    assert isinstance(Anonymizer("k=5", quasi=QUASI).fit_transform(rows), polars.DataFrame)


@pytest.mark.parametrize(
    ("anonymizer", "sentence"),
    [
        (Anonymizer("k=5"), "name the quasi-identifiers|quasi"),
        (Anonymizer("k=5", quasi="age"), "columns are a list"),
        (Anonymizer("k=5", quasi=[9]), "counted from 0"),
        (Anonymizer("k=5", quasi=["height"]), "no column height"),
        (Anonymizer("k=5", quasi=QUASI, method="magic"), "no method magic"),
        (Anonymizer("k=5", quasi=QUASI, method="mondrian", hierarchies={"age": Hierarchy.flat()}), "no hierarchies"),
        (Anonymizer("k=501", quasi=QUASI), "no release satisfies"),
        (Anonymizer("k=5", quasi=QUASI, numbers="mean"), "numbers is 'label' or 'middle'"),
    ],
)
def test_a_mistake_is_refused_with_the_way_out(anonymizer: Anonymizer, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        anonymizer.fit(people())


def test_rows_without_a_learned_column_are_refused() -> None:
    anonymizer = Anonymizer("k=5", quasi=QUASI).fit(people())
    with pytest.raises(BadInput, match="lack the column age"):
        anonymizer.transform(people().drop(columns="age"))


def test_a_fitted_mondrian_can_be_pickled() -> None:
    anonymizer = Anonymizer("k=5", quasi=QUASI, method="mondrian").fit(people())
    again = pickle.loads(pickle.dumps(anonymizer))
    assert again.transform(people(20, seed=4)).equals(anonymizer.transform(people(20, seed=4)))


def test_a_class_of_one_value_and_missing_ones_is_not_released_as_missing() -> None:
    rows = pandas.DataFrame({"age": [80.0, 80.0, None, None, 20.0, 20.0, 20.0, 20.0]})
    result = Anonymizer("k=4", quasi=["age"], method="mondrian").fit_transform(rows)
    assert result["age"].tolist()[:4] == ["*"] * 4


@pytest.mark.parametrize("numbers", ["label", "middle"])
@pytest.mark.parametrize("method", ["recode", "mondrian"])
@pytest.mark.parametrize(
    "cells",
    [
        pa.array([1, 1, 7, 7]),
        pa.array([Decimal("1.50"), Decimal("1.50"), Decimal("99.25"), Decimal("99.25")]),
        pa.array([0.5, 0.5, 2.0, 2.0]),
        pa.array([dt.time(1), dt.time(1), dt.time(2), dt.time(2)]),
        pa.array([dt.datetime(2020, 1, 1)] * 2 + [dt.datetime(2021, 1, 1)] * 2),
        pa.array([True, True, False, False]),
        pa.array([0, 0, 5, 5], pa.duration("s")),
        pa.array(["a", "a", None, None]),
    ],
    ids=lambda cells: str(cells.type),
)
def test_a_column_that_needs_no_generalisation_is_the_same_in_fit_and_in_transform(
    cells: pa.Array, method: str, numbers: str
) -> None:
    rows = pa.table({"a": cells, "b": [1, 2, 3, 4]})
    anonymizer = Anonymizer(require="k=2", quasi=["a", "b"], method=method, numbers=numbers)
    trained = anonymizer.fit_transform(rows)
    assert anonymizer.transform(rows).to_pydict() == trained.to_pydict()
    if method == "mondrian" and not (numbers == "middle" and pa.types.is_decimal(cells.type)):
        assert trained.column("a").to_pylist() == cells.to_pylist()
