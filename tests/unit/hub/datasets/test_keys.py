"""Keys: what is sealed opens only with its key, under its label, unchanged."""

import os

import pyarrow as pa
import pytest

from cloister.hub.core.keys import OVERHEAD, MasterKey, part_of, seal, subkey, unseal
from cloister.hub.core.models import Dataset
from cloister.hub.core.settings import Settings
from cloister.hub.datasets.tables import open_table, write_table
from cloister.privacy.errors import BadName, NotHere, SealBroken, StoreFailed


@pytest.fixture
def master(tmp_path):
    MasterKey.create(tmp_path / "master.key")
    return MasterKey.load(Settings(folder=tmp_path))


def test_what_is_sealed_opens_again_and_does_not_show_itself(master):
    sealed = master.seal(b"a secret value", "totp of 3")
    assert master.open(sealed, "totp of 3") == b"a secret value"
    assert b"secret" not in sealed
    assert len(sealed) == len(b"a secret value") + OVERHEAD
    assert sealed != master.seal(b"a secret value", "totp of 3")


def test_every_changed_bit_is_noticed(master):
    sealed = master.seal(b"value", "label")
    for place in range(len(sealed)):
        changed = bytearray(sealed)
        changed[place] ^= 1
        with pytest.raises(SealBroken):
            master.open(bytes(changed), "label")


@pytest.mark.parametrize("cut", [0, 1, 12, OVERHEAD - 1])
def test_a_cut_seal_is_noticed(master, cut):
    with pytest.raises(SealBroken):
        master.open(master.seal(b"", "label")[:cut], "label")


def test_a_seal_for_one_thing_does_not_pass_for_another(master):
    with pytest.raises(SealBroken):
        master.open(master.seal(b"value", "totp of 3"), "totp of 4")


def test_the_key_comes_back_from_its_file_and_from_the_environment(tmp_path, master):
    sealed = master.seal(b"x", "l")
    assert MasterKey.load(Settings(folder=tmp_path)).open(sealed, "l") == b"x"
    text = (tmp_path / "master.key").read_text()
    assert MasterKey.load(Settings(folder=tmp_path / "elsewhere", master_key=text)).open(sealed, "l") == b"x"
    assert (tmp_path / "master.key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_can_read_is_refused(tmp_path, master):
    (tmp_path / "master.key").chmod(0o640)
    with pytest.raises(StoreFailed, match="chmod 600"):
        MasterKey.load(Settings(folder=tmp_path))


def test_a_key_is_never_written_over_another(tmp_path, master):
    before = (tmp_path / "master.key").read_text()
    with pytest.raises(StoreFailed):
        MasterKey.create(tmp_path / "master.key")
    assert (tmp_path / "master.key").read_text() == before


@pytest.mark.parametrize("text", ["ab", "zz" * 32, "00" * 31])
def test_a_malformed_key_is_refused_without_being_shown(tmp_path, text):
    with pytest.raises(BadName) as caught:
        MasterKey.load(Settings(folder=tmp_path, master_key=text))
    assert text not in str(caught.value)


def test_a_missing_key_file_is_said(tmp_path):
    with pytest.raises(StoreFailed, match="no master key"):
        MasterKey.load(Settings(folder=tmp_path))


def test_data_keys_differ_are_bound_to_their_dataset_and_go_with_it(master):
    one = Dataset(name="visits", wrapped_key=master.new_data_key("visits"))
    other = Dataset(name="claims", wrapped_key=master.new_data_key("claims"))
    assert len(master.data_key(one)) == 32
    assert master.data_key(one) != master.data_key(other)
    assert master.data_key(one) not in one.wrapped_key
    with pytest.raises(SealBroken):
        master.data_key(Dataset(name="claims", wrapped_key=one.wrapped_key))
    one.wrapped_key = None
    with pytest.raises(NotHere):
        master.data_key(one)


def test_keys_for_different_purposes_differ():
    key = os.urandom(32)
    assert subkey(key, "a") == subkey(key, "a") != subkey(key, "b")
    with pytest.raises(SealBroken):
        unseal(subkey(key, "b"), seal(subkey(key, "a"), b"x", "l"), "l")


def test_the_master_key_never_prints_itself(tmp_path, master):
    assert (tmp_path / "master.key").read_text().strip() not in repr(master) + str(vars(type(master)))


# Sealed tables


KEY = bytes(range(32))
ROWS = pa.table({"ward": ["cardiology", "ZZMARKZZ", None] * 500, "age": list(range(1500))})


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "0.parquet"
    return path, write_table(path, [ROWS.slice(0, 700), ROWS.slice(700)], ROWS.schema, KEY, "visits/1/visits")


def test_a_sealed_table_gives_its_rows_back_and_shows_nothing_on_the_disk(table):
    path, facts = table
    assert open_table(path, facts, KEY, "visits/1/visits").to_table().equals(ROWS)
    raw = path.read_bytes()
    assert not any(word in raw for word in (b"ZZMARKZZ", b"ward", b"cardiology", b"age"))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["visits/2/visits", "visits/1/patients", "other/1/visits"])
