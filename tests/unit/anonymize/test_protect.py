"""The textbook facade: roles, k, protect."""

import copy

import numpy as np
import pyarrow as pa
import pytest

from cloister.anonymize.checking.verifier import check
from cloister.anonymize.hierarchy import Hierarchy
from cloister.anonymize.models import KAnonymity
from cloister.anonymize.protect import PrivacyModel, Protect
from cloister.privacy.errors import BadInput


def people(rows: int = 600) -> dict[str, list[object]]:
    draw = np.random.default_rng(5)
    return {
        "name": [f"person {number}" for number in range(rows)],
        "age": np.clip(draw.normal(40, 12, rows), 17, 90).astype(int).tolist(),
        "sex": draw.choice(["Male", "Female"], rows).tolist(),
        "marital-status": draw.choice(["single", "married"], rows).tolist(),
        "income": draw.choice(["<=50K", ">50K"], rows).tolist(),
    }


def protected(frame: object) -> Protect:
    prot = Protect(frame)
    prot.itypes.age = "quasi"
    prot.itypes.sex = "quasi"
    prot.itypes.name = prot.itypes["marital-status"] = "insensitive"
    prot.privacy_model.k = 5
    return prot


def test_a_column_whose_name_suggests_a_person_needs_a_role() -> None:
    prot = Protect({"name": ["Ann", "Bob"], "age": [1, 1]})
    prot.itypes.age = "quasi"
    assert repr(prot) == "<Protect: 2 rows, 2 columns; <KAnonymity: {'k': 2}>; no role is set for name>"
    with pytest.raises(BadInput, match="name has no role") as refused:
        prot.protect()
    assert "=" not in str(refused.value)  # not the arguments of another function
    for role in ("quasi", "identifier", "sensitive", "plain"):  # the words of the sentence are words of `itypes`
        assert role in str(refused.value)
        prot.itypes.name = role
    assert repr(prot) == "<Protect: 2 rows, 2 columns; <KAnonymity: {'k': 2}>>"
    prot.itypes.name = "identifying"
    assert prot.protect() == {"name": ["*", "*"], "age": [1, 1]}


def test_the_walk_through_gives_a_frame_of_the_same_shape_that_satisfies_k() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    frame = pandas.DataFrame(people(), index=range(1000, 1600))
    prot = protected(frame)
    assert repr(prot.privacy_model) == "<KAnonymity: {'k': 5}>"
    result = prot.protect()
    assert isinstance(result, pandas.DataFrame)
    assert result.shape == frame.shape
    assert list(result.columns) == list(frame.columns)
    assert result.index.equals(frame.index)
    assert result["income"].equals(frame["income"])
    assert check(result, quasi=["age", "sex"]).k >= 5


def test_less_is_lost_than_by_a_column_of_stars() -> None:
    prot = protected(people())
    result = prot.protect()
    assert set(result["age"]) != {"*"}
    assert prot.release is not None
    assert prot.release.utility.certainty_penalty < 0.5  # age as stars and sex intact


@pytest.mark.parametrize("kind", ["dict", "arrow", "polars"])
def test_the_result_is_of_the_kind_that_came_in(kind: str) -> None:
    rows: object = people()
    if kind == "arrow":
        rows = pa.table(people())
    if kind == "polars":
        rows = pytest.importorskip("polars", reason="polars is not installed").DataFrame(people())
    result = protected(rows).protect()
    assert type(result) is type(rows)


def test_identifying_columns_become_stars() -> None:
    prot = protected(people())
    prot.itypes.name = "identifying"
    result = prot.protect()
    assert list(result) == list(people())
    assert set(result["name"]) == {"*"}


def test_columns_with_any_name_are_set_by_item() -> None:
    prot = protected(people())
    prot.itypes["marital-status"] = "quasi"
    assert prot.itypes["marital-status"] == "quasi"
    assert check(prot.protect(), quasi=["age", "sex", "marital-status"]).k >= 5
    assert "marital-status: quasi" in repr(prot.itypes)


def test_l_and_t_hold_for_sensitive_columns() -> None:
    prot = protected(people())
    prot.itypes.income = "sensitive"
    prot.privacy_model.l, prot.privacy_model.t = 2, 0.3
    assert repr(prot.privacy_model) == "<KAnonymity, DistinctDiversity, TCloseness: {'k': 5, 'l': 2, 't': 0.3}>"
    checked = check(prot.protect(), quasi=["age", "sex"], sensitive=["income"])
    assert checked.meets(k=5, l=2, t=0.3) == []


def test_any_model_and_any_hierarchy_can_be_set() -> None:
    prot = protected(people())
    prot.privacy_model = KAnonymity(20)
    prot.hierarchies.age = Hierarchy.intervals(0, 100, [25, 50])
    assert check(prot.protect(), quasi=["age", "sex"]).k >= 20
    assert prot.release is not None
    assert prot.release.label.startswith("k=20")


def test_suppression_removes_rows() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    prot = protected(pandas.DataFrame(people()))
    prot.suppression = 0.2
    assert 480 <= len(prot.protect()) <= 600


def test_the_frame_that_came_in_is_not_changed() -> None:
    rows = people()
    before = copy.deepcopy(rows)
    protected(rows).protect()
    assert rows == before


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda prot: setattr(prot.itypes, "height", "quasi"), "there is no column height"),
        (lambda prot: setattr(prot.itypes, "age", "public"), "a column is identifier"),
        (lambda prot: setattr(prot.hierarchies, "age", [5, 10]), "a hierarchy is made by"),
        (lambda prot: (setattr(prot.privacy_model, "l", 2), prot.protect()), "l and t are about sensitive columns"),
        (lambda prot: (setattr(prot.privacy_model, "k", 601), prot.protect()), "no release satisfies"),
        (lambda prot: (setattr(prot.privacy_model, "k", "5"), prot.protect()), "k must be a whole number"),
    ],
)
def test_a_mistake_is_refused_with_the_way_out(change, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        change(protected(people()))


def test_without_a_quasi_identifier_nothing_is_protected() -> None:
    with pytest.raises(BadInput, match="name the quasi-identifiers first"):
        Protect(people()).protect()


def test_settings_can_be_copied() -> None:
    assert PrivacyModel(7).k == 7
    with pytest.raises(AttributeError):
        PrivacyModel().epsilon = 1  # type: ignore[attr-defined]
