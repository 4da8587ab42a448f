import base64
import hashlib
import hmac
import pickle
import string

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloister.anonymize.operations.dictionary_attack import (
    dictionary_attack,
    number_block,
    salted_hash_not_protected,
    taxi_medallions,
)
from cloister.anonymize.operations.format_preserving import ff1_decrypt, ff1_encrypt, permute
from cloister.anonymize.operations.pseudonyms import PseudonymKey, pseudonymise, reveal, translation
from cloister.privacy.errors import BadName, BadNumber, BadSchema

KEY = PseudonymKey(bytes(range(32)), "k1")
DIGITS = string.digits + string.ascii_lowercase
K128 = "2B7E151628AED2A6ABF7158809CF4F3C"
K192 = K128 + "EF4359D8D580AA4F"
K256 = K192 + "7F036D6F04FC6A94"
TEN, ELEVEN = "39383736353433323130", "3737373770717273373737"
NIST = [  # the samples published with SP 800-38G
    (K128, "", 10, "0123456789", "2433477484"),
    (K128, TEN, 10, "0123456789", "6124200773"),
    (K128, ELEVEN, 36, "0123456789abcdefghi", "a9tv40mll9kdu509eum"),
    (K192, "", 10, "0123456789", "2830668132"),
    (K192, TEN, 10, "0123456789", "2496655549"),
    (K192, ELEVEN, 36, "0123456789abcdefghi", "xbj3kv35jrawxv32ysr"),
    (K256, "", 10, "0123456789", "6657667009"),
    (K256, TEN, 10, "0123456789", "1001623463"),
    (K256, ELEVEN, 36, "0123456789abcdefghi", "xs8a0azh2avyalyzuwd"),
]


def numerals(text):
    return np.array([[DIGITS.index(sign) for sign in text]])


@pytest.mark.parametrize(("key", "tweak", "radix", "plain", "cipher"), NIST)
def test_ff1_gives_the_published_samples(key, tweak, radix, plain, cipher):
    key, tweak = bytes.fromhex(key), bytes.fromhex(tweak)
    assert (ff1_encrypt(key, tweak, numerals(plain), radix) == numerals(cipher)).all()
    assert (ff1_decrypt(key, tweak, numerals(cipher), radix) == numerals(plain)).all()


@settings(deadline=None, max_examples=40)
@given(st.data())
def test_ff1_is_undone_for_any_radix_length_and_tweak(data):
    radix = data.draw(st.sampled_from([2, 10, 26, 62, 65536]))
    length = data.draw(st.integers(int(np.ceil(np.log(10**6) / np.log(radix))), 70))
    tweak = data.draw(st.binary(max_size=40))
    rows = np.array(data.draw(st.lists(st.lists(st.integers(0, radix - 1), min_size=length, max_size=length), min_size=1, max_size=3)))  # fmt: skip  # noqa: E501
    encrypted = ff1_encrypt(bytes(16), tweak, rows, radix)
    assert (ff1_decrypt(bytes(16), tweak, encrypted, radix) == rows).all()
    assert (np.vstack([ff1_encrypt(bytes(16), tweak, row[None, :], radix) for row in rows]) == encrypted).all()


def test_ff1_refuses_small_domains_and_wrong_numerals():
    with pytest.raises(BadNumber, match="million"):
        ff1_encrypt(bytes(16), b"", np.zeros((1, 5), np.int64), 10)
    with pytest.raises(BadNumber, match="numeral"):
        ff1_encrypt(bytes(16), b"", np.full((1, 6), 10), 10)
    with pytest.raises(BadNumber, match="AES"):
        ff1_encrypt(bytes(15), b"", np.zeros((1, 6), np.int64), 10)


