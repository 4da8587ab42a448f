"""Set up a hub and its first users."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings
from cloister.hub.users import accounts, user_actions

__all__ = ["Begun", "begin", "invitation_link"]


@dataclass(frozen=True, slots=True)
class Begun:
    """Facts on a new hub for its operator.

    Attributes:
        folder: where it is stored.
        public_key: checks its receipts; to be pinned by verifiers.
        master_key: path of the key that opens everything; to be copied elsewhere.
        invitation: the link with which the operator creates an account.
    """

    folder: Path
    public_key: str
    master_key: str
    invitation: str


def begin(settings: Settings, operator: str) -> Begun:
    """Create a hub in an empty or missing folder, and invite its operator.

    Raises:
        BadForm: the operator's address is not valid; nothing was created.
    """
    accounts.check_email(operator)
    with Hub.create(settings) as hub:
        key = "the master key in CLOISTER_MASTER_KEY" if settings.master_key else str(hub.master_key_file)
        link = invitation_link(hub, operator, ("operator",))
        return Begun(settings.folder, str(hub.key.public), key, link)


def invitation_link(
    hub: Hub, email: str, roles: Sequence[str], organisation: str = "", country: str = "", days: float = 7
) -> str:
    """Create an invitation from the hub's own command line.

    Args:
        hub: the hub.
        email: the invited address.
        roles: the roles of the new account.
        organisation: the user's organisation; created if it does not exist.
        country: the organisation's country; set if it has none yet.
        days: the validity of the link.

    Raises:
        BadForm, NotNow: nothing was created, no organisation either.
    """
    secret = user_actions.invite(
        hub, None, email=email, organisation=organisation or None, country=country, roles=list(roles), days=days
    )
    return f"{hub.settings.address.rstrip('/')}/invitation/{secret}"
