"""The auditor finds every edit and names the first bad entry."""

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cloister.privacy.errors import HeadRejected, LedgerBroken, RolledBack, StoreFailed
from cloister.privacy.ledger import Entry, Head, Ledger, Line, Report, verify
from cloister.privacy.loss import epsilon
from cloister.privacy.signing import SigningKey, canonical

KEY = SigningKey.create()
FIELDS = [
    ("number", 40),
    ("previous", "1" * 64),
    ("time", "2020-01-01T00:00:00Z"),
    ("kind", "commit"),
    ("request", "0" * 64),
    ("settles", 2),
    ("detail", {"x": "y"}),
    ("lines.account", "other"),
    ("lines.loss.amount", "1/100"),
    ("lines.loss.delta", "1/100"),
    ("lines.loss.measure", "rho"),
    ("lines.loss.relation", "replace-one"),
    ("lines.spent.amount", "1/100"),
    ("lines.spent.delta", "1/100"),
]


@pytest.fixture
def book(tmp_path: Path) -> Path:
    """A ledger of eight entries: create, open, four reserves (3 and 8 unfinished), a commit, a void."""
    path = tmp_path / "ledger"
    with Ledger.create(path, key=KEY, head=tmp_path / "head") as ledger:
        account = ledger.open_account("visits", epsilon(1))
        for number in range(3):
            charge = account.reserve(epsilon("0.1"), f"request {number}")
            if number == 1:
                charge.look()
                charge.commit()
            if number == 2:
                charge.void()
        account.reserve(epsilon("0.2"), "last")
    return path


def change(path: Path, statement: str, *values: object) -> None:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(statement, values)
    connection.close()


def body(path: Path, number: int) -> dict[str, Any]:
    connection = sqlite3.connect(path)
    (text,) = connection.execute("SELECT body FROM entries WHERE number = ?", (number,)).fetchone()
    connection.close()
    record: dict[str, Any] = json.loads(text)
    return record


def edit(record: dict[str, Any], field: str, value: object) -> None:
    *way, last = field.split(".")
    for step in way:
        record = record[step][0] if step == "lines" else record[step]
    assert record[last] != value
    record[last] = value


def test_a_true_ledger_passes(book: Path) -> None:
    report = verify(book, KEY.public)
    assert report.ok
    assert report.entries == 8
    (balance,) = report.balances
    assert balance.spent == epsilon("0.4")
    assert "All 8 entries hold" in str(report)
    report.require_ok()


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_an_edit_of_any_field_is_found(book: Path, field: str, value: object) -> None:
    record = body(book, 4)
    edit(record, field, value)
    change(book, "UPDATE entries SET body = ? WHERE number = 4", canonical(record).decode())
    report = verify(book, KEY.public)
    assert (report.bad_entry, report.entries) == (4, 3)
    with pytest.raises(LedgerBroken, match="entry 4"):
        report.require_ok()


@pytest.mark.parametrize(("field", "value"), FIELDS)
def test_an_edit_with_a_new_hash_is_found_because_it_is_not_signed(book: Path, field: str, value: object) -> None:
    record = body(book, 4)
    edit(record, field, value)
    data = canonical(record)
    values = (data.decode(), hashlib.sha256(data).hexdigest(), record["settles"])
    change(book, "UPDATE entries SET body = ?, hash = ?, settles = ? WHERE number = 4", *values)
    assert verify(book, KEY.public).bad_entry == 4


