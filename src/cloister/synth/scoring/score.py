"""The score of a synthetic table: its utility, and its risk under attack. The owner's view.

    found = score(real, synthetic, schema, holdout=held_back, target="income")
    print(found)                       # a table for the terminal
    found.to_html("score.html")        # a report page, without a network

Attacks need held-out rows: without them it cannot be decided whether a synthetic row is close to a real one because it
was copied, or because people are similar. Hold out one row in five, at random, before the generator runs.
"""

import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from cloister.attack.finding import Finding
from cloister.attack.tables.synthetic.attack_sample import Attacks, attack
from cloister.attack.tables.synthetic.closeness import Closeness
from cloister.attack.tables.synthetic.copies import Copies, count_copies, held_back_in
from cloister.attack.tables.synthetic.findings import synthetic_findings
from cloister.attack.tables.synthetic.membership import Membership
from cloister.attack.tables.synthetic.singling_out import SinglingOut
from cloister.data.schema import Schema, Table
from cloister.privacy.errors import BadInput, BadSchema
from cloister.privacy.loss import ROW, Loss, Unit
from cloister.synth.options import check_flag, check_names, check_progress, check_whole
from cloister.synth.scoring.report.provenance import told_making
from cloister.synth.scoring.rows import columns_of, only_table, read_rows, sides_of, usable
from cloister.synth.scoring.utility.dependence import Map, correlation_map, information_map
from cloister.synth.scoring.utility.learning import Learning, learning, target_place
from cloister.synth.scoring.utility.marginal_error import (
    MarginalErrors,
    RangeErrors,
    frames,
    marginal_errors,
    range_errors,
)
from cloister.synth.scoring.utility.numbers import NumberDistance, number_distances, with_quantile_cuts
from cloister.synth.scoring.utility.propensity import Propensity, propensity
from cloister.synth.scoring.utility.shapes import ColumnShape, shapes
from cloister.version import __version__

__all__ = ["OWNERS_VIEW", "Progress", "Score", "score"]

Progress = Callable[[float, str], None]
OWNERS_VIEW = "OWNER'S VIEW: computed from real rows without noise. Not to be published or shown to users."


