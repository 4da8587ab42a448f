"""YAML whose every word has its line, so that all problems can be reported at once.

All words are read as text: YAML would read the country NO as false, 1e-7 as a word and 0.1 as a binary number. Anchors,
tags and duplicate keys are refused; nothing is ignored silently.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from typing import Any, TypeVar

import yaml

from cloister.data import strict_yaml
from cloister.data.strict_yaml import YamlProblem, YamlValue
from cloister.privacy.errors import BadPolicy

__all__ = ["YamlNode", "parse", "read_word", "to_yaml"]

T = TypeVar("T")
D = TypeVar("D")

_LONGEST = 100_000
_MOST_ENTRIES = 1_000
_MOST_PROBLEMS = 1_000
_MOST_COMPARED = 100  # known words that an unknown one is compared with
_PLAIN = {None, "!", *(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))}
_NOT_YAML = "this is not YAML{place}. docs/guides/write-a-policy.md has examples."
_PROBLEMS = {
    "syntax": _NOT_YAML,
    "documents": _NOT_YAML,
    "alias": "anchors and aliases (& and *) are not offered here. Write it out.",
    "depth": "this is not YAML as people write it: it is nested too deeply.",
}


@dataclass(frozen=True, slots=True)
class YamlNode:
    """Node of the text. Problems are collected, not raised."""

    node: YamlValue
    path: str
    problems: list[str]

    def say(self, sentence: str) -> None:
        """Record a problem here, with its way out. Reading ends after very many: each takes time to describe."""
        if len(self.problems) >= _MOST_PROBLEMS:
            first = "".join(f"\n  {number}. {problem}." for number, problem in enumerate(self.problems[:20], 1))
            raise BadPolicy(f"the page has more than {_MOST_PROBLEMS:,} problems. Correct these first:{first}")
        self.problems.append(f"line {self.node.line}, {self.path or 'the page'}: {sentence}")

    @property
    def empty(self) -> bool:
        """Return True if it is an empty list or mapping."""
        return self.node.kind != "text" and not self.node.value

    def names(self) -> "dict[str, YamlNode]":
        """Return a mapping with names of the writer's choice."""
        if self.node.kind != "map":
            self.say("write names with something under each")
            return {}
        if self._too_many():
            return {}
        parts: dict[str, YamlNode] = {}
        for key, value in self.node.value:
            name = key.value if key.kind == "text" else ""
            part = YamlNode(value, f"{self.path}.{name}" if self.path else name, self.problems)
            if not name or not name.isprintable() or len(name) > 200:
                part.say("give it a short printable name")
            elif name in parts:
                part.say("it is written twice. Keep one")
            else:
                parts[name] = part
        return parts

    def words(self, known: Sequence[str], required: Sequence[str] = ()) -> "dict[str, YamlNode]":
        """Return a mapping whose keys must all be known."""
        parts = self.names()
        for name in [name for name in parts if name not in known]:
            close = _near(name, known)
            hint = f"Did you mean {close[0]}" if close else f"Words here are {', '.join(known)}"
            parts.pop(name).say(f"the word {name:.40} is unknown. {hint}")
        if self.node.kind == "map":
            for name in required:
                if name not in parts:
                    self.say(f"{name} is missing. Add it")
        return parts

    def items(self) -> "list[YamlNode]":
        """Return the entries of a list."""
        if self.node.kind != "list":
            self.say("write a list, such as [a, b]")
            return []
        if self._too_many():
            return []
        return [YamlNode(node, f"{self.path}[{i}]", self.problems) for i, node in enumerate(self.node.value, 1)]

    def _too_many(self) -> bool:
        if len(self.node.value) > _MOST_ENTRIES:
            self.say(f"there are more than {_MOST_ENTRIES:,} entries. Write fewer")
            return True
        return False

    def text(self) -> str:
        """Return a text; empty if there is none, which is a problem."""
        value = self.node.value if self.node.kind == "text" else None
        if value is None or not value.strip():
            self.say("write a word here")
            return ""
        return str(value)

    def line(self) -> str:
        """Return a short text on one line."""
        text = self.text().strip()
        if len(text) > 200 or not text.isprintable():
            self.say("write it on one line of at most 200 characters")
            return ""
        return text

    def lines(self) -> tuple[str, ...]:
        """Return a list of short texts, each once."""
        words: dict[str, None] = {}
        for part in self.items():
            word = part.line()
            if word in words:
                part.say(f"{word:.60} is listed twice. Keep one")
            elif word:
                words[word] = None
        return tuple(words)

    def one_of(self, known: Sequence[str]) -> str:
        """Return one of some words."""
        word = self.line()
        if word and word not in known:
            close = _near(word, known)
            self.say(f"{word:.40} is not known here. {f'Did you mean {close[0]}' if close else f'Write {_or(known)}'}")
            return ""
        return word

    def whole(self, least: int, most: int) -> int:
        """Return a whole number; the least if it cannot be read, which is a problem."""
        text = self.text().strip()
        if not (text.isascii() and text.isdigit() and len(text) < 10 and least <= int(text) <= most):
            if text:
                self.say(f"write a whole number from {least} to {most}")
            return least
        return int(text)

    def day(self) -> date | None:
        """Return a date."""
        text = self.text().strip()
        try:
            return date.fromisoformat(text)
        except ValueError:
            if text:
                self.say("write a day like 2026-01-31")
            return None


