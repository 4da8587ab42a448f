"""Card for a data subject, in plain words.

A user who may see a dataset may read its card. Data subjects have no account here: the owner gives them the card's
link, which carries a key that only this hub can make. Without it a stranger is asked to sign in, whether there is such
a dataset or not. Nothing private is on the card: the total comes from public losses, never from a row.
"""

import hashlib
import hmac
from typing import Annotated

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from cloister.hub.accounting.subject_card import NOT_PROMISED, cards
from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Dataset, Output
from cloister.hub.jobs.gateway import may_know
from cloister.hub.policy.versions import schema_of
from cloister.hub.web.context import Visitor, page, visitor
from cloister.privacy.errors import AccountMismatch, NotHere, SignInFailed

__all__ = ["card_link", "router"]

router = APIRouter()


def card_link(hub: Hub, name: str) -> str:
    """Return the link to a dataset's card that works without an account."""
    return f"{hub.settings.address.rstrip('/')}/datasets/{name}/subject?key={_key(hub, name)}"


def _key(hub: Hub, name: str) -> str:
    # Ed25519 signatures are deterministic, and only this hub can make them.
    return hashlib.sha256(hub.key.sign(f"cloister subject card {name}".encode()).encode()).hexdigest()[:32]


@router.get("/datasets/{name}/subject")
def card(request: Request, name: str, visitor: Annotated[Visitor, Depends(visitor)], key: str = "") -> Response:
    """Show limits on what can be learned about one person in this data."""
    has_key = hmac.compare_digest(key.encode(), _key(visitor.hub, name).encode())
    if visitor.person is None and not has_key:
        raise SignInFailed("this page is for people who are signed in, or who have its whole link.")
    with visitor.hub.database.reading() as session:
        wanted = sa.select(Dataset).where(Dataset.name == name)
        dataset = session.scalar(wanted if has_key else wanted.where(Dataset.deleted.is_(None)))
        visible = dataset is not None and (
            has_key
            or visitor.has("auditor")
            or may_know(visitor.hub, session, visitor.who, dataset, visitor.environment)
        )
        if dataset is None or not visible:
            raise NotHere("there is no such dataset.")
        schema = schema_of(visitor.hub, session, dataset)
        released = sa.select(sa.func.count()).where(Output.dataset_id == dataset.id, Output.released.is_not(None))
        unpriced = session.scalar(released) or 0
    try:
        balance = visitor.hub.ledger.balance(dataset.name)
    except AccountMismatch:
        raise NotHere("this dataset has no account yet, so nothing was released from it.") from None
    now, ever = cards(balance)
    return page(
        request,
        "subject.html",
        dataset=dataset,
        unit=schema.unit if schema else None,
        now=now,
        ever=ever,
        budget=balance.rules.budget,
        unpriced=unpriced,
        not_promised=NOT_PROMISED,
        link=card_link(visitor.hub, dataset.name)
        if visitor.person is not None and visitor.who.id == dataset.owner_id
        else "",
        stranger=visitor.person is None,
    )