@pytest.mark.parametrize(
    ("statement", "bad"),
    [
        ("UPDATE entries SET hash = replace(hash, substr(hash, 1, 1), 'x') WHERE number = 5", 5),
        ("UPDATE entries SET signature = (SELECT signature FROM entries WHERE number = 4) WHERE number = 5", 5),
        ("UPDATE entries SET signature = '' WHERE number = 5", 5),
        ("UPDATE entries SET signature = x'00' WHERE number = 5", 5),
        ("UPDATE entries SET body = '{}' WHERE number = 5", 5),
        ("UPDATE entries SET body = x'00ff' WHERE number = 5", 5),
        ("UPDATE entries SET body = 'null' WHERE number = 5", 5),
        ("UPDATE entries SET settles = 3 WHERE number = 5", 5),
        ("UPDATE entries SET settles = 8 WHERE number = 6", 6),
        ("UPDATE entries SET number = 9 WHERE number = 8", 8),
        ("UPDATE entries SET number = -1 WHERE number = 1", 1),
        ("DELETE FROM entries WHERE number = 5", 5),
        ("DELETE FROM entries WHERE number = 1", 1),
        ("DELETE FROM entries", 1),
        ("INSERT INTO entries SELECT 9, NULL, body, hash, signature FROM entries WHERE number = 3", 9),
        ("INSERT INTO entries SELECT 0, NULL, body, hash, signature FROM entries WHERE number = 3", 1),
        ("INSERT INTO entries VALUES (-2147483648, 3, 'forged', 'forged', 'forged')", 1),
        ("INSERT INTO entries VALUES (-9223372036854775808, 3, 'forged', 'forged', 'forged')", 1),
        ("UPDATE entries SET body = CAST(body AS BLOB) WHERE number = 5", 5),
        ("UPDATE entries SET hash = CAST(hash AS BLOB) WHERE number = 5", 5),
        ("UPDATE entries SET body = CAST(CAST(body AS BLOB) || x'ff' AS TEXT) WHERE number = 5", 5),
        ("UPDATE entries SET body = CAST(x'22ff22' AS TEXT) WHERE number = 5", 5),
        ("UPDATE entries SET hash = CAST(x'ff' AS TEXT) WHERE number = 5", 5),
        ("UPDATE entries SET signature = CAST(x'ff' AS TEXT) WHERE number = 5", 5),
        ("UPDATE entries SET settles = CAST(x'ff' AS TEXT) WHERE number = 5", 5),
    ],
)
def test_an_edit_of_any_row_is_found(book: Path, statement: str, bad: int) -> None:
    change(book, statement)
    assert verify(book, KEY.public).bad_entry == bad


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM entries WHERE number = 8",
        "DELETE FROM entries WHERE number > 2",
        "DELETE FROM entries WHERE number = 3",
        "UPDATE entries SET body = (SELECT body FROM entries WHERE number = 3) WHERE number = 5",
        "UPDATE entries SET body = replace(body, 'reserve', 'voided') WHERE number = 3",
    ],
)
def test_an_edited_ledger_refuses_to_spend(book: Path, statement: str) -> None:
    """Opened before or after the edit: the chain is followed, and nothing beside it is believed."""
    with Ledger.open(book, key=KEY, head=book.parent / "head") as ledger:
        account = ledger.account("visits")
        change(book, statement)
        if "number = 3" not in statement and "number = 5" not in statement:  # the end is gone under a running process
            with pytest.raises(RolledBack):
                account.reserve(epsilon("0.1"), "request")
    with pytest.raises((LedgerBroken, RolledBack)), Ledger.open(book, key=KEY, head=book.parent / "head") as ledger:
        ledger.account("visits").reserve(epsilon("0.1"), "request")


def test_another_owners_ledger_does_not_pass(book: Path) -> None:
    assert verify(book, SigningKey.create().public).bad_entry == 1


def test_a_ledger_does_not_open_with_another_key(book: Path) -> None:
    with pytest.raises(LedgerBroken, match="not signed"):
        Ledger.open(book, key=SigningKey.create(), head=book.parent / "head")


def forge(path: Path, *arguments: Any, **options: Any) -> Report:
    """Append an entry with the owner's own key, then audit: what even the owner cannot do unnoticed."""
    head = verify(path, KEY.public).head
    entry = Entry.seal(KEY, head, *arguments, **options)
    row = (entry.number, entry.settles, entry.body, entry.hash, entry.signature)
    change(path, "CREATE TABLE loose AS SELECT * FROM entries")  # whoever edits files does not keep constraints
    change(path, "DROP TABLE entries")
    change(path, "ALTER TABLE loose RENAME TO entries")
    change(path, "INSERT INTO entries VALUES (?, ?, ?, ?, ?)", *row)
    return verify(path, KEY.public)


def line(loss: str, spent: str, account: str = "visits") -> Line:
    return Line(account, epsilon(loss), epsilon(spent))


