"""Datasets kept open between jobs, and the restricted copy that one job gets.

Opening tables takes longer than a query, so a process keeps the last ones open. An open dataset belongs to no user:
each job gets its own copy, restricted to what the user may see, which charges the ledger for this job.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from cloister.data.engines.duckdb import DuckDB
from cloister.data.tables import Tables
from cloister.dataset import Dataset
from cloister.hub.core import models
from cloister.hub.core.models import analyst
from cloister.hub.core.signed_state import record_file, record_key
from cloister.hub.policy.views import TableView, select, visible
from cloister.privacy.errors import NotNow
from cloister.privacy.ledger import Account, Charge, Entry, Ledger
from cloister.privacy.ledger.account import Balance, Priced, Rules
from cloister.privacy.ledger.chain import Head
from cloister.privacy.loss import Loss
from cloister.privacy.signing import SigningKey
from cloister.query.analyst import Analyst
from cloister.query.answer_cache import AnswerCache

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["Charges", "ClosedBook", "OpenDataset", "PersonReleases", "DatasetPool", "dataset_for_person", "twins"]

Charges = Sequence[tuple[Account, Loss | Priced]]
_Key = tuple[str, int, str | None]  # dataset, number and signature of a version
_TWINS: "WeakKeyDictionary[Hub, DatasetPool]" = WeakKeyDictionary()


class ClosedBook:
    """Ledger for plans: it can be read, but not charged."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    @property
    def key(self) -> SigningKey:
        """Key of the hub."""
        return self._ledger.key

    @property
    def head(self) -> Head:
        """Return the newest entry, signed."""
        return self._ledger.head

    def balance(self, key: str) -> Balance:
        """Return an account's current rules and total."""
        return self._ledger.balance(key)

    def reserve(self, charges: Charges, request: str) -> Charge:
        """Refuse."""
        raise NotNow("a plan charges nothing and reads nothing. Run it instead.")

    def charge_all(self, charges: Charges, request: str) -> list[Entry]:
        """Refuse."""
        raise NotNow("a plan charges nothing and reads nothing. Run it instead.")


@dataclass(frozen=True, slots=True)
class OpenDataset:
    """Open version of a dataset. Its lock is held while something is planned or run with it."""

    name: str
    dataset_id: int
    data: Dataset
    rules: Rules
    lock: threading.Lock = field(default_factory=threading.Lock)


class DatasetPool:
    """Open versions that were used last.

    Args:
        hub: the hub.
        opener: opens the tables of a version: with rows in a worker, without in a web process.
        most: the number of versions that stay open.
    """

    def __init__(
        self,
        hub: "Hub",
        opener: Callable[[models.Dataset, models.Version, models.Person], Tables],
        most: int = 8,
    ) -> None:
        self._hub, self._opener, self._most = hub, opener, most
        self._kept: OrderedDict[_Key, OpenDataset] = OrderedDict()
        self._accounts: dict[tuple[int, int], Rules] = {}
        self._lock = threading.Lock()

    def get(self, dataset: models.Dataset, version: models.Version, person: models.Person) -> OpenDataset:
        """Return a version, opened now unless it is open already."""
        key = (dataset.name, version.number, version.signature)  # ids and schemas may be changed in the database
        with self._lock:
            pooled = self._kept.get(key)
        if pooled is not None and _is_unchanged(pooled):
            with self._lock:
                if key in self._kept:
                    self._kept.move_to_end(key)
            return pooled
        if pooled is not None:
            self._drop(key, pooled)
        opened = self._open(dataset, version, person)
        with self._lock:
            pooled = self._kept.setdefault(key, opened)
            old = [self._kept.popitem(last=False)[1] for _ in range(len(self._kept) - self._most)]
        for unused in [*old, *([opened] if pooled is not opened else [])]:
            _close(unused)
        return pooled

    def _drop(self, key: "_Key", opened: OpenDataset) -> None:
        """Close a version whose files have changed since it was opened."""
        with self._lock:
            gone = self._kept.get(key) is opened
            if gone:
                del self._kept[key]
        if gone:
            _close(opened)

    def _open(self, dataset: models.Dataset, version: models.Version, person: models.Person) -> OpenDataset:
        budget = Loss.from_json(dataset.budget)
        rules = self._hub.ledger.open_account(dataset.name, budget).rules
        # Answers are reused within one version only: another version has other answers.
        path, key = record_file(self._hub, dataset, version), record_key(self._hub, dataset, version)
        name = str(version.number)
        tables = self._opener(dataset, version, person)
        account = Account(rules, ClosedBook(self._hub.ledger))
        return OpenDataset(
            dataset.name, dataset.id, Dataset(tables, account, name, AnswerCache(name, path, key)), rules
        )

    def account(self, dataset: models.Dataset, person: models.Person) -> Rules:
        """Return the rules of a user's account on a dataset, opened in the ledger at their first request."""
        me = (dataset.id, person.id)
        if me not in self._accounts:
            budget = Loss.from_json(dataset.budget)
            self._accounts[me] = self._hub.ledger.open_account(dataset.name, budget, analyst(person.id)).rules
        return self._accounts[me]

    def forget(self, dataset_ids: Iterable[int]) -> None:
        """Close these datasets: they were deleted or paused."""
        gone = set(dataset_ids)
        with self._lock:
            old = [self._kept.pop(key) for key, entry in list(self._kept.items()) if entry.dataset_id in gone]
        for opened in old:
            _close(opened)

    def datasets(self) -> set[int]:
        """Return the open datasets."""
        with self._lock:
            return {opened.dataset_id for opened in self._kept.values()}

    def close(self) -> None:
        """Close everything."""
        self.forget(self.datasets())


