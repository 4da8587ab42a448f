"""Conditions for a role, on a user and on the time and place, each with a reason why it holds or does not.

Every condition that is written must hold; within one list, one entry is enough.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from cloister.hub.core.models import Person

__all__ = ["Environment", "Grant", "Hours", "Network", "Reason", "Subject", "Who", "belongs"]

Network = IPv4Network | IPv6Network


@dataclass(frozen=True, slots=True)
class Grant:
    """Granted request for access: to a role, for a purpose (and those below it); without one, for any."""

    role: str
    purpose: str = ""


@dataclass(frozen=True, slots=True)
class Subject:
    """User who sends a request: the attributes that a policy may name.

    Attributes:
        person: a verified e-mail address, in lower case; empty if the address was not verified.
        organisation, country: set by an operator.
        roles: roles in the hub.
        granted: the roles of this dataset's policy from granted requests.
    """

    person: str
    organisation: str = ""
    country: str = ""
    roles: tuple[str, ...] = ()
    granted: tuple[Grant, ...] = ()

    @classmethod
    def of(cls, person: Person, granted_roles: Iterable[str | Grant] = ()) -> "Subject":
        """Return a user of the hub, with the roles of this dataset's policy that requests have given them."""
        organisation = person.organisation
        granted = tuple(Grant(grant) if isinstance(grant, str) else grant for grant in granted_roles)
        return cls(
            person.verified_email,
            organisation.name if organisation else "",
            organisation.country.upper() if organisation else "",
            tuple(person.roles),
            granted,
        )

    @property
    def facts(self) -> dict[str, str]:
        """Return the facts that row rules may name with a colon; unknown facts are left out."""
        values = {"person": self.person, "organisation": self.organisation, "country": self.country}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Environment:
    """Time and place of a request.

    Attributes:
        time: the time in seconds since 1970.
        country: the country in which the job would run: the hub's own, as two letters; empty if not set.
        network: the network address of the request; empty if unknown.
    """

    time: float
    country: str = ""
    network: str = ""

    @property
    def moment(self) -> datetime:
        """Return the time in UTC."""
        return datetime.fromtimestamp(self.time, UTC)


@dataclass(frozen=True, slots=True)
class Hours:
    """Hours of the day, UTC: from one time up to another; past midnight if the second is not later."""

    start: time
    end: time

    def holds(self, moment: time) -> bool:
        """Return True if a time of day is within."""
        if self.start < self.end:
            return self.start <= moment < self.end
        return moment >= self.start or moment < self.end

    def __str__(self) -> str:
        return f"{self.start:%H:%M}-{self.end:%H:%M}"


@dataclass(frozen=True, slots=True)
class Who:
    """Conditions of a role. `anyone` means none at all: every user with an account.

    Attributes:
        people: e-mail addresses, in lower case.
        organisations: the names of organisations.
        roles: the hub's roles, such as data user.
        countries: the countries of the user's organisation, as two letters.
        networks: the networks of the request.
        start: the first day.
        until: the last day.
        hours: the hours of the day, UTC.
    """

    anyone: bool = False
    people: tuple[str, ...] = ()
    organisations: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    networks: tuple[Network, ...] = ()
    start: date | None = None
    until: date | None = None
    hours: Hours | None = None


@dataclass(frozen=True, slots=True)
class Reason:
    """One condition, its result, and a sentence for the requesting user. It never names other people."""

    holds: bool
    sentence: str


def belongs(who: Who, subject: Subject, environment: Environment) -> Iterator[Reason]:
    """Evaluate every stated condition."""
    if who.people:
        note = "" if subject.person else " (your e-mail address is not verified)"
        yield _reason(
            bool(subject.person) and subject.person.lower() in who.people,
            "you are among its people",
            f"you are not among its people{note}",
        )
    if who.organisations:
        mine = subject.organisation or "no organisation"
        yield _reason(
            bool(subject.organisation) and subject.organisation in who.organisations,
            f"{mine} is among its organisations",
            f"{mine} is not among its organisations",
        )
    if who.roles:
        roles = [role for role in subject.roles if role in who.roles]
        yield _reason(
            bool(roles),
            f"you are a {roles[0]}" if roles else "",
            f"it is for a {' or '.join(who.roles)}, which you are not",
        )
    if who.countries:
        country = subject.country or "an unknown country"
        yield _reason(
            subject.country in who.countries,
            f"your organisation is in {country}",
            f"your organisation is in {country}, it is for {', '.join(who.countries)}",
        )
    if who.networks:
        yield _reason(
            _within(environment.network, who.networks),
            "your address is in its networks",
            "your address is not in its networks",
        )
    yield from _times(who, environment.moment)


def _times(who: Who, moment: datetime) -> Iterator[Reason]:
    today = moment.date()
    if who.start is not None:
        yield _reason(today >= who.start, f"it began on {who.start}", f"it begins on {who.start}")
    if who.until is not None:
        yield _reason(today <= who.until, f"it lasts until {who.until}", f"it ended on {who.until}")
    if who.hours is not None:
        yield _reason(
            who.hours.holds(moment.time()),
            f"it is between {who.hours} UTC",
            f"it is {moment:%H:%M} UTC, and allowed are {who.hours}",
        )


def _reason(holds: bool, yes: str, no: str) -> Reason:
    return Reason(holds, yes if holds else no)


def _within(address: str, networks: tuple[Network, ...]) -> bool:
    try:
        parsed = ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is not None:
        parsed = parsed.ipv4_mapped  # IPv4 address in the form of a dual-stack socket
    return any(parsed in network for network in networks)
