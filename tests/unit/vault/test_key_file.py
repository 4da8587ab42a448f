"""A key file holds one key and its id, and is never replaced."""

import copy
import pickle
import subprocess
import sys

import pytest

from cloister.privacy.errors import BadInput, BadName
from cloister.vault.key_file import KeyFile


def test_a_key_is_read_back_with_its_id_and_is_not_printed(tmp_path):
    path = tmp_path / "key"
    KeyFile("2026", bytes(range(32))).write(path)
    assert KeyFile.read(path) == KeyFile("2026", bytes(range(32)))
    assert path.stat().st_mode & 0o777 == 0o600
    assert bytes(range(32)).hex() not in repr(KeyFile.read(path))
    with pytest.raises(BadName, match="cannot be created"):
        KeyFile("2027", bytes(32)).write(path)
    assert KeyFile.read(path).key_id == "2026"


def test_what_a_key_file_holds_is_neither_pickled_nor_copied():
    content = KeyFile("2026", bytes(range(32)))
    for store in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(BadInput, match="neither pickled nor copied"):
            store(content)


def test_an_older_file_of_digits_is_read_without_an_id(tmp_path):
    path = tmp_path / "key"
    path.write_text("ab" * 32 + "\n", encoding="ascii")
    path.chmod(0o600)
    assert KeyFile.read(path) == KeyFile("", bytes.fromhex("ab" * 32))


@pytest.mark.parametrize(
    "text", ["", "cloister key 1", "cloister key 1\nid a\nabc", "cloister key 2\nid a\n" + "ab" * 32, "ab"]
)
def test_other_files_are_refused(tmp_path, text):
    path = tmp_path / "key"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o600)
    with pytest.raises(BadName, match="64 hexadecimal digits"):
        KeyFile.read(path)
    path.chmod(0o644)
    with pytest.raises(BadName, match="others can read"):
        KeyFile.read(path)


@pytest.mark.parametrize(
    ("key_id", "secret"),
    [("a\nid b", bytes(32)), ("größe", bytes(32)), ("a\0", bytes(32)), ("a", b"short"), ("a", bytes(5_000))],
)
def test_a_file_that_could_not_be_read_again_is_not_written(tmp_path, key_id, secret):
    with pytest.raises(BadName):
        KeyFile(key_id, secret).write(tmp_path / "key")
    assert not list(tmp_path.iterdir())


def test_half_a_key_on_a_full_disk_is_not_left_behind(tmp_path):
    # A real limit on the size of files, in a process of its own.
    code = """
import resource, sys
from cloister.privacy.errors import BadName
from cloister.vault.key_file import KeyFile
resource.setrlimit(resource.RLIMIT_FSIZE, (20, 20))
try:
    KeyFile("2026", bytes(32)).write(sys.argv[1])
except BadName as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code, tmp_path / "key"], capture_output=True, text=True, check=True)
    assert "cannot be written" in done.stdout
    assert not list(tmp_path.iterdir())
