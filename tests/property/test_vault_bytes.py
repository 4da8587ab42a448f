"""10,000 mutations of everything that is read from bytes: one sentence, or a value that is written as it was read."""

import json
from pathlib import Path
from random import Random

import pytest

from cloister.privacy.errors import BadInput, CiphertextRejected, CloisterError
from cloister.vault.paillier import (
    EncryptedVector,
    FixedPoint,
    KeyShare,
    Layout,
    Levels,
    PartialDecryption,
    PrivateKey,
    PublicKey,
)
from cloister.vault.paillier.threshold import cut
from cloister.vault.sharing import Commitments, HeldShare, recover, split

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "paillier.json").read_text(encoding="utf-8"))
KEY = PrivateKey.from_primes(*(int(VECTORS[name], 16) for name in ("p", "q", "h")))
LAYOUT = Layout(Levels("-1/3", 2, 12), 3, summands=4, noise_bound=7, mask_bits=40)
VECTOR = EncryptedVector.encrypt([0, 1, 2], KEY.public, LAYOUT)
SHARE, _ = cut(KEY)
HELD, COMMITMENTS = split(123_456_789, 2, 3)

READERS = {
    "vector": (VECTOR.to_bytes(), lambda raw: EncryptedVector.from_bytes(raw, KEY.public, LAYOUT)),
    "sum": (VECTOR.to_bytes(), lambda raw: EncryptedVector.from_bytes(raw, KEY.public, LAYOUT, summands=None)),
    "public key": (KEY.public.to_bytes(), PublicKey.from_bytes),
    "private key": (KEY.to_bytes(), PrivateKey.from_bytes),
    "key share": (SHARE.to_bytes(), KeyShare.from_bytes),
    "half": (SHARE.decrypt_partially(VECTOR).to_bytes(), lambda raw: PartialDecryption.from_bytes(raw, KEY.public)),
    "held share": (HELD[0].to_bytes(), HeldShare.from_bytes),
}
EACH = 1_250  # and as many of descriptions: 10,000
NUMBERS = [b"0", b"-1", b"1e9", b"1.0", b"NaN", b"Infinity", b"9" * 150, b'"' + b"9" * 5_000 + b'"', b"true", b"null"]


def mutated(raw: bytes, random: Random) -> bytes:
    """Bytes with a few changes; most of them in the head, where the structure is."""
    body = bytearray(raw)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        end = min(len(body), 300) if random.random() < 0.7 else len(body)
        at = random.randrange(end) if end else 0
        match random.randrange(8):
            case 0:
                body[at : at + 1] = bytes([body[at] ^ 1 << random.randrange(8)]) if body else b""
            case 1:
                body[at : at + 1] = random.randbytes(1)
            case 2:
                del body[at : at + random.choice((1, 4, 64))]
            case 3:
                body[at:at] = random.randbytes(random.choice((1, 4, 64)))
            case 4:
                del body[at:]
            case 5:
                body[5:9] = random.choice((0, 1, 255, 1 << 14, 1 << 31, (1 << 32) - 1)).to_bytes(4, "big")
            case 6:
                body[at:at] = random.choice(NUMBERS)
            case 7:
                other = random.randrange(len(body)) if body else 0
                body[at : at + 16], body[other : other + 16] = body[other : other + 16], body[at : at + 16]
    return bytes(body)


def outcome(call):
    """The result of a call, or its error; any other exception than ours fails the test."""
    try:
        return call()
    except CloisterError as error:
        return error


def is_sentence(error: CloisterError, kind: type[CloisterError]) -> bool:
    assert isinstance(error, kind)
    assert len(str(error)) < 250
    assert "\n" not in str(error)
    return True


@pytest.mark.parametrize("kind", READERS)
def test_mutated_bytes_are_refused_in_one_sentence_or_read_as_they_are(kind):
    raw, read = READERS[kind]
    random, refused = Random(kind), 0
    for _ in range(EACH):
        changed = mutated(raw, random)
        found = outcome(lambda: read(changed))  # noqa: B023
        if isinstance(found, CloisterError):
            refused += is_sentence(found, CiphertextRejected)
        else:
            # What is read is exactly what was sent: no other spelling of it was accepted.
            assert found.to_bytes() == changed
    assert refused > EACH * 0.7


def test_mutated_shares_of_a_secret_are_named():
    random = Random("shares")
    for _ in range(200):
        changed = mutated(HELD[0].to_bytes(), random)
        try:
            assert recover([HeldShare.from_bytes(changed), HELD[1]], COMMITMENTS) == 123_456_789
        except CiphertextRejected:
            assert changed != HELD[0].to_bytes()


def test_mutated_commitments_are_refused_or_fit_no_share():
    random = Random("commitments")
    for _ in range(300):
        points = list(COMMITMENTS.points)
        at = random.randrange(2)
        points[at] = mutated(points[at], random)
        if tuple(points) == COMMITMENTS.points:
            continue
        with pytest.raises(CiphertextRejected):
            recover(HELD, Commitments("pedersen", tuple(points)))


def values_like(random: Random) -> object:
    return random.choice(
        [None, True, 0, -1, 1 << 70, 1.5, float("nan"), "", "0", "-3", "1/0", "1e9", "1e999999999", "9" * 5_000,
         "0x1", "٣", [], {}, [[]], "levels", "fixed-point", "inf"]
    )  # fmt: skip


def test_mutated_descriptions_are_refused_in_one_sentence_or_describe_themselves():
    random, refused = Random("layouts"), 0
    for _ in range(EACH):
        text = random.choice((LAYOUT, Layout(FixedPoint(-5, "1/3", 20), 10))).describe()
        for _ in range(random.choice((1, 1, 2))):
            name = random.choice([*text, "other"])
            if random.random() < 0.15:
                text.pop(name, None)
            else:
                text[name] = values_like(random)
        found = outcome(lambda: Layout.from_description(text))  # noqa: B023
        if isinstance(found, CloisterError):
            refused += is_sentence(found, BadInput)
        else:
            assert found.describe() == text
    assert refused > EACH * 0.7
