"""`cloister attack`: other people's functions and the zoo, with reports and exit codes."""

import json

import pytest
from click.testing import CliRunner

from cloister.cli import main

MODULE = '''
"""Mechanisms of somebody else."""
from cloister.privacy.noise import discrete_laplace

def noisy(data):
    return data + discrete_laplace(1)

def sample(data, n):
    return data + discrete_laplace(1, n)

noisy.sample = sample

def plain(data):
    return data

number = 3
'''


@pytest.fixture
def run(tmp_path, monkeypatch):
    (tmp_path / "somebodys.py").write_text(MODULE, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return lambda *words: CliRunner().invoke(main, ["attack", *words])


def test_a_true_claim_survives_and_a_report_is_written(run, tmp_path):
    words = ("--claim", "epsilon 1", "--left", "0", "--right", "1", "--samples", "20000", "--html", "page.html")
    found = run("audit", "somebodys:noisy", *words, "--json", "figures.json", "--confidence", "0.999999")
    assert found.exit_code == 0, found.output
    assert found.output.startswith("holds: claim epsilon 1")
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    assert "somebodys:noisy" in page
    assert "The claim is not refuted, which is no proof of it." in page
    figures = json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))
    assert figures["broken"] is False
    assert 0.5 < figures["findings"][0]["epsilon_lower"] <= 1


def test_a_false_claim_is_refuted_with_exit_code_1(run):
    found = run("audit", "somebodys:plain", "--claim", "epsilon 5", "--left", "0", "--right", "1", "--samples", "5000")
    assert found.exit_code == 1
    assert found.output.startswith("broken: claim epsilon 5")


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("somebodys", "--left", "0"), "module:function"),
        (("somebodys:", "--left", "0"), "module:function"),
        (("no_such_module:f", "--left", "0"), "there is no module no_such_module"),
        (("somebodys:missing", "--left", "0"), "has no missing"),
        (("somebodys:number", "--left", "0"), "is a int"),
        (("somebodys:noisy", "--left", "zero"), "as JSON"),
        (("somebodys:noisy", "--left", "[" * 100_000), "as JSON"),
    ],
)
def test_wrong_words_are_answered_with_a_sentence(run, words, sentence):
    found = run("audit", *words, "--right", "1", "--claim", "epsilon 1")
    assert found.exit_code == 2
    assert sentence in " ".join(found.output.split())


def test_a_claim_that_is_no_loss_is_refused(run):
    found = run("audit", "somebodys:noisy", "--left", "0", "--right", "1", "--claim", "much")
    assert found.exit_code == 1
    assert "is no loss" in found.output


def test_the_zoo_is_audited_pair_by_pair(run, tmp_path):
    found = run("zoo", "--samples", "2000", "--json", "zoo.json")
    lines = found.output.splitlines()
    assert lines[0].startswith("caught  mechanism  half the noise")
    assert "0 of 52 audits of honest ones accuse them" in lines[-2]
    # So few samples miss some, which the exit code says.
    assert found.exit_code == (1 if "MISSED" in found.output else 0)
    assert len(json.loads((tmp_path / "zoo.json").read_text(encoding="utf-8"))["findings"]) == 52