@dataclass(frozen=True, slots=True)
class Score:
    """Results of scoring a table.

    Attributes:
        table: its name in the schema.
        scored: the day, in UTC.
        rows: number of rows read: real, synthetic, held out.
        columns: those that were scored; left_out: those without public values or bounds; absent: those of the schema
            that the synthetic table does not have.
        invalid: number of synthetic rows that lack a required value.
        claim: the loss that the synthetic table states; None if it states none.
        unit: the privacy unit of that loss.
        marginals: errors of one-, two- and three-way marginals.
        correlations, information: dependence between columns.
        ranges: errors of range queries.
        propensity: how well models distinguish the tables; empty without scikit-learn.
        learning: results of trained models; None without a target.
        shapes: each column by itself, in public bins.
        numbers: quantiles and distances of each number, date and moment, value by value.
        copies: exact copies.
        closeness, membership, singling_out: attacks, against held-out rows; None without them.
        attacked: number of real rows, and of held-out ones, attacked by distance and for membership.
        not_tried: attacks for which the synthetic table has too many rows.
        seed: seed of the random choices.
        made: the provenance of the synthetic table, in words, from its metadata file; empty if it has none.
        not_held: the share of held-out rows that are among the real ones, beyond natural duplicates: they were then not
            held out, and no attack is meaningful; None if they were.

    Privacy: none. It is computed from real rows and is for the owner only. Publishable numbers have their own charge:
        `publishable_score`. So does a selection among tables: `choose`.
    """

    table: str
    scored: date
    rows: dict[str, int]
    columns: tuple[str, ...]
    left_out: tuple[str, ...]
    absent: tuple[str, ...]
    invalid: int
    claim: Loss | None
    unit: Unit
    marginals: tuple[MarginalErrors, ...]
    correlations: Map | None
    information: Map | None
    ranges: RangeErrors
    propensity: tuple[Propensity, ...]
    learning: Learning | None
    shapes: tuple[ColumnShape, ...]
    numbers: tuple[NumberDistance, ...]
    copies: Copies
    closeness: Closeness | None
    membership: Membership | None
    singling_out: SinglingOut | None
    attacked: int
    not_tried: tuple[str, ...]
    seed: int
    made: dict[str, str]
    not_held: float | None = None

    @property
    def usefulness(self) -> float | None:
        """Return the utility by the largest marginals: 1 is a bootstrap, 0 independent columns; None for one column."""
        return self.marginals[-1].score if len(self.marginals) > 1 else None

    @property
    def kept(self) -> float | None:
        """Return the kept share of the dependence between columns: 0 is independent columns, 1 is fresh rows.

        Like `usefulness`, but against held-out rows: the error of a bootstrap lacks the sampling error of the real rows
        themselves, which is most of it in a small table. Held-out rows are scaled to the number of synthetic ones:
        errors shrink with the root of both numbers of rows; if they are fewer than a tenth, that is too rough.
        """
        marginal, (real, synthetic, holdout) = self.marginals[-1], self.rows.values()
        if marginal.way < 2 or 10 * holdout < synthetic:
            return None
        fresh = marginal.frames["fresh"] * math.sqrt((1 / real + 1 / synthetic) / (1 / real + 1 / holdout))
        alone = marginal.frames["independent"]
        return None if alone <= fresh else (alone - marginal.mean.value) / (alone - fresh)

    def findings(self) -> tuple[Finding, ...]:
        """Return the attacks as findings, for a report; none without held-out rows, or where they are real ones.

        A table's claim is tested for one row, so that of a person with several is doubled.
        """
        if self.not_held is not None:
            return ()
        claim = self.claim if self.claim is None or self.unit == ROW else self.claim.as_replace_one()
        attacks = Attacks(self.closeness, self.membership, self.singling_out, self.attacked, self.not_tried)
        target = f"synthetic table of {self.table}"
        return synthetic_findings(self.copies, attacks, target=target, claim=claim, rows=self.rows["real"])

    def to_json(self) -> dict[str, Any]:
        """Return everything, as plain values."""
        parts = ("correlations", "information", "ranges", "learning", "copies")
        attacks = ("closeness", "membership", "singling_out")
        return {
            "view": OWNERS_VIEW,
            "publishable": False,
            "table": self.table,
            "scored": self.scored.isoformat(),
            "cloister": __version__,
            "rows": self.rows,
            "columns": list(self.columns),
            "left out": list(self.left_out),
            "not in the synthetic table": list(self.absent),
            "invalid rows": self.invalid,
            "claim": None if self.claim is None else self.claim.to_json() | {"unit": str(self.unit)},
            "usefulness": self.usefulness,
            "kept": self.kept,
            "marginals": [marginal.to_json() for marginal in self.marginals],
            "shapes": [shape.to_json() for shape in self.shapes],
            "numbers": [number.to_json() for number in self.numbers],
            "propensity": [model.to_json() for model in self.propensity],
            **{name: _json(getattr(self, name)) for name in (*parts, *attacks)},
            "rows attacked": self.attacked,
            "not tried": list(self.not_tried),
            "seed": self.seed,
            "made": self.made,
            "held-back rows among the real ones": self.not_held,
        }

    def write_json(self, path: Path | str) -> None:
        """Write `to_json` to a file."""
        Path(path).write_text(json.dumps(self.to_json(), indent=2, allow_nan=False) + "\n", encoding="utf-8")

    def to_html(self, path: Path | str | None = None, title: str = "Synthetic table") -> str:
        """Return a page with charts that needs no network; written to a file if a path is given."""
        from cloister.synth.scoring.report.page import page

        text = page(self, title)
        if path is not None:
            Path(path).write_text(text, encoding="utf-8")
        return text

    def __str__(self) -> str:
        from cloister.synth.scoring.report.text import told

        return told(self)


