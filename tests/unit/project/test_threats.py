"""The register of threats: each has an answer, and the tests that it names exist. Weak techniques name their attack."""

import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
ROWS = re.findall(r"^\| ((?:AT|THR)-\d\d) .*\| (.*) \|$", (ROOT / "docs/threats.md").read_text(encoding="utf-8"), re.M)


def test_every_threat_and_attack_has_a_row():
    assert [number for number, _ in ROWS] == [
        *(f"AT-{number:02d}" for number in range(1, 19)),
        *(f"THR-{number:02d}" for number in range(1, 15)),
    ]


def test_the_tests_that_a_row_names_exist():
    for number, shown in ROWS:
        file = None
        for word in re.findall(r"`([^`]+)`", shown):
            if word.endswith(".py"):
                file = ROOT / word if "/" in word else ROOT / "tests/e2e" / word
                assert file.is_file(), (number, word)
            else:
                assert f"def test_{word.rstrip('…')}" in file.read_text(encoding="utf-8"), (number, word)
        assert file is not None, number


# Weak techniques: whoever reads about one reads which attack defeats it.

WEAK = (
    "anonymize.models", "anonymize.release", "anonymize.algorithms", "anonymize.operations", "anonymize.mining.hiding",
    "anonymize.mining.downgrading", "lessons.noise", "lessons.sql", "lessons.learn", "lessons.controls",
    "synth.scoring.negatives", "synth.scoring.risk.deniability", "learn.serving.policies", "learn.serving.guard",
    "local.privacy.shuffle", "local.mechanisms.memoised", "vault.sharing", "vault.paillier",
)  # fmt: skip
NO_TECHNIQUE = {
    "anonymize.algorithms.boxes": "labels of classes",
    "anonymize.models.Requirement": "several models together",
    "anonymize.operations.dictionary_attack": "an attack",
    "anonymize.operations.learning_from_noise": "learns from noisy values",
    "anonymize.operations.operated": "the result of an operation",
    "anonymize.operations.reconstruction": "learns from noisy values",
    "lessons.controls.cells": "linear algebra of queries",
    "lessons.controls.control": "the interface of controls",
    "lessons.controls.guarded": "runs the controls",
    "lessons.learn.method": "the base class of textbook methods",
    "lessons.sql.lesson.SmallTable": "the table of the lessons",
}
BY_CLASS = (
    "anonymize.models",
    "lessons.sql",
    "local.mechanisms.memoised",
)  # each class is a technique of its own, not each module
OPENED = ("vault.sharing", "vault.paillier")  # the package as a whole opens exact values


def modules(home):
    """The modules of a home: itself, or those in it if it is a package of techniques."""
    found = importlib.import_module(f"cloister.{home}")
    inner = [] if home in OPENED else list(pkgutil.iter_modules(getattr(found, "__path__", [])))
    return [importlib.import_module(f"{found.__name__}.{one.name}") for one in inner] or [found]


def public(module):
    """The classes and functions that a module defines and exports."""
    for name in getattr(module, "__all__", []):
        one = getattr(module, name)
        if (inspect.isclass(one) or inspect.isfunction(one)) and one.__module__ == module.__name__:
            yield f"{module.__name__.removeprefix('cloister.')}.{name}", one


def techniques():
    """Every technique that a home has, with the texts in which its attack may be named."""
    for home in WEAK:
        for module in modules(home):
            name = module.__name__.removeprefix("cloister.")
            if name in NO_TECHNIQUE:
                continue
            if home not in BY_CLASS:
                yield name, module.__doc__
                continue
            for inner, one in public(module):
                if inner not in NO_TECHNIQUE and inspect.isclass(one):
                    yield inner, inspect.getdoc(one)


def attacks_in(text):
    """The attacks that a text names and that exist: callables of `cloister.attack`, and rows of the page of threats."""
    falls = re.search(r"[Ff]alls to[ :](.*)", text or "", re.S)
    words = falls[1] if falls else ""
    found = [word for word in re.findall(r"\b(?:AT|THR)-\d\d\b", words) if word in {number for number, _ in ROWS}]
    for path in re.findall(r"`(attack(?:\.\w+)+)`", words):
        one, *rest = path.split(".")
        module = importlib.import_module(f"cloister.{one}")
        for part in rest:
            module = getattr(module, part, None) or importlib.import_module(f"{module.__name__}.{part}")
        assert callable(module), f"{path} is named, and is no attack"
        found.append(path)
    return found


TECHNIQUES = dict(techniques())


@pytest.mark.parametrize("name", TECHNIQUES)
def test_a_weak_technique_names_the_attack_that_defeats_it(name):
    assert attacks_in(TECHNIQUES[name]), f"{name}: write 'Falls to: `attack.…`' in its docstring, or in its module's"


def test_the_test_sees_techniques_and_misses_none_that_is_left_out():
    assert len(TECHNIQUES) >= 55
    known = {name for home in WEAK for module in modules(home) for name in
             [module.__name__.removeprefix("cloister."), *(inner for inner, _ in public(module))]}  # fmt: skip
    assert set(NO_TECHNIQUE) <= known, "what is left out exists"
    assert attacks_in("Rounds. Falls to: nothing that is known.") == []
    assert attacks_in("The attack `attack.steal` in passing.") == []
    with pytest.raises((AssertionError, ModuleNotFoundError)):
        attacks_in("Falls to: `attack.tables.no_such_attack`.")