def read_word(words: Mapping[str, YamlNode], name: str, read: Callable[[YamlNode], T], default: D) -> T | D:
    """Return what is under a word, read; the default if the word is not there."""
    return read(words[name]) if name in words else default


def parse(text: str) -> YamlNode:
    """Parse YAML.

    Raises:
        BadPolicy: it is not YAML, or uses features that no policy needs.
    """
    if not isinstance(text, str) or len(text) > _LONGEST:
        raise BadPolicy(f"a page is text of at most {_LONGEST:,} characters.")
    try:
        root = strict_yaml.parse(text, fast=False)  # a published policy is read alike on every machine
    except YamlProblem as problem:
        raise BadPolicy(_PROBLEMS[problem.kind].format(place=problem.place)) from None
    if root is None:
        raise BadPolicy("the page is empty. docs/guides/write-a-policy.md has a first one.")
    for node in _walk(root):
        if node.tag not in _PLAIN:
            raise BadPolicy(f"tags ({node.tag:.40}, line {node.line}) are not offered here. Leave it out.")
    return YamlNode(root, "", [])


def to_yaml(raw: Mapping[str, Any]) -> str:
    """Return plain values (text, lists, mappings) as YAML that `parse` reads as the same text."""
    return str(yaml.dump(raw, Dumper=_AsText, sort_keys=False, allow_unicode=True, default_flow_style=None, width=110))


class _AsText(yaml.SafeDumper):
    """Dumper that omits quotes wherever possible, since all words are read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        """Never write anchors."""
        return True


# The YAML types of plain words do not matter to `parse`: 0.05, 2026-01-01 and NO need no quotes.
_AsText.yaml_implicit_resolvers = {}


def _walk(top: YamlValue) -> Iterator[YamlValue]:
    rest = [top]
    while rest:
        node = rest.pop()
        yield node
        if node.kind == "map":
            rest.extend(part for pair in node.value for part in pair)
        elif node.kind == "list":
            rest.extend(node.value)


def _near(word: str, words: Sequence[str]) -> list[str]:
    return get_close_matches(word, words[:_MOST_COMPARED], n=1)


def _or(words: Sequence[str]) -> str:
    if len(words) > 20:
        return f"one of {', '.join(words[:20])} and {len(words) - 20:,} more"
    return " or ".join(words) if len(words) < 3 else f"one of {', '.join(words)}"
