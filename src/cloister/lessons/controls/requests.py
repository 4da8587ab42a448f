"""Controls that decide from the request: its text, the public facts of its columns, and earlier requests.

Falls to: without the noise behind them `attack.queries.tracker.individual_tracker` and
`attack.queries.reconstruction.solve_totals`.
"""

from dataclasses import dataclass, field, replace
from math import floor
from typing import Any

import numpy as np
import sqlglot
from sqlglot import exp

from cloister.data.schema import UNIT
from cloister.lessons.controls.cells import Cells, RowSpace, secret_prime
from cloister.lessons.controls.control import Control, History
from cloister.privacy.errors import BadProbability
from cloister.privacy.number import Number, rational
from cloister.query.answer import Answer
from cloister.query.question import Question

__all__ = ["Audit", "OnlyAggregates", "Overlap", "RandomSample"]


@dataclass(frozen=True, slots=True)
class OnlyAggregates(Control):
    """Allow some aggregates only, and no condition on the column that identifies people.

    Stops: "what is Alex's age?", and statistics the owner excludes. Does not stop: finding Alex by age and ward; noise
    does. Claims no epsilon.
    """

    allowed: tuple[str, ...] = ("COUNT", "SUM", "AVG")

    def before(self, question: Question, history: History) -> str | None:
        """Refuse other aggregates and conditions that identify people."""
        for aggregate in question.aggregates:
            if aggregate.text.upper().partition("(")[0] not in {name.upper() for name in self.allowed}:
                return (
                    f"{aggregate.text} is not among the aggregates that are answered here: {', '.join(self.allowed)}."
                )
        people = {name.lower() for name, term in question.rows.columns.items() if term.unit}
        where = sqlglot.parse_one(question.text, read="duckdb").find_all(exp.Where)
        if any(column.name.lower() in people for part in where for column in part.find_all(exp.Column)):
            return "conditions may not name people. Ask about a group instead."
        return None


@dataclass(frozen=True, slots=True)
class Overlap(Control):
    """Refuse two queries that share more than `most` public cells of the watched columns, unless their cells are equal.

    Stops: isolating a person by many queries that differ a little. Does not stop: two that differ in one cell and share
    few, equations over many small overlaps, or analysts who pool in secret. Claims no epsilon.
    """

    table: str
    columns: tuple[str, ...]
    most: int

    def before(self, question: Question, history: History) -> str | None:
        """Refuse a query that shares too many cells with an earlier one, or within itself."""
        cells = Cells(self.table, self.columns)
        sets, none = cells.sets(question, history.schema), np.zeros((0, 0), dtype=np.int64)
        earlier = history.fold(self, none, lambda state, past: _stack(state, cells.sets(past, history.schema)))
        against = _stack(earlier, sets)
        shared = sets.astype(np.int64) @ against.T
        same = (shared == sets.sum(axis=1)[:, None]) & (shared == against.sum(axis=1)[None, :])
        worst = int(np.where(same, 0, shared).max(initial=0))
        if worst > self.most:
            return f"it shares {worst} public cells with another question, and at most {self.most} may be shared."
        return None


@dataclass(frozen=True, slots=True)
class Audit(Control):
    """Refuse a query if a public cell of the watched columns would follow from the sums so far by linear combination.

    Decided from the requests alone, so that a refusal reveals nothing (Kenthapadi, Mishra, Nissim 2005). Stops:
    differencing and trackers over the watched columns, also across a pool of analysts. Does not stop: inference from
    outside knowledge, bounds, or columns not watched; with exact answers it would not protect a person known to share a
    cell with the attacker alone. Claims no epsilon.
    """

    table: str
    columns: tuple[str, ...]
    prime: int = field(default_factory=secret_prime, repr=False)

    def before(self, question: Question, history: History) -> str | None:
        """Refuse a query after which some cell could be computed."""
        cells = Cells(self.table, self.columns)
        start = RowSpace(self.prime, np.zeros((0, 0), dtype=np.int64))
        space = history.fold(self, start, lambda state, past: state.add(cells.sets(past, history.schema)))
        if len(space.add(cells.sets(question, history.schema)).singles()):
            return f"a single cell of {', '.join(self.columns)} would follow from all questions. Ask of larger groups."
        return None


@dataclass(frozen=True, slots=True)
class RandomSample(Control):
    """Answer every query from the same sample: each person is in it with the public probability `rate`.

    Membership is a keyed hash of the person, so it is fixed, and secret without the key. Gains: a person outside the
    sample is in no answer, and an observer cannot be sure that any person is in it. Does not gain: anything for those
    in the sample; nor a smaller epsilon, which would need a new secret sample for each answer. Claims no epsilon.
    """

    rate: Number
    key: str = field(repr=False)

    def __post_init__(self) -> None:
        if not 0 < rational(self.rate, "rate") < 1 or len(self.key) < 16:
            raise BadProbability("a sample needs a rate strictly between 0 and 1 and a key of at least 16 characters.")

    def before(self, question: Question, history: History) -> str | None:
        """Refuse a query on rows without an owner."""
        return "a sample of people needs a unit column, and here the unit is the row." if question.rows.by_row else None

    def reads(self, question: Question) -> Question:
        """Return the query restricted to the sample."""
        sql = question.rows.sql
        assert isinstance(sql, exp.Select)
        unit = next(column.this for column in sql.expressions if column.alias == UNIT)
        text = exp.Cast(this=unit.copy(), to=exp.DataType.build("TEXT"))
        keyed = exp.MD5(this=exp.Concat(expressions=[exp.Literal.string(self.key), text], safe=False, coalesce=False))
        # The first 60 bits as a fraction of their range: hexadecimal strings of one length sort like their numbers.
        limit = f"{floor(rational(self.rate) * 2**60):015x}"
        drawn = exp.LT(
            this=exp.Left(this=keyed, expression=exp.Literal.number(15)), expression=exp.Literal.string(limit)
        )
        return replace(question, rows=replace(question.rows, sql=sql.where(drawn)))

    def after(self, question: Question, answer: Answer) -> Answer:
        """Add a note that the answer is about the sample."""
        note = f"about a sample: each person is in it with probability {self.rate}; divide totals by that"
        return replace(answer, notes=(*answer.notes, note))


def _stack(earlier: Any, sets: Any) -> Any:
    return sets.astype(np.int64) if not len(earlier) else np.vstack([earlier, sets.astype(np.int64)])
