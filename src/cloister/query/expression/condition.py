"""Conditions and choices: comparisons, AND, OR, NOT, IN, LIKE, CASE, COALESCE, NULLIF."""

from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from fractions import Fraction
from typing import Any

from sqlglot import exp

from cloister.data.dialect import literal
from cloister.privacy.errors import QueryRefused
from cloister.query.expression.convert import (
    as_real,
    common_type,
    comparable,
    compared,
    decimals_of,
    double,
    in_steps,
    number_term,
    one_of,
    text_term,
    truth_term,
)
from cloister.query.expression.expression import (
    MOST_MAPPED,
    RULES,
    Expression,
    Scope,
    compile_term,
    constant_term,
    text_of,
    wrap,
)

__all__ = ["equated"]

_MOST_NAMED = 10  # categories shown in a message


def _is_missing(term: Expression) -> bool:
    """Return True if the expression is a literal NULL, which matches values of any type."""
    sql = term.sql.unnest()
    return isinstance(sql.this if isinstance(sql, exp.Cast) else sql, exp.Null)


def _compare(make: type[exp.Expression]) -> Callable[..., Expression]:
    def rule(node: exp.Binary, scope: Scope) -> Expression:
        left, right, flipped = _sides(node, scope)
        compare = _FLIPPED[make] if flipped else make
        sql = exp.Paren(this=compare(this=wrap(left.sql), expression=wrap(right.sql)))
        return Expression(sql, "boolean", nullable=left.nullable or right.nullable)

    return rule


def _sides(node: exp.Binary, scope: Scope) -> tuple[Expression, Expression, bool]:
    """Return both sides of a comparison as the engine compares them, and whether its direction changed."""
    first, second = compile_term(node.this, scope), compile_term(node.expression, scope)
    if isinstance(node, exp.EQ | exp.NEQ):
        _refuse_unlisted(node.this, first, [node.expression], scope)
        _refuse_unlisted(node.expression, second, [node.this], scope)
    return _aligned(node, first, second, scope)


def _aligned(
    node: exp.Binary | exp.Nullif, first: Expression, second: Expression, scope: Scope
) -> tuple[Expression, Expression, bool]:
    """Return the compiled sides of a comparison in one type and on one scale, and whether its direction changed."""
    flipped = False
    if second.constant is not None and first.constant is None:
        first, (second,), flipped = _isolated(node.this, first, [second], scope)
    elif first.constant is not None and second.constant is None:
        second, (first,), flipped = _isolated(node.expression, second, [first], scope)
    return *compared(first, second), flipped


def equated(node: exp.EQ, scope: Scope) -> tuple[Expression, Expression]:
    """Return both sides of an equality as the engine compares them. Rows are equal exactly where these values are.

    Any count, numbering or removal of rows by an equality must use these values. The written sides may differ where
    these do not: 0.4 - 0.3 and 0.1 are one decimal and two doubles.
    """
    left, right, _ = _sides(node, scope)
    return left, right


def _refuse_unlisted(column: exp.Expression, term: Expression, written: Sequence[exp.Expression], scope: Scope) -> None:
    """Refuse comparing a column with a constant that is none of its categories: a charge for no information."""
    if not term.listed or term.values is None:
        return
    categories = set(term.values)
    for node in written:
        value = _written_value(node, term.type, scope)
        if value is not None and value not in categories:
            hint = _nearest(str(value), term.values)
            raise QueryRefused(f"{text_of(column)} is never {text_of(node)}: the schema lists its categories. {hint}")


def _written_value(node: exp.Expression, kind: str, scope: Scope) -> Any:
    """Return the value of a constant of this type; None for anything else."""
    plain = node.unnest()
    if kind == "text":
        return plain.this if isinstance(plain, exp.Literal) and plain.is_string else None
    return None if node.find(exp.Column) else compile_term(node, scope).constant


def _nearest(word: str, values: Sequence[Any]) -> str:
    """Return the public values that a word may stand for."""
    folded = {str(value).lower(): value for value in values[:MOST_MAPPED]}
    near = [folded[match] for match in get_close_matches(word.lower(), folded, n=3)]
    if near:
        return f"Did you mean {' or '.join(map(repr, near))}?"
    more = f" and {len(values) - _MOST_NAMED:,} more" if len(values) > _MOST_NAMED else ""
    return f"They are {', '.join(map(repr, values[:_MOST_NAMED]))}{more}."


