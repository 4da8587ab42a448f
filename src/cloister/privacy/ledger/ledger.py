"""The ledger: durable accounts that many processes can charge concurrently without overspending."""

import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Self

from cloister.privacy.errors import (
    AccountMismatch,
    BadCandidates,
    BadName,
    ChargeClosed,
    HeadRejected,
    LedgerBroken,
    RolledBack,
    StoreFailed,
)
from cloister.privacy.ledger.account import Account, Balance, Charge, Priced, Rules
from cloister.privacy.ledger.chain import ChainReader, ChainWriter, Entry, Head, Line
from cloister.privacy.ledger.store import HeadFile, Store, open_store
from cloister.privacy.loss import Loss
from cloister.privacy.number import Number
from cloister.privacy.signing import SigningKey, fingerprint

__all__ = ["Ledger"]

_WAY_OUT = "Restore the newest ledger, show its newest head, or write the remainder off."


class Ledger:
    """A ledger of accounts in a file or a PostgreSQL database, signed by its owner.

        ledger = Ledger.create("visits.ledger", key=key, head="/mnt/usb/visits.head")
        account = ledger.open_account("visits", epsilon(1, delta="1e-6"))
        charge = account.reserve(rho("0.01"), request="SELECT COUNT(*) FROM visits")

    Privacy: the losses of all releases charged to an account add up to at most its cap, for the neighbour
    relation of its budget, under adaptive requests and any crashes. Assumptions: the key is secret, and no one else
    writes to the store; an intruder could make a total be read from an older entry, which `verify` detects. A ledger
    that was restored from a backup is detected by the head stored outside it, or by any receipt newer than the backup;
    if both are lost with it, it is not.
    """

    def __init__(self, store: Store, key: SigningKey, kept: HeadFile) -> None:
        self._store = store
        self._key = key
        self._kept = kept
        self._reader = ChainReader(key.public)
        self._folder: Path | None = None

    @classmethod
    def create(cls, place: str | os.PathLike[str], *, key: SigningKey, head: str | os.PathLike[str]) -> "Ledger":
        """Create a new ledger.

        Args:
            place: a file path, or a `postgresql://` address.
            key: the owner's key, which signs every entry.
            head: path of the newest head, outside the ledger; best on another disk.
        """
        ledger = cls(open_store(place, "create"), key, HeadFile(head))
        if ledger._kept.path.exists():
            raise RolledBack(
                f"a head is kept at {ledger._kept.path}, so its ledger existed. Restore that, or choose another path."
            )
        if not ledger._kept.path.parent.is_dir():
            raise StoreFailed(f"there is no folder {ledger._kept.path.parent} to keep the head in. Make it first.")
        with ledger._closed_on_error():
            with ledger._store.writing() as tables:
                tables.create()
                page = ChainWriter(tables, key, ledger._reader)
                if page.head is not None:
                    raise StoreFailed("there is a ledger at this place already. Use Ledger.open, or another place.")
                entry = page.append("create", detail={"key": str(key.public), "ledger": secrets.token_hex(16)})
            ledger._kept.advance(entry.head)
        return ledger

    @classmethod
    def open(cls, place: str | os.PathLike[str], *, key: SigningKey, head: str | os.PathLike[str]) -> "Ledger":
        """Open an existing ledger. A possible older copy opens too, but refuses to spend."""
        ledger = cls(open_store(place), key, HeadFile(head))
        with ledger._closed_on_error():
            _ = ledger.head  # check that it exists and that this key signed it
        return ledger

    @classmethod
    def in_folder(cls, folder: str | os.PathLike[str]) -> "Ledger":
        """Open the ledger in a folder, or create it: `ledger.db`, the key `owner.key` and the stored head `head`.

        This is for a quick start. With the head beside the ledger, a backup restores both: for real budgets store key
        and head elsewhere (`Ledger.create`).
        """
        path = Path(folder)
        path.mkdir(parents=True, exist_ok=True)
        database, head, secret = path / "ledger.db", path / "head", path / "owner.key"
        if database.exists():
            ledger = cls.open(database, key=SigningKey.load(secret), head=head)
        else:
            key = SigningKey.load(secret) if secret.exists() else SigningKey.create(secret)
            ledger = cls.create(database, key=key, head=head)
        ledger._folder = path.resolve()
        return ledger

    @property
    def folder(self) -> Path | None:
        """The folder that `in_folder` opened; None for a ledger opened otherwise."""
        return self._folder

    @property
    def key(self) -> SigningKey:
        """The owner's key; its public key checks entries and receipts."""
        return self._key

    # Accounts.

    def open_account(
        self, name: str, budget: Loss, analyst: str | None = None, *, delta_for_spends: Number = "1/2"
    ) -> Account:
        """Return the account of a dataset (and analyst), opened if it does not exist.

        Args:
            name: the dataset.
            budget: `epsilon(1)` adds epsilons; `rho("0.5")` and `epsilon(1, delta=1e-6)` add rho (and delta).
            analyst: the analyst of the account; None for a shared account.
            delta_for_spends: the share of an (epsilon, delta) budget's delta that spends may use up themselves.

        Raises:
            AccountMismatch: it exists with another budget.
        """
        rules = Rules.of(name, budget, analyst, delta_for_spends)
        if rules.key not in self._keys():
            with self._writing() as page:
                if rules.key not in self._reader.accounts():  # another process may have been faster
                    page.append("open", [page.open(rules)], detail=rules.to_json())
        account = self.account(name, analyst)
        # The budget and its split are fixed; the cap follows from them, as computed at opening.
        if (account.rules.budget, account.rules.converted) != (rules.budget, rules.converted):
            raise AccountMismatch(
                f"account {rules.key} was opened with {account.rules.budget}, not {budget}. A budget never changes."
            )
        return account

    def account(self, name: str, analyst: str | None = None) -> Account:
        """Return an existing account."""
        return Account(self.balance(name if analyst is None else f"{name}@{analyst}").rules, self)

    def accounts(self) -> list[Account]:
        """Return all accounts."""
        return [Account(self._reader.balance(key).rules, self) for key in self._keys()]

    def balance(self, key: str) -> Balance:
        """Return an account's current rules and total."""
        self._keys()
        return self._reader.balance(key)

    def balances(self, *keys: str) -> list[Balance]:
        """Return the balances of some existing accounts, at one time."""
        opened = self._keys()
        return [self._reader.balance(key) for key in keys if key in opened]

    def note(self, about: str, number: int, *, once: bool = False) -> Entry:
        """Note a number that only grows, such as that of the newest version of a text that is kept elsewhere.

        Args:
            about: the subject.
            number: the number.
            once: True to note nothing if this number or a higher one was noted: of several who try, one succeeds.

        Raises:
            ChargeClosed: with `once`, another was first.
        """
        with self._writing() as page:
            if once and page.noted(about) >= number:
                raise ChargeClosed(f"number {number} of this subject was noted by another process, which goes on.")
            return page.append("note", detail={"about": about, "number": number})

    def noted(self, about: str) -> int:
        """Return the highest number that was noted about a subject; 0 if there is none."""
        self._keys()
        return self._reader.noted(about)

    def _keys(self) -> list[str]:
        """Return the keys of all accounts, after reading up to the newest entry."""
        with self._store.reading() as tables:
            self._reader.follow(tables)
        return self._reader.accounts()

    # Charges.

    def reserve(self, charges: Sequence[tuple[Account, Loss | Priced]], request: str) -> Charge:
        """Reserve losses in one or several accounts, all or none, before any row is read.

        Args:
            charges: accounts, and the loss or mechanism charged to each.
            request: the text of the request; its SHA-256 enters the ledger.

        Privacy: when this returns, the loss is on disk and counted. If it raises, nothing may be read; after
        StoreFailed the loss may still be counted.

        Raises:
            OverBudget: an account has less left; nothing changed.
            RolledBack: the ledger may be an older copy.
        """
        priced, digest = _priced(charges), _digest(request)
        with self._writing() as page:
            entry = page.append("reserve", [self._debit(page, *each) for each in priced], request=digest)
        return Charge(entry, self._settle)

    def charge_all(self, charges: Sequence[tuple[Account, Loss | Priced]], request: str) -> list[Entry]:
        """Spend many losses at once: one transaction, one entry for each, all or none. They cannot be voided.

        Privacy: as for `reserve`, except that rows may be read as soon as this returns.
        """
        priced, digest = _priced(charges), _digest(request)
        with self._writing() as page:
            return [page.append("charge", [self._debit(page, *each)], request=digest) for each in priced]

    def charged(self, digest: str) -> bool:
        """Return True if a request was charged and not voided; for recovery after a crash.

        Args:
            digest: the SHA-256 of the request's text (`fingerprint(request)`).
        """
        with self._store.reading() as tables:
            self._reader.follow(tables)
            entries = [entry for entry in tables.asked(digest) if entry.kind in ("reserve", "charge")]
            settled = [tables.settlement(entry.number) for entry in entries]
        return any(settlement is None or settlement.kind != "void" for settlement in settled)

    def reserved(self, number: int, request: str) -> Charge:
        """Return a charge that an earlier process reserved and did not void, so that its work can go on.

        Args:
            number: the charge's entry.
            request: the text of its request, the same to the letter.

        Privacy: nothing is charged again, so whoever goes on must release nothing that the charge does not pay for,
            and nothing twice.
        """
        digest = _digest(request)
        with self._store.reading() as tables:
            self._reader.follow(tables)
            entries = [entry for entry in tables.asked(digest) if entry.kind == "reserve" and entry.number == number]
            settled = [tables.settlement(entry.number) for entry in entries]
        if len(entries) != 1 or any(settlement is not None and settlement.kind == "void" for settlement in settled):
            raise ChargeClosed(f"there is no charge {number} of this request in the ledger. Reserve again.")
        return Charge(entries[0], self._settle)

    def _debit(self, page: ChainWriter, account: Account, loss: Loss) -> Line:
        # By ledger and rules: two ledgers may have accounts of equal name and budget, and only one would be charged.
        if account.book is not self or page.balance(account.rules.key).rules != account.rules:
            raise AccountMismatch(f"account {account.rules.key} belongs to another ledger. Take it from this one.")
        return page.debit(account.rules.key, loss)

    def _settle(self, reserved: Entry, kind: Literal["commit", "void"]) -> Entry:
        with self._writing() as page:
            if not page.contains(reserved.head):
                raise RolledBack(
                    f"charge {reserved.number} is no longer in the ledger, which is an older copy. {_WAY_OUT}"
                )
            if (settled := page.settlement(reserved.number)) is not None:
                if settled.kind == kind:  # repeated after a failure that came after the commit
                    return settled
                raise ChargeClosed(
                    f"charge {reserved.number} is closed by a {settled.kind}. Reserve again for another look."
                )
            lines = [page.credit(line.account, line.loss) for line in reserved.lines] if kind == "void" else []
            return page.append(kind, lines, request=reserved.request, settles=reserved.number)

    # The head, and recovery when it does not match.

    @property
    def head(self) -> Head:
        """The newest entry, signed: store it, and show it if this ledger is ever restored."""
        with self._store.reading() as tables:
            head = self._reader.follow(tables)
        if head is None:
            raise LedgerBroken("the ledger has no entry. Restore the newest good copy.")
        return head

    def contains(self, head: Head) -> bool:
        """Return True if this ledger has the entry of this head."""
        with self._store.reading() as tables:
            return tables.hash_of(head.number) == head.hash

    def check_newest(self) -> None:
        """Refuse, as a charge would, if this ledger may be an older copy. Nothing is written.

        Raises:
            RolledBack: no head is stored, or the ledger does not contain it.
        """
        stored, head = self._kept.read(), self.head  # in this order: a stored head was committed before
        if stored is None:
            raise self._no_head()
        if not self.contains(stored):
            raise _older(stored, head)

    def show_head(self, head: Head) -> Entry:
        """Prove by its newest head that the ledger is not an older copy, when the stored head was lost.

        A head that is newer than the ledger is stored, so that every process refuses to spend from then on.
        """
        if not head.signed_by(self._key.public):
            raise HeadRejected(
                f"head {head.number} is not signed by {self._key.public}. Show the head that was printed."
            )
        stored = self._signed_kept()
        with self._store.writing() as tables:
            page = ChainWriter(tables, self._key, self._reader)
            if stored is None:
                self._kept.replace(head)
            else:
                _require(page, stored)  # first: a head that the ledger lacks must not be overwritten
                self._kept.advance(head)
            _require(page, head)
            entry = page.append("head-shown", detail={"head": str(head)})
        self._kept.advance(entry.head)
        return entry

    def write_off(self, account: Account) -> Entry:
        """Write off the remaining budget of an account.

        A ledger that may be an older copy can be used again once all its accounts are written off: then no loss spent
        in the lost entries can be spent twice. Accounts opened in the lost entries are unknown here; the owner must
        not open them again.
        """
        stored = self._signed_kept()
        with self._store.writing() as tables:
            page = ChainWriter(tables, self._key, self._reader)
            proven = stored is not None and page.contains(stored)
            line = page.debit(account.rules.key, page.balance(account.rules.key).left)
            lost = {} if proven else {"lost": str(stored) if stored else "no head was kept"}
            entry = page.append("write-off", [line], detail=lost)
            nothing_left = all(page.balance(key).left.amount == 0 for key in self._reader.accounts())
        if proven:
            self._kept.advance(entry.head)
        elif nothing_left:
            self._kept.replace(entry.head)
        return entry

    def _signed_kept(self) -> Head | None:
        stored = self._kept.read()
        return stored if stored is not None and stored.signed_by(self._key.public) else None

    @contextmanager
    def _writing(self) -> Iterator[ChainWriter]:
        # Read before the transaction: a head was committed before it was stored, so a true ledger contains it.
        stored = self._kept.read()
        with self._store.writing() as tables:
            page = ChainWriter(tables, self._key, self._reader)
            if stored is None:
                raise self._no_head()
            _require(page, stored)
            yield page
        if page.head is not None:
            self._kept.advance(page.head)

    def _no_head(self) -> RolledBack:
        return RolledBack(f"no head is kept at {self._kept.path}, so this ledger may be an older copy. {_WAY_OUT}")

    def close(self) -> None:
        """Close this process's connections; the next use opens them again."""
        self._store.close()

    @contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


def _priced(charges: Sequence[tuple[Account, Loss | Priced]]) -> list[tuple[Account, Loss]]:
    if not charges:
        raise BadCandidates("a charge needs at least one account and loss. Write [(account, rho('0.1'))].")
    return [(account, account.price(item)) for account, item in charges]


def _digest(request: str) -> str:
    if not isinstance(request, str):
        raise BadName(
            f"a request is text, got a {type(request).__name__}. Give the query, or a sentence that names it."
        )
    return fingerprint(request)


def _require(page: ChainWriter, head: Head) -> None:
    if not page.contains(head):
        raise _older(head, page.head)


def _older(head: Head, newest: Head | None) -> RolledBack:
    ends = newest.number if newest else 0
    return RolledBack(
        f"a head shows entry {head.number}, and this ledger, which ends at entry {ends}, does not contain it: "
        f"it is an older copy. {_WAY_OUT}"
    )
