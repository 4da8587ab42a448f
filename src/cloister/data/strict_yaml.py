"""Parse YAML strictly, for schemas and policies: every value with its line, nothing interpreted, nothing ignored.

Aliases (which allow cycles and unbounded growth), a second document and deep nesting are refused here. Tags, types and
repeated names are kept as they are written: each reader decides about them, with its own message.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import yaml

__all__ = ["MOST_DEPTH", "YamlProblem", "YamlValue", "parse"]

MOST_DEPTH = 20
_FAST: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml's parser is ten times as fast


class YamlProblem(Exception):
    """Text that is not plain YAML.

    Attributes:
        kind: `syntax`, `alias`, `depth`, or `documents` if there is more than one.
        line: the line, counted from 1; None if it is not known.
    """

    def __init__(self, kind: Literal["syntax", "alias", "depth", "documents"], line: int | None) -> None:
        super().__init__(kind, line)
        self.kind, self.line = kind, line

    @property
    def place(self) -> str:
        """Return the place in words, to follow another word; empty if it is not known."""
        return "" if self.line is None else f" near line {self.line}"


@dataclass(frozen=True, slots=True)
class YamlValue:
    """Value in a text.

    Attributes:
        value: a text, a list of values, or the pairs of a mapping in their order, repeated names included.
        kind: which of these.
        line: its first line, counted from 1.
        tag: the tag that was written; None if there is none.
        plain: True if it is a text without quotes, which YAML would read as a number, a date or a truth value.
    """

    value: Any
    kind: Literal["text", "list", "map"]
    line: int
    tag: str | None = None
    plain: bool = False


def parse(text: str, *, fast: bool = True) -> YamlValue | None:
    """Parse one document; None if the text is empty.

    Args:
        text: the YAML.
        fast: use libyaml where it is installed. It accepts a few unusual texts that PyYAML's own parser refuses, and
            the reverse; without it a text is read alike on every machine.

    Raises:
        YamlProblem: it is not YAML, or more than plain YAML.
    """
    document: YamlValue | None = None
    begun = False
    try:
        events = yaml.parse(text, Loader=_FAST if fast else yaml.SafeLoader)
        for event in events:
            if isinstance(event, yaml.DocumentStartEvent):
                if begun:
                    mark: Any = event.start_mark
                    raise YamlProblem("documents", mark.line + 1)
                begun = True
            elif isinstance(event, yaml.NodeEvent):
                document = _value(event, events, 1)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        mark = getattr(error, "problem_mark", None)
        raise YamlProblem("syntax", None if mark is None else mark.line + 1) from None
    return document


def _value(event: Any, events: Iterator[Any], depth: int) -> YamlValue:
    line = event.start_mark.line + 1
    if isinstance(event, yaml.AliasEvent):
        raise YamlProblem("alias", line)
    if isinstance(event, yaml.ScalarEvent):
        return YamlValue(event.value, "text", line, event.tag, event.implicit[0])
    if depth > MOST_DEPTH:
        raise YamlProblem("depth", line)
    if isinstance(event, yaml.SequenceStartEvent):
        items = [_value(child, events, depth + 1) for child in _until(yaml.SequenceEndEvent, events)]
        return YamlValue(items, "list", line, event.tag)
    pairs = [
        (_value(key, events, depth + 1), _value(next(events), events, depth + 1))
        for key in _until(yaml.MappingEndEvent, events)
    ]
    return YamlValue(pairs, "map", line, event.tag)


def _until(end: type[Any], events: Iterator[Any]) -> Iterator[Any]:
    while not isinstance(event := next(events), end):
        yield event