@pytest.mark.parametrize("radices", [(10,), (10, 26, 10, 10), (2, 3), (26, 26, 10, 10, 10, 10)])
def test_a_permutation_of_strings_has_each_string_once(radices):
    size = min(int(np.prod(radices)), 30_000)
    strings = np.column_stack(np.unravel_index(np.arange(size), radices)).astype(np.int64)
    permuted = permute(bytes(32), b"t", strings, radices)
    assert len(np.unique(permuted, axis=0)) == size
    assert (permuted >= 0).all()
    assert (permuted < np.array(radices)).all()
    assert (permute(bytes(32), b"t", permuted, radices, inverse=True) == strings).all()
    assert size < 10 or (permuted != permute(bytes(32), b"other", strings, radices)).any()


def test_a_pseudonym_is_the_hmac_under_a_key_derived_by_hkdf():
    extracted = hmac.digest(bytes(32), bytes(range(32)), "sha256")  # RFC 5869, empty salt
    derived = hmac.digest(extracted, b"cloister pseudonym hmac\0billing\x01", "sha256")
    digest = hmac.digest(derived, b"4711", "sha256")[:16]
    expected = "k1." + base64.b32encode(digest).decode().rstrip("=").lower()
    result = pseudonymise({"id": ["4711", None]}, "id", KEY, "billing")
    assert result.rows["id"].to_pylist() == [expected, None]
    assert "1 of 2 cells, 1 different values" in result.log[0]


def test_pseudonyms_link_with_the_same_key_and_purpose_only():
    def of(key, purpose, cell="4711"):
        return pseudonymise({"id": [cell]}, "id", key, purpose).rows["id"][0].as_py().split(".")[1]

    other = PseudonymKey(bytes(32), "k1")
    assert of(KEY, "a") == of(PseudonymKey(bytes(range(32)), "other owner"[:5]), "a")
    assert of(KEY, "a") == of(KEY, "a", 4711)
    assert len({of(KEY, "a"), of(KEY, "b"), of(other, "a")}) == 3
    assert of(KEY, "a", "Zoë") == of(KEY, "a", "Zoe\u0308")


@settings(deadline=None, max_examples=15)
@given(st.lists(st.none() | st.text(string.ascii_letters + string.digits + " -./+()", max_size=14), max_size=8))
def test_a_format_preserving_pseudonym_has_the_format_and_is_revealed_by_the_key(cells):
    rows = pa.table({"id": pa.array(cells, pa.string())})
    result = pseudonymise(rows, "id", KEY, "p", keep_format=True)
    kinds = str.maketrans(string.digits + string.ascii_letters, "0" * 10 + "a" * 26 + "A" * 26)
    shown = result.rows["id"].to_pylist()
    assert [cell and cell.translate(kinds) for cell in shown] == [cell and cell.translate(kinds) for cell in cells]
    assert len(set(shown)) == len(set(cells))
    assert reveal(result, "id", KEY, "p").rows["id"].to_pylist() == cells


def test_digit_strings_are_encrypted_by_plain_ff1():
    shown = pseudonymise({"id": ["813-555-0142"]}, "id", KEY, "p", keep_format=True).rows["id"][0].as_py()
    expected = ff1_encrypt(KEY.derive("p", "ff1"), b"", numerals("8135550142"), 10)
    assert (numerals(shown.replace("-", "")) == expected).all()


def test_letters_without_an_alphabet_and_doubles_are_refused():
    with pytest.raises(BadSchema, match="ASCII"):
        pseudonymise({"id": ["Zoë"]}, "id", KEY, "p", keep_format=True)
    with pytest.raises(BadSchema, match="doubles"):
        pseudonymise({"id": [1.0]}, "id", KEY, "p")


def test_rotation_translates_old_pseudonyms_for_the_owner():
    new = PseudonymKey(bytes(32), "k2")
    rows = {"id": ["x", "y", "x", None]}
    table = translation(rows, "id", KEY, new, "p")
    mapping = dict(zip(*table.to_pydict().values(), strict=True))
    before, after = (pseudonymise(rows, "id", key, "p").rows["id"].to_pylist() for key in (KEY, new))
    assert [mapping.get(cell) for cell in before] == after
    assert {cell.split(".")[0] for cell in mapping.values()} == {"k2"}


