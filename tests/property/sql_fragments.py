"""SQL made from fragments: `selects` says anything, `questions` nearly always stays in the language."""

from hypothesis import strategies as st

__all__ = ["expressions", "questions", "selects"]

# fmt: off
COLUMNS = [
    "ward", "age", "cost", "wild", "big", "day", "ok", "note", "patient", "visits.age", "wards.beds", "nobody", "_unit",
    "visits._unit", '"_UNIT"', "rowid", "visits.*", "*", "t.x",
]
LITERALS = [
    "0", "1", "-1", "0.5", "1e999", "9" * 400, "-9223372036854775808", "1e-400", "NULL", "TRUE", "''", "'a'", "'it''s'",
    "'\\'", "'2025-02-30'", "DATE '2025-06-01'", "DATE 'x'", "INTERVAL 1 DAY", "x'00'", "'\x00'", "'é́🏳️‍🌈'",
    "'\u202e'", "[1, 2]", "{'a': 1}", "MAP {1: 2}", "$1", "?", ":name", "1_000", "0x1F", "1::INT",
]
FUNCTIONS = [
    "ABS", "FLOOR", "CEIL", "ROUND", "SQRT", "LN", "LOG", "EXP", "LOWER", "UPPER", "LENGTH", "COALESCE", "LEAST",
    "GREATEST", "NULLIF", "SUBSTRING", "WIDTH_BUCKET", "YEAR", "MONTH", "IF", "RANDOM", "GETENV", "READ_TEXT",
    "READ_CSV", "CURRENT_SETTING", "NOW", "PG_SLEEP", "LIST_VALUE", "UNNEST", "ERROR", "MD5", "SHA256", "QUERY",
    "REGEXP_MATCHES", "STRFTIME", "TRY", "CURRENT_USER", "VERSION", "ROW_NUMBER",
]
AGGREGATES = [
    "COUNT", "SUM", "AVG", "VARIANCE", "STDDEV", "MIN", "MAX", "MEDIAN", "MODE", "STRING_AGG", "LIST", "FIRST",
    "ANY_VALUE", "ARG_MAX", "APPROX_COUNT_DISTINCT", "BIT_XOR", "PRODUCT", "KURTOSIS",
]
OPERATORS = [
    "+", "-", "*", "/", "%", "//", "**", "||", "=", "<>", "<", ">=", "AND", "OR", "LIKE", "ILIKE", "SIMILAR TO",
    "IS DISTINCT FROM", "&", "|", "<<", "->", "->>", "^@", "~", "COLLATE",
]
TYPES = ["INTEGER", "DOUBLE", "TEXT", "DATE", "BLOB", "INT[]", "DECIMAL(3, 1)", "STRUCT(a INT)", "HUGEINT", "nonsense"]

atoms = st.sampled_from(COLUMNS + LITERALS)


def larger(inner):
    two = st.tuples(inner, inner)
    return st.one_of(
        st.builds("({0[0]} {1} {0[1]})".format, two, st.sampled_from(OPERATORS)),
        st.builds("{}({})".format, st.sampled_from(FUNCTIONS), st.lists(inner, max_size=4).map(", ".join)),
        st.builds("{}({}{})".format, st.sampled_from(AGGREGATES), st.sampled_from(["", "DISTINCT "]), inner),
        st.builds("QUANTILE({0[0]}, {0[1]})".format, two),
        st.builds("PERCENTILE_CONT({0[0]}) WITHIN GROUP (ORDER BY {0[1]})".format, two),
        st.builds("SUM({0[0]}) FILTER (WHERE {0[1]})".format, two),
        st.builds("SUM({0[0]}) OVER (PARTITION BY {0[1]})".format, two),
        st.builds("CASE WHEN {0[0]} THEN {0[1]} END".format, two),
        st.builds("CASE {0[0]} WHEN {0[1]} THEN 1 ELSE {0[0]} END".format, two),
        st.builds("CAST({} AS {})".format, inner, st.sampled_from(TYPES)),
        st.builds("TRY_CAST({} AS {})".format, inner, st.sampled_from(TYPES)),
        st.builds("{0[0]} IN ({0[1]}, 1, 'a')".format, two),
        st.builds("{0[0]} IN (SELECT {0[1]} FROM visits)".format, two),
        st.builds("({0[0]} BETWEEN {0[1]} AND 3)".format, two),
        st.builds("EXTRACT(MONTH FROM {})".format, inner),
        st.builds("(SELECT {} FROM visits)".format, inner),
        st.builds("EXISTS (SELECT {} FROM wards)".format, inner),
        st.builds("(NOT {})".format, inner),
        st.builds("(- {})".format, inner),
        st.builds("({} IS NULL)".format, inner),
        st.builds("{} /* ; DROP TABLE visits */".format, inner),
        st.builds("LIST_TRANSFORM([1], x -> {})".format, inner),
    )


