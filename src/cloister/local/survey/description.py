"""From public facts back to a mechanism: read the output of `describe()`, and certify it again."""

from collections.abc import Mapping
from dataclasses import fields
from fractions import Fraction
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

from cloister.local import mechanisms
from cloister.local.base.oracle import Oracle, epsilon
from cloister.local.survey.envelope import canonical
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss
from cloister.privacy.number import rational

__all__ = ["from_description"]

# No integer of a description is larger: a domain has at most 2^32 values.
_LARGEST = 1 << 32


def from_description(facts: Mapping[str, Any]) -> Oracle:
    """Return the mechanism of a description.

    The description must be complete and exact: any difference from the rebuilt mechanism's own description is refused,
    and so is a mechanism whose reports cost more than the loss it states. A collector, a command line and a client in
    another language can therefore read the same JSON with the same meaning.

    Args:
        facts: a result of `mechanism.describe()`, or its JSON read back.

    Privacy: draws nothing. The rebuilt mechanism is certified again before it is returned.

    >>> from cloister import local
    >>> told = local.DirectEncoding.for_loss(14, local.epsilon(1)).describe()
    >>> local.from_description(told) == local.DirectEncoding.for_loss(14, local.epsilon(1))
    True
    """
    if not isinstance(facts, Mapping):
        raise BadInput("a description is a JSON object, as mechanism.describe() returns it.")
    name = facts.get("mechanism")
    kind = _known().get(name) if isinstance(name, str) else None
    if kind is None:
        raise BadInput(f"no mechanism has this name. Known are: {', '.join(sorted(_known()))}.")
    mechanism: Oracle = kind(**{field.name: _field(facts, field.name, field.type, kind.name) for field in fields(kind)})
    if not _same(mechanism.describe(), facts):
        raise BadInput(f"this is not what {kind.name} says of itself. Use mechanism.describe() unchanged.")
    return mechanism


def _same(description: Mapping[str, Any], facts: Mapping[str, Any]) -> bool:
    """Return True if the two have the same encoding; True is not 1 there."""
    try:
        return canonical(dict(description)) == canonical(dict(facts))
    except (TypeError, ValueError, RecursionError):
        return False


@cache
def _known() -> dict[str, Any]:
    kinds: dict[str, Any] = {}
    for file in iter_modules(mechanisms.__path__):
        for kind in vars(import_module(f"cloister.local.mechanisms.{file.name}")).values():
            if isinstance(kind, type) and issubclass(kind, Oracle) and "name" in vars(kind):
                kinds[kind.name] = kind
    return kinds


def _field(facts: Mapping[str, Any], name: str, kind: Any, of: str) -> Any:
    """Return a field of the mechanism; one that is a mechanism itself has its facts under `name.`."""
    if name in facts:
        return _value(facts[name], name, kind)
    inside = {key.removeprefix(f"{name}."): fact for key, fact in facts.items() if str(key).startswith(f"{name}.")}
    if not inside:
        raise BadInput(f"the description of {of} lacks {name}.")
    return from_description(inside)


def _value(fact: Any, name: str, kind: Any) -> Any:
    """Return a field as its type, from JSON values: integers, and text for all other numbers."""
    if kind is int:
        if isinstance(fact, bool) or not isinstance(fact, int) or abs(fact) > _LARGEST:
            raise BadInput(f"{name} of a description is a whole number of at most 2^32.")
        return fact
    if not isinstance(fact, str):
        raise BadInput(f"{name} of a description is text, such as '3/4'.")
    if kind is Loss:
        return epsilon(fact)
    return rational(fact, name) if kind is Fraction else fact
