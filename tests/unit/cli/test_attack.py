"""`cloister attack`: other people's functions and the zoo, with reports and exit codes."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
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

def shy(data):
    return data if data == 7 else noisy(data)

def pairs():
    return [(value, value + 1) for value in range(10)]

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


def test_the_worst_of_many_inputs_is_searched_for(run):
    words = ("--claim", "epsilon 1", "--pairs", "somebodys:pairs", "--samples", "5000")
    assert run("audit", "somebodys:noisy", *words, "--confidence", "0.999999").exit_code == 0
    found = run("audit", "somebodys:shy", *words)
    assert found.exit_code == 1, found.output
    assert "on the worst of 10 pairs of inputs, by " in found.output
    assert found.output.endswith(("left 6\nright 7\n", "left 7\nright 8\n"))


def test_two_inputs_or_pairs_are_needed(run):
    for words in ((), ("--left", "0"), ("--pairs", "somebodys:pairs", "--left", "null")):
        found = run("audit", "somebodys:noisy", "--claim", "epsilon 1", *words)
        assert found.exit_code == 2
        assert "--pairs" in found.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("somebodys", "--left", "0"), "module:name"),
        (("somebodys:", "--left", "0"), "module:name"),
        (("no_such_module:f", "--left", "0"), "there is no module no_such_module"),
        (("somebodys:missing", "--left", "0"), "has no missing"),
        (("somebodys:number", "--left", "0"), "must be a callable"),
        (("somebodys:noisy", "--left", "zero"), "as JSON"),
        (("somebodys:noisy", "--left", "[" * 100_000), "as JSON"),
    ],
)
def test_wrong_words_are_answered_with_a_sentence(run, words, sentence):
    found = run("audit", *words, "--right", "1", "--claim", "epsilon 1")
    assert found.exit_code != 0
    assert sentence in " ".join(found.output.split())


@pytest.mark.parametrize("code", [0, 1])
def test_code_that_ends_the_program_is_not_taken_for_a_claim_that_holds(run, tmp_path, code):
    (tmp_path / f"ends{code}.py").write_text(f"import sys\nsys.exit({code})\n", encoding="utf-8")
    (tmp_path / f"stops{code}.py").write_text(f"import sys\n\ndef f(x):\n    sys.exit({code})\n", encoding="utf-8")
    for name in (f"ends{code}:f", f"stops{code}:f"):
        found = run("audit", name, "--left", "0", "--right", "1", "--claim", "epsilon 1")
        assert found.exit_code == 1
        assert "ended the program" in found.output


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


MODELS = '''
"""A model that memorises, and one that does not."""
import numpy as np
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

X, y = make_classification(400, 6, random_state=0, flip_y=0.3)
memory = KNeighborsClassifier(1).fit(X[:200], y[:200])
linear = LogisticRegression().fit(X[:200], y[:200])
'''


@pytest.fixture
def files(run, tmp_path):
    """A folder with models and with rows they were trained with and not."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet
    from sklearn.datasets import make_classification

    (tmp_path / "models_of_others.py").write_text(MODELS, encoding="utf-8")
    rows, labels = make_classification(400, 6, random_state=0, flip_y=0.3)
    table = pa.table({f"x{i}": rows[:, i] for i in range(6)} | {"ill": labels})
    pa.csv.write_csv(table.slice(0, 200), tmp_path / "members.csv")
    pa.parquet.write_table(table.slice(200), tmp_path / "others.parquet")
    pa.csv.write_csv(table.slice(200).drop_columns(["ill"]), tmp_path / "test.csv")
    assert np.isfinite(rows).all()
    return tmp_path


ROWS = ("--members", "members.csv", "--others", "others.parquet", "--label", "ill")


def test_a_model_that_memorises_is_told_from_its_answers(run, files):
    found = run("membership", "models_of_others:memory", *ROWS, "--seed", "1", "--html", "page.html")
    assert found.exit_code == 0, found.output
    assert "membership by loss threshold against KNeighborsClassifier" in found.output
    assert "The attack learns" in found.output
    assert (files / "page.html").read_text(encoding="utf-8").count("<section>") == 2


def test_a_claim_that_a_model_breaks_ends_with_exit_code_1(run, files):
    found = run("membership", "models_of_others:memory", *ROWS, "--method", "loss", "--claim", "epsilon 0.1")
    assert found.exit_code == 1
    assert "The claim is refuted." in found.output


