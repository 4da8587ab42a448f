"""Roles in a policy's text: members, operations, views."""

import re
from datetime import time
from ipaddress import ip_network

from cloister.hub.core.models import ROLES
from cloister.hub.policy import views
from cloister.hub.policy.conditions import Hours, Network, Who
from cloister.hub.policy.policy import Role
from cloister.hub.policy.purposes import PURPOSES, covered_by, nearest
from cloister.hub.policy.text.yaml_page import YamlNode, read_word
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import QueryRefused

__all__ = ["read_countries", "read_emails", "read_purposes", "read_roles"]

_OPERATION = re.compile(r"[A-Za-z][A-Za-z0-9._:/-]*( [A-Za-z0-9._:/-]+)*")
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+")
_WHO = ("people", "organisations", "roles", "countries", "networks", "from", "until", "hours")
_ROLE = ("who", "may", "purposes", "tables", "by_request")


def read_roles(part: YamlNode, purposes: tuple[str, ...]) -> tuple[Role, ...]:
    """Read every role, in the order of the text. `purposes` are the policy's, which a role may narrow."""
    roles = tuple(_role(name, node, purposes) for name, node in part.names().items())
    if part.empty:
        part.say("a policy without roles allows nothing. Name one")
    return roles


def _role(name: str, part: YamlNode, purposes: tuple[str, ...]) -> Role:
    words = part.words(_ROLE, ("may",))
    by_request = "by_request" in words and words["by_request"].one_of(("true", "false")) == "true"
    who = _who(words["who"]) if "who" in words else Who(anyone=by_request)
    if "who" not in words and not by_request:
        part.say("say who: for example who: {people: [a@example.org]}, who: anyone, or by_request: true")
    may = words["may"].lines() if "may" in words else ()
    for word in may:
        if len(word) > 80 or not _OPERATION.fullmatch(word):
            words["may"].say(f"{word:.60} is not an operation. Write plain words, such as query or run algorithm A1")
    if "may" in words and words["may"].empty:
        words["may"].say("list what they may do, such as [see schema, query]")
    narrower = read_purposes(words["purposes"]) if "purposes" in words else ()
    for word in narrower:
        if word in PURPOSES and covered_by(word, purposes) is None:
            words["purposes"].say(f"{word} is not covered by the policy's purposes. Add it there, or leave it out here")
    tables = _tables(words["tables"]) if "tables" in words else None
    return Role(name, who, may, narrower, tables, by_request)


def _who(part: YamlNode) -> Who:
    if part.node.value == "anyone":
        return Who(anyone=True)
    if isinstance(part.node.value, str):
        part.say("write who: anyone for every person with an account, or conditions: who: {roles: [data user]}")
        return Who()
    words = part.words(_WHO)
    hours = read_word(words, "hours", _hours, None)
    start, until = (read_word(words, name, YamlNode.day, None) for name in ("from", "until"))
    if start is not None and until is not None and until < start:
        part.say("until is before from. Exchange them")
    for name in ("people", "organisations", "roles", "countries", "networks"):
        if name in words and words[name].empty:
            words[name].say("the list is empty, so nobody fits. Name somebody, or leave the line out")
    if part.empty:
        part.say("state a condition, or write who: anyone")
    return Who(
        False,
        read_word(words, "people", read_emails, ()),
        read_word(words, "organisations", YamlNode.lines, ()),
        read_word(
            words, "roles", lambda part: tuple(word for entry in part.items() if (word := entry.one_of(ROLES))), ()
        ),
        read_word(words, "countries", read_countries, ()),
        read_word(words, "networks", _networks, ()),
        start,
        until,
        hours,
    )


def _networks(part: YamlNode) -> tuple[Network, ...]:
    networks: list[Network] = []
    for entry in part.items():
        text = entry.line()
        try:
            networks.append(ip_network(text))
        except ValueError:
            if text:
                entry.say(f"{text:.60} is not a network. Write it like 10.0.0.0/8, with zeros behind the prefix")
    return tuple(networks)


def _hours(part: YamlNode) -> Hours | None:
    text = part.line()
    match = re.fullmatch(r"(\d{2}):(\d{2})\s*-\s*(\d{2}):(\d{2})", text, re.ASCII)
    try:
        if match is None:
            raise ValueError
        ends = [int(number) for number in match.groups()]
        hours = Hours(time(ends[0], ends[1]), time(ends[2], ends[3]))
    except ValueError:
        if text:
            part.say('write hours like "08:00-18:00" (UTC)')
        return None
    if hours.start == hours.end:
        part.say("the hours begin and end at once. Leave them out for the whole day")
    return hours


def _tables(part: YamlNode) -> dict[str, TableView]:
    views: dict[str, TableView] = {}
    for name, entry in part.names().items():
        if name.lower() in (other.lower() for other in views):
            entry.say("it differs from another only in case. Keep one")
        views[name] = TableView() if entry.node.value == "all" else _view(entry)
    if part.empty:
        part.say("no table is listed, so nothing is seen. Name one, or leave the line out for all")
    return views


def _view(part: YamlNode) -> TableView:
    words = part.words(("columns", "rows", "transforms"))
    if part.empty:
        part.say("say which columns, rows or transforms; or write all")
    columns = words["columns"].lines() if "columns" in words else None
    if "columns" in words and words["columns"].empty:
        words["columns"].say("no column is listed. Name one, or leave the line out for all")
    rows = _rule(words["rows"]) if "rows" in words else None
    transforms = (
        {name: _rule(entry) for name, entry in words["transforms"].names().items()} if "transforms" in words else {}
    )
    listed = None if columns is None else {name.lower() for name in columns}
    for name in transforms:
        if listed is not None and name.lower() not in listed:
            words["transforms"].say(f"{name:.60} is not among the columns. Add it there, or leave it out here")
    return TableView(columns, rows, transforms)


def _rule(part: YamlNode) -> str:
    text = part.text().strip()
    try:
        if text:
            views.expression(text)
    except QueryRefused as error:
        part.say(str(error).partition(": ")[2].rstrip("."))
    return text


# Purposes, people, places


def read_purposes(part: YamlNode) -> tuple[str, ...]:
    """Read a list of purposes, all of the vocabulary."""
    listed = part.lines()
    for word in listed:
        if word not in PURPOSES:
            part.say(f"{word:.60} is not a purpose. {nearest(word)}")
    if part.empty:
        part.say("name at least one purpose, such as research")
    return listed


def read_emails(part: YamlNode) -> tuple[str, ...]:
    """Read a list of e-mail addresses, in lower case."""
    addresses = tuple(dict.fromkeys(word.lower() for word in part.lines()))
    for word in addresses:
        if not _EMAIL.fullmatch(word):
            part.say(f"{word:.60} is not an e-mail address. Write somebody@example.org")
    return addresses


def read_countries(part: YamlNode) -> tuple[str, ...]:
    """Read a list of countries, each as two capital letters."""
    countries = tuple(dict.fromkeys(word.upper() for word in part.lines()))
    for word in countries:
        if not re.fullmatch("[A-Z]{2}", word):
            part.say(f"{word:.60} is not a country. Write two letters, such as AT")
    return countries
