"""A new hub, and the first people in it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import sqlalchemy as sa

from cloister.hub.core.hub import Hub
from cloister.hub.core.models import Organisation
from cloister.hub.core.settings import Settings
from cloister.hub.users import user_actions

__all__ = ["Begun", "begin", "invitation_link"]


@dataclass(frozen=True, slots=True)
class Begun:
    """What an operator must know about a new hub.

    Attributes:
        folder: where it lies.
        public_key: checks its receipts; for whoever verifies them to pin.
        master_key: where the key lies that opens everything; to be copied elsewhere.
        invitation: the link with which the operator makes an account.
    """

    folder: Path
    public_key: str
    master_key: str
    invitation: str


def begin(settings: Settings, operator: str) -> Begun:
    """Make a hub in an empty or missing folder, and invite its operator."""
    with Hub.create(settings) as hub:
        key = "the master key in CLOISTER_MASTER_KEY" if settings.master_key else str(hub.master_key_file)
        link = invitation_link(hub, operator, ("operator",))
        return Begun(settings.folder, str(hub.key.public), key, link)


def invitation_link(
    hub: Hub, email: str, roles: Sequence[str], organisation: str = "", country: str = "", days: float = 7
) -> str:
    """An invitation from whoever is at the hub's own command line.

    Args:
        hub: the hub.
        email: for whom.
        roles: what they will be.
        organisation: where they belong; made if it is not there.
        country: of a new organisation.
        days: how long the link works.
    """
    number = None
    if organisation:
        with hub.database.reading() as session:
            number = session.scalar(sa.select(Organisation.id).where(Organisation.name == organisation))
        if number is None:
            number = user_actions.make_organisation(hub, None, organisation, country).id
    secret = user_actions.invite(hub, None, email=email, organisation=number, roles=list(roles), days=days)
    return f"{hub.settings.address.rstrip('/')}/invitation/{secret}"