_FLIPPED: Mapping[type[exp.Expression], type[exp.Expression]] = {
    exp.EQ: exp.EQ, exp.NEQ: exp.NEQ, exp.GT: exp.LT, exp.LT: exp.GT, exp.GTE: exp.LTE, exp.LTE: exp.GTE,
}  # fmt: skip


def _isolated(
    node: exp.Expression, term: Expression, others: list[Expression], scope: Scope
) -> tuple[Expression, list[Expression], bool]:
    """Move constants added to a real number to the constants it is compared with, exactly.

    price + 0.1 = 0.3 holds for a price of 0.2, but not for its double plus that of 0.1. Return the compared expression,
    the constants, and whether the sign changed. Decimals of up to 15 digits are then compared as written.
    """
    if term.type != "real":
        return term, others, False
    inner, sign, offset = _without_constants(node, scope)
    moved = [constant_term(sign * (other.constant - offset)) for other in others if other.constant is not None]
    if not offset or len(moved) < len(others) or None in moved:
        return term, others, False
    return as_real(number_term(inner, scope)), [constant for constant in moved if constant is not None], sign < 0


def _without_constants(written: exp.Expression, scope: Scope) -> tuple[Any, int, Fraction]:
    """Return an expression as sign · inner + offset, with all added constants in the offset."""
    node = written.unnest()
    if isinstance(node, exp.Neg):
        inner, sign, offset = _without_constants(node.this, scope)
        return inner, -sign, -offset
    if isinstance(node, exp.Add | exp.Sub):
        sides = (node.this, node.expression)
        left, right = (None if side.find(exp.Column) else compile_term(side, scope).constant for side in sides)
        step = 1 if isinstance(node, exp.Add) else -1
        if right is not None and left is None:
            inner, sign, offset = _without_constants(node.this, scope)
            return inner, sign, offset + step * right
        if left is not None and right is None:
            inner, sign, offset = _without_constants(node.expression, scope)
            return inner, step * sign, left + step * offset
    return node, 1, Fraction(0)


def _connect(make: type[exp.Expression]) -> Callable[..., Expression]:
    def rule(node: exp.Binary, scope: Scope) -> Expression:
        left, right = truth_term(node.this, scope), truth_term(node.expression, scope)
        return Expression(
            exp.Paren(this=make(this=left.sql, expression=right.sql)),
            "boolean",
            nullable=left.nullable or right.nullable,
        )

    return rule


def _not(node: exp.Not, scope: Scope) -> Expression:
    inner = truth_term(node.this, scope)
    return Expression(exp.Paren(this=exp.Not(this=wrap(inner.sql))), "boolean", nullable=inner.nullable)


def _is(node: exp.Is, scope: Scope) -> Expression:
    if not isinstance(node.expression, exp.Null):
        raise QueryRefused("IS works with NULL only: x IS NULL, x IS NOT NULL.")
    inner = compile_term(node.this, scope)
    return Expression(exp.Paren(this=exp.Is(this=wrap(inner.sql), expression=exp.Null())), "boolean", nullable=False)


def _between(node: exp.Between, scope: Scope) -> Expression:
    both = exp.And(
        this=exp.GTE(this=node.this.copy(), expression=node.args["low"].copy()),
        expression=exp.LTE(this=node.this.copy(), expression=node.args["high"].copy()),
    )
    return compile_term(both, scope)


def _in(node: exp.In, scope: Scope) -> Expression:
    if node.args.get("query") is not None or not node.expressions:
        raise QueryRefused("IN works with a list of constants. For a table of values use a JOIN.")
    left, listed = compile_term(node.this, scope), [compile_term(constant, scope) for constant in node.expressions]
    _refuse_unlisted(node.this, left, node.expressions, scope)
    left, listed, _ = _isolated(node.this, left, listed, scope)
    steps = in_steps([left, *listed])
    if steps is not None:
        left, *listed = steps
    for constant in listed:  # all in the type that fits the widest of them
        left = comparable(left, constant)[0]
    sides = [comparable(left, constant)[1] for constant in listed]
    return Expression(
        exp.Paren(this=exp.In(this=wrap(left.sql), expressions=[_written(side) for side in sides])),
        "boolean",
        nullable=left.nullable or any(side.nullable for side in sides),
    )


