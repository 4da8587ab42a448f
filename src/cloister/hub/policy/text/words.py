"""Roles, conditions and views as sentences. People and columns that a reader may not know are counted, not named."""

from sqlglot import exp

from cloister.hub.policy.conditions import Who
from cloister.hub.policy.policy import Policy, Role
from cloister.hub.policy.purposes import PURPOSES
from cloister.hub.policy.views import TableView, expression

__all__ = ["purpose_title", "role_in_words", "view_in_words", "who_in_words"]


def purpose_title(name: str) -> str:
    """Return a purpose's title."""
    return PURPOSES[name].title if name in PURPOSES else name


def who_in_words(who: Who, reader: str | None = None) -> str:
    """Describe the members of a role.

    Args:
        reader: the reader's e-mail address: other people are counted, not named. None for the owner.
    """
    if who.anyone:
        return "everybody with an account"
    parts = [_people(who.people, reader)] if who.people else []
    if who.organisations:
        parts.append(f"of {_or(who.organisations)}")
    if who.roles:
        parts.append(f"as {_or(who.roles)}")
    if who.countries:
        parts.append(f"from an organisation in {_or(who.countries)}")
    if who.networks:
        parts.append(f"in the network {_or(tuple(map(str, who.networks)))}")
    if who.start is not None:
        parts.append(f"from {who.start}")
    if who.until is not None:
        parts.append(f"until {who.until}")
    if who.hours is not None:
        parts.append(f"between {who.hours} UTC")
    return ", ".join(parts)


def role_in_words(policy: Policy, role: Role, reader: str | None = None) -> dict[str, str]:
    """Describe a role, part by part.

    Args:
        reader: the reader: they learn neither other people's names nor the columns of a role that is not theirs; their
            own view is on the page behind 'why?'. None for the owner.
    """
    who = who_in_words(role.who, reader)
    sees = "every table"
    if role.tables is not None:
        parts = [f"{name}: {view_in_words(view, owner=True)}" for name, view in role.tables.items()]
        sees = "; ".join(parts) if reader is None else "a part of the tables"
    return {
        "who": f"people who asked and were granted it: {who}" if role.by_request else who,
        "may": ", ".join(role.may),
        "purposes": ", ".join(role.purposes or policy.purposes),
        "sees": sees,
    }


def view_in_words(view: TableView, owner: bool = False) -> str:
    """Describe a view of a table. Only the owner is shown a rule that names hidden columns."""
    parts = ["every column" if view.columns is None else f"the columns {', '.join(view.columns)}"]
    parts += [
        f"{name} as {text}" if owner or _told(view, text, name) else f"{name} made coarser"
        for name, text in view.transforms.items()
    ]
    if view.rows is not None:
        visible = owner or _told(view, view.rows)
        parts.append(f"only rows where {view.rows}" if visible else "only some rows, by columns you do not see")
    return ", ".join(parts)


def _told(view: TableView, text: str, *also: str) -> bool:
    if view.columns is None:
        return True
    visible = {name.lower() for name in (*view.columns, *also)}
    return all(node.name.lower() in visible for node in expression(text).find_all(exp.Column))


def _people(people: tuple[str, ...], reader: str | None) -> str:
    if reader is None:
        return _or(people)
    count = "one person" if len(people) == 1 else f"{len(people)} people"
    if reader.lower() not in people:
        return count
    return "you" if len(people) == 1 else f"{count}, you among them"


def _or(words: tuple[str, ...]) -> str:
    return " or ".join(words) if len(words) < 3 else f"{', '.join(words[:-1])} or {words[-1]}"
