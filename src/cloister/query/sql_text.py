"""SQL text from users: parsed by sqlglot within fixed limits, and refused where no rule reads what was parsed.

sqlglot tries several readings of some texts, nested: every level of `DECIMAL(DECIMAL(… x …))` doubles the work.
Untrusted text is therefore parsed here and nowhere else. Length, tokens and nesting are limited before sqlglot starts;
the steps of its parser are counted and limited while it runs.

The parser accepts more than the rules read. Without the allow-lists below, MAX(age, 3) would be answered as MAX(age),
and TABLESAMPLE or a list of column names ignored.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlglot
from sqlglot import Token, TokenType, exp
from sqlglot.dialects.duckdb import DuckDB

from cloister.data.dialect import Dialect
from cloister.data.schema import RESERVED, is_reserved
from cloister.privacy.errors import QueryRefused

__all__ = [
    "LONGEST",
    "is_text",
    "parse",
    "parse_condition",
    "refuse_cut",
    "refuse_dropped",
    "refuse_reserved",
    "refuse_unread",
]


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
    (condition,) = _read(_tokens(text), text, exp.Condition)
    if condition is None:
        raise QueryRefused("there is no expression.")
    return condition


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


# Allow-lists of arguments per SQL node, and of names

_ONE = ("this",)
_TWO = ("this", "expression")

_TAKES: Mapping[type[exp.Expr], Iterable[str]] = {
    # rows
    exp.Subquery: ("this", "alias"),
    exp.TableAlias: _ONE,
    exp.Join: ("this", "side", "kind", "method", "on", "using"),  # allowed sides and kinds: from_clause.py
    exp.CTE: ("this", "alias", "materialized"),
    exp.With: ("expressions", "recursive"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("this", "expression"),
    exp.Alias: ("this", "alias"),
    # expressions
    exp.Neg: _ONE, exp.Abs: _ONE, exp.Floor: _ONE, exp.Ceil: _ONE, exp.Sqrt: _ONE, exp.Ln: _ONE, exp.Not: _ONE,
    exp.Lower: _ONE, exp.Upper: _ONE, exp.Length: _ONE, exp.Year: _ONE, exp.Month: _ONE, exp.Day: _ONE, exp.Paren: _ONE,
    exp.Round: ("this", "decimals"),
    exp.Column: ("this", "table", "db"),  # from_clause.py refuses the last, by name
    exp.Literal: ("this", "is_string"),
    exp.Boolean: _ONE,
    exp.Null: (),
    exp.Least: ("this", "expressions", "ignore_nulls"), exp.Greatest: ("this", "expressions", "ignore_nulls"),
    exp.Coalesce: ("this", "expressions"),
    exp.Case: ("this", "ifs", "default"),
    exp.If: ("this", "true", "false"),
    exp.In: ("this", "expressions", "query"),
    exp.WidthBucket: ("this", "min_value", "max_value", "num_buckets"),
    exp.Add: _TWO, exp.Sub: _TWO, exp.Mul: _TWO, exp.Mod: _TWO, exp.EQ: _TWO, exp.NEQ: _TWO, exp.GT: _TWO,
    exp.GTE: _TWO, exp.LT: _TWO, exp.LTE: _TWO, exp.And: _TWO, exp.Or: _TWO, exp.Is: _TWO,
    exp.Like: ("this", "expression", "negate"),
    exp.Nullif: _TWO,
    exp.Div: ("this", "expression", "typed", "safe"),
    exp.Between: ("this", "low", "high"),
    exp.Cast: ("this", "to"),
    exp.DataType: ("this", "nested"),
    exp.Extract: _TWO,
    exp.Substring: ("this", "start", "length"),
    # aggregates
    exp.Count: ("this", "expressions", "big_int"),
    exp.Sum: _ONE, exp.Avg: _ONE, exp.Variance: _ONE, exp.VariancePop: _ONE, exp.Stddev: _ONE, exp.StddevSamp: _ONE,
    exp.StddevPop: _ONE, exp.Median: _ONE, exp.Min: _ONE, exp.Max: _ONE, exp.Mode: _ONE,
    exp.Quantile: ("this", "quantile"),
    exp.PercentileCont: _ONE, exp.PercentileDisc: _ONE, exp.WithinGroup: _TWO,
}  # fmt: skip


def refuse_dropped(tokens: Sequence[Token], query: exp.Expression) -> None:
    """Refuse a query of which the parser dropped a part, such as the last argument of QUANTILE(x, 0.5, 0.9).

    Every constant, quoted name and plain argument of the text must be in the tree.
    """
    remaining = Counter(
        str(text).lower() for node in query.walk() if isinstance(text := node.args.get("this"), str | int)
    )
    ends = (TokenType.COMMA, TokenType.R_PAREN)
    for before, token, after in zip([None, *tokens], tokens, [*tokens[1:], None], strict=False):
        constant = token.token_type in (TokenType.NUMBER, TokenType.STRING, TokenType.IDENTIFIER)
        named = token.token_type is TokenType.VAR and before is not None and after is not None
        argument = named and before.token_type is TokenType.COMMA and after.token_type in ends  # type: ignore[union-attr]
        if not (constant or argument):
            continue
        text = token.text.lower()
        match = next(
            (spelling for spelling in (text, f"0.{text}", f".{text}") if remaining[spelling]), None
        )  # .5 is two tokens
        if match is None:
            raise QueryRefused(f"{token.text[:60]} would be passed over where it stands. Leave it out.")
        remaining[match] -= 1


def refuse_reserved(query: exp.Expression) -> None:
    """Refuse a query that uses a name reserved for internal statements (`data.schema.internal`).

    Columns, tables, aliases, WITH names and USING lists are all identifiers, quoted or not.
    """
    for node in query.walk():
        for name in (node.args.get("this"), node.args.get("alias")):
            if isinstance(name, str) and not isinstance(node, exp.Literal) and is_reserved(name):
                raise QueryRefused(f"names that begin with {RESERVED} are reserved. Give {name:.60} another name.")


def refuse_cut(query: exp.Expression, say: Dialect) -> None:
    """Refuse a name that the engine would truncate: two names could become one, and the statement fail.

    The engine never receives the column names of the answer.
    """
    answer = {output.alias for output in query.expressions if isinstance(output, exp.Alias)}
    for name in query.find_all(exp.Identifier):
        if name.name not in answer and say.is_cut(name.name):
            raise QueryRefused(
                f"the engine reads {say.longest_name} bytes of a name. Give {name.name:.30}… a shorter one with AS."
            )


def refuse_unread(query: exp.Expression) -> None:
    """Refuse a query in which a node has arguments that would be ignored, or lacks its required one."""
    for node in query.walk():
        taken = _TAKES.get(type(node))
        if taken is None:  # the rules refuse unknown nodes
            continue
        word = _word(node)
        if isinstance(node, exp.PercentileCont | exp.PercentileDisc) and node.args.get("expression") is not None:
            raise QueryRefused(
                "a quantile is written QUANTILE(x, 0.5) or PERCENTILE_CONT(0.5) WITHIN GROUP (ORDER BY x)."
            )
        for name, value in node.args.items():
            if value and name not in taken:
                raise QueryRefused(f"{word} is not offered with {name.strip('_')}. Leave that out.")
        if node.args.get("this") is None and "this" in taken and not isinstance(node, exp.Limit | exp.Case):
            raise QueryRefused(f"{word} needs an argument.")


def _word(node: object) -> str:
    return node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()