def test_a_linear_model_is_stolen(run, files):
    found = run("steal", "models_of_others:linear", "--test", "test.csv", "--box", "-3", "3", "--seed", "1")
    assert found.exit_code == 0, found.output
    assert "100.0%" in found.output


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("membership", "models_of_others:memory", *ROWS[:-1], "nothing"), "has no column 'nothing'"),
        (("membership", "models_of_others:memory", *ROWS, "--method", "magic"), "methods are some of"),
        (("membership", "members.csv", *ROWS), "--key"),
        (("membership", "models_of_others:nothing", *ROWS), "has no nothing"),
        (("steal", "models_of_others:linear", "--test", "page.docx"), "does not exist"),
        (("link", "members.csv", "test.csv", "--on", "x0", "--tolerance", "x0=far"), "COLUMN=NUMBER"),
        (("link", "members.csv", "test.csv", "--on", "name"), "no column 'name'"),
    ],
)
def test_wrong_names_and_files_are_answered_with_a_sentence(run, files, words, sentence):
    found = run(*words)
    assert found.exit_code != 0
    assert sentence in " ".join(found.output.split())
    assert not isinstance(found.exception, ValueError)


def test_known_people_are_found_in_a_release(run, files):
    (files / "release.csv").write_text("zip,age,ill\n13053,28,flu\n13068,29,flu\n14850,50,TB\n", encoding="utf-8")
    (files / "voters.csv").write_text("name,zip,age\nAnn,13053,28\nCem,14850,51\n", encoding="utf-8")
    found = run("link", "release.csv", "voters.csv", "--on", "zip,age", "--names", "name", "--html", "page.html")
    assert "linkage: 1 of 2 people at risk" in found.output
    assert "Ann" not in found.output + (files / "page.html").read_text(encoding="utf-8")
    tolerant = run("link", "release.csv", "voters.csv", "--on", "zip,age", "--tolerance", "age=2")
    assert "linkage with errors: 2 of 2 people at risk" in tolerant.output


@pytest.mark.parametrize(
    "words",
    [("--html", "voters.csv"), ("--json", "release.csv"), ("--html", "same.html", "--json", "./same.html")],
)
def test_a_report_overwrites_nothing_that_is_read(run, files, words):
    (files / "release.csv").write_text("zip,age,ill\n13053,28,flu\n", encoding="utf-8")
    (files / "voters.csv").write_text("name,zip,age\nAnn,13053,28\n", encoding="utf-8")
    before = {path.name: path.read_bytes() for path in files.glob("*.csv")}
    found = run("link", "release.csv", "voters.csv", "--on", "zip,age", *words)
    assert found.exit_code == 2, found.output
    assert {path.name: path.read_bytes() for path in files.glob("*.csv")} == before
    assert not (files / "same.html").exists()


BLOCK = {
    "attributes": {"sex": ["f", "m"]},
    "ages": [0, 100],
    "statistics": [
        {"who": {}, "count": 3, "median": 30, "mean": 40},
        {"who": {"sex": "f"}, "count": 2, "mean": 24},
        {"who": {"sex": "m"}, "count": 1},
    ],
}


def test_a_copy_that_is_called_synthetic_is_found(run, tmp_path):
    from cloister.data.hospital import SCHEMA, hospital

    facts = {"unit": "row", "tables": {"visits": {"columns": SCHEMA["tables"]["visits"]["columns"]}}}
    (tmp_path / "schema.json").write_text(json.dumps(facts), encoding="utf-8")
    for name in ("real", "held"):
        made = hospital(400, name)
        pq.write_table(pa.table({column: made[column] for column in made if column != "patient"}), f"{name}.parquet")
    words = ("real.parquet", "real.parquet", "held.parquet", "--schema", "schema.json")
    found = run("synthetic", *words, "--html", "page.html", "--json", "figures.json")
    assert found.exit_code == 0, found.output
    assert "membership by closest row against synthetic table of visits" in found.output
    assert json.loads((tmp_path / "figures.json").read_text(encoding="utf-8"))["findings"][0]["success"] == 1.0
    assert "singling out" in (tmp_path / "page.html").read_text(encoding="utf-8")
    again = run("synthetic", "real.parquet", "held.parquet", "real.parquet", "--schema", "schema.json")
    assert again.exit_code == 2
    assert "HOLDOUT holds rows of REAL" in again.output


