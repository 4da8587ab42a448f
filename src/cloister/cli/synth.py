"""`cloister synth`: generate a private synthetic table, and score it before it is released."""

import json
import os
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

import click

from cloister.cli import check_outputs, progress_bar
from cloister.cli.query import data_options, need_schema, open_dataset, read_loss
from cloister.privacy.errors import BadInput, CloisterError
from cloister.privacy.filter import budget_share
from cloister.privacy.loss import Loss
from cloister.synth import console
from cloister.synth.output.cost import cost_text
from cloister.synth.output.shared_table import read_table, side_path
from cloister.synth.planning import METHODS, Synthesis, method_of, plan

if TYPE_CHECKING:
    from cloister.dataset import Dataset
    from cloister.synth.output.table import SyntheticTable

__all__ = ["synth"]

_NEW = click.Path(dir_okay=False, writable=True, path_type=Path)
_FILE = click.Path(exists=True, path_type=Path)
_FORMS = (".parquet", ".csv")


def _words(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _read(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that parses an option with a function; None if not given."""
    return lambda _ctx, _param, text: None if text in (None, ()) else parse(text)


@click.group()
def synth() -> None:
    """Make and score synthetic tables."""


@synth.command()
@data_options
@click.option(
    "--spend",
    metavar="LOSS",
    required=True,
    callback=read_loss,
    help="Privacy budget for the table; all of it is charged.",
)
@click.option("--method", type=click.Choice(tuple(METHODS)), default="aim", show_default=True, help="Generator.")
@click.option("--rows", type=click.IntRange(min=1), help="Number of rows; estimated within the spend unless given.")
@click.option("--columns", metavar="A,B", callback=_words, help="Columns of the synthetic table; all unless given.")
@click.option("--of", "table", metavar="TABLE", help="Private table to use, if there are several.")
@click.option(
    "--bins",
    type=click.IntRange(min=1),
    help="Number of bins for numbers and dates; the method's default unless given.",
)
@click.option(
    "--cuts",
    metavar="COLUMN=A,B",
    multiple=True,
    callback=_read(console.parse_cuts),
    help="Cut a number or date at these public values; may be repeated.",
)
@click.option("--paid-cuts", is_flag=True, help="Measure where to cut numbers and dates, with a tenth of the spend.")
@click.option(
    "--workload",
    metavar="'A,B;A,C,D'",
    callback=_read(console.parse_workload),
    help="Sets of columns whose counts matter most (aim, mwem).",
)
@click.option("--label", metavar="COLUMN", help="Column with categories on which all others depend (mggm, ron_gauss).")
@click.option(
    "--score-share",
    metavar="SHARE",
    callback=_read(console.parse_share),
    help="Share of the spend, such as 0.1, for errors that may be published: printed, and in the metadata file.",
)
@click.option("--output", type=_NEW, help="New .parquet or .csv file; its metadata file is written beside it.")
@click.option("--plan", "only_plan", is_flag=True, help="Show what would be measured, and charge nothing.")
def make(
    spend: Loss,
    method: str,
    output: Path | None,
    only_plan: bool,
    rows: int | None,
    columns: list[str] | None,
    table: str | None,
    bins: int | None,
    cuts: dict[str, list[str]] | None,
    paid_cuts: bool,
    workload: list[tuple[str, ...]] | None,
    label: str | None,
    score_share: Fraction | None,
    **data: Any,
) -> None:
    """Make a synthetic table of SOURCE (a file, a folder, a postgresql:// address), and pay for it.

    The metadata file states what was measured and why, the expected errors and the privacy budget used, and holds the
    receipt. Pass it on with the table. Both files must be new: a table that was charged for is never overwritten.
    """
    options = console.own_options(method, workload=workload, label=label)
    path = None if only_plan else _checked(output)
    making, scoring = console.shared_out(spend, score_share)
    with open_dataset(**data) as dataset:
        public: dict[str, Any] = {"columns": columns, "table": table}
        public["bins"] = console.read_bins(dataset, method, bins, cuts, paid_cuts, **public)
        # Report every error before a charge.
        planned = plan(dataset, method, spend=making, rows=rows, **public, **options)
        if path is None:
            _show_plan(planned, scoring)
        else:
            console.check_paid(dataset, [making] if scoring is None else [making, scoring])
            with progress_bar(f"synthesising by {method}") as tell:
                synthetic = method_of(method)(dataset, spend=making, rows=rows, progress=tell, **public, **options)
            side = _written(synthetic, path)
            click.echo(f"{synthetic}\nwrote {path}, and {side.name} beside it: hand both on")
            if scoring is not None:  # the table is already on disk: whatever happens to its score, it is not lost
                _score_to(side, dataset, synthetic, spend=scoring, **public)
                click.echo(f"  together  {cost_text(budget_share(spend).loss, spend)}")
        click.echo(f"{dataset.left} left", err=True)


def _show_plan(planned: Synthesis, scoring: Loss | None) -> None:
    click.echo(planned)
    if scoring is not None:
        click.echo(f"A further {scoring} of the spend buys a score: errors that may be told.")


def _checked(output: Path | None) -> Path:
    """Check the paths before any charge."""
    if output is None or output.suffix.lower() not in _FORMS:
        raise click.UsageError("say where to: --output table.parquet or table.csv; or --plan to charge nothing.")
    for path in (output, side_path(output)):
        if path.exists():
            raise click.UsageError(
                f"{path} is there already, and was paid for. Choose another name, or move it away with what is "
                "beside it. Nothing was charged."
            )
    _writable(output)
    return output


def _writable(path: Path) -> None:
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"{path} cannot be written.")


def _written(synthetic: "SyntheticTable", output: Path) -> Path:
    try:
        return synthetic.to_csv(output) if output.suffix.lower() == ".csv" else synthetic.to_parquet(output)
    except OSError as error:  # already charged: keep it somewhere rather than lose it
        path = Path(mkdtemp(prefix="cloister-synth-")) / "table.parquet"
        synthetic.to_parquet(path)
        raise click.ClickException(f"{output} could not be written ({error.strerror}). It is in {path}.") from error


def _score_to(side: Path, dataset: "Dataset", synthetic: "SyntheticTable", **options: Any) -> None:
    """Measure publishable errors; print them, and write them into the metadata file."""
    from cloister.synth.scoring.publishable import publishable_score

    try:
        with progress_bar("scoring"):
            result = publishable_score(dataset, synthetic, **options)
    except CloisterError as error:
        raise click.ClickException(f"the table is there, and its score is not: {error}") from error
    click.echo(result)
    console.add_score(side, result)


@synth.command()
@click.argument("real")
@click.argument("synthetic", type=_FILE)
@click.option(
    "--schema",
    callback=need_schema,
    envvar="CLOISTER_SCHEMA",
    show_envvar=True,
    help="Schema with the public facts; required.",
)
@click.option("--holdout", metavar="SOURCE", help="Rows that the generator did not see; attacks need them.")
@click.option("--target", help="Column that models predict.")
@click.option("--of", "table", metavar="TABLE", help="Table of the schema to use, if there are several.")
@click.option(
    "--columns", metavar="A,B", callback=_words, help="Columns to score; all with public values unless given."
)
@click.option("--bins", type=int, default=32, show_default=True, help="Number of bins for numbers and dates.")
@click.option(
    "--most-rows",
    type=int,
    default=50_000,
    show_default=True,
    help="Number of real and held-back rows that are attacked; all synthetic rows are always used.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Seed of the random choices.")
@click.option("--html", type=_NEW, help="File for the report: one page with charts.")
@click.option("--json", "as_json", type=_NEW, help="File for all results as JSON.")
@click.option("--gate", is_flag=True, help="Judge the table: the exit status is 3 unless it may be released.")
def score(
    real: str, synthetic: Path, html: Path | None, as_json: Path | None, gate: bool, holdout: str | None, **asked: Any
) -> None:
    """Measure the utility and the risk of SYNTHETIC against the REAL rows it was made from.

    REAL, and the rows held back, are what `make` takes: a file, a folder, a postgresql:// address. The owner's view: it
    looks at real rows and adds no noise. Nothing of it may be published or shown to users, the verdict of the gate
    included; what the table cost stays paid whatever it says.
    """
    from cloister.synth.scoring.score import score as scored
    from cloister.synth.scoring.utility.learning import sklearn_or_refuse
    from cloister.synth.scoring.verdict import judge

    if gate and holdout is None:
        raise BadInput("a gate needs rows that the generator did not see: --holdout FILE. Keep one row in five back.")
    check_outputs()
    for path in (html, as_json):  # before minutes of work, not after
        if path is not None:
            _writable(path)
    if html is not None:
        console.check_charts()
    if asked["target"] is not None:
        sklearn_or_refuse()
    rows, held_out = (
        source and console.real_rows(source, asked["schema"], asked["table"]) for source in (real, holdout)
    )
    table: Any = read_table(synthetic) if side_path(synthetic).exists() else synthetic
    with progress_bar("scoring") as tell:
        result = scored(rows, table, holdout=held_out, progress=tell, **asked)
    verdict = judge(result)
    click.echo(verdict if gate else result)
    if html is not None:
        result.to_html(html, title=f"Synthetic table {synthetic.name}")
        click.echo(f"wrote {html}: for the owner's eyes", err=True)
    if as_json is not None:
        record = verdict.to_json() if gate else result.to_json()
        as_json.write_text(json.dumps(record, indent=2, allow_nan=False) + "\n", encoding="utf-8")
        click.echo(f"wrote {as_json}: for the owner's eyes", err=True)
    if gate and not verdict.passed:
        sys.exit(3)
