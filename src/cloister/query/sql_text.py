"""SQL text from users, parsed by sqlglot within fixed limits.

sqlglot tries several readings of some texts, nested: every level of `DECIMAL(DECIMAL(… x …))` doubles the work.
Untrusted text is therefore parsed here and nowhere else. Length, tokens and nesting are limited before sqlglot starts;
the steps of its parser are counted and limited while it runs.
"""

import logging
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB

from cloister.privacy.errors import QueryRefused

__all__ = ["LONGEST", "is_text", "parse", "parse_condition"]

# The parser logs text it does not understand. A user's text must not enter logs.
logging.getLogger("sqlglot").addFilter(lambda _record: False)

LONGEST = 20_000  # characters
_MOST_TOKENS = 8_000
_DEEPEST = 64  # nested brackets and CASEs
_STEPS = 10  # parser steps per token; ordinary queries take one or two
_FREE_STEPS = 2_000
_MOST_CHAINED = 16  # each [ and each dot or ( behind a bracket, as in f(x).g(y)[1], copies everything before it
_CHAINS = frozenset({TokenType.DOT, TokenType.L_PAREN})
_OPEN = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE, TokenType.CASE})
_CLOSE = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE, TokenType.END})


class _TooManySteps(Exception):
    """The parser exceeded its step limit."""


def parse(text: str, *, composed: bool = False) -> tuple[list[Token], list[Any]]:
    """Parse statements of DuckDB's SQL.

    Args:
        text: the statements.
        composed: whether the text is composed of parts that were each parsed here, such as the rules of a view. Then it
            may be as long as they are together; steps are still counted.

    Returns:
        the tokens, and the statements.

    Raises:
        QueryRefused: the text is too long or nested too deeply, or takes the parser too many steps.
        Exception: any error sqlglot raises for a text that it does not understand.
    """
    tokens = sqlglot.tokenize(text, read="duckdb") if composed else _tokens(text)
    return tokens, _read(tokens, text, None)


def parse_condition(text: str) -> Any:
    """Parse one expression of DuckDB's SQL, as `parse` parses statements."""
    (found,) = _read(_tokens(text), text, exp.Condition)
    if found is None:
        raise QueryRefused("there is no expression.")
    return found


def is_text(text: str) -> bool:
    """Return True if every engine accepts the text: a lone surrogate has no encoding, and PostgreSQL has no NUL."""
    return "\0" not in text and text.encode("utf-8", "replace").decode() == text


def _tokens(text: str) -> list[Token]:
    if not isinstance(text, str) or len(text) > LONGEST or not is_text(text):
        raise QueryRefused(f"SQL is text of at most {LONGEST:,} characters, none of them NUL.")
    tokens = sqlglot.tokenize(text, read="duckdb")
    if len(tokens) > _MOST_TOKENS:
        raise QueryRefused(f"this has more than {_MOST_TOKENS:,} words and signs. Ask for less at once.")
    depth = chained = 0
    for before, token in zip([None, *tokens], tokens, strict=False):
        if token.token_type in _OPEN:
            depth += 1
        elif token.token_type in _CLOSE:
            depth = max(0, depth - 1)
        behind = before is not None and before.token_type in _CLOSE
        if token.token_type == TokenType.L_BRACKET or (behind and token.token_type in _CHAINS):
            chained += 1
        if depth > _DEEPEST or chained > _MOST_CHAINED:
            raise _too_deep()
    return tokens


def _too_deep() -> QueryRefused:
    return QueryRefused("this is nested too deeply. Use IN lists, fewer steps, or a WITH query.")


def _read(tokens: list[Token], text: str, into: Any) -> list[Any]:
    parser = _counting_parser()(dialect="duckdb")
    parser.steps_left = _FREE_STEPS + _STEPS * len(tokens)
    try:
        return list(parser.parse(tokens, text) if into is None else parser.parse_into(into, tokens, text))
    except (_TooManySteps, RecursionError):
        raise _too_deep() from None


@lru_cache(maxsize=1)
def _counting_parser() -> Any:
    parser: Any = DuckDB.parser_class if hasattr(DuckDB, "parser_class") else DuckDB.Parser

    class CountingParser(parser):  # type: ignore[misc]
        """DuckDB's parser with a step limit. Every further reading of a text takes steps again."""

        steps_left = 0

        def _advance(self, times: int = 1) -> None:
            self.steps_left -= 1
            if self.steps_left < 0:
                raise _TooManySteps
            super()._advance(times)

    return CountingParser