expressions = st.recursive(atoms, larger, max_leaves=6)

# Text that is nearly always in the language, over columns that hold every awkward number there is

numbers = st.recursive(
    st.sampled_from(
        [
            "age",
            "cost",
            "wild",
            "big",
            "LENGTH(note)",
            "YEAR(day)",
            "patient",
            "0",
            "1",
            "-7",
            "0.5",
            "1e90",
            "NULL",
            str(2**62),
            "CAST(ok AS INTEGER)",
        ]
    ),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from("+-*/"), inner),
        st.builds("({} % 7)".format, inner),
        st.builds("{}({})".format, st.sampled_from(["ABS", "FLOOR", "CEIL", "ROUND", "SQRT", "LN", "-"]), inner),
        st.builds("{}({}, {})".format, st.sampled_from(["LEAST", "GREATEST", "COALESCE", "NULLIF"]), inner, inner),
        st.builds("CASE WHEN {} < {} THEN {} ELSE {} END".format, inner, inner, inner, inner),
        st.builds("CASE WHEN {} IS NULL THEN {} END".format, inner, inner),
        st.builds("WIDTH_BUCKET({}, -1, 1e6, 5)".format, inner),
        st.builds("CAST({} AS {})".format, inner, st.sampled_from(["INTEGER", "DOUBLE"])),
    ),
    max_leaves=5,
)
texts = st.sampled_from(
    [
        "ward", "note", "'a'", "LOWER(note)", "UPPER(ward)", "SUBSTRING(note, 1, 2)", "COALESCE(note, ward)",
        "CASE WHEN ok THEN note ELSE 'é' END", "NULLIF(ward, note)", "'\\'", "''",
    ]
)
conditions = st.recursive(
    st.one_of(
        st.builds("{} {} {}".format, numbers, st.sampled_from(["=", "<", "<>", ">="]), numbers),
        st.builds("{} {} {}".format, texts, st.sampled_from(["=", "<", "<>"]), texts),
        st.builds("{} LIKE '{}'".format, texts, st.sampled_from(["%", "_", "a%é", ""])),
        st.builds("{} IN (1, 2, 3)".format, numbers),
        st.builds("{} IN ('a', 'é', '')".format, texts),
        st.builds("{} BETWEEN {} AND {}".format, numbers, numbers, numbers),
        st.sampled_from(
            [
                "ok",
                "day > '2025-03-01'",
                "day = DATE '2025-03-01'",
                "EXTRACT(MONTH FROM day) = 3",
                "note IS NULL",
                "TRUE",
            ]
        ),
    ),
    lambda inner: st.one_of(
        st.builds("({} {} {})".format, inner, st.sampled_from(["AND", "OR"]), inner),
        st.builds("NOT ({})".format, inner),
    ),
    max_leaves=3,
)
questions = st.builds(
    "SELECT {} FROM {} WHERE {}{}".format,
    st.one_of(
        st.just("COUNT(*)"),
        st.builds("COUNT({})".format, numbers),
        st.builds(
            "{}(LEAST(GREATEST({}, -9), 9))".format, st.sampled_from(["SUM", "AVG", "STDDEV", "MEDIAN", "MIN"]), numbers
        ),
        st.builds("COUNT(DISTINCT {})".format, st.one_of(numbers, texts)),
        st.builds("SUM({}) / COUNT(*)".format, conditions),
    ),
    st.sampled_from(
        [
            "visits",
            "visits",
            "(SELECT * FROM visits WHERE age > 1) AS t",
            "visits LEFT JOIN (SELECT beds FROM wards) AS w ON beds = age",
            "(SELECT * FROM visits UNION ALL SELECT * FROM visits) AS t",
        ]
    ),
    conditions,
    st.one_of(st.just(""), st.builds(" GROUP BY WIDTH_BUCKET({}, 0, 1, 3)".format, numbers), st.just(" GROUP BY ward")),
)
named = st.builds(
    "{} AS {}".format, expressions, st.sampled_from(["n", "ward", "_unit", '"_UNIT"', '"a""b"', '"é"', "k0", "a0"])
)
sources = st.sampled_from(
    [
        "visits", "visits", "visits", "visits AS v", '"visits"', "main.visits", "wards", "nowhere", "visits, wards",
        "'visits.csv'", "read_csv('/etc/passwd')", "read_text('*')", "range(10)", "sqlite_master", "duckdb_settings()",
        "information_schema.tables", "(SELECT * FROM visits) AS t", "(SELECT age AS x, ward FROM visits) AS t",
        "(SELECT patient, COUNT(*) AS x FROM visits GROUP BY patient) AS t",
        "(SELECT DISTINCT age AS x FROM visits) AS t", "(SELECT age AS x FROM visits LIMIT 1) AS t",
        "(VALUES (1)) AS t(x)", "(SELECT age AS x FROM visits UNION SELECT 1) AS t",
        "(SELECT age AS x FROM visits UNION ALL SELECT beds FROM wards) AS t",
        "(SELECT age AS x FROM visits UNION ALL SELECT age FROM visits) AS t",
        "(SELECT age AS x FROM visits EXCEPT SELECT 1) AS t", "visits TABLESAMPLE 10%",
        "visits PIVOT (COUNT(*) FOR ward IN ('a'))", "(SELECT age AS x FROM visits) AS t TABLESAMPLE 10%",
        "visits JOIN wards USING (ward)", "visits JOIN wards USING (age)", "visits JOIN wards USING (note)",
        "visits NATURAL JOIN wards", "visits LEFT JOIN wards ON visits.ward = wards.ward",
        "visits RIGHT JOIN wards ON TRUE", "visits FULL JOIN wards ON TRUE", "visits SEMI JOIN wards USING (ward)",
        "visits ASOF JOIN wards ON visits.age >= wards.beds", "visits POSITIONAL JOIN wards",
        "visits AS a JOIN visits AS b ON a.age = b.age", "visits AS a JOIN visits AS A ON TRUE",
        "visits JOIN visits ON TRUE", "wards JOIN visits ON wards.ward = visits.ward",
        "wards LEFT JOIN visits USING (ward)", "visits, LATERAL (SELECT 1) AS t",
        "visits CROSS JOIN (SELECT AVG(age) AS x FROM visits) AS t", "visits JOIN UNNEST([1, 2]) AS t(x) ON TRUE",
    ]
)
clauses = st.builds(
    "{}{}{}{}{}".format,
    st.one_of(st.just(""), st.builds(" WHERE {}".format, expressions)),
    st.one_of(
        st.just(""),
        st.builds(" GROUP BY {}".format, expressions),
        st.sampled_from(
            [
                " GROUP BY ward",
                " GROUP BY ALL",
                " GROUP BY CUBE (ward, age)",
                " GROUP BY ROLLUP (ward), ROLLUP (age)",
                " GROUP BY 1",
                " GROUP BY GROUPING SETS ((ward), ())",
            ]
        ),
    ),
    st.one_of(st.just(""), st.builds(" HAVING {}".format, expressions)),
    st.one_of(st.just(""), st.builds(" ORDER BY {}".format, expressions), st.just(" ORDER BY ALL")),
    st.sampled_from(
        [
            "", "", " LIMIT 1", " LIMIT 10%", " LIMIT -1", f" LIMIT {10**30}", " OFFSET 1", " QUALIFY TRUE",
            " FOR UPDATE", " WINDOW w AS ()", " USING SAMPLE 1", " -- c", " UNION ALL SELECT 1", "; SELECT 1",
            " FETCH FIRST 1 ROW ONLY",
        ]
    ),
)
selects = st.builds(
    "{}SELECT {} FROM {}{}".format,
    st.sampled_from(
        [
            "", "", "", "WITH t AS (SELECT age AS x FROM visits) ", "WITH RECURSIVE t AS (SELECT 1 AS x) ",
            "WITH t AS MATERIALIZED (SELECT age AS x FROM visits) ", "WITH t(x) AS (SELECT age FROM visits) ",
            "WITH t AS (DELETE FROM visits RETURNING age) ", "FROM visits ", "EXPLAIN ",
        ]
    ),
    st.lists(
        st.one_of(expressions, named, st.sampled_from(["COUNT(*)", "ward", "DISTINCT ward", "COUNT(*) AS n"])),
        min_size=1,
        max_size=3,
    ).map(", ".join),
    sources,
    clauses,
)
