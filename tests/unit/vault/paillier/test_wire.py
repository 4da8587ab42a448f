"""Bytes of keys and vectors: what was written comes back, and anything else is refused in one sentence."""

import json

import pytest

from cloister.privacy.errors import BadNumber, CiphertextRejected, CloisterError
from cloister.vault.paillier import (
    EncryptedVector,
    FixedPoint,
    Layout,
    Levels,
    PartialDecryption,
    PrivateKey,
    PublicKey,
)
from cloister.vault.paillier.threshold import KeyShare, cut
from cloister.vault.paillier.wire import _read, _write

from .paillier_key import VECTORS, fixed_key, other_key

KEY = fixed_key()
LAYOUT = Layout(FixedPoint(-5, 5, 2), length=100, summands=4)
VECTOR = EncryptedVector.encrypt([1.25] * 100, KEY.public, LAYOUT)
RAW = VECTOR.to_bytes()
FIRST, _ = cut(KEY)
SMALL = EncryptedVector.encrypt([1], KEY.public, Layout(FixedPoint(0, 5), 1))

READERS = {
    "vector": (RAW, lambda raw: EncryptedVector.from_bytes(raw, KEY.public, LAYOUT)),
    "public key": (KEY.public.to_bytes(), PublicKey.from_bytes),
    "private key": (KEY.to_bytes(), PrivateKey.from_bytes),
    "key share": (FIRST.to_bytes(), KeyShare.from_bytes),
    "partial": (FIRST.decrypt_partially(SMALL).to_bytes(), lambda raw: PartialDecryption.from_bytes(raw, KEY.public)),
}


def changed(raw: bytes, **entries: object) -> bytes:
    """The same bytes with other entries in the head."""
    length = int.from_bytes(raw[5:9], "big")
    head = json.loads(raw[9 : 9 + length]) | entries
    return _write(head, [], 1) + raw[9 + length :]


def test_what_was_written_comes_back():
    back = EncryptedVector.from_bytes((VECTOR + VECTOR).to_bytes(), KEY.public, LAYOUT, summands=2)
    assert (back.summands, back.net, KEY.decrypt(back).tolist()) == (2, 2, [2.5] * 100)
    assert PublicKey.from_bytes(KEY.public.to_bytes()) == KEY.public
    again = PrivateKey.from_bytes(KEY.to_bytes())
    assert again.decrypt(VECTOR).tolist() == [1.25] * 100


@pytest.mark.parametrize("kind", READERS)
def test_truncated_prolonged_and_foreign_bytes_are_refused(kind):
    raw, read = READERS[kind]
    read(raw)
    length = 9 + int.from_bytes(raw[5:9], "big")
    cuts = [raw[:at] for at in (0, 3, 4, 8, 9, length - 1, length, len(raw) - 1)]
    for bad in [*cuts, raw + b"\0", b"XXXX" + raw[4:], raw[:9] + b"{" * 5_000, raw[:9] + b"\xff" + raw[10:]]:
        with pytest.raises(CiphertextRejected):
            read(bad)
    with pytest.raises(CiphertextRejected, match="version 2"):
        read(raw[:4] + b"\x02" + raw[5:])
    for other in READERS:
        if other != kind:
            with pytest.raises(CiphertextRejected):
                read(READERS[other][0])


@pytest.mark.parametrize("kind", READERS)
def test_any_flipped_byte_of_a_head_is_refused_or_changes_nothing_else_than_a_number(kind):
    raw, read = READERS[kind]
    head, _ = _read(raw, json.loads(raw[9 : 9 + int.from_bytes(raw[5:9], "big")])["kind"], set(_names(raw)))
    for at in range(9 + len(json.dumps(head, separators=(",", ":")))):
        try:
            read(raw[:at] + bytes([raw[at] ^ 1]) + raw[at + 1 :])
        except CloisterError:
            continue
        # What is read in spite of the change states another number, which the layout holds.
        assert chr(raw[at]).isdigit() or chr(raw[at]) in "abcdef"


