"""Row-wise expressions with public facts: type, interval, list of values. The allow-list of the language.

    expression  an expression and its facts; constants; the compiler, which refuses what has no rule
    convert     conversions between types
    arithmetic  numbers
    condition   comparisons, logic, CASE
    functions   casts, text, dates

Every form here is total: it gives a value or NULL for every row in every engine, never an error, so the control flow
never depends on the rows.

Three rules ensure this. An integer term is BIGINT in every engine, a real one DOUBLE: constants and NULL are cast, so
no form built from them is narrower. Limits hold for every row: those of an integer by construction, because a
conversion from real to integer clips to them; those of a real in the engine's own double arithmetic. A term made of
several states each public fact for all of them (`one_of`). tests/property/test_terms_hold.py checks all three.
"""

from cloister.query.expression import arithmetic, functions  # their rules
from cloister.query.expression.condition import equated
from cloister.query.expression.convert import compared, one_of, told_apart
from cloister.query.expression.expression import RULES, Decimals, Expression, Scope, compile_term, shown

__all__ = [
    "RULES",
    "Decimals",
    "Expression",
    "Scope",
    "arithmetic",
    "compared",
    "compile_term",
    "equated",
    "functions",
    "one_of",
    "shown",
    "told_apart",
]
