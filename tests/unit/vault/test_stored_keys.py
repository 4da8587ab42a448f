"""Keys and shares are stored in files that their owner alone can read, and wrong arguments are named."""

import pickle

import numpy as np
import pytest

from cloister.privacy.errors import BadInput, BadName, CiphertextRejected, CloisterError
from cloister.privacy.signing import SigningKey
from cloister.vault import BlindKey, sharing
from cloister.vault.paillier import (
    EncryptedVector,
    FixedPoint,
    KeyShare,
    Layout,
    PrivateKey,
    combine_partials,
    deal_key,
)
from cloister.vault.secret import Secret

KEY = PrivateKey.create(2048)
LAYOUT = Layout(FixedPoint(0, 100), length=3, summands=2)
VECTOR = EncryptedVector.encrypt([1, 2, 3], KEY.public, LAYOUT)
PUBLIC, FIRST, SECOND = deal_key(4096)
(HELD, OTHER, _), COMMITMENTS = sharing.split(42, 2, 3)


@pytest.mark.parametrize("key", [KEY, FIRST, SECOND, HELD, BlindKey.create()], ids=lambda key: type(key).__name__)
def test_a_key_is_saved_in_a_file_of_its_owner_and_loaded(tmp_path, key):
    path = tmp_path / "key"
    key.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert type(key).load(path).to_bytes() == key.to_bytes()
    with pytest.raises(BadName, match="path without a file"):
        key.save(path)
    path.chmod(0o644)
    with pytest.raises(BadName, match="chmod 600"):
        type(key).load(path)


def test_a_loaded_key_decrypts_and_loaded_shares_recover(tmp_path):
    KEY.save(tmp_path / "key")
    assert PrivateKey.load(tmp_path / "key").decrypt(VECTOR).tolist() == [1, 2, 3]
    for name, share in (("first", FIRST), ("second", SECOND), ("held", HELD), ("other", OTHER)):
        share.save(tmp_path / name)
    vector = EncryptedVector.encrypt([4, 5, 6], PUBLIC, LAYOUT)
    halves = [KeyShare.load(tmp_path / name).decrypt_partially(vector) for name in ("first", "second")]
    assert combine_partials(vector, halves).tolist() == [4, 5, 6]
    loaded = [sharing.HeldShare.load(tmp_path / name) for name in ("held", "other")]
    assert sharing.recover(loaded, COMMITMENTS) == 42


def test_a_file_with_another_kind_of_key_is_refused(tmp_path):
    KEY.save(tmp_path / "key")
    for kind in (KeyShare, sharing.HeldShare, BlindKey):
        with pytest.raises(CloisterError, match="these bytes are no"):
            kind.load(tmp_path / "key")
    SigningKey.create(tmp_path / "signing.key")
    with pytest.raises(BadName):
        PrivateKey.load(tmp_path / "signing.key")
    with pytest.raises(BadName):
        PrivateKey.load(tmp_path / "absent")


def test_what_is_not_pickled_says_how_it_is_stored():
    with pytest.raises(BadInput, match=r"save\(\)"):
        pickle.dumps(KEY)
    assert issubclass(PrivateKey, Secret)


@pytest.mark.parametrize(
    ("misuse", "sentence"),
    [
        (lambda: EncryptedVector.encrypt([1, 2, 3], LAYOUT, KEY.public), "public is a PublicKey, got Layout"),
        (lambda: EncryptedVector.encrypt([1, 2, 3], KEY, LAYOUT), "public is a PublicKey, got PrivateKey"),
        (lambda: EncryptedVector.encrypt([1, 2, 3], KEY.public, 3), "layout is a Layout, got int"),
        (lambda: EncryptedVector.from_bytes(VECTOR.to_bytes(), LAYOUT, KEY.public), "public is a PublicKey"),
        (lambda: EncryptedVector.from_bytes(VECTOR.to_bytes(), SigningKey.create().public, LAYOUT), "PrivateKey"),
        (lambda: KEY.decrypt(VECTOR.to_bytes()), "vector is an EncryptedVector, got bytes. Read bytes with"),
        (lambda: FIRST.decrypt_partially("x"), "vector is an EncryptedVector, got str"),
        (lambda: combine_partials([], VECTOR), "vector is an EncryptedVector, got list"),
        (lambda: combine_partials(VECTOR, [FIRST, SECOND]), "decrypt_partially"),
        (lambda: combine_partials(VECTOR, None), "decrypt_partially"),
        (lambda: Layout((0, 100), length=3), "encoding is a FixedPoint or Levels, got tuple"),
        (lambda: VECTOR / 2, "divide after decryption"),
        (lambda: 1 + VECTOR, "Use add_plain"),
        (lambda: VECTOR - [1, 2, 3], "Use add_plain"),
    ],
)
def test_a_wrong_argument_is_named(misuse, sentence):
    with pytest.raises((BadInput, CiphertextRejected), match=sentence):
        misuse()


def test_pythons_sum_adds_encrypted_vectors():
    assert KEY.decrypt(sum([VECTOR, VECTOR])).tolist() == [2, 4, 6]
    assert np.array_equal(KEY.decrypt(sum([VECTOR])), [1, 2, 3])


def test_the_length_of_a_layout_says_its_limits():
    for length in (0, 2**40, 3.0, "3"):
        with pytest.raises(CloisterError, match=r"length of a layout is a whole number from 1 to 2\^32"):
            Layout(FixedPoint(0, 100), length=length)
