"""`cloister ledger` as its users run it."""

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import epsilon
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.e2e


class Owner:
    """A ledger with one spend, its key file and its head, as the command line sees them."""

    def __init__(self, folder: Path) -> None:
        self.file, self.key, self.kept = folder / "ledger", folder / "key", folder / "head"
        key = SigningKey.create(self.key)
        self.public = str(key.public)
        with Ledger.create(self.file, key=key, head=self.kept) as ledger:
            ledger.open_account("visits", epsilon(1)).reserve(epsilon("0.4"), "request").commit()

    def run(self, *words: object) -> tuple[int, str]:
        script = "import sys; from cloister.cli import main; main()"
        command = [sys.executable, "-c", script, "ledger", *map(str, words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_verify_says_that_everything_holds_and_prints_the_head(owner: Owner) -> None:
    code, text = owner.run("verify", owner.file, "--key", owner.public, "--head", owner.kept)
    assert code == 0
    assert "All 4 entries hold" in text
    assert owner.kept.read_text().strip() in text


def test_verify_names_the_first_bad_entry(owner: Owner) -> None:
    connection = sqlite3.connect(owner.file, isolation_level=None)
    connection.execute("UPDATE entries SET body = replace(body, '2/5', '1/5') WHERE number = 3")
    connection.close()
    code, text = owner.run("verify", owner.file, "--key", owner.public)
    assert code == 1
    assert "First bad entry: 3" in text


def test_head_prints_what_verify_takes_and_a_newer_one_shows_an_older_copy(owner: Owner) -> None:
    code, before = owner.run("head", owner.file)
    assert code == 0
    backup = owner.file.read_bytes()
    with Ledger.open(owner.file, key=SigningKey.load(owner.key), head=owner.kept) as ledger:
        ledger.account("visits").reserve(epsilon("0.1"), "request")
    _, after = owner.run("head", owner.file)
    assert before != after
    owner.file.write_bytes(backup)
    assert owner.run("verify", owner.file, "--key", owner.public, "--head", before.strip())[0] == 0
    code, text = owner.run("verify", owner.file, "--key", owner.public, "--head", after.strip())
    assert code == 1
    assert "older copy" in text


def test_show_tells_what_is_spent_and_left(owner: Owner) -> None:
    code, text = owner.run("show", owner.file, "--key", owner.key)
    assert code == 0
    for words in ("visits: epsilon 1 (pure)", "spent epsilon 0.4", "left  epsilon 0.6"):
        assert words in text


def test_a_lost_head_is_shown_and_a_remainder_written_off(owner: Owner) -> None:
    newest = owner.kept.read_text().strip()
    owner.kept.unlink()
    code, text = owner.run("show-head", owner.file, newest, "--key", owner.key, "--kept", owner.kept)
    assert code == 0, text
    code, text = owner.run("write-off", owner.file, "--key", owner.key, "--kept", owner.kept)
    assert code == 0, text
    assert "visits: epsilon 0.6 written off." in text
    assert "left  epsilon 0" in owner.run("show", owner.file, "--key", owner.public)[1]


def test_a_refusal_is_a_sentence_not_a_traceback(owner: Owner, tmp_path: Path) -> None:
    for words in (
        ("verify", tmp_path / "nothing", "--key", owner.public),
        ("verify", owner.file, "--key", owner.public, "--head", "nonsense"),
        ("verify", owner.file, "--key", tmp_path / "nothing"),
        ("write-off", owner.file, "labs", "--key", owner.key, "--kept", owner.kept),
    ):
        code, text = owner.run(*words)
        assert code == 1
        assert "CLO-" in text
        assert "Traceback" not in text
