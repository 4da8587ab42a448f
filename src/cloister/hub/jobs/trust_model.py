"""Trust model of a dataset: where work runs, and who could see rows there.

    curator    the hub's workers open the sealed tables, while a job runs

Other places fit behind the same protocol: a crypto service provider (the hub computes on ciphertexts), an owner's agent
(rows never reach the hub). Gateway, policy, queue and ledger do not know the difference. A trust model that is not in
the table below is refused: it is never treated as the nearest known one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, ClassVar, Protocol

from cloister.data.tables import Tables
from cloister.privacy.errors import NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.hub.core.models import Dataset, Person, Version

__all__ = ["TRUST_MODELS", "Curator", "TrustModel", "RowVisibility", "trust_model_of"]


@dataclass(frozen=True, slots=True)
class RowVisibility:
    """Visibility of rows for one party under a trust model."""

    who: str
    rows: bool
    what: str


class TrustModel(Protocol):
    """Place where the rows of a dataset are read."""

    name: ClassVar[str]
    title: ClassVar[str]
    sights: ClassVar[tuple[RowVisibility, ...]]  # the trust statement on the dataset's page

    def open(self, hub: "Hub", dataset: "Dataset", version: "Version", person: "Person") -> Tables:
        """Open the tables for one worker, for as long as it keeps them. Called after the policy has decided."""
        ...


class Curator:
    """Trust model in which the hub may read the rows while a job runs."""

    name: ClassVar[str] = "curator"
    title: ClassVar[str] = "The hub's workers open the sealed tables"
    sights: ClassVar[tuple[RowVisibility, ...]] = (
        RowVisibility(
            "data users",
            False,
            "answers with noise, within the policy and the budget; never a row, unless the policy allows anonymised "
            "tables, which hold rows made coarser",
        ),
        RowVisibility("the owner", True, "their own data, every release from it, who asked and for which purpose"),
        RowVisibility(
            "reviewers", False, "requests; and anonymised tables before they leave, where the policy allows them"
        ),
        RowVisibility(
            "the hub's pages", False, "schema and plans, which are made on empty tables, and released answers"
        ),
        RowVisibility(
            "the hub's workers",
            True,
            "the rows, in memory, while they compute what was charged for, or attack for the owner",
        ),
        RowVisibility("operators", False, "no page or call shows them rows, and none changes a ledger"),
        RowVisibility(
            "anyone who is root on the hub's machine", True, "keys and memory, and so the rows: this must be trusted"
        ),
        RowVisibility(
            "anyone who steals a disk or a backup",
            False,
            "sealed tables and backups; of a disk also the hub's own database, which holds no row; no master key",
        ),
    )

    def open(self, hub: "Hub", dataset: "Dataset", version: "Version", person: "Person") -> Tables:
        """Open the sealed tables with the dataset's key."""
        from cloister.hub.datasets.tables import open_for_work

        return open_for_work(hub, dataset, version, person)


TRUST_MODELS: Mapping[str, TrustModel] = MappingProxyType({one.name: one for one in (Curator(),)})


def trust_model_of(trust: str) -> TrustModel:
    """Return the trust model of that name.

    Raises:
        NotNow: this hub has no such trust model.
    """
    if trust not in TRUST_MODELS:
        raise NotNow(f"this hub has no place for the trust model {trust!r:.40}. It has: {', '.join(TRUST_MODELS)}.")
    return TRUST_MODELS[trust]
