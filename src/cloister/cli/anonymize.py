"""`cloister anonymize`: plan, make, check and attack a release of rows; mine and hide rules."""

import json
import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from cloister.anonymize.planning.request import METHODS, parse_models, parse_share, parse_weights
from cloister.cli import check_outputs, progress_bar

__all__ = ["anonymize"]

_NEW = click.Path(dir_okay=False, writable=True, path_type=Path)
_FORMS = (".csv", ".parquet")


def _words(_ctx: click.Context, _param: click.Parameter, texts: tuple[str, ...]) -> list[str]:
    names = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    return list(dict.fromkeys(names))


def _read(parse: Callable[[Any], Any]) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """Return a click callback that parses an option with a function; None if not given."""
    return lambda _ctx, _param, text: None if text in (None, ()) else parse(text)


def _with(command: Callable[..., Any], options: Sequence[Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def _columns(name: str, help_text: str) -> Any:
    return click.option(name, metavar="A,B", multiple=True, callback=_words, help=f"{help_text}; may be repeated.")


_TABLE = click.option("--table", metavar="NAME", help="Table of the source, if there are several.")
_QUASI = _columns("--quasi", "Quasi-identifiers: columns that others may know")
_SENSITIVE = _columns("--sensitive", "Columns that must not be learned about a person")
_EARLIER = click.option("--earlier", metavar="SOURCE", multiple=True,
                        help="Earlier release of the same people; may be repeated.")  # fmt: skip
_HARMFUL = click.option("--harmful", metavar="COLUMN=VALUES", multiple=True,
                        help="Sensitive values whose disclosure harms; may be repeated.")  # fmt: skip
_LABELS = click.option("--hierarchy", "hierarchies", metavar="COLUMN=FILE", multiple=True,
                       help="Hierarchy of its labels; that of the file beside it unless given.")  # fmt: skip


def _request_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a release."""
    options = [
        click.argument("source"),
        _TABLE,
        click.option(
            "--schema",
            envvar="CLOISTER_SCHEMA",
            show_envvar=True,
            type=click.Path(exists=True, dir_okay=False, path_type=Path),
            help="Schema with roles, types, bounds, categories and hierarchies.",
        ),
        click.option(
            "--require",
            metavar="MODELS",
            required=True,
            help="What the release must satisfy, as its label says: 'k=5, l=3, t=0.2 (disease, ordered)'.",
        ),
        _QUASI,
        _SENSITIVE,
        _columns("--identifier", "Columns that name a person; dropped"),
        _columns("--plain", "Columns that are released as they are"),
        click.option(
            "--hierarchy",
            "hierarchies",
            metavar="COLUMN=HOW",
            multiple=True,
            help="What values become: a file, masking:5, intervals:0,100,5,10, dates, dates:month,year or flat; may be "
            "repeated. Proposed unless given.",
        ),
        click.option("--method", type=click.Choice(tuple(METHODS)), default="recode", show_default=True, help="How."),
        click.option(
            "--suppression",
            metavar="SHARE",
            default="0%",
            show_default=True,
            callback=_read(parse_share),
            help="Share of the rows that may be removed, such as 5%.",
        ),
        click.option("--weight", "weights", metavar="COLUMN=NUMBER", multiple=True, callback=_read(parse_weights),
                     help="Importance of a quasi-identifier; may be repeated."),
        click.option("--population", metavar="SOURCE", help="Rows that the release is drawn from, for k-map and "
                     "delta-presence."),
        click.option("--relaxed", is_flag=True, default=None, help="Cut classes at their middle row (mondrian)."),
        click.option("--seconds", type=click.FloatRange(min=0), help="Time limit of the search."),
        click.option("--gap", metavar="SHARE", callback=_read(parse_share),
                     help="Stop when the loss is at most this share above the optimum."),
    ]  # fmt: skip
    return _with(command, options)


@click.group()
def anonymize() -> None:
    """Release rows that satisfy anonymity models. None of it is differentially private."""


@anonymize.command("plan")
@_request_options
def plan_command(**request: Any) -> None:
    """Say what a release of SOURCE would be: roles, hierarchies, columns and rows that are dropped. Writes nothing.

    SOURCE is a CSV, Parquet or DuckDB file, a folder of Parquet files or a postgresql:// address. The owner's view: it
    reads rows and adds no noise.
    """
    from cloister.anonymize.planning.console import planned

    with progress_bar("reading"):
        plan = planned(**request)
    click.echo(plan)
    if plan.doubtful:
        flags = {"identifier": "--identifier", "quasi-identifier": "--quasi"}
        likely = " ".join(f"{flags[role]} {','.join(names)}" for role, names in plan.proposed_roles().items())
        click.echo(
            f"Next: say the role of {', '.join(plan.doubtful)}. By their names: {likely}. "
            "--sensitive is for what nobody may learn, --plain for what others cannot know."
        )
    else:
        click.echo("Next: `cloister anonymize run` with the same options and --out FILE.")


@anonymize.command()
@_request_options
@click.option("--out", type=_NEW, help="New .csv or .parquet file; a file with its facts is written beside it.")
@click.option("--report", type=_NEW, help="File for a report: one page with risks, charts and the lattice.")
@_EARLIER
@_HARMFUL
@click.option("--with-originals", is_flag=True, help="Show rows of the original table in the report.")
@click.option("--force", is_flag=True, help="Overwrite files.")
def run(
    out: Path | None,
    report: Path | None,
    with_originals: bool,
    force: bool,
    earlier: tuple[str, ...],
    harmful: tuple[str, ...],
    **request: Any,
) -> None:
    """Make a release of SOURCE, verify it, and write it.

    SOURCE is a CSV, Parquet or DuckDB file, a folder of Parquet files or a postgresql:// address. The release is
    verified by a program that shares no code with the one that made it, as rows and as the file that is read; if it is
    not confirmed, nothing is written. The report attacks the release with the original rows: the worst case.
    """
    from cloister.anonymize.planning.console import planned, release_risks
    from cloister.anonymize.report.page import release_page
    from cloister.anonymize.table import SIDE

    target = _checked(out, force, SIDE)
    if report is not None:
        _new(report, force)
        _check_charts()
    with progress_bar("reading"):
        plan = planned(**request)
    for sentence in plan.odd:
        click.echo(f"note: {sentence}", err=True)
    with progress_bar("searching") as tell:
        release = plan.run(progress=tell)
    with progress_bar("verifying"):
        release.to_csv(target) if target.suffix.lower() == ".csv" else release.to_parquet(target)
    click.echo(str(release).partition("\nNext: ")[0])
    click.echo(f"verified and wrote {target}, and {target.name}{SIDE} beside it")
    if report is not None:
        with progress_bar("attacking"):
            risks = release_risks(plan, release, earlier=earlier, harmful=harmful)
            originals = plan.rows if with_originals else None
            page = release_page(release, title=target.name, risks=risks, originals=originals)
            report.write_text(page, encoding="utf-8")
        click.echo(f"wrote {report}: for the owner's eyes")
    else:
        click.echo(f"Next: `cloister anonymize risk {target}` shows what is left.")


def _checked(out: Path | None, force: bool, side: str) -> Path:
    """Check the paths before any work."""
    if out is None or out.suffix.lower() not in _FORMS:
        raise click.UsageError("say where to: --out release.csv or release.parquet; `plan` writes nothing.")
    check_outputs([out.with_name(out.name + side)] if side else [])
    for path in (out, out.with_name(out.name + side)):
        _new(path, force)
    return out


def _new(path: Path, force: bool) -> None:
    if path.exists() and not force:
        raise click.UsageError(f"{path} is there already. Choose another name, or --force to overwrite it.")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.UsageError(f"{path} cannot be written. Choose another folder.")


def _check_charts() -> None:
    from cloister.data.charts import altair

    altair("a report with charts needs Altair: pip install 'cloister[report]'. Without --report nothing is needed.")


def _released_options(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.argument("source"),
        _TABLE,
        _QUASI,
        _SENSITIVE,
        click.option("--population", metavar="SOURCE", help="Table of the people whom the release is drawn from, with "
                     "exact values or generalised in the same way."),
        _LABELS,
        click.option("--json", "as_json", is_flag=True, help="Print all values as JSON."),
    ]  # fmt: skip
    return _with(command, options)


@anonymize.command("check")
@_released_options
@click.option("--require", metavar="MODELS", help="Models that the table must satisfy; the claimed ones unless given.")
@click.option(
    "--order",
    metavar="COLUMN=VALUES",
    multiple=True,
    help="Order of a sensitive column of text, for the "
    "ordered distance: number, or all values from the lowest one on; alphabetical unless given.",
)
def check_command(
    source: str,
    table: str | None,
    quasi: list[str],
    sensitive: list[str],
    population: str | None,
    hierarchies: tuple[str, ...],
    as_json: bool,
    require: str | None,
    order: tuple[str, ...],
) -> None:
    """Print the value of every model for SOURCE, whoever made it. Exit status 3 if it does not satisfy the models.

    Roles and models are those of the file beside it, unless given. Rows in a database are counted there.
    """
    from cloister.anonymize.planning.console import Released, parse_order
    from cloister.anonymize.table import failures

    released = Released(source, quasi, sensitive, hierarchies)
    models = released.claimed if require is None else parse_models(require, released.sensitive)
    with progress_bar("checking"):
        checked = released.values(models, table, population, parse_order(order, released.sensitive))
    problems = [problem for model in models for problem in failures(checked, model)]
    if as_json:
        record = {**checked.to_dict(), "required": [model.label for model in models], "failures": problems}
        click.echo(json.dumps(record, indent=2, ensure_ascii=False, allow_nan=False))
    else:
        click.echo(checked)
        for model in models if not problems else ():
            click.echo(f"confirmed: {model.label}")
        for problem in problems:
            click.echo(f"FAILS: {problem}")
        click.echo(f"Next: `{_next_risk(source, table, quasi, sensitive)}` shows what is left.")
    if problems:
        sys.exit(3)


def _next_risk(source: str, table: str | None, quasi: Sequence[str], sensitive: Sequence[str]) -> str:
    """Return the command that attacks the same table, with the options that say the same."""
    named = {"--table": [table] if table else [], "--quasi": quasi, "--sensitive": sensitive}
    options = [word for option, names in named.items() if names for word in (option, ",".join(names))]
    return shlex.join(["cloister", "anonymize", "risk", source, *options])


@anonymize.command("risk")
@_released_options
@click.option("--auxiliary", metavar="SOURCE", help="People an attacker knows; the original table for the worst case.")
@_EARLIER
@_HARMFUL
@click.option(
    "--diversity", type=click.IntRange(min=2), help="l that the release claims; that of its facts if they do."
)
@click.option(
    "--group",
    "groups",
    metavar="COLUMN=FILE",
    multiple=True,
    help="Groups of similar sensitive values: value;group on every line; may be repeated.",
)
@click.option("--truth", metavar="COLUMN", help="Column of both tables with the id of a person, to judge links.")
@click.option(
    "--sampling-fraction",
    metavar="SHARE",
    callback=_read(partial(parse_share, whole=True)),
    help="Share of the population that is in the release.",
)
@click.option("--threshold", metavar="SHARE", default="20%", show_default=True,
              callback=_read(partial(parse_share, whole=True)), help="A risk that is too high.")  # fmt: skip
@click.option("--sample", type=click.IntRange(min=1), help="Number of people of --auxiliary that are linked.")
@click.option("--seed", "random_state", type=int, help="Seed of that sample.")
@click.option("--html", type=_NEW, help="File for the report: one page with charts.")
def risk_command(
    source: str,
    table: str | None,
    quasi: list[str],
    sensitive: list[str],
    population: str | None,
    auxiliary: str | None,
    earlier: tuple[str, ...],
    hierarchies: tuple[str, ...],
    harmful: tuple[str, ...],
    diversity: int | None,
    groups: tuple[str, ...],
    as_json: bool,
    html: Path | None,
    **options: Any,
) -> None:
    """Attack SOURCE, a release, and print who could be found and what would be learned.

    Roles are those of the file beside it, unless given. The owner's view: it names the classes that are easiest to
    attack.
    """
    from cloister.anonymize.planning.console import Released, parse_groups, parse_values, with_options
    from cloister.anonymize.planning.source import read_rows
    from cloister.anonymize.risks.attackers import risk

    if html is not None:
        check_outputs()
        _new(html, force=True)
        _check_charts()
    released = Released(source, quasi, sensitive, hierarchies)
    typed = [*released.quasi, *released.sensitive]
    with progress_bar("attacking"):
        rows = read_rows(source, table=table, typed=released.sensitive)
        before, ladders = released.earlier(earlier)
        report = risk(
            rows,
            quasi=released.quasi,
            sensitive=released.sensitive,
            population=None if population is None else read_rows(population, typed=typed),
            auxiliary=None if auxiliary is None else read_rows(auxiliary, typed=typed),
            earlier=before,
            harmful=parse_values(harmful, released.sensitive, rows),
            diversity=diversity or released.diversity,
            groups=parse_groups(groups, released.sensitive),
            hierarchies=ladders,
            **options,
        )
    click.echo(json.dumps(report.to_json(), indent=2, ensure_ascii=False) if as_json else with_options(report))
    if html is not None:
        html.write_text(released.risk_page(with_options(report), rows, population), encoding="utf-8")
        click.echo(f"wrote {html}: for the owner's eyes", err=True)


@anonymize.command()
@click.argument("source")
@_TABLE
@click.option("--basket", metavar="COLUMN", help="Column of the basket's id, for rows with one item each.")
@click.option("--item", metavar="COLUMN", help="Column of the item, for rows with one item each.")
@click.option("--support", metavar="SHARE", required=True, callback=_read(parse_share), help="Least support.")
@click.option("--confidence", metavar="SHARE", default="50%", show_default=True, callback=_read(parse_share),
              help="Least confidence.")  # fmt: skip
@click.option("--hide", metavar="'A, B -> C'", multiple=True, help="Rule to hide; may be repeated.")
@click.option("--by", "method", type=click.Choice(["distortion", "blocking"]), default="distortion", show_default=True,
              help="Remove and add items, or make cells unknown.")  # fmt: skip
@click.option("--margin", metavar="SHARE", default="0%", show_default=True, callback=_read(parse_share),
              help="Share of a threshold by which a hidden rule must be below it.")  # fmt: skip
@click.option("--out", type=_NEW, help="New .csv or .parquet file for the baskets with the rules hidden.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
def rules(
    source: str,
    table: str | None,
    basket: str | None,
    item: str | None,
    support: float,
    confidence: float,
    hide: tuple[str, ...],
    method: Any,
    margin: float,
    out: Path | None,
    force: bool,
) -> None:
    """Mine association rules of SOURCE; with --hide, hide some of them and say what that changes.

    SOURCE is a basket file (a line for each basket, items separated by commas) or, with --basket and --item, a table
    with one item in each row.
    """
    from cloister.anonymize.mining.hiding import hide_rules
    from cloister.anonymize.mining.rules import association_rules
    from cloister.anonymize.planning.console import parse_rule, rules_text
    from cloister.anonymize.planning.source import read_rows

    secret = [parse_rule(text) for text in hide]
    if out is not None:
        if not secret:
            raise click.UsageError("--out is for baskets with hidden rules: name one, --hide 'beer -> crisps'.")
        _checked(out, force, "")
    form: dict[str, Any] = {} if basket is None and item is None else {"basket": basket, "item": item}
    with progress_bar("mining"):
        rows: Any = read_rows(source, table=table) if form else source
        mined = association_rules(rows, support, confidence, **form)
    click.echo(rules_text(mined, support, confidence))
    if not secret:
        return
    with progress_bar("hiding"):
        hidden = hide_rules(rows, secret, min_support=support, min_confidence=confidence, method=method, margin=margin,
                            **form)  # fmt: skip
    click.echo(f"{hidden.label}\n{hidden.report}")
    if out is not None:
        hidden.write(out)
        click.echo(f"mined again and wrote {out}")