def _names(raw: bytes) -> set[str]:
    return set(json.loads(raw[9 : 9 + int.from_bytes(raw[5:9], "big")])) - {"kind"}


def test_another_key_and_another_layout_are_refused():
    with pytest.raises(CiphertextRejected, match="another key"):
        EncryptedVector.from_bytes(RAW, other_key().public, LAYOUT)
    with pytest.raises(CiphertextRejected, match="another layout"):
        EncryptedVector.from_bytes(RAW, KEY.public, Layout(FixedPoint(-5, 5, 2), length=100, summands=5))
    partial = FIRST.decrypt_partially(SMALL).to_bytes()
    with pytest.raises(CiphertextRejected, match="another key"):
        PartialDecryption.from_bytes(partial, other_key().public)


@pytest.mark.parametrize(
    "entries",
    [{"summands": "5"}, {"summands": "-1"}, {"net": "3"}, {"noise": "1"}, {"noise": "x"}, {"masked": 1}, {"net": 1}],
)
def test_a_vector_that_states_more_than_its_layout_holds_is_refused(entries):
    with pytest.raises(CiphertextRejected):
        EncryptedVector.from_bytes(changed(RAW, **entries), KEY.public, LAYOUT)


@pytest.mark.parametrize(
    "number", [0, int(KEY.public.squared), int(VECTORS["p"], 16), 3 * KEY.public.n], ids=["0", "n²", "p", "3n"]
)
def test_numbers_outside_the_group_are_refused_on_reading(number):
    forged = RAW[: -KEY.public.bits // 4] + number.to_bytes(KEY.public.bits // 4, "big")
    with pytest.raises(CiphertextRejected, match="no ciphertext of this key"):
        EncryptedVector.from_bytes(forged, KEY.public, LAYOUT)


def test_a_private_key_of_other_primes_is_refused_without_showing_them():
    p = int(VECTORS["p"], 16)
    for wrong in ([p, p, 5], [p, p + 2, 5], [0, 0, 0]):
        with pytest.raises(CiphertextRejected) as caught:
            PrivateKey.from_bytes(_write({"kind": "private key", "bits": 2048}, wrong, 256))
        assert str(p) not in str(caught.value)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("layout", [LAYOUT, Layout(Levels("-1/3", 2, 12), 7, 9, 4, 40, packed=False)])
def test_a_layout_travels_as_json(layout):
    assert Layout.from_description(json.loads(json.dumps(layout.describe()))) == layout


@pytest.mark.parametrize(
    "entries",
    [{"encoding": "floats"}, {"length": "3"}, {"summands": 3}, {"summands": "-3"}, {"extra": 1}, {"lower": "01"}],
)
def test_a_description_that_is_no_layout_is_refused(entries):
    for wrong in (LAYOUT.describe() | entries, None, [], {}):
        with pytest.raises(BadNumber):
            Layout.from_description(wrong)


@pytest.mark.parametrize("stated", ["0", "2", "4"])
def test_an_owner_cannot_state_another_weight_than_one(stated):
    forged = changed(RAW, summands=stated, net="0")
    with pytest.raises(CiphertextRejected, match="weighs 1 is due"):
        EncryptedVector.from_bytes(forged, KEY.public, LAYOUT)
    assert EncryptedVector.from_bytes(forged, KEY.public, LAYOUT, summands=None).summands == int(stated)


@pytest.mark.parametrize("number", ["2048.0", "2e3", "NaN", "Infinity", "[[2048]]"])
def test_a_head_with_other_numbers_is_refused_as_bytes_that_are_no_key(number):
    head = f'{{"bits":{number},"kind":"public key"}}'.encode()
    with pytest.raises(CiphertextRejected):
        PublicKey.from_bytes(RAW[:5] + len(head).to_bytes(4, "big") + head + bytes(512))
