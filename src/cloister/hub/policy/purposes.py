"""Vocabulary of purposes, modelled on the Data Privacy Vocabulary (DPV), as a tree.

A user who may use data for a purpose may use it for every purpose below it: `research` covers `epidemiology`.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

__all__ = ["PURPOSES", "Purpose", "ancestors", "covered_by", "covers", "nearest", "offered"]


@dataclass(frozen=True, slots=True)
class Purpose:
    """Purpose of a use of data.

    Attributes:
        name: as policies and requests write it.
        title: the title on pages.
        parent: the wider purpose that covers it; None at the top.
    """

    name: str
    title: str
    parent: str | None = None


PURPOSES: Mapping[str, Purpose] = {
    one.name: one
    for one in (
        Purpose("research", "Research and development"),
        Purpose("academic-research", "Research at universities and public institutes", "research"),
        Purpose("commercial-research", "Research for a product or a company", "research"),
        Purpose("health-research", "Research on health and disease", "research"),
        Purpose("epidemiology", "Epidemiology", "health-research"),
        Purpose("clinical-research", "Trials, treatments and their outcomes", "health-research"),
        Purpose("health-services-research", "How care is organised, used and paid for", "health-research"),
        Purpose("social-research", "Research on people and society", "research"),
        Purpose("method-development", "Developing statistical and learning methods", "research"),
        Purpose("public-benefit", "For the benefit of everybody"),
        Purpose("public-health", "Protecting public health", "public-benefit"),
        Purpose("official-statistics", "Statistics by a public authority", "public-benefit"),
        Purpose("education", "Teaching and training people", "public-benefit"),
        Purpose("service-provision", "Providing a service to the people concerned"),
        Purpose("quality-assurance", "Measuring and improving quality", "service-provision"),
        Purpose("capacity-planning", "Planning staff, beds and stock", "service-provision"),
        Purpose("service-personalisation", "Fitting a service to a person", "service-provision"),
        Purpose("organisation-governance", "Running an organisation"),
        Purpose("human-resources", "Managing staff", "organisation-governance"),
        Purpose("payroll", "Paying staff", "human-resources"),
        Purpose("finance", "Accounts and billing", "organisation-governance"),
        Purpose("legal-compliance", "Duties by law", "organisation-governance"),
        Purpose("audit", "Checking that rules are kept", "legal-compliance"),
        Purpose("security", "Keeping people and systems safe"),
        Purpose("fraud-detection", "Finding fraud", "security"),
        Purpose("marketing", "Advertising and selling"),
    )
}


def ancestors(name: str) -> Iterator[str]:
    """Return the purpose itself, then every wider one; nothing for an unknown word."""
    purpose = PURPOSES.get(name)
    while purpose is not None:
        yield purpose.name
        purpose = PURPOSES.get(purpose.parent) if purpose.parent is not None else None


def covers(wide: str, name: str) -> bool:
    """Return True if a purpose is another one or above it.

    >>> covers("research", "epidemiology"), covers("epidemiology", "research")
    (True, False)
    """
    return wide in ancestors(name)


def covered_by(name: str, allowed: Iterable[str]) -> str | None:
    """Return the nearest allowed purpose that covers this one, or None."""
    listed = set(allowed)
    return next((ancestor for ancestor in ancestors(name) if ancestor in listed), None)


def offered(allowed: Iterable[str]) -> tuple[Purpose, ...]:
    """Return every purpose that may be stated where these are allowed, in the vocabulary's order."""
    listed = tuple(allowed)
    return tuple(purpose for purpose in PURPOSES.values() if covered_by(purpose.name, listed) is not None)


def nearest(word: str) -> str:
    """Return a message for a word that is not in the vocabulary."""
    close = get_close_matches(word, PURPOSES, n=1, cutoff=0.6)
    return f"Did you mean {close[0]}" if close else f"Purposes are {', '.join(PURPOSES)}"
