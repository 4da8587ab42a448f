"""Canonical views: every table as its schema describes it, for any cell values.

A view is total: no cell makes it fail. Text that cannot be read as the column's type, is not UTF-8 or has more than a
million bytes, NaN, a fraction where an integer is required, and a value outside the categories become NULL. Numbers
and dates beyond the bounds, infinities, and numbers too large for the type become the nearer bound. Empty text becomes
NULL, so that CSV files and databases agree. Rows without a unit are left out. So no error, type or interval depends on
a value, and the three engines return the same rows to the last bit. No reader compares a declared type with a constant
that this type may not hold: the engine would have to cast one of them, and fail on the first row. `open_tables` tries
every reader on made-up rows.

There are three nested steps: *held* leaves out text on which a function could fail; *read* turns the declared type into
BIGINT, DOUBLE, BOOLEAN, text, DATE or TIMESTAMP (numbers that do not fit become the largest that fits); *clip* applies
bounds and categories. Numbers in text have at most 60 digits on either side of the point and an exponent of three;
dates are written 2026-01-31, timestamps 2026-01-31 12:30:59.999999, optionally with a T between and a Z at the end.

Privacy: a view is built from the schema and the declared types, never from rows, and each of its rows comes from one
row of the table. People are distinguished by their ids as the engine reads them, exact to the last character.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from functools import lru_cache

import sqlglot
from sqlglot import exp

from cloister.data.dialect import Dialect, Family, dialect_of, is_text
from cloister.data.schema import UNIT, Column, Table, internal

__all__ = ["file_columns", "frame_columns", "read", "readable", "unit_families", "view", "view_text"]

_NUMBER = "[+-]?([0-9]{1,60}([.][0-9]{0,60})?|[.][0-9]{1,60})([eE][+-]?[0-9]{1,3})?"
_WHOLE = "[+-]?[0-9]{1,60}([.]0{0,60})?"
_PLUS_INFINITY = "[+]?[iI][nN][fF]([iI][nN][iI][tT][yY])?"
_MINUS_INFINITY = "[-][iI][nN][fF]([iI][nN][iI][tT][yY])?"
_TRUE = "[tT]([rR][uU][eE])?|[yY]([eE][sS])?|1"
_FALSE = "[fF]([aA][lL][sS][eE])?|[nN][oO]?|0"
_DAY = "[1-9][0-9]{3}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_MOMENT = _DAY + "([ T]([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9]([.][0-9]{1,6})?)?)?Z?"

_MOST, _LEAST = 2**63 - 1, -(2**63 - 1)  # -2**63 would be a wider type in SQL text
_TWO_63 = float(2**63)
_TINY = 1e-300  # text closer to zero is zero: PostgreSQL refuses to round it


# Reading: (type in the schema, family of the declared type) -> SQL


def _numeric_from_postgres(x: str, say: Dialect) -> str:
    """Return an exact number as DOUBLE, clipped first: overflow and underflow are errors in PostgreSQL."""
    largest = f"CAST('{float.fromhex('0x1.fffffffffffffp+1023')!r}' AS NUMERIC)"
    return (
        f"CASE WHEN {x} = CAST('NaN' AS NUMERIC) THEN NULL"
        f" WHEN {x} > {largest} THEN {say.infinity()} WHEN {x} < -{largest} THEN {say.infinity('-')}"
        f" WHEN ABS({x}) < CAST('{_TINY!r}' AS NUMERIC) THEN CAST('0' AS {say.double})"
        f" ELSE CAST({x} AS {say.double}) END"
    )


def _double(x: str, say: Dialect) -> str:
    return f"CAST({x} AS {say.double})"


def _double_from_wide(x: str, say: Dialect) -> str:
    if say.dialect == "postgres":
        return _numeric_from_postgres(x, say)
    # DuckDB divides by a power of ten, which rounds twice; through text it rounds once, as the other engines do.
    return say.safe(f"CAST({x} AS VARCHAR)", say.double) if say.dialect == "duckdb" else _double(x, say)


def _double_from_text(x: str, say: Dialect) -> str:
    t = say.trimmed(x)
    if say.dialect == "postgres":
        number = _numeric_from_postgres(f"CAST({t} AS NUMERIC)", say)
    else:
        parsed, tiny = say.safe(t, say.double), say.constant(_TINY)
        number = f"CASE WHEN ABS({parsed}) < {tiny} THEN {say.constant(0.0)} ELSE {parsed} END"
    return (
        f"CASE WHEN {say.is_like(t, _NUMBER)} THEN {number}"
        f" WHEN {say.is_like(t, _PLUS_INFINITY)} THEN {say.infinity()}"
        f" WHEN {say.is_like(t, _MINUS_INFINITY)} THEN {say.infinity('-')} END"
    )


def _whole(x: str, say: Dialect) -> str:
    return f"CAST({x} AS BIGINT)"


def _whole_from_float(x: str, say: Dialect) -> str:
    real, cast = _double(x, say), say.safe(_double(x, say), "BIGINT")
    return (
        f"CASE WHEN {real} < {say.constant(-_TWO_63)} THEN {say.constant(_LEAST)}"
        f" WHEN {real} < {say.constant(_TWO_63)} THEN CASE WHEN CAST({cast} AS {say.double}) = {real} THEN {cast} END"
        f" WHEN {real} <= {say.infinity()} THEN {say.constant(_MOST)} END"
    )


def _whole_from_wide(x: str, say: Dialect) -> str:
    if say.dialect == "duckdb":  # comparing a wide decimal with its floor may overflow; its text never does
        # Every type holds 0, and DuckDB writes that of DECIMAL(1, 1) as '.0'.
        return f"CASE WHEN {x} = 0 THEN {say.constant(0)} ELSE {_whole_from_text(f'CAST({x} AS VARCHAR)', say)} END"
    if say.dialect == "postgres":
        return (
            f"CASE WHEN {x} <> FLOOR({x}) OR {x} = CAST('NaN' AS NUMERIC) THEN NULL"
            f" WHEN {x} < {say.constant(_LEAST)} THEN {say.constant(_LEAST)}"
            f" WHEN {x} <= {say.constant(_MOST)} THEN CAST({x} AS BIGINT)"
            f" WHEN {x} > {say.constant(_MOST)} THEN {say.constant(_MOST)} END"
        )
    overflow = f"CASE WHEN {x} < 0 THEN {say.constant(_LEAST)} ELSE {say.constant(_MOST)} END"
    # Compared with its floor, a decimal of 38 digits would lose the last ones.
    return f"CASE WHEN FLOOR({x}) = CEIL({x}) THEN COALESCE({say.safe(x, 'BIGINT')}, {overflow}) END"


def _whole_from_text(x: str, say: Dialect) -> str:
    t = say.trimmed(x)
    if say.dialect == "postgres":
        number = _whole_from_wide(f"CAST({t} AS NUMERIC)", say)
    else:
        overflow = f"CASE WHEN {t} LIKE '-%' THEN {say.constant(_LEAST)} ELSE {say.constant(_MOST)} END"
        digits = f"SPLIT_PART({t}, '.', 1)"
        number = f"COALESCE({say.safe(digits, 'BIGINT')}, {overflow})"
    return (
        f"CASE WHEN {say.is_like(t, _WHOLE)} THEN {number}"
        f" WHEN {say.is_like(t, _PLUS_INFINITY)} THEN {say.constant(_MOST)}"
        f" WHEN {say.is_like(t, _MINUS_INFINITY)} THEN {say.constant(_LEAST)} END"
    )


def _as_it_is(x: str, say: Dialect) -> str:
    return x


def _truth_from_whole(x: str, say: Dialect) -> str:
    return f"CASE WHEN {x} = 1 THEN TRUE WHEN {x} = 0 THEN FALSE END"


def _truth_from_wide(x: str, say: Dialect) -> str:
    return _truth_from_whole(_whole_from_wide(x, say), say)  # DECIMAL(38, 38) cannot hold 1


def _truth_from_text(x: str, say: Dialect) -> str:
    t = say.trimmed(x)
    return f"CASE WHEN {say.is_like(t, _TRUE)} THEN TRUE WHEN {say.is_like(t, _FALSE)} THEN FALSE END"


def _text(x: str, say: Dialect) -> str:
    return f"NULLIF({_word(x, say)}, '')"


def _word(x: str, say: Dialect) -> str:
    # Compared by bytes: a collation of the column could treat different texts as equal. In Spark the cast drops it.
    return f"CAST({x} AS {say.string})" + (' COLLATE "C"' if say.dialect != "spark" else "")


def _text_from_truth(x: str, say: Dialect) -> str:
    return f"CASE WHEN {x} THEN 'true' WHEN NOT {x} THEN 'false' END"


def _day_from_moment(x: str, say: Dialect) -> str:
    return _day_within(_moment(x, say), say)


def _day_from_zoned(x: str, say: Dialect) -> str:
    return _day_within(_moment_from_zoned(x, say), say)


def _day_within(moment: str, say: Dialect) -> str:
    """Return the date of a timestamp, clipped first: DuckDB fails on its earliest ones."""
    return f"CAST({_clipped(moment, datetime.min, datetime.max, say)} AS DATE)"


def _day_from_text(x: str, say: Dialect) -> str:
    t = say.trimmed(x)
    return f"CASE WHEN {say.is_like(t, _DAY)} THEN {_day_of(t, say)} END"


def _day_of(t: str, say: Dialect) -> str:
    """Return the date at the beginning of a text of the right form; NULL for 30 February."""
    head = f"SUBSTRING({t}, 1, 10)"
    if say.dialect != "postgres":
        return say.safe(head, "DATE")
    year, month, day = (f"CAST(SUBSTRING({t}, {start}, {length}) AS INT)" for start, length in ((1, 4), (6, 2), (9, 2)))
    date = f"(MAKE_DATE({year}, {month}, 1) + ({day} - 1))"
    return f"CASE WHEN EXTRACT(MONTH FROM {date}) = {month} THEN {date} END"


def _moment(x: str, say: Dialect) -> str:
    return say.safe(x, say.moment)


def _moment_from_zoned(x: str, say: Dialect) -> str:
    if say.dialect == "duckdb":
        # The engine's session is set to UTC. Nanoseconds with a zone become NULL unless they are microseconds first.
        return say.safe(say.safe(x, "TIMESTAMPTZ"), say.moment)
    if say.dialect == "postgres":
        return f"({x} AT TIME ZONE 'UTC')"
    # A Spark session may be set to any zone, so count from 1970 instead.
    return f"DATE_ADD(MICROSECOND, UNIX_MICROS({x}), CAST('1970-01-01 00:00:00' AS {say.moment}))"


def _moment_from_day(x: str, say: Dialect) -> str:
    return say.safe(_clipped(x, date.min, date.max, say), say.moment)


def _moment_from_text(x: str, say: Dialect) -> str:
    t = say.trimmed(x)
    if say.dialect == "postgres":
        clock = f"COALESCE(NULLIF({say.trimmed(f'SUBSTRING({t}, 12)', 'Z')}, ''), '00:00')"
        moment = f"({_day_of(t, say)} + CAST({clock} AS TIME))"
    else:
        moment = say.safe(say.trimmed(t, "Z"), say.moment)
    return f"CASE WHEN {say.is_like(t, _MOMENT)} THEN {moment} END"


_READ: Mapping[str, Mapping[str, Callable[[str, Dialect], str]]] = {
    "integer": {
        "integer": _whole, "float": _whole_from_float, "wide": _whole_from_wide, "text": _whole_from_text,
    },
    "real": {"integer": _double, "float": _double, "wide": _double_from_wide, "text": _double_from_text},
    "boolean": {"boolean": _as_it_is, "integer": _truth_from_whole, "text": _truth_from_text},
    "text": {"text": _text, "uuid": _text, "integer": _text, "boolean": _text_from_truth},
    "date": {
        "date": _as_it_is, "timestamp": _day_from_moment, "zoned": _day_from_zoned, "text": _day_from_text,
    },
    "timestamp": {
        "timestamp": _moment, "zoned": _moment_from_zoned, "date": _moment_from_day, "text": _moment_from_text,
    },
}  # fmt: skip


def readable(kind: str) -> tuple[str, ...]:
    """Return the families of declared types from which a column of this type can be read."""
    return tuple(_READ[kind])


def read(kind: str, declared: Family, name: str, say: Dialect) -> str:
    """Return a column of the table read as its type, not yet clipped."""
    return _READ[kind][declared](say.name(name), say)


def _read_column(column: Column, declared: Family, say: Dialect) -> str:
    if column.categories is not None and _READ[column.type][declared] is _text:
        return _word(say.name(column.name), say)  # empty text is no category, so a test for it is redundant
    return read(column.type, declared, column.name, say)


# Clipping


def _clipped(x: str, low: object, high: object, say: Dialect) -> str:
    """Clip to limits. NULL stays NULL; NaN, which every engine sorts above infinity, becomes NULL."""
    lower, upper = say.constant(low), say.constant(high)
    if not isinstance(high, float):
        return f"CASE WHEN {x} < {lower} THEN {lower} WHEN {x} > {upper} THEN {upper} ELSE {x} END"
    # Only the few rows above the limit are compared with infinity. DuckDB tracks the limits of a nullable integer, and
    # so counts and sums it faster.
    number = f"{upper} + CASE WHEN {x} <= {say.infinity()} THEN 0 END"
    # Adding zero removes negative zero: engines treat both zeros as equal, but print them differently.
    same = f"{x} + {say.constant(0.0)}"
    return f"CASE WHEN {x} < {lower} THEN {lower} WHEN {x} > {upper} THEN {number} ELSE {same} END"


def _clip(column: Column, say: Dialect) -> str:
    x = say.name(column.name)
    if column.categories is not None:
        listed = ", ".join(map(say.constant, column.categories))
        if say.dialect == "duckdb" and column.type == "text":
            # Looked up once for each entry of a dictionary: with 200 categories a hundred times as fast as IN.
            return f"CAST(TRY_CAST({x} AS ENUM({listed})) AS VARCHAR)"
        return f"CASE WHEN {x} IN ({listed}) THEN {x} END"
    return x if column.limits is None else _clipped(x, *column.limits, say)


# The view


def unit_families() -> tuple[str, ...]:
    """Return the families of declared types that can identify a unit."""
    return ("integer", "wide", "float", "text", "uuid")


def _unit(declared: Family, name: str, as_text: bool, say: Dialect) -> str:
    """Return the id, one value per person in all tables. Numbers that are not whole, or do not fit, become NULL."""
    if is_text(declared):
        return _text(say.name(name), say)
    integer = read("integer", declared, name, say)
    if declared != "integer":
        # Beyond 2^53 two ids may be one double: they become NULL rather than identify two people.
        low, high = (-(2**53), 2**53) if declared == "float" else (_LEAST, _MOST)
        fits = f"{integer} > {say.constant(low)} AND {integer} < {say.constant(high)}"
        integer = f"CASE WHEN {fits} THEN {integer} END"
    return _text(integer, say) if as_text else integer


def _cell(name: str, declared: Family, say: Dialect) -> str:
    return say.held(say.name(name)) if declared == "text" else say.name(name)


def frame_columns(table: Table, declared: Mapping[str, Family], say: Dialect) -> dict[str, str]:
    """Return the columns of a frame in their types in the schema, as SQL.

    Frames infer types from values: one missing number turns integers into doubles. Read this way, the types of a view
    do not depend on rows. A column from which no value can be read is unchanged, to be refused later.
    """
    expressions = {name: say.name(name) for name in declared}
    for column in table.columns.values():
        family = declared.get(column.name)
        if family is not None and family != column.type:
            convert = _FROM_FRAME.get((column.type, family))
            if convert is None and family in _READ[column.type]:
                convert = _READ[column.type][family]
            if convert is not None:
                expressions[column.name] = convert(_cell(column.name, family, say), say)
    if table.unit is not None and declared.get(table.unit) in ("integer", "wide", "float"):
        expressions[table.unit] = _unit(declared[table.unit], table.unit, False, say)
    return expressions


def file_columns(table: Table, declared: Mapping[str, Family], unit_as_text: bool, say: Dialect) -> dict[str, str]:
    """Return the columns of one of several files in their types in the schema, as SQL.

    Files may declare different types. Read this way they have one, and no engine has to cast a value to the type of
    another file, which fails for a date beyond TIMESTAMP and for 5 as DECIMAL(38, 38), and rounds 0.5 to an integer. A
    column that cannot be read is unchanged, to be refused.

    Args:
        unit_as_text: True if some file has text as ids.
    """
    expressions = {name: say.name(name) for name in declared}
    for column in table.columns.values():
        family = declared.get(column.name)
        convert = None if family is None else _READ[column.type].get(family)
        if family is not None and convert is not None and convert is not _text:  # text is one type in all files
            expressions[column.name] = convert(_cell(column.name, family, say), say)
    if table.unit is not None and declared.get(table.unit) in unit_families():
        expressions[table.unit] = _unit(declared[table.unit], table.unit, unit_as_text, say)
    return expressions


def _empty(kind: str) -> Callable[[str, Dialect], str]:
    # A frame's column of only missing values has type double.
    return lambda x, say: f"CAST(NULL AS {kind})"


_FROM_FRAME: Mapping[tuple[str, str], Callable[[str, Dialect], str]] = {
    ("integer", "boolean"): _whole,
    ("real", "boolean"): lambda x, say: _double(_whole(x, say), say),
    ("boolean", "float"): _truth_from_whole,
    ("boolean", "wide"): _truth_from_wide,
    ("text", "float"): lambda x, say: _word(_whole_from_float(x, say), say),
    ("text", "wide"): lambda x, say: _word(_whole_from_wide(x, say), say),
    ("date", "float"): _empty("DATE"),
    ("timestamp", "float"): _empty("TIMESTAMP"),
}


def view(
    table: Table, declared: Mapping[str, Family], place: str, dialect: str, unit_as_text: bool = False
) -> exp.Select:
    """Return the canonical view of a table: its columns, its unit column, and the unit again as `UNIT`.

    Args:
        declared: the family of each column's declared type.
        place: the table in the engine, as quoted SQL.
        unit_as_text: True if ids are compared as text, because some table of the schema has them as text.
    """
    return _parsed(view_text(table, declared, place, dialect, unit_as_text), dialect)


def view_text(
    table: Table, declared: Mapping[str, Family], place: str, dialect: str, unit_as_text: bool = False
) -> str:
    """Return the statement of `view` as text, which takes less time than its syntax tree."""
    say = dialect_of(dialect)
    columns = list(table.columns.values())
    inner = [f"{_read_column(column, declared[column.name], say)} AS {say.name(column.name)}" for column in columns]
    outer = [f"{_clip(column, say)} AS {say.name(column.name)}" for column in columns]
    present = [column.name for column in columns if not column.nullable]
    if table.unit is not None:
        unit = say.name(table.unit)
        inner.append(f"{_unit(declared[table.unit], table.unit, unit_as_text, say)} AS {unit}")
        outer += [unit, f"{unit} AS {say.name(UNIT)}"]
        present.append(table.unit)
    if not outer:  # rows without columns, to be counted
        inner = outer = [f"1 AS {say.name(internal('row'))}"]
    alias = say.name(table.name)
    source = _held(table, declared, place, say)
    sql = f"SELECT {', '.join(outer)} FROM (SELECT {', '.join(inner)} FROM {source}) AS {alias}"  # noqa: S608
    return _without_null(sql, present, alias, say)


def _held(table: Table, declared: Mapping[str, Family], place: str, say: Dialect) -> str:
    """Return the table as a source in which every text can be read; the table itself if it has no such column."""
    # Text with categories is only compared with them, which fails for no text.
    listed = {
        column.name for column in table.columns.values() if column.type == "text" and column.categories is not None
    }
    names = [*table.columns, *([] if table.unit is None else [table.unit])]
    texts = {name for name in names if declared[name] == "text" and name not in listed}
    if not texts:
        return place
    selected = ", ".join(
        f"{say.held(say.name(name))} AS {say.name(name)}" if name in texts else say.name(name)
        for name in dict.fromkeys(names)
    )
    return f"(SELECT {selected} FROM {place}) AS {say.name(table.name)}"  # noqa: S608


def _without_null(sql: str, present: Sequence[str], alias: str, say: Dialect) -> str:
    if not present:
        return sql
    return f"SELECT * FROM ({sql}) AS {alias} WHERE " + " AND ".join(  # noqa: S608
        f"{say.name(name)} IS NOT NULL" for name in present
    )


def _parsed(sql: str, dialect: str) -> exp.Select:
    return _tree(sql, dialect).copy()


@lru_cache(maxsize=256)  # every query needs the same few views, and parsing takes milliseconds
def _tree(sql: str, dialect: str) -> exp.Select:
    select = sqlglot.parse_one(sql, dialect=dialect)
    assert isinstance(select, exp.Select)
    return select