def _written(term: Expression) -> exp.Expression:
    """Return a term for a comparison list; an integer constant goes without its cast, which would lengthen the list."""
    return literal(int(term.constant)) if term.type == "integer" and term.constant is not None else term.sql


def _like(node: exp.Like, scope: Scope) -> Expression:
    left = text_term(node.this, scope)
    if not isinstance(node.expression, exp.Literal) or not node.expression.is_string:
        raise QueryRefused("LIKE needs a constant pattern, such as name LIKE 'A%'.")
    if "\\" in node.expression.this:
        raise QueryRefused("LIKE patterns here have no escapes: leave out the backslash.")
    sql: exp.Expression = exp.Paren(this=exp.Like(this=left.sql, expression=node.expression.copy()))
    if node.args.get("negate"):  # NOT LIKE
        sql = exp.Paren(this=exp.Not(this=sql))
    return Expression(sql, "boolean", nullable=left.nullable)


def _case(node: exp.Case, scope: Scope) -> Expression:
    subject = node.this
    branches: list[tuple[exp.Expression, Expression]] = []
    for branch in node.args["ifs"]:
        condition = exp.EQ(this=subject.copy(), expression=branch.this.copy()) if subject else branch.this
        branches.append((truth_term(condition, scope).sql, compile_term(branch.args["true"], scope)))
    default = node.args.get("default")
    other = None if default is None or isinstance(default.unnest(), exp.Null) else compile_term(default, scope)
    return _merge(branches, other)


def _if(node: exp.If, scope: Scope) -> Expression:
    return _case(exp.Case(ifs=[exp.If(this=node.this, true=node.args["true"])], default=node.args.get("false")), scope)


def _merge(
    branches: list[tuple[exp.Expression, Expression]], other: Expression | None, *, nullable: bool | None = None
) -> Expression:
    """Compile CASE: the results of all branches and of ELSE. A caller that knows better passes `nullable`."""
    every = [*(term for _, term in branches), *([] if other is None else [other])]
    results = [term for term in every if not _is_missing(term)]
    if not results:
        raise QueryRefused("CASE needs at least one result that is not NULL.")
    if nullable is None:
        nullable = other is None or any(term.nullable for term in every)
    kind = common_type({term.type for term in results})

    def result(term: Expression | None) -> exp.Expression:
        missing = term is None or _is_missing(term)
        return exp.Null() if missing or term is None else double(term) if kind == "real" else term.sql

    ifs = [exp.If(this=when, true=result(then)) for when, then in branches]
    return one_of(exp.Case(ifs=ifs, default=result(other)), kind, results, nullable=nullable)


def _coalesce(node: exp.Coalesce, scope: Scope) -> Expression:
    parts = [compile_term(argument, scope) for argument in (node.this, *node.expressions)]
    present: list[tuple[exp.Expression, Expression]] = [
        (exp.Not(this=exp.Paren(this=exp.Is(this=wrap(part.sql.copy()), expression=exp.Null()))), part)
        for part in parts[:-1]
    ]
    return _merge(present, parts[-1], nullable=all(part.nullable for part in parts))


def _nullif(node: exp.Nullif, scope: Scope) -> Expression:
    first, second = compile_term(node.this, scope), compile_term(node.expression, scope)
    left, _ = comparable(first, second)
    same, other, _ = _aligned(node, first, second, scope)
    equal = exp.EQ(this=wrap(same.sql), expression=wrap(other.sql))
    return Expression(
        exp.Case(ifs=[exp.If(this=equal, true=exp.Null())], default=left.sql.copy()),
        left.type,
        left.low,
        left.high,
        left.values,
        nullable=True,
        most=left.most,
        clipped=left.clipped,
        decimals=decimals_of(left),
        folded=left.folded,
        moments=left.moments,
    )


RULES.update(
    {
        exp.EQ: _compare(exp.EQ),
        exp.NEQ: _compare(exp.NEQ),
        exp.GT: _compare(exp.GT),
        exp.GTE: _compare(exp.GTE),
        exp.LT: _compare(exp.LT),
        exp.LTE: _compare(exp.LTE),
        exp.And: _connect(exp.And),
        exp.Or: _connect(exp.Or),
        exp.Not: _not,
        exp.Is: _is,
        exp.Between: _between,
        exp.In: _in,
        exp.Like: _like,
        exp.Case: _case,
        exp.If: _if,
        exp.Coalesce: _coalesce,
        exp.Nullif: _nullif,
    }
)
