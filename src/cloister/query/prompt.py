"""Input of queries: from a terminal with history and completion, or line by line from a file.

Completions (tables, columns, categories) come from the schema, so all of them are public.
"""

import re
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

import sqlglot
from rich.console import Console
from sqlglot.errors import SqlglotError

from cloister.data.schema import Schema

__all__ = ["BARE", "Lines", "LineReader", "Terminal", "complete", "open_reader", "suggestions"]

BARE = {"exit": "\\quit", "quit": "\\quit", "help": "\\help"}  # common words without a backslash


class LineReader(Protocol):
    """A source of queries: a terminal or a file."""

    def read(self, status: str) -> str:
        """Return the next query or command. KeyboardInterrupt drops a line, EOFError ends."""
        ...

    def past(self) -> list[str]:
        """Return earlier input, oldest first."""
        ...


def open_reader(name: str, schema: Schema, history: Path, commands: Sequence[str], console: Console) -> LineReader:
    """Open a terminal with history and completion, if prompt_toolkit and a terminal exist; else plain lines."""
    if not sys.stdin.isatty():
        return Lines("")
    if find_spec("prompt_toolkit") is None:
        console.print("For history and completion: pip install 'cloister[shell]'")
        return Lines(f"{name}> ")
    return Terminal(name, schema, history, commands)


def complete(text: str) -> bool:
    """Return True if Enter ends this text: a command, a bare command word, nothing, or SQL up to its semicolon."""
    if text.lstrip().startswith("\\") or not text.strip() or text.strip().lower() in BARE:
        return True
    try:
        tokens = sqlglot.tokenize(text, read="duckdb")
    except SqlglotError:  # a quote is still open
        return False
    return bool(tokens) and tokens[-1].text == ";" and tokens[-1].token_type.name == "SEMICOLON"


class Lines:
    """Plain lines from standard input."""

    def __init__(self, prompt: str) -> None:
        self._prompt = prompt
        self._more = re.sub(r".(?=.{2})", ".", prompt)
        self._past: list[str] = []

    def read(self, status: str) -> str:
        """Return lines up to the end of a query; the last may lack its semicolon."""
        lines: list[str] = []
        while not lines or not complete("\n".join(lines)):
            try:
                lines.append(input(self._more if lines else self._prompt))
            except EOFError:
                if not lines:
                    raise
                break
        self._past.append("\n".join(lines))
        return self._past[-1]

    def past(self) -> list[str]:
        """Return the input of this session."""
        return list(self._past)


class Terminal:
    """A line editor with history, completion, and the budget below."""

    def __init__(self, name: str, schema: Schema, history: Path, commands: Sequence[str]) -> None:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app
        from prompt_toolkit.completion import CompleteEvent, Completer, Completion
        from prompt_toolkit.document import Document
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.history import FileHistory

        class FromSchema(Completer):
            def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterator[Completion]:
                typed, words = suggestions(document.text_before_cursor, schema, commands)
                yield from (Completion(word, -len(typed)) for word in words)

        self._status = ""
        history.touch(mode=0o600)  # the history is private to the user
        self._session: PromptSession[str] = PromptSession(
            f"{name}> ",
            prompt_continuation=lambda width, _number, _wrapped: "." * (width - 2) + "> ",
            multiline=Condition(lambda: not complete(get_app().current_buffer.text)),
            history=FileHistory(str(history)),
            completer=FromSchema(),
            complete_while_typing=False,
            bottom_toolbar=lambda: self._status,
        )

    def read(self, status: str) -> str:
        """Return the typed text once it is complete."""
        self._status = status
        return self._session.prompt()

    def past(self) -> list[str]:
        """Return the typed text, earlier sessions included."""
        return list(reversed(list(self._session.history.load_history_strings())))


# Completion


_WORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "HAVING", "ORDER BY", "LIMIT", "WITH", "AS", "JOIN", "LEFT JOIN",
    "CROSS JOIN", "ON", "USING", "UNION ALL", "ROLLUP", "GROUPING SETS", "AND", "OR", "NOT", "IN", "BETWEEN", "LIKE",
    "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END", "DESC", "COUNT", "DISTINCT", "SUM", "AVG",
    "VARIANCE", "STDDEV", "MIN", "MAX", "MEDIAN", "QUANTILE", "PERCENTILE_CONT", "MODE", "ABS", "FLOOR", "CEIL",
    "ROUND", "SQRT", "LN", "LEAST", "GREATEST", "COALESCE", "NULLIF", "CAST", "LOWER", "UPPER", "SUBSTRING", "LENGTH",
    "EXTRACT", "YEAR", "MONTH", "DAY", "WIDTH_BUCKET",
)  # fmt: skip


def suggestions(text: str, schema: Schema, commands: Sequence[str]) -> tuple[str, list[str]]:
    """Return the typed part of the last word, and its completions."""
    command = re.fullmatch(r"\s*(\\\w*)", text)
    if command:
        return command[1], _beginning(command[1], [f"\\{name}" for name in commands])
    tables = {name: [*([table.unit] if table.unit else []), *table.columns] for name, table in schema.tables.items()}
    if text.count("'") % 2:
        before, _, typed = text.rpartition("'")
        return typed, _beginning(typed, [value.replace("'", "''") + "'" for value in _categories(before, schema)])
    qualified = re.search(r"(\w+)\.(\w*)$", text)
    if qualified:
        column_names = next((columns for name, columns in tables.items() if name.lower() == qualified[1].lower()), None)
        return qualified[2], _beginning(
            qualified[2], _all(tables) if column_names is None else list(map(_name, column_names))
        )
    typed = re.search(r"\w*$", text)[0]  # type: ignore[index]
    if re.search(r"(\bFROM|\bJOIN|\\schema)\s+\w*$", text, re.IGNORECASE):
        return typed, _beginning(typed, list(map(_name, tables)))
    return typed, _beginning(typed, [*_all(tables), *map(_name, tables), *_WORDS])


def _all(tables: dict[str, list[str]]) -> list[str]:
    return list(dict.fromkeys(_name(column) for columns in tables.values() for column in columns))


def _categories(before: str, schema: Schema) -> list[str]:
    """Return the categories of the last named column, or of all columns."""
    lists = {
        column.name.lower(): [value for value in column.categories or () if isinstance(value, str)]
        for table in schema.tables.values()
        for column in table.columns.values()
    }
    for word in reversed(re.findall(r"\w+", before)):
        if lists.get(word.lower()):
            return lists[word.lower()]
    return list(dict.fromkeys(value for values in lists.values() for value in values))


def _name(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


def _beginning(typed: str, words: Sequence[str]) -> list[str]:
    return [word for word in words if word.lower().startswith(typed.lower())]