def twins(hub: "Hub") -> DatasetPool:
    """Return the tables without rows on which this process plans."""
    from cloister.hub.datasets.tables import open_twin

    if hub not in _TWINS:
        _TWINS.setdefault(hub, DatasetPool(hub, lambda dataset, version, _: open_twin(hub, dataset, version), most=200))
    return _TWINS[hub]


def dataset_for_person(
    opened: OpenDataset,
    own: Rules,
    view: Mapping[str, TableView] | None,
    book: ClosedBook,
    received: "PersonReleases",
    label: str = "",
    tables: Tables | None = None,
) -> Dataset:
    """Return a dataset for one job.

    Args:
        opened: the tables.
        own: the rules of the user's account.
        view: what the user may see; a table without a view does not exist for them. None: everything.
        book: the ledger that this job charges; for a plan, one that charges nothing.
        received: the releases that the user has received before.
        label: the label of the job, which enters every request's hash.
        tables: the same tables over the job's own connection; the open ones unless given.
    """
    data = opened.data.asked_by(Analyst(Account(own, book), received, label))
    data.tables = tables or data.tables
    data.account = Account(opened.rules, book)
    if view is None:
        return data
    schema = data.schema
    table_views = visible(schema, view)
    data.tables = replace(
        data.tables, schema=replace(schema, tables={name: schema.tables[name] for name in table_views})
    )
    narrow = {
        name: select(table_view, schema.tables[name])
        for name, table_view in table_views.items()
        if table_view != TableView()
    }
    return data.through(narrow) if narrow else data


class PersonReleases:
    """Noisy statistics that a user has received. New ones are recorded with the job's result, or not at all."""

    def __init__(self, hub: "Hub", dataset_id: int, person_id: int) -> None:
        self._hub, self._dataset_id, self._person_id = hub, dataset_id, person_id
        self._new: dict[str, None] = {}

    def has(self, fingerprint: str) -> bool:
        """Return True if it was received before."""
        with self._hub.database.reading() as session:
            return session.get(models.Seen, (self._dataset_id, self._person_id, fingerprint)) is not None

    def add(self, fingerprints: Iterable[str]) -> None:
        """Remember new ones until the job is done."""
        self._new |= dict.fromkeys(fingerprints)

    def write(self, session: Session) -> None:
        """Record new ones in the transaction that releases the result."""
        if not self._new:
            return
        rows = [
            {"dataset_id": self._dataset_id, "person_id": self._person_id, "fingerprint": fingerprint}
            for fingerprint in self._new
        ]
        make: Any = postgresql.insert if session.get_bind().dialect.name == "postgresql" else sqlite.insert
        session.execute(make(models.Seen).on_conflict_do_nothing(), rows)


def _is_unchanged(opened: OpenDataset) -> bool:
    """Return True if the files of a connected folder are those that were opened; other tables never change."""
    engine = opened.data.tables.engine
    return not isinstance(engine, DuckDB) or engine.unchanged()


def _close(opened: OpenDataset) -> None:
    with opened.lock:
        opened.data.close()


def deleted(session: Session, dataset_ids: Iterable[int]) -> set[int]:
    """Return the datasets among these that are deleted or paused."""
    gone = sa.or_(models.Dataset.deleted.is_not(None), models.Dataset.paused)
    return set(session.scalars(sa.select(models.Dataset.id).where(models.Dataset.id.in_(set(dataset_ids)), gone)))
