"""Blind signatures: RFC 9474 to the letter in two languages, no way from a ballot to a person, no second ballot."""

import base64
import dataclasses
import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from math import gcd
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from cloister.privacy.errors import BadInput, Broken
from cloister.vault import SCHEME, Ballot, BlindKey, admit, key_fingerprint, verify
from cloister.vault.ballot import _encode, blind
from cloister.vault.blind import public_numbers, unit
from cloister.vault.slip import text_of

ROOT = Path(__file__).parents[3]
CLIENT = ROOT / "src" / "cloister" / "local" / "client"
VECTOR = json.loads((ROOT / "tests" / "vectors" / "blind.json").read_text(encoding="utf-8"))
MESSAGE = bytes.fromhex(VECTOR["msg_prefix"] + VECTOR["msg"])
NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="no Node here: on Debian, apt-get install nodejs")


def base64url(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def plain(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def key_of(p: int, q: int, e: int) -> BlindKey:
    d = pow(e, -1, (p - 1) * (q - 1))
    told = rsa.RSAPrivateNumbers(p, q, d, d % (p - 1), d % (q - 1), pow(q, -1, p), rsa.RSAPublicNumbers(e, p * q))
    return BlindKey(told.private_key(), told)


def public_of(n: int, e: int) -> dict[str, object]:
    spelled = [base64url(one.to_bytes((one.bit_length() + 7) // 8, "big")) for one in (n, e)]
    return {"scheme": SCHEME, "bits": n.bit_length(), "n": spelled[0], "e": spelled[1]}


@pytest.fixture(scope="module")
def key() -> BlindKey:
    return BlindKey.create()


@pytest.fixture(scope="module")
def public(key: BlindKey) -> dict[str, object]:
    return key.public()


@pytest.fixture(scope="module")
def printed(public: dict[str, object]) -> str:
    return key_fingerprint(public)


@pytest.fixture(scope="module")
def published() -> BlindKey:
    return key_of(*(int(VECTOR[name], 16) for name in "pqe"))


class Device:
    """A Node that serves all tests of this file."""

    def __init__(self) -> None:
        assert NODE is not None
        command = [NODE, str(ROOT / "tests" / "vectors" / "blind.mjs"), f"{CLIENT.as_uri()}/"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, verb: str, **told: Any) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"verb": verb, **told}) + "\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer


@pytest.fixture(scope="module")
def device() -> Iterator[Device]:
    started = Device()
    yield started
    started.process.communicate(timeout=30)


# The RFC's vectors.


def test_the_vector_is_a_key_and_names_our_scheme(published: BlindKey) -> None:
    assert VECTOR["name"] == SCHEME
    assert public_numbers(published.public()) == (int(VECTOR["n"], 16), int(VECTOR["e"], 16))


def test_python_blinds_signs_and_unblinds_as_the_rfc_does(published: BlindKey) -> None:
    n, e, inverse = (int(VECTOR[name], 16) for name in ("n", "e", "inv"))
    blinded = blind(n, e, MESSAGE, bytes.fromhex(VECTOR["salt"]), pow(inverse, -1, n))
    assert blinded.hex() == VECTOR["blinded_msg"]
    assert published.sign(blinded).hex() == VECTOR["blind_sig"]
    message, signature = Ballot(published.public(), MESSAGE, blinded, inverse).finish(published.sign(blinded))
    assert (message, signature.hex()) == (MESSAGE, VECTOR["sig"])
    assert verify(published.public(), MESSAGE, signature)


@needs_node
def test_node_blinds_and_unblinds_as_the_rfc_does(published: BlindKey, device: Device) -> None:
    told = {"key": published.public(), "message": MESSAGE.hex(), "salt": VECTOR["salt"], "inv": VECTOR["inv"]}
    found = device.ask("vector", **told, signature=VECTOR["blind_sig"])
    assert found == {"blinded": VECTOR["blinded_msg"], "signature": VECTOR["sig"]}


# From invitation to ballot.


def test_a_ballot_from_python_is_admitted(key: BlindKey, public: dict[str, object], printed: str) -> None:
    blinded, ballot = Ballot.begin(public, "sleep", "1", printed)
    message, signature = ballot.finish(key.sign(blinded))
    nonce = admit(public, message, signature, "sleep", "1")
    assert message[32:] == text_of("sleep", "1", plain(nonce))


@needs_node
def test_a_ballot_from_the_browser_is_admitted(
    key: BlindKey, public: dict[str, object], printed: str, device: Device
) -> None:
    begun = device.ask("begin", key=public, info={"survey": "sleep", "wave": "1", "fingerprint": printed})
    assert begun["state"]["blinded"] == begun["blinded"]
    signed = base64url(key.sign(plain(begun["blinded"])))
    done = device.ask("finish", state=begun["state"], signature=signed)
    assert set(done) == {"message", "signature"}
    nonce = admit(public, plain(done["message"]), plain(done["signature"]), "sleep", "1")
    assert len(plain(nonce)) == 32


@pytest.mark.parametrize("bits", [2049, 2050, 2055])
@needs_node
def test_a_modulus_of_any_length_is_encoded_alike(bits: int, device: Device) -> None:
    numbers = rsa.generate_private_key(65537, bits).private_numbers()
    odd = key_of(numbers.p, numbers.q, 65537)
    printed = key_fingerprint(odd.public())
    blinded, ballot = Ballot.begin(odd.public(), "sleep", "1", printed)
    message, signature = ballot.finish(odd.sign(blinded))
    told = {"key": odd.public(), "message": message.hex(), "signature": signature.hex()}
    assert device.ask("verify", **told) == {"holds": True}
    begun = device.ask("begin", key=odd.public(), info={"survey": "sleep", "wave": "1", "fingerprint": printed})
    done = device.ask("finish", state=begun["state"], signature=base64url(odd.sign(plain(begun["blinded"]))))
    assert admit(odd.public(), plain(done["message"]), plain(done["signature"]), "sleep", "1")


@needs_node
def test_a_ballot_begun_in_one_language_is_finished_in_the_other(
    key: BlindKey, public: dict[str, object], printed: str, device: Device
) -> None:
    blinded, ballot = Ballot.begin(public, "sleep", "1", printed)
    state = json.loads(json.dumps(ballot.to_state()))
    here = Ballot.from_state(state).finish(key.sign(blinded))
    there = device.ask("finish", state=state, signature=base64url(key.sign(blinded)))
    assert (base64url(here[0]), base64url(here[1])) == (there["message"], there["signature"])
    begun = device.ask("begin", key=public, info={"survey": "sleep", "wave": "1", "fingerprint": printed})
    kept = Ballot.from_state(begun["state"])
    assert admit(public, *kept.finish(key.sign(kept.blinded)), "sleep", "1")


def test_a_number_sent_again_gets_the_same_signature_and_so_the_same_ballot(
    key: BlindKey, public: dict[str, object], printed: str
) -> None:
    blinded, ballot = Ballot.begin(public, "sleep", "1", printed)
    first, again = key.sign(blinded), key.sign(ballot.blinded)
    assert first == again
    nonces = {admit(public, *ballot.finish(one), "sleep", "1") for one in (first, again)}
    assert len(nonces) == 1


# Nobody knows whose.


def salt_in(n: int, e: int, signature: bytes) -> bytes:
    """The salt that a signature gives away to whoever has it."""
    size = (n.bit_length() + 6) // 8
    encoded = pow(int.from_bytes(signature, "big"), e, n).to_bytes(size, "big")
    block, digest = encoded[: size - 49], encoded[size - 49 : -1]
    mask = b"".join(hashlib.sha384(digest + part.to_bytes(4, "big")).digest() for part in range(size // 48 + 1))
    return bytes(one ^ other for one, other in zip(block, mask, strict=False))[-48:]


def factors(n: int, seen: list[tuple[bytes, bytes]], cast: list[tuple[bytes, bytes]]) -> list[list[int]]:
    """For each (number, its signature) and each (message, its signature), the only factor that could link them."""
    return [
        [int.from_bytes(signed, "big") * pow(int.from_bytes(signature, "big"), -1, n) % n for _, signature in cast]
        for _, signed in seen
    ]


def test_every_number_the_signer_saw_fits_every_ballot_that_was_cast(
    key: BlindKey, public: dict[str, object], printed: str
) -> None:
    n, e = public_numbers(public)
    begun = [Ballot.begin(public, "sleep", "1", printed) for _ in range(6)]
    seen = [(blinded, key.sign(blinded)) for blinded, _ in begun]
    cast = [ballot.finish(signed) for (_, ballot), (_, signed) in zip(begun, seen, strict=True)]
    table = factors(n, seen, cast)
    for (blinded, _), row in zip(seen, table, strict=True):
        for (message, signature), factor in zip(cast, row, strict=True):
            # A device that made this message and drew this factor would have sent exactly this number ...
            assert gcd(factor, n) == 1
            assert blind(n, e, message, salt_in(n, e, signature), factor) == blinded
            # ... and no other factor does it: the signer's own root of the quotient is the same one.
            encoded = pow(int.from_bytes(signature, "big"), e, n)
            assert key._root(int.from_bytes(blinded, "big") * pow(encoded, -1, n) % n) == factor
    # Nor is the true one of a row conspicuous: all are of full length, give or take the luck of sixty-four bits.
    assert min(factor.bit_length() for row in table for factor in row) > 2048 - 64


def test_a_device_that_draws_too_small_a_factor_would_be_found_out(key: BlindKey, public: dict[str, object]) -> None:
    n, e = public_numbers(public)
    seen, cast = [], []
    for person in range(4):
        message = bytes(32) + text_of("sleep", "1", bytes([person]) * 32)
        small = (1 << 127) + 2 * person + 1
        blinded = blind(n, e, message, bytes(48), small)
        seen.append((blinded, key.sign(blinded)))
        cast.append(Ballot(public, message, blinded, pow(small, -1, n)).finish(seen[-1][1]))
    linked = [[factor.bit_length() <= 128 for factor in row] for row in factors(n, seen, cast)]
    assert linked == [[one == other for other in range(4)] for one in range(4)]


def test_a_factor_is_any_number_with_an_inverse_and_no_other() -> None:
    assert {unit(15) for _ in range(2_000)} == {1, 2, 4, 7, 8, 11, 13, 14}


@needs_node
def test_the_browser_draws_again_what_is_zero_too_large_or_without_inverse(device: Device) -> None:
    # n = 3 * 11 has 6 bits: the upper two of each byte are dropped.
    found = device.ask("unit", n="21", bytes=["00", "21", "22", "3f", "16", "c3", "47"])
    assert found == {"factor": "7", "one": "1", "asked": 7}


@needs_node
def test_two_ballots_share_nothing(key: BlindKey, public: dict[str, object], printed: str, device: Device) -> None:
    info = {"survey": "sleep", "wave": "1", "fingerprint": printed}
    here = [Ballot.begin(public, "sleep", "1", printed)[1] for _ in range(2)]
    there = [Ballot.from_state(device.ask("begin", key=public, info=info)["state"]) for _ in range(2)]
    drawn = []
    for ballot in (*here, *there):
        message, signature = ballot.finish(key.sign(ballot.blinded))
        salt = salt_in(*public_numbers(public), signature)
        drawn.append((message[:32], message[32:], salt, ballot.blinded, ballot._inverse))
    for kind in zip(*drawn, strict=True):
        assert len(set(kind)) == 4


def test_a_key_for_each_person_would_name_them_so_another_key_than_everybodys_is_refused(
    key: BlindKey, public: dict[str, object], printed: str
) -> None:
    own = BlindKey.create()
    # The attack: with a key of her own, she is known by the key that signed.
    blinded, hers = Ballot.begin(own.public(), "sleep", "1", key_fingerprint(own.public()))
    ballot = hers.finish(own.sign(blinded))
    assert [verify(one.public(), *ballot) for one in (key, own)] == [False, True]
    # The defence: the fingerprint that everybody sees.
    with pytest.raises(BadInput, match="not the key that the survey's description names"):
        Ballot.begin(own.public(), "sleep", "1", printed)


@needs_node
def test_the_browser_refuses_another_key_than_everybodys(
    public: dict[str, object], printed: str, device: Device
) -> None:
    assert device.ask("fingerprint", key=public) == {"fingerprint": printed}
    info = {"survey": "sleep", "wave": "1", "fingerprint": printed}
    other = BlindKey.create().public()
    assert "not the key that the survey's description names" in device.ask("begin", key=other, info=info)["refused"]
    for missing in (None, "", printed.upper()):
        assert "refused" in device.ask("begin", key=public, info={**info, "fingerprint": missing})


def test_a_ballot_and_a_key_do_not_print_themselves(key: BlindKey, public: dict[str, object], printed: str) -> None:
    _, ballot = Ballot.begin(public, "sleep", "1", printed)
    for secret in (key, ballot):
        assert len(f"{secret!r}{secret!s}") < 200
        assert "Numbers" not in repr(secret)


# No second ballot.


@pytest.fixture(scope="module")
def two(key: BlindKey, public: dict[str, object], printed: str) -> list[tuple[bytes, bytes]]:
    begun = [Ballot.begin(public, "sleep", "1", printed) for _ in range(2)]
    return [ballot.finish(key.sign(blinded)) for blinded, ballot in begun]


@pytest.mark.parametrize(("survey", "wave"), [("sleep", "2"), ("slee", "p1"), ("diet", "1"), ("sleep", "10")])
def test_a_ballot_is_good_for_one_wave_of_one_survey(
    public: dict[str, object], two: list[tuple[bytes, bytes]], survey: str, wave: str
) -> None:
    with pytest.raises(Broken, match="no ballot for this wave"):
        admit(public, *two[0], survey, wave)


def test_a_ballot_cannot_be_rewritten_for_another_wave(
    public: dict[str, object], two: list[tuple[bytes, bytes]]
) -> None:
    message, signature = two[0]
    with pytest.raises(Broken):
        admit(public, message.replace(b"|1|", b"|2|"), signature, "sleep", "2")


def test_what_was_signed_but_is_no_ballots_text_is_not_admitted(key: BlindKey, public: dict[str, object]) -> None:
    n, e = public_numbers(public)
    texts = [
        b"cloister ballot v1|sleep|1|short",
        text_of("sleep", "1", bytes(32)) + b"A",
        b"",
        b"cloister ballot v1|sleep",
    ]
    for text in texts:
        message = bytes(32) + text
        signature = key.sign(blind(n, e, message, bytes(48), 1))
        assert verify(public, message, signature)
        with pytest.raises(Broken):
            admit(public, message, signature, "sleep", "1")


def test_one_key_for_two_surveys_would_let_an_invitation_to_one_vote_in_the_other(
    key: BlindKey, public: dict[str, object], printed: str
) -> None:
    # Invited to "sleep", asks for a ballot for "diet": the signer cannot see it.
    blinded, ballot = Ballot.begin(public, "diet", "1", printed)
    stolen = ballot.finish(key.sign(blinded))
    assert admit(public, *stolen, "diet", "1")  # what a shared key would allow
    with pytest.raises(Broken):
        admit(BlindKey.create().public(), *stolen, "diet", "1")  # a key of its own for "diet" does not


def test_a_number_that_was_tampered_with_gives_no_ballot(
    key: BlindKey, public: dict[str, object], printed: str
) -> None:
    n, _ = public_numbers(public)
    blinded, ballot = Ballot.begin(public, "sleep", "1", printed)
    number = int.from_bytes(blinded, "big")
    for changed in (number ^ 2, number * 2 % n, n - number, 1):
        with pytest.raises(Broken, match="no signature on this ballot"):
            ballot.finish(key.sign(changed.to_bytes(256, "big")))
    for answer in (b"", bytes(256), blinded, key.sign(blinded) + b"\x00", b"\x00" + key.sign(blinded)):
        with pytest.raises(Broken, match="no signature on this ballot"):
            ballot.finish(answer)


@needs_node
def test_the_browser_hands_on_no_signature_that_does_not_hold(
    key: BlindKey, public: dict[str, object], printed: str, device: Device
) -> None:
    begun = device.ask("begin", key=public, info={"survey": "sleep", "wave": "1", "fingerprint": printed})
    blinded = plain(begun["blinded"])
    good = key.sign(blinded)
    changed = blinded[:-1] + bytes([blinded[-1] ^ 2])
    for answer in (key.sign(changed), b"", bytes(256), blinded, good + b"\x00", b"\x00" + good, good[:-1]):
        told = device.ask("finish", state=begun["state"], signature=base64url(answer))
        assert "no signature on this ballot" in told["refused"]
    for spelled in ("!", base64url(good) + "=", None, base64url(good)[:-1] + "B"):
        assert "base64url" in device.ask("finish", state=begun["state"], signature=spelled)["refused"]
    assert "signature" in device.ask("finish", state=begun["state"], signature=base64url(good))


def test_two_signatures_multiply_to_no_third(public: dict[str, object], two: list[tuple[bytes, bytes]]) -> None:
    n, _ = public_numbers(public)
    (message, one), (other_message, other) = two
    a, b = int.from_bytes(one, "big"), int.from_bytes(other, "big")
    forged = [a * b % n, a * a % n, a * pow(b, -1, n) % n, pow(a, -1, n), n - a, b]
    for number in forged:
        for text in (message, message + other_message, b"", message[:32] + other_message[32:]):
            assert not verify(public, text, number.to_bytes(256, "big"))
    assert verify(public, message, one)


def test_one_signing_of_two_ballots_at_once_gives_neither(key: BlindKey, public: dict[str, object]) -> None:
    n, e = public_numbers(public)
    messages = [bytes(32) + text_of("sleep", "1", bytes([person]) * 32) for person in range(2)]
    numbers = [int.from_bytes(blind(n, e, message, bytes(48), 1), "big") for message in messages]
    both = int.from_bytes(key.sign((numbers[0] * numbers[1] % n).to_bytes(256, "big")), "big")
    for message, number in zip(messages, numbers, strict=True):
        for tried in (both, both * pow(number, -1, n) % n, both * number % n):
            assert not verify(public, message, tried.to_bytes(256, "big"))


@needs_node
def test_a_signature_has_one_spelling(
    public: dict[str, object], two: list[tuple[bytes, bytes]], device: Device
) -> None:
    n, _ = public_numbers(public)
    message, good = two[0]
    number = int.from_bytes(good, "big")
    twins = [good + b"\x00", b"\x00" + good, (number + n).to_bytes(257, "big"), b"", good[:-1], bytes(256)]
    if number + n < 1 << 2048:
        twins.append((number + n).to_bytes(256, "big"))
    for twin in twins:
        assert not verify(public, message, twin)
        told = {"key": public, "message": message.hex(), "signature": twin.hex()}
        assert device.ask("verify", **told) == {"holds": False}
    told = {"key": public, "message": message.hex(), "signature": good.hex()}
    assert device.ask("verify", **told) == {"holds": True}


def written(message: bytes, block: bytes, salt: bytes, end: bytes) -> bytes:
    """An encoding for 2048 bits, with whatever is to stand in it."""
    digest = hashlib.sha384(bytes(8) + hashlib.sha384(message).digest() + salt).digest()
    mask = b"".join(hashlib.sha384(digest + part.to_bytes(4, "big")).digest() for part in range(5))
    masked = bytes(one ^ other for one, other in zip(block, mask, strict=False))
    return bytes([masked[0] & 0x7F]) + masked[1:] + digest + end


@needs_node
def test_both_languages_read_the_whole_encoding(key: BlindKey, public: dict[str, object], device: Device) -> None:
    message, salt = b"m" * 32, b"s" * 48
    good = bytes(158) + b"\x01" + salt
    cases = {
        "as it should be": (message, written(message, good, salt, b"\xbc")),
        "another message": (message + b"!", written(message, good, salt, b"\xbc")),
        "another end": (message, written(message, good, salt, b"\xcc")),
        "another salt": (message, written(message, good, salt[:-1] + b"t", b"\xbc")),
        "something before the one": (message, written(message, bytes(157) + b"\x02\x01" + salt, salt, b"\xbc")),
        "something at the very front": (message, written(message, b"\x01" + good[1:], salt, b"\xbc")),
        "a two for the one": (message, written(message, bytes(158) + b"\x02" + salt, salt, b"\xbc")),
        "a shorter salt": (message, written(message, bytes(159) + b"\x01" + salt[1:], salt[1:], b"\xbc")),
    }
    n, _ = public_numbers(public)
    topped = ((one, written(one, good, salt, b"\xbc")) for one in (bytes([count]) * 32 for count in range(256)))
    above = ((text, bytes([encoded[0] | 0x80]) + encoded[1:]) for text, encoded in topped)
    cases["a bit above the encoding"] = next(one for one in above if int.from_bytes(one[1], "big") < n)
    for why, (text, encoded) in cases.items():
        signature = key.sign(encoded)
        told = device.ask("verify", key=public, message=text.hex(), signature=signature.hex())
        assert (verify(public, text, signature), told["holds"]) == (why == "as it should be",) * 2, why


# The signer's own safety.


def test_only_a_number_below_the_modulus_is_signed(key: BlindKey) -> None:
    n, _ = public_numbers(key.public())
    for sent in (b"", b"short", bytes(256), n.to_bytes(256, "big"), bytes(256) + b"\x02", b"\xff" * 256):
        with pytest.raises(BadInput, match="number of 256 bytes"):
            key.sign(sent)
    assert key.sign((n - 1).to_bytes(256, "big")) == (n - 1).to_bytes(256, "big")


def test_a_fault_in_half_of_the_computation_would_give_the_key_away_so_nothing_leaves(
    key: BlindKey, public: dict[str, object], printed: str
) -> None:
    good = key._numbers
    bad = rsa.RSAPrivateNumbers(good.p, good.q, good.d, good.dmp1 ^ 4, good.dmq1, good.iqmp, good.public_numbers)
    faulty = dataclasses.replace(key, _numbers=bad)
    n, e = public_numbers(public)
    blinded, _ = Ballot.begin(public, "sleep", "1", printed)
    number = int.from_bytes(blinded, "big")
    assert gcd(pow(faulty._root(number), e, n) - number, n) == good.q  # what an attacker would compute
    with pytest.raises(Broken, match="thrown away"):
        faulty.sign(blinded)


def test_the_key_never_works_on_the_number_that_was_sent(
    key: BlindKey, public: dict[str, object], printed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked_on: list[int] = []
    root = BlindKey._root

    def noted(self: BlindKey, number: int) -> int:
        worked_on.append(number)
        return root(self, number)

    monkeypatch.setattr(BlindKey, "_root", noted)
    blinded, _ = Ballot.begin(public, "sleep", "1", printed)
    key.sign(blinded)
    key.sign(blinded)
    assert len({*worked_on, int.from_bytes(blinded, "big")}) == 3


def test_a_key_comes_back_from_its_bytes(key: BlindKey, public: dict[str, object], printed: str) -> None:
    back = BlindKey.from_bytes(key.to_bytes())
    assert back.public() == public == json.loads(json.dumps(public))
    blinded, ballot = Ballot.begin(public, "sleep", "1", printed)
    assert verify(public, *ballot.finish(back.sign(blinded)))


@pytest.mark.parametrize("bits", [1024, 2047, 2049, 0, "2048"])
def test_a_key_of_another_size_is_not_made(bits: int) -> None:
    with pytest.raises(BadInput, match="2048, 3072 or 4096"):
        BlindKey.create(bits)


def test_bytes_of_another_key_are_refused() -> None:
    other = ec.generate_private_key(ec.SECP256R1())
    weak = rsa.generate_private_key(3, 2048)
    for raw in (b"", b"nonsense", other.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())):
        with pytest.raises(BadInput, match="no key for blind signatures"):
            BlindKey.from_bytes(raw)
    with pytest.raises(BadInput, match="odd exponent"):
        BlindKey.from_bytes(weak.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption()))


# A device doubts the key.


def doubtful() -> dict[str, Any]:
    n = int(VECTOR["n"], 16)
    good = public_of(n, 65537)
    return {
        "a modulus of 2047 bits": public_of(n >> (n.bit_length() - 2047) | 1, 65537),
        "a modulus of 9000 bits": public_of(1 << 8999 | 1, 65537),
        "an even modulus": public_of(n - 1, 65537),
        "an exponent of 3": public_of(n, 3),
        "an exponent of 1": public_of(n, 1),
        "an even exponent": public_of(n, 65538),
        "an exponent as long as the modulus": public_of(n, n - 2),
        "another scheme": {**good, "scheme": "RSABSSA-SHA384-PSSZERO-Deterministic"},
        "a wrong size": {**good, "bits": 2048},
        "a size in words": {**good, "bits": "4096"},
        "a leading zero": {**good, "n": base64url(b"\x00" + n.to_bytes(512, "big"))},
        "padding": {**good, "e": "AQAB===="},
        "a field too many": {**good, "person": "7"},
        "a field too few": {name: good[name] for name in ("scheme", "bits", "n")},
        "no text": {**good, "n": 5},
        "nothing": None,
        "a list": [],
    }


@pytest.mark.parametrize("why", doubtful())
def test_python_refuses_a_doubtful_key(why: str) -> None:
    with pytest.raises(BadInput):
        Ballot.begin(doubtful()[why], "sleep", "1", "")
    with pytest.raises(BadInput):
        verify(doubtful()[why], b"", b"")


@pytest.mark.parametrize("why", doubtful())
@needs_node
def test_the_browser_refuses_a_doubtful_key(why: str, device: Device) -> None:
    told = device.ask("begin", key=doubtful()[why], info={"survey": "sleep", "wave": "1", "fingerprint": ""})
    assert speaks_of_the_key(told["refused"])


def speaks_of_the_key(sentence: str) -> bool:
    """Whether a refusal speaks of the key's form, and not of its fingerprint, which is wrong here as well."""
    words = ("modulus", "exponent", "scheme", "size", "fields", "base64url")
    return any(word in sentence for word in words) and "description names" not in sentence


@needs_node
def test_a_modulus_that_shares_a_factor_with_the_message_is_refused(device: Device) -> None:
    texts = (bytes(32) + text_of("sleep", "1", bytes([count]) * 32) for count in range(256))
    message = next(one for one in texts if int.from_bytes(_encode(one, bytes(48), 2047), "big") % 3 == 0)
    shared = 3 * ((1 << 2047) // 3 + 2 | 1)
    assert shared.bit_length() == 2048
    with pytest.raises(BadInput, match="small factor"):
        blind(shared, 65537, message, bytes(48), 1)
    told = {"key": public_of(shared, 65537), "message": message.hex(), "salt": "00" * 48, "inv": "1", "signature": ""}
    assert "small factor" in device.ask("vector", **told)["refused"]


@pytest.mark.parametrize(
    ("survey", "wave"), [("a|b", "1"), ("", "1"), ("sleep", ""), ("sleep", 1), ("é", "1"), ("s" * 65, "1")]
)
@needs_node
def test_a_name_that_could_be_read_two_ways_is_refused(
    public: dict[str, object], printed: str, device: Device, survey: str, wave: Any
) -> None:
    with pytest.raises(BadInput, match="up to 64 letters"):
        Ballot.begin(public, survey, wave, printed)
    told = device.ask("begin", key=public, info={"survey": survey, "wave": wave, "fingerprint": printed})
    assert "up to 64 letters" in told["refused"]


@needs_node
def test_a_page_without_https_is_told_so(public: dict[str, object], printed: str, device: Device) -> None:
    info = {"survey": "sleep", "wave": "1", "fingerprint": printed}
    assert "https" in device.ask("insecure", key=public, info=info)["refused"]
    assert "blinded" in device.ask("begin", key=public, info=info)


@needs_node
def test_what_was_not_kept_by_us_is_not_finished(public: dict[str, object], printed: str, device: Device) -> None:
    good = Ballot.begin(public, "sleep", "1", printed)[1].to_state()
    bad: list[Any] = [
        None,
        [],
        {},
        {**good, "version": 2},
        {**good, "more": 1},
        {**good, "inverse": "?"},
        {**good, "key": 1},
    ]
    for state in bad:
        assert "refused" in device.ask("finish", state=state, signature="")
        with pytest.raises((BadInput, Broken)):
            Ballot.from_state(state).finish(b"")


def test_a_nonce_of_another_length_is_refused(public: dict[str, object], printed: str) -> None:
    with pytest.raises(BadInput, match="32 bytes"):
        Ballot.begin(public, "sleep", "1", printed, nonce=lambda count: bytes(count - 1))
    _, ballot = Ballot.begin(public, "sleep", "1", printed, nonce=bytes)
    assert ballot.message[32:] == text_of("sleep", "1", bytes(32))