def score(
    real: Any,
    synthetic: Any,
    schema: Schema | Any,
    holdout: Any = None,
    target: str | None = None,
    *,
    table: str | None = None,
    columns: Sequence[str] | None = None,
    bins: Any = 32,
    quantiles: int = 20,
    marginals: int = 500,
    boxes: int = 1000,
    rules: int = 1000,
    most_rows: int = 50_000,
    models: bool = True,
    seed: int = 0,
    progress: Progress | None = None,
) -> Score:
    """Score a synthetic table against the rows it was generated from.

    Args:
        real: the rows that the generator read: an Arrow table, a frame, a file.
        synthetic: the rows that it generated: the same, or a synthetic table of Cloister.
        schema: the public facts, or a path to them.
        holdout: rows of the same population that the generator did not read; needed for attacks.
        target: a column for models to predict.
        table: table of the schema; the only private one unless given.
        columns: columns to score; all of the synthetic table with public values or bounds unless given.
        bins: bins of numbers for one-way marginals, information and ranges; as for a generator.
        quantiles: number of quantiles of the real rows at which numbers are also cut for marginals and ranges: bins
            hide what is inside them, and a skewed number falls into one of the equal bins. Two- and three-way marginals
            are cut only there. 1 leaves the bins unchanged.
        marginals: maximum number of two- and of three-way marginals; if there are more, a random choice.
        boxes: number of range queries.
        rules: number of rules for singling out.
        most_rows: maximum number of rows of each table for training models, and of real and held-out rows whose closest
            synthetic row is searched; if there are more, a random choice. Attacks always use the whole synthetic table:
            if it is large or wide, they use fewer real rows, so that they take no longer.
        models: whether models try to distinguish the tables, if scikit-learn is installed; False is faster. Wide tables
            train them on fewer rows: 4e9 over the square of the number of codes, 5,000 at least.
        seed: seed of the random choices, which need no secrecy: nothing here is private.
        progress: called with the completed share and the current step.

    Privacy: reads real rows and adds no noise. The result is for the owner and must not be published.
    """
    check_progress(progress)
    say = progress or (lambda _share, _text: None)
    counts = {"quantiles": quantiles, "marginals": marginals, "boxes": boxes, "rules": rules}
    _check_numbers({**counts, "most_rows": most_rows, "seed": seed})
    check_flag("models", models)
    check_names("columns", columns)
    check_names("table and target", [name for name in (table, target) if name is not None])
    facts = only_table(_facts(schema), table)
    chosen = _chosen(facts, synthetic, columns, target)
    sides = sides_of(facts, chosen.scored, bins)
    if target is not None:
        target_place(sides, target)
    say(0.0, "reading rows")
    tables = (real, synthetic) if holdout is None else (real, synthetic, holdout)
    every = [_rows(source, facts, sides) for source in tables]
    real_rows, synthetic_rows, *holdouts = every
    holdout_rows = holdouts[0] if holdouts else None
    random = np.random.default_rng(seed)
    finest, together = (with_quantile_cuts(real_rows, every, quantiles, bins=kind) for kind in (True, False))
    errors = _marginals(finest, together, marginals, random, say)
    say(0.25, "comparing what hangs together")
    real_sample, synthetic_sample = real_rows.at_most(most_rows, random), synthetic_rows.at_most(most_rows, random)
    holdout_sample = None if holdout_rows is None else holdout_rows.at_most(most_rows, random)
    correlations, information = (
        correlation_map(real_rows, synthetic_rows, holdout_rows),
        information_map(real_rows, synthetic_rows, holdout_rows),
    )
    ranges = range_errors(finest[0], finest[1], finest[2] if holdouts else None, boxes, random)
    say(0.35, "telling the tables apart")
    lessons = _taught(real_sample, random), _taught(synthetic_sample, random)
    told_apart = propensity(*lessons, random) if models and _sklearn() else ()
    say(0.5, "training models")
    learned = None if target is None else learning(*lessons, holdout_sample, target)
    say(0.6, "counting copies")
    copies = count_copies(real_rows, synthetic_rows, holdout_rows)
    attacks = Attacks()
    if holdout_rows is not None:
        attacks = attack(
            real_rows,
            holdout_rows,
            synthetic_rows,
            most_rows,
            rules,
            random,
            lambda done, text: say(0.62 + 0.37 * done, text),
        )
    say(1.0, "done")
    return Score(
        facts.name,
        datetime.now(UTC).date(),
        {
            "real": len(real_rows),
            "synthetic": len(synthetic_rows),
            "held back": 0 if holdout_rows is None else len(holdout_rows),
        },
        tuple(real_rows.names),
        chosen.left_out,
        chosen.absent,
        synthetic_rows.left_out,
        getattr(synthetic, "loss", None),
        getattr(synthetic, "unit", ROW),
        tuple(errors),
        correlations,
        information if len(sides) > 1 else None,
        ranges,
        told_apart,
        learned,
        shapes(real_rows, synthetic_rows),
        number_distances(
            real_rows, synthetic_rows, real_rows.take(random.integers(len(real_rows), size=len(synthetic_rows)))
        ),
        copies,
        attacks.closeness,
        attacks.membership,
        attacks.singling_out,
        attacks.rows,
        attacks.not_tried,
        seed,
        told_making(synthetic),
        None if holdout_rows is None else held_back_in(real_rows, holdout_rows),
    )