@pytest.mark.parametrize(
    "options",
    [
        {"kind": "reserve", "lines": [line("0.1", "0.4")]},  # 0.4 and 0.1 are not 0.4
        {"kind": "reserve", "lines": [line("0.7", "1.1")]},  # above the cap
        {"kind": "reserve", "lines": [line("0.1", "0.1", "other")]},  # no such account
        {"kind": "charge", "lines": [line("0.1", "0.3")]},
        {"kind": "write-off", "lines": [line("0.1", "1")]},
        {"kind": "void", "settles": 3, "lines": [line("0.2", "0.2")]},  # gives back more than was reserved
        {"kind": "void", "settles": 4, "lines": [line("0.1", "0.3")]},  # was committed
        {"kind": "void", "settles": 6, "lines": [line("0.1", "0.3")]},  # was voided already
        {"kind": "void", "lines": [line("0.1", "0.3")]},
        {"kind": "commit", "settles": 2},
        {"kind": "commit", "settles": None},
        {"kind": "commit", "settles": 3, "lines": [line("0.1", "0.3")]},
        {"kind": "open", "lines": [line("0.1", "0.1")], "detail": {}},
        {"kind": "open", "lines": []},
        {"kind": "create"},
        {"kind": "head-shown", "lines": [line("0.1", "0.3")]},
        {"kind": "gift", "lines": []},
    ],
)
def test_a_signed_entry_that_breaks_the_rules_is_found(book: Path, options: dict[str, Any]) -> None:
    report = forge(book, **options)
    assert report.bad_entry == 9
    assert "entry 9" in report.reason


def test_the_forger_of_these_tests_can_also_write_a_good_entry(book: Path) -> None:
    assert forge(book, "reserve", lines=[line("0.1", "0.5")]).ok


def test_a_head_in_the_ledger_passes_and_a_newer_one_shows_the_prefix(book: Path) -> None:
    heads = [verify(book, KEY.public).head]
    with Ledger.open(book, key=KEY, head=book.parent / "head") as ledger:
        backup = book.read_bytes()
        ledger.account("visits").reserve(epsilon("0.1"), "after the backup")
        heads.append(ledger.head)
    for head in heads:
        assert verify(book, KEY.public, head).ok
    older = book.parent / "older"
    older.write_bytes(backup)
    assert verify(older, KEY.public, heads[0]).ok
    report = verify(older, KEY.public, heads[1])
    assert report.bad_entry == 9
    assert "older copy" in report.reason


def test_a_rewritten_entry_is_not_the_one_the_head_shows(book: Path) -> None:
    head = Entry.seal(KEY, verify(book, KEY.public).head, "head-shown", detail={"x": "y"}).head
    assert forge(book, "head-shown").ok
    report = verify(book, KEY.public, head)
    assert report.bad_entry == 9
    assert "rewritten" in report.reason


def test_a_head_that_the_owner_did_not_sign_is_rejected(book: Path) -> None:
    head = verify(book, KEY.public).head
    assert head is not None
    for wrong in (Head(head.number + 1, head.hash, head.signature), Head(head.number, head.hash, "AAAA")):
        with pytest.raises(HeadRejected, match="not signed"):
            verify(book, KEY.public, wrong)


@pytest.mark.parametrize("text", ["", "1", "1:2:3", "x:" + "0" * 64 + ":s", "-1:" + "0" * 64 + ":s", "1:" + "0" * 64])
def test_a_malformed_head_is_rejected(text: str) -> None:
    with pytest.raises(HeadRejected, match="NUMBER:HASH:SIGNATURE"):
        Head.parse(text)


def test_a_head_reads_back_as_it_was_printed(book: Path) -> None:
    head = verify(book, KEY.public).head
    assert Head.parse(f"{head}\n") == head


@pytest.mark.parametrize(
    "make", [lambda path: None, lambda path: path.write_bytes(b"no database, but long enough to read")]
)
def test_what_is_no_ledger_is_said_so(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "nothing")
    with pytest.raises(StoreFailed, match="could not be used"):
        verify(tmp_path / "nothing", KEY.public)
    with pytest.raises(StoreFailed, match="could not be used"):
        Ledger.open(tmp_path / "nothing", key=KEY, head=tmp_path / "head")


def test_auditing_does_not_write(book: Path) -> None:
    before = book.read_bytes(), (book.parent / "head").read_bytes()
    verify(book, KEY.public)
    assert (book.read_bytes(), (book.parent / "head").read_bytes()) == before
