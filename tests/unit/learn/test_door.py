"""The room's door: every model and what surrounds them, loaded when asked for."""

import subprocess
import sys
from pathlib import Path

import pytest

import cloister as cl
from cloister import lazy, learn
from cloister.lazy import homes
from cloister.learn.base.estimator import PrivateEstimator
from cloister.privacy.errors import MissingExtra

FREE = {"MinMaxScaler", "OneHotEncoder"}
INNER = "deep"  # a room of its own, behind this one


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_room_is_behind_the_one_door():
    assert cl.learn is learn
    assert set(dir(learn)) == set(learn.__all__) == set(homes("cloister.learn"))


@pytest.mark.parametrize("name", [name for name in learn.__all__ if name != INNER])
def test_every_name_opens_and_is_at_home_where_the_door_says(name):
    found = getattr(learn, name)
    assert found.__module__ == homes("cloister.learn")[name]
    assert found.__doc__


@pytest.mark.parametrize("name", [name for name in learn.__all__ if name[0].isupper() and name not in FREE])
def test_every_model_that_reads_rows_pays(name):
    assert issubclass(getattr(learn, name), PrivateEstimator)
    assert "Privacy:" in getattr(learn, name).__doc__


def test_no_file_hides_a_name():
    files = {path.stem for path in Path(learn.__file__).parent.iterdir()}
    assert files & set(learn.__all__) == {INNER}


def test_an_unknown_name_is_answered_with_what_there_is():
    with pytest.raises(AttributeError, match=r"no 'Perceptron'\. It offers: LogisticRegression"):
        learn.Perceptron  # noqa: B018


def test_listing_the_names_loads_neither_scikit_learn_nor_numpy():
    loaded = set(run("import cloister as cl, sys; dir(cl.learn); print(*sys.modules)").split())
    assert not loaded & {"sklearn", "numpy", "altair"}


def test_without_scikit_learn_the_pip_command_is_said(monkeypatch):
    def missing(name):
        raise ModuleNotFoundError("No module named 'sklearn'", name="sklearn.base")

    monkeypatch.setattr(lazy, "import_module", missing)
    monkeypatch.delitem(vars(learn), "PCA", raising=False)
    with pytest.raises(MissingExtra, match=r"pip install 'cloister\[learn\]'"):
        learn.PCA  # noqa: B018


def test_an_estimator_whose_file_is_broken_does_not_break_the_others(monkeypatch):
    def broken(name):
        raise ModuleNotFoundError("No module named 'x'", name="x")

    with monkeypatch.context() as patch:
        patch.setattr(lazy, "import_module", broken)
        patch.delitem(vars(learn), "KMeans", raising=False)
        with pytest.raises(ModuleNotFoundError, match="No module named 'x'"):
            learn.KMeans  # noqa: B018
    assert learn.PCA.__name__ == "PCA"
