"""Canonical bytes and signatures."""

import stat
import string
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cloister.privacy.errors import BadName, BadNumber, StoreFailed
from cloister.privacy.signing import PublicKey, SigningKey, canonical, fingerprint

RECORDS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(RECORDS)
def test_canonical_bytes_are_ascii_and_read_back_as_the_same_record(record: object) -> None:
    import json

    data = canonical(record)
    assert data.isascii()
    assert json.loads(data) == record


def test_canonical_bytes_do_not_depend_on_the_order_of_keys() -> None:
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1}) == b'{"a":1,"b":2}'


@pytest.mark.parametrize("value", [0.1, float("nan"), Fraction(1, 2), b"x", (1,), {1: 2}, {"a": [0.5]}, {"x"}])
def test_what_has_no_single_spelling_is_refused(value: object) -> None:
    with pytest.raises(BadNumber, match="as text"):
        canonical(value)


def test_a_record_that_is_nested_too_deep_is_refused() -> None:
    record: list[object] = []
    for _ in range(100):
        record = [record]
    with pytest.raises(BadNumber, match="shallow"):
        canonical(record)


def test_a_fingerprint_is_sha256_of_the_text() -> None:
    assert fingerprint("") == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    assert fingerprint("a") != fingerprint("b")


def test_a_signature_holds_for_its_message_and_key_only() -> None:
    key, other = SigningKey.create(), SigningKey.create()
    signature = key.sign(b"message")
    assert key.public.verify(b"message", signature)
    assert not key.public.verify(b"massage", signature)
    assert not other.public.verify(b"message", signature)
    assert not key.public.verify(b"message", "not base64!")


def test_a_signature_has_one_spelling() -> None:
    """Its last letter has four spare bits: sixteen texts decode to the same bytes."""
    key, letters = SigningKey.create(), string.ascii_letters + string.digits + "+/"
    signature = key.sign(b"message")
    assert [x for x in letters if key.public.verify(b"message", f"{signature[:85]}{x}==")] == [signature[85]]
    assert not key.public.verify(b"message", "")


def test_a_public_key_prints_as_one_line_and_reads_back() -> None:
    public = SigningKey.create().public
    assert str(public).startswith("ed25519:")
    assert str(PublicKey.parse(f" {public}\n")) == str(public)


@pytest.mark.parametrize("text", ["", "ed25519:", "ed25519:AAAA", "ed25519:@@@@", "rsa:AAAA", "ed25519:" + "A" * 50])
def test_a_malformed_public_key_is_refused(text: str) -> None:
    with pytest.raises(BadName, match="public key"):
        PublicKey.parse(text)


def test_a_key_file_is_readable_by_its_owner_only_and_loads_again(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    key = SigningKey.create(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert str(SigningKey.load(path).public) == str(key.public)
    assert str(PublicKey.load(path)) == str(key.public)


def test_a_public_key_loads_from_a_line_or_from_a_file_with_that_line(tmp_path: Path) -> None:
    public = SigningKey.create().public
    path = tmp_path / "owner.pub"
    path.write_text(f"{public}\n")
    assert str(PublicKey.load(path)) == str(PublicKey.load(str(public))) == str(public)


def test_a_key_that_others_can_read_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    SigningKey.create(path)
    path.chmod(0o644)
    with pytest.raises(StoreFailed, match="chmod 600"):
        SigningKey.load(path)


def test_a_new_key_never_replaces_an_old_one(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    before = SigningKey.create(path)
    with pytest.raises(StoreFailed, match="new path"):
        SigningKey.create(path)
    assert str(SigningKey.load(path).public) == str(before.public)


def test_a_file_without_a_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "owner.key"
    with pytest.raises(StoreFailed, match="no key can be read"):
        SigningKey.load(path)
    path.touch(0o600)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(BadName):
        SigningKey.load(path)
    path.write_text("-----BEGIN NOTHING-----")
    with pytest.raises(BadName, match="Ed25519"):
        SigningKey.load(path)


def test_a_private_key_never_prints_itself() -> None:
    assert "Ed25519PrivateKey" not in repr(SigningKey.create())
