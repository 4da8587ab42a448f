"""What may be written behind each word. A parser knows more SQL than we do: what no rule would read is refused.

Without this, MAX(age, 3) would be answered as MAX(age), and TABLESAMPLE or a list of column names passed over.
"""

from collections.abc import Iterable, Mapping

from sqlglot import exp

from cloister.privacy.errors import QueryRefused

__all__ = ["refuse_unread"]

_ONE = ("this",)
_TWO = ("this", "expression")

_TAKES: Mapping[type[exp.Expr], Iterable[str]] = {
    # rows
    exp.Subquery: ("this", "alias"),
    exp.TableAlias: _ONE,
    exp.Join: ("this", "side", "kind", "method", "on", "using"),  # which sides and kinds: rows.py
    exp.CTE: ("this", "alias", "materialized"),
    exp.With: ("expressions", "recursive"),
    exp.Ordered: ("this", "desc", "nulls_first"),
    exp.Limit: ("this", "expression"),
    exp.Alias: ("this", "alias"),
    # expressions
    exp.Neg: _ONE, exp.Abs: _ONE, exp.Floor: _ONE, exp.Ceil: _ONE, exp.Sqrt: _ONE, exp.Ln: _ONE, exp.Not: _ONE,
    exp.Lower: _ONE, exp.Upper: _ONE, exp.Length: _ONE, exp.Year: _ONE, exp.Month: _ONE, exp.Day: _ONE, exp.Paren: _ONE,
    exp.Round: ("this", "decimals"),
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


def refuse_unread(query: exp.Expression) -> None:
    """Refuse a question in which a word has arguments that would be passed over, or lacks the one it is about."""
    for node in query.walk():
        taken = _TAKES.get(type(node))
        if taken is None:  # the rules refuse what they do not know
            continue
        word = _word(node)
        for name, value in node.args.items():
            if value and name not in taken:
                raise QueryRefused(f"{word} is not offered with {name.strip('_')}. Leave that out.")
        if node.args.get("this") is None and "this" in taken and not isinstance(node, exp.Limit):
            raise QueryRefused(f"{word} needs an argument.")


def _word(node: object) -> str:
    return node.sql_name() if isinstance(node, exp.Func) else type(node).__name__.upper()