def _check_numbers(numbers: Mapping[str, int]) -> None:
    for name, value in numbers.items():
        least, most = _NUMBERS[name]
        check_whole(name, value, least=least, most=most)


_NUMBERS: dict[str, tuple[int, int | None]] = {
    "quantiles": (1, 100_000),
    "marginals": (1, 1_000_000),
    "boxes": (2, 1_000_000),
    "rules": (2, 1_000_000),
    "most_rows": (2, None),
    "seed": (0, None),
}


def _facts(schema: Any) -> Schema:
    if not isinstance(schema, Schema | Mapping | str | os.PathLike):
        raise BadInput("schema is a Schema, its text or dict, or the path of its file.")
    return schema if isinstance(schema, Schema) else Schema.load(schema)


def _rows(table: Any, facts: Table, sides: Any) -> Any:
    """Read the rows of a table that fit the schema; refuse a table without any."""
    rows = read_rows(table, facts, sides)
    if not len(rows):
        raise BadInput(
            "a table to be scored has no rows that fit the schema. Check that the columns are the right ones."
        )
    return rows


def _marginals(
    finest: Sequence[Any], together: Sequence[Any], most: int, random: np.random.Generator, say: Progress
) -> list[MarginalErrors]:
    """Compare one-way marginals in the finest cells, two- and three-way ones between quantiles."""
    errors, columns = [], len(finest[0].names)
    for way in range(1, min(3, columns) + 1):
        say(0.03 + 0.05 * way, f"comparing {way}-way marginals")
        first, second, *holdout = finest if way == 1 else together
        framed = frames(first, len(second), random) | dict(zip(["fresh"], holdout, strict=False))
        chosen = max(most, columns if way == 1 else 1)
        errors.append(marginal_errors(first, second, framed, way, chosen, random))
    return errors


class _Columns(NamedTuple):
    """Columns of the schema: scored, left out because they have no public values or bounds, or not in the table."""

    scored: Sequence[str]
    left_out: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()


def _chosen(facts: Table, synthetic: Any, columns: Sequence[str] | None, target: str | None) -> _Columns:
    """Return the columns given, or all that can be scored and that the synthetic table has: it may have only some."""
    if columns is not None:
        return _Columns(columns)
    present = columns_of(synthetic, facts)
    scored = [name for name in present if usable(facts.columns[name])]
    if not scored:
        raise BadSchema("the synthetic table has no column with public values or bounds in the schema. Check both.")
    if target in facts.columns and target not in present:
        raise BadSchema(f"the target {target} is not in the synthetic table, so no model can learn it there.")
    left_out = tuple(name for name in present if name not in scored)
    return _Columns(scored, left_out, tuple(name for name in facts.columns if name not in present))


def _taught(rows: Any, random: np.random.Generator) -> Any:
    """Return the rows that models learn from: they solve for as many unknowns as there are features."""
    return rows.at_most(max(5_000, int(4e9 / sum(side.size for side in rows.sides) ** 2)), random)


def _sklearn() -> bool:
    try:
        import sklearn  # noqa: F401
    except ImportError:
        return False
    return True


def _json(part: Any) -> Any:
    return None if part is None else part.to_json()