def test_a_key_file_is_private_and_read_back(tmp_path):
    path = tmp_path / "key"
    key = PseudonymKey.create(path, "k")
    assert path.stat().st_mode & 0o777 == 0o600
    assert PseudonymKey.from_file(path, "k").derive("p") == key.derive("p")
    with pytest.raises(BadName, match="without a file"):
        PseudonymKey.create(path, "k")
    path.chmod(0o640)
    with pytest.raises(BadName, match="chmod 600"):
        PseudonymKey.from_file(path, "k")


def test_a_bad_key_file_is_refused_without_showing_it(tmp_path):
    path = tmp_path / "key"
    for text in ("00112233445566778899", "not a key at all, but quite a long sentence"):
        path.write_text(text)
        path.chmod(0o600)
        with pytest.raises(BadName) as refusal:
            PseudonymKey.from_file(path, "k")
        assert text not in str(refusal.value)
    with pytest.raises(BadName):
        PseudonymKey.from_file(tmp_path / "missing", "k")


def test_a_key_never_prints_itself_nor_is_pickled():
    for text in (repr(KEY), str(KEY), f"{KEY}"):
        assert text == "PseudonymKey(id='k1')"
    assert not hasattr(KEY, "__dict__")
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(KEY)


@pytest.mark.parametrize("make", [
    lambda: PseudonymKey(bytes(31), "k"),
    lambda: PseudonymKey("a" * 32, "k"),
    lambda: PseudonymKey(bytes(32), "a.b"),
    lambda: KEY.derive(" "),
])  # fmt: skip
def test_short_keys_and_empty_purposes_are_refused(make):
    with pytest.raises(BadName):
        make()


def test_salted_hashes_of_phone_numbers_and_medallions_are_recovered():
    phones = ["813-555-0142", "813-555-9999", "813-555-0142"]
    hashes = salted_hash_not_protected(phones, salt="pepper")
    recovered = dictionary_attack(hashes, number_block("813-555-", 4), salt="pepper")
    assert [recovered.values[text] for text in hashes] == phones
    assert recovered.share == 1
    assert dictionary_attack(hashes, number_block("813-555-", 4), salt="other").share == 0
    taxis = salted_hash_not_protected(["5C27", "9Z99"], algorithm="md5")
    assert taxis[0] == hashlib.md5(b"5C27").hexdigest()
    attack = dictionary_attack(taxis, taxi_medallions(1), algorithm="md5")
    assert sorted(attack.values.values()) == ["5C27", "9Z99"]
    assert attack.tried == 26_000
    with pytest.raises(BadName):
        dictionary_attack([], [], algorithm="rot13")


def test_the_attack_does_not_recover_keyed_pseudonyms():
    shown = pseudonymise({"id": ["5C27"]}, "id", KEY, "p").rows["id"].to_pylist()
    assert dictionary_attack(shown, taxi_medallions(1)).share == 0


def test_there_are_as_many_medallions_as_stated():
    assert sum(1 for _ in taxi_medallions(2)) == 702_000


def test_a_key_file_states_its_id_and_an_older_one_is_read_with_it(tmp_path):
    path = tmp_path / "key"
    key = PseudonymKey.create(path, "2026")
    assert PseudonymKey.from_file(path).id == "2026"
    with pytest.raises(BadName, match="is called 2026"):
        PseudonymKey.from_file(path, "2027")
    path.write_text(path.read_text(encoding="ascii").splitlines()[-1] + "\n", encoding="ascii")
    assert PseudonymKey.from_file(path, "old").derive("p") == key.derive("p")
    with pytest.raises(BadName, match="states no id"):
        PseudonymKey.from_file(path)


@pytest.mark.parametrize("word", ["e\u0301a1", "n\u0303-12", "a\u20dd7", "x\ufe0f9"])
def test_marks_that_combine_with_letters_have_no_format_preserving_pseudonym(word):
    key = PseudonymKey(bytes(32), "demo")
    with pytest.raises(BadSchema, match="marks outside ASCII"):
        pseudonymise({"x": [word]}, "x", key, "p", keep_format=True)
