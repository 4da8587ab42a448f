"""A receipt holds exactly as it was issued, and in no other way."""

import json
import random
import string
from fractions import Fraction

import pytest

from cloister.privacy.errors import CloisterError, ReceiptRejected
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Unit, epsilon
from cloister.privacy.measure import measure
from cloister.privacy.mechanisms import DiscreteLaplace
from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import SigningKey


@pytest.fixture
def ledger(tmp_path):
    with Ledger.in_folder(tmp_path / "ledger") as ledger:
        yield ledger


@pytest.fixture
def receipt(ledger):
    account = ledger.open_account("visits", epsilon(1))
    mechanism = DiscreteLaplace.for_loss(8, epsilon("0.3"))
    asked = {"account": account, "request": "SELECT COUNT(*) FROM visits", "unit": Unit("patient", 8)}
    return measure(lambda: 41, mechanism, **asked, data_version="2025-01").receipt


def test_a_genuine_receipt_verifies_and_survives_a_round_trip(receipt, ledger):
    receipt.verify(ledger.key.public)
    receipt.verify(str(ledger.key.public))
    again = Receipt.parse(receipt.text())
    again.verify(ledger.key.public)
    assert again == receipt


def test_a_receipt_says_what_was_asked_paid_and_where_it_stands(receipt, ledger):
    body = receipt.body
    assert body["data_version"] == "2025-01"
    assert body["unit"] == "one patient (at most 8 rows)"
    assert body["loss"]["amount"] == "3/10"
    assert body["accounts"][0]["before"]["amount"] == "0"
    assert body["accounts"][0]["after"]["amount"] == "3/10"
    assert body["parameters"][0]["scale"] == str(Fraction(80, 3))
    assert body["ledger"]["head"] == str(ledger.head)
    assert body["software"].startswith("cloister ")
    assert "SELECT" not in receipt.text()
    for word in ("asked", "2025-01", "epsilon 0.3", "discrete-laplace"):
        assert word in str(receipt)


def test_another_key_is_refused_even_if_the_receipt_brings_it_along(receipt, ledger):
    stranger = SigningKey.create()
    with pytest.raises(ReceiptRejected):
        receipt.verify(stranger.public)
    facts = {key: receipt.body[key] for key in receipt.body if key not in ("form", "time")}
    forged = Receipt.issue({**facts, "key": str(stranger.public)}, stranger)
    forged.verify(stranger.public)
    with pytest.raises(ReceiptRejected):
        forged.verify(ledger.key.public)
    with pytest.raises(ReceiptRejected):
        Receipt.parse(forged.text())


def _mutations(text: str, count: int):
    """Bytes flipped, dropped, doubled or inserted; keys removed, swapped or added; numbers changed."""
    chance = random.Random(1)
    while count:
        kind = chance.randrange(6)
        at = chance.randrange(len(text))
        if kind == 0:
            changed = text[:at] + chr(32 + (ord(text[at]) - 32 + 1 + chance.randrange(93)) % 95) + text[at + 1 :]
        elif kind == 1:
            changed = text[:at] + text[at + 1 :]
        elif kind == 2:
            changed = text[:at] + text[at] + text[at:]
        elif kind == 3:
            changed = text[:at] + " " + text[at:]
        else:
            record = json.loads(text)
            body = record["receipt"]
            name = chance.choice(sorted(body))
            if kind == 4:
                del body[name]
            else:
                body[name] = chance.choice(["", 0, None, [], {}, True, "1/100", body[chance.choice(sorted(body))]])
            changed = json.dumps(record, sort_keys=True, separators=(",", ":"))
        if changed != text:
            count -= 1
            yield changed


def test_three_hundred_mutations_are_all_rejected(receipt, ledger):
    for changed in _mutations(receipt.text(), 300):
        with pytest.raises(ReceiptRejected):
            Receipt.parse(changed).verify(ledger.key.public)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{}",
        "null",
        "[]",
        '{"receipt":{},"signature":""}',
        "\x00",
        "[" * 100_000,
        "\ud800",
        '{"receipt":5,"signature":"x"}',
        '{"receipt":[],"signature":"x"}',
    ],
)
def test_what_is_not_a_receipt_is_rejected_with_a_sentence(text, ledger):
    with pytest.raises(CloisterError, match="receipt"):
        Receipt.parse(text).verify(ledger.key.public)


def test_one_changed_letter_of_the_signature_is_rejected(receipt, ledger):
    text = receipt.text()
    at = text.rindex('=="') - 1  # the letter with bits to spare
    for letter in string.ascii_letters + string.digits + "+/":
        if letter != text[at]:
            with pytest.raises(ReceiptRejected):
                Receipt.parse(text[:at] + letter + text[at + 1 :]).verify(ledger.key.public)


def test_a_doubled_key_cannot_hide_a_second_content(receipt):
    doubled = receipt.text().replace('"data_version":', '"data_version":"x","data_version":', 1)
    with pytest.raises(ReceiptRejected):
        Receipt.parse(doubled)
