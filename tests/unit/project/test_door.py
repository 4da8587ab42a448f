"""The one door: few names, quick to open."""

import importlib
import subprocess
import sys
import time

import pytest

import cloister
from cloister.lazy import homes

NAMES = {
    "DiscreteGaussian",
    "DiscreteLaplace",
    "Gaussian",
    "Laplace",
    *("epsilon", "rho", "Loss", "Relation", "Unit"),
    *("Ledger", "SigningKey", "measure", "Release", "Receipt"),
    *("open", "Dataset", "Schema"),
    *("count", "count_people", "total", "mean", "var", "std", "median", "quantile", "minimum", "maximum", "mode"),
    *("privacy", "attack", "data", "query", "learn", "local", "synth", "anonymize", "__version__"),
    *("client", "hub", "lessons", "vault", "errors"),
}


def run(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout.strip()


def test_the_door_offers_exactly_these_names():
    assert set(cloister.__all__) == NAMES
    assert set(dir(cloister)) == NAMES


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_name_on_the_door_opens(name):
    assert getattr(cloister, name) is not None


def test_a_star_import_brings_everything():
    space: dict[str, object] = {}
    exec("from cloister import *", space)
    assert set(space) >= NAMES


def test_an_unknown_name_is_answered_with_what_there_is():
    with pytest.raises(AttributeError, match=r"cloister has no 'query_all'\. It offers: open, Dataset"):
        cloister.query_all  # noqa: B018


@pytest.mark.parametrize(
    ("room", "old", "new"),
    [
        ("hub", "Client", "client.Client"),
        ("attack", "Feature", "attack.OutputFeature"),
        ("local", "Checked", "local.CheckedEnvelope"),
        ("learn", "compare", "lessons.compare.run.compare"),
        ("query.controls", "Controls", "lessons.controls.Controls"),
    ],
)
def test_renamed_names_still_open_and_say_their_new_name(room, old, new):
    with pytest.warns(DeprecationWarning, match=new.replace(".", r"\.")):
        value = getattr(importlib.import_module(f"cloister.{room}"), old)
    home, _, name = new.rpartition(".")
    assert value is getattr(importlib.import_module(f"cloister.{home}"), name)


@pytest.mark.parametrize(
    "package", ["", ".client", ".data", ".learn", ".local", ".synth", ".vault", ".vault.paillier", ".vault.sharing"]
)
def test_type_checkers_see_every_name_that_a_door_offers(package):
    door = importlib.import_module(f"cloister{package}")
    assert set(homes(door.__name__)) | {"__version__"} == set(door.__all__) | {"__version__"}
    assert dir(door) == sorted(door.__all__)
    for name in door.__all__:
        assert getattr(door, name) is not None


@pytest.mark.parametrize(
    ("missing", "use"),
    [
        ("gmpy2", "from cloister.vault.paillier import PrivateKey"),
        ("nacl", "from cloister.vault.sharing import split"),
    ],
)
def test_a_missing_extra_of_the_vault_is_one_sentence(missing, use):
    code = f"""
import sys
sys.modules[{missing!r}] = None
from cloister.privacy.errors import MissingExtra
from cloister import vault
vault.BlindKey
try:
    {use}
except MissingExtra as error:
    print(error)
"""
    assert run(code).endswith("pip install 'cloister[crypto]'.")


def test_the_door_loads_nothing_heavy():
    loaded = set(run("import cloister, sys; print(*sys.modules)").split())
    assert "cloister" in loaded
    assert not loaded & {
        "numpy",
        "scipy",
        "cryptography",
        "rich",
        "click",
        "dp_accounting",
        "psycopg",
        "fastapi",
        "jax",
    }


def test_the_core_loads_no_web_and_no_plotting():
    loaded = set(run("import cloister; cloister.epsilon(1); cloister.Ledger; import sys; print(*sys.modules)").split())
    assert "cloister.privacy.ledger" in loaded
    assert not loaded & {"altair", "dp_accounting", "fastapi", "jax", "matplotlib", "pandas", "psycopg", "rich"}


def test_the_door_opens_within_three_tenths_of_a_second():
    run("import cloister")  # bytecode is written once, at the first import
    took = min(_seconds("import cloister") - _seconds("pass") for _ in range(3))
    assert took < 0.3


def _seconds(code: str) -> float:
    start = time.perf_counter()
    run(code)
    return time.perf_counter() - start