def test_a_block_is_reconstructed_from_what_was_published(run, files):
    (files / "block.json").write_text(json.dumps(BLOCK), encoding="utf-8")
    found = run("reconstruct", "block.json")
    assert found.exit_code == 0
    assert found.output.startswith("One table fits. 3 of 3 people are in all of them:")
    assert "72, m" in found.output
    assert "At least 1 tables fit" in run("reconstruct", _changed(files, {"median": None}), "--most", "1").output
    assert "No table fits" in run("reconstruct", _changed(files, {"mean": "1"})).output


def _changed(files, facts):
    first = BLOCK["statistics"][0] | facts
    path = files / "changed.json"
    path.write_text(json.dumps(BLOCK | {"statistics": [first, *BLOCK["statistics"][1:]]}), encoding="utf-8")
    return "changed.json"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"attributes": {}, "statistics": [{"count": "7"}]}', "[" * 100_000])
def test_what_is_no_publication_is_refused(run, files, text):
    (files / "wrong.json").write_text(text, encoding="utf-8")
    found = run("reconstruct", "wrong.json")
    assert found.exit_code == 1
    assert "CLO-" in found.output


def test_classes_of_a_model_are_inverted(run, files):
    words = ("--victims", "members.csv", "--label", "ill", "--box", "-3", "3", "--seed", "1")
    found = run("inversion", "models_of_others:linear", *words)
    assert found.exit_code == 0, found.output
    assert "inversion" in found.output


def test_false_labels_are_counted_in_errors(run, files):
    words = ("--train", "members.csv", "--test", "others.parquet", "--label", "ill", "--share", "0.4", "--repeats", "2")
    found = run("poison", "models_of_others:linear", *words)
    assert found.exit_code == 0, found.output
    assert "against" in found.output


CLIENT = """
import numpy as np
from cloister.attack.updates import GradientStep, dense_network
network = dense_network([4, 3])
client = GradientStep(network.loss, network.params, (np.array([[0.2, 0.7, 0.1, 0.4]]), np.array([1])))
"""


def test_a_record_is_read_off_a_gradient_and_not_through_noise(run, files):
    (files / "clients.py").write_text(CLIENT, encoding="utf-8")
    found = run("gradients", "clients:client", "--clip", "1", "--spend", "rho 0.01", "--html", "page.html")
    assert found.exit_code == 0, found.output
    assert found.output.count("closed form") >= 3 or found.output.count("against") >= 3
    assert "100.0%" in found.output
    assert "0.0%" in found.output
    assert (files / "page.html").exists()


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("clients:client", "--rows", "images"), "--shape"),
        (("clients:client", "--rows", "table"), "--columns"),
        (("clients:client", "--spend", "rho 1"), "--clip"),
    ],
)
def test_options_of_gradients_go_together(run, files, words, sentence):
    found = run("gradients", *words)
    assert found.exit_code == 2
    assert sentence in " ".join(found.output.split())


def test_equal_inputs_refute_nothing_and_are_refused(run):
    found = run("audit", "somebodys:noisy", "--claim", "epsilon 1", "--left", "1", "--right", "1")
    assert found.exit_code == 2
    assert "--left and --right are equal" in found.output


def test_a_model_file_of_another_kind_is_named_as_a_variable_instead(run, tmp_path):
    (tmp_path / "rows.csv").write_text("a,ill\n1,0\n", encoding="utf-8")
    files = ("--members", "rows.csv", "--others", "rows.csv", "--label", "ill")
    found = run("membership", "model.joblib", *files)
    assert found.exit_code == 2
    assert "module:name" in found.output.partition("Error:")[2]


def test_classes_that_are_numbers_are_read_as_the_labels_of_a_table_are(run, tmp_path):
    (tmp_path / "halves.py").write_text(
        "import numpy as np\ndef model(rows):\n    return np.full((len(rows), 2), 0.5)\n", encoding="utf-8"
    )
    for name, start in (("members", 0), ("others", 50)):
        lines = [f"{value},{value % 2 * 10 + 10}" for value in range(start, start + 50)]
        (tmp_path / f"{name}.csv").write_text("a,ill\n" + "\n".join(lines), encoding="utf-8")
    files = ("--members", "members.csv", "--others", "others.csv", "--label", "ill", "--method", "loss")
    found = run("membership", "halves:model", *files, "--classes", "10,20")
    assert found.exit_code == 0, found.output
    found = run("membership", "halves:model", *files)
    assert found.exit_code == 1
    assert "none of the classes" in str(found.exception) + found.output