def test_a_file_of_another_dataset_version_or_table_does_not_open_in_its_place(table, name):
    path, facts = table
    with pytest.raises(SealBroken):
        open_table(path, facts, KEY, name)


def test_another_key_does_not_open_it(table):
    path, facts = table
    with pytest.raises(SealBroken):
        open_table(path, facts, bytes(32), "visits/1/visits")


@pytest.mark.parametrize("change", ["bit", "cut", "longer", "gone", "replaced"])
def test_a_changed_file_is_noticed_at_the_next_open(table, change, tmp_path):
    path, facts = table
    open_table(path, facts, KEY, "visits/1/visits")
    raw = bytearray(path.read_bytes())
    if change == "bit":
        raw[len(raw) // 2] ^= 1
    path.unlink()
    if change == "cut":
        raw = raw[:-1]
    elif change == "longer":
        raw += b"x"
    elif change == "replaced":
        raw = bytearray(os.urandom(len(raw)))
    if change != "gone":
        path.write_bytes(raw)
    with pytest.raises(SealBroken) as caught:
        open_table(path, facts, KEY, "visits/1/visits")
    assert "ZZMARK" not in str(caught.value)


def test_a_page_that_is_changed_after_the_check_is_noticed_when_it_is_read(table):
    path, facts = table
    opened = open_table(path, facts, KEY, "visits/1/visits")
    raw = bytearray(path.read_bytes())
    raw[200] ^= 1
    path.write_bytes(raw)
    with pytest.raises(OSError, match=r"(?i)decrypt|ciphertext"):
        opened.to_table()


# The part of a data key outside the database


def test_a_wrapped_key_that_a_database_keeps_opens_nothing_once_its_file_is_erased(tmp_path, master):
    wrapped = master.new_data_key("visits")
    dataset = Dataset(name="visits", wrapped_key=wrapped)
    (file,) = (tmp_path / "keys").iterdir()
    assert file.name == part_of(wrapped)
    assert file.stat().st_mode & 0o777 == 0o600
    assert master.data_key(dataset) == MasterKey.load(Settings(folder=tmp_path)).data_key(dataset)
    other = MasterKey.create(tmp_path / "other.key")
    with pytest.raises(BadName):
        other.new_data_key("visits")
    master.erase_part(file.name)
    master.erase_part(file.name)
    assert list((tmp_path / "keys").iterdir()) == []
    with pytest.raises(NotHere, match="erased"):
        master.data_key(dataset)


def test_the_part_alone_and_the_master_key_alone_open_nothing(tmp_path, master):
    wrapped = master.new_data_key("visits")
    (tmp_path / "keys" / part_of(wrapped)).write_bytes(bytes(32))
    with pytest.raises(SealBroken):
        master.data_key(Dataset(name="visits", wrapped_key=wrapped))


def test_a_key_of_an_earlier_version_still_opens(master):
    wrapped = master.seal(b"k" * 32, "data key of visits")
    assert part_of(wrapped) is None
    assert master.data_key(Dataset(name="visits", wrapped_key=wrapped)) == b"k" * 32
