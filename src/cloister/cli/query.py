"""`cloister query`: one private query, one answer with intervals. `plan` and `shell` share its options."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cloister.privacy.errors import BadSchema
from cloister.privacy.loss import Loss

if TYPE_CHECKING:
    from cloister.dataset import Dataset
    from cloister.query.answer import Answer

__all__ = ["data_options", "need_schema", "open_dataset", "price_options", "query", "read_loss"]

_FILE = click.Path(dir_okay=False, writable=True, path_type=Path)


def need_schema(_context: click.Context, _parameter: click.Parameter, given: str | None) -> str:
    """Refuse a command without a schema, and say how to create one."""
    if given is None:
        raise BadSchema("say what is public: --schema FILE. `cloister schema draft DATA` writes a first one.")
    return given


def read_loss(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Loss | None:
    """Parse a loss."""
    return None if text is None else Loss.parse(text, bare=True)


def _places(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for name, _, source in pairs:
        if not (name and source):
            raise click.BadParameter("write NAME=PLACE, such as wards=wards.csv.", ctx, param)
    return {name: source for name, _, source in pairs}


def data_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the source, its public facts and the account that pays."""
    options = [
        click.argument("source"),
        click.option(
            "--table",
            "tables",
            metavar="NAME=PLACE",
            callback=_places,
            multiple=True,
            help="Further table; may be repeated.",
        ),
        click.option(
            "--schema",
            callback=need_schema,
            envvar="CLOISTER_SCHEMA",
            show_envvar=True,
            help="Schema with the public facts; required.",
        ),
        click.option(
            "--budget",
            required=True,
            metavar="LOSS",
            callback=read_loss,
            envvar="CLOISTER_BUDGET",
            show_envvar=True,
            help="Budget of all answers together: 'epsilon 2, delta 1e-7', 'rho 0.1', or '2' for epsilon 2.",
        ),
        click.option(
            "--ledger",
            default=".cloister",
            show_default=True,
            envvar="CLOISTER_LEDGER",
            show_envvar=True,
            type=click.Path(file_okay=False, path_type=Path),
            help="Folder of the ledger; made if it does not exist.",
        ),
        click.option("--name", help="Name of the account; the first table's name unless given."),
        click.option("--version", default="", help="Version of the data as the owner names it, for receipts."),
    ]
    return _with(command, options)


def price_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options for the cost of an answer, or its error."""
    options = [
        click.option(
            "--spend", metavar="LOSS", callback=read_loss, help="Privacy budget for one answer, such as 'rho 0.01'."
        ),
        click.option("--within", help="Largest acceptable error: the smallest loss for it is used, at most --spend."),
        click.option("--confidence", default="0.95", show_default=True, help="Confidence level of the intervals."),
    ]
    return _with(command, options)


def _with(command: Callable[..., Any], options: list[Any]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def open_dataset(source: str, tables: dict[str, str], ledger: Path, name: str | None, **facts: Any) -> "Dataset":
    """Return the dataset that the options describe."""
    from cloister.dataset import open as open_source

    places = {Path(source).name.partition(".")[0]: source, **tables} if tables else source
    return open_source(places, ledger=ledger, name=name, **facts)


def check_price(spend: Loss | None, within: str | None) -> None:
    """Require a cost or an error."""
    if spend is None and within is None:
        raise click.UsageError(
            "say what the answer may cost (--spend 'rho 0.01') or how far off it may be (--within 5)."
        )


@click.command()
@data_options
@click.argument("sql")
@price_options
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "csv", "json", "parquet"]),
    help="Format of the answer.  [default: table]",
)
@click.option("--output", type=_FILE, help="File for the answer; its ending states the format.")
@click.option("--receipt", type=_FILE, help="File for the signed receipt of the answer.")
def query(
    sql: str,
    spend: Loss | None,
    within: str | None,
    confidence: str,
    form: str | None,
    output: Path | None,
    receipt: Path | None,
    **data: Any,
) -> None:
    """Ask SOURCE (a file, a folder, a postgresql:// address) one question in SQL, and pay for the answer."""
    from cloister.query.explain import plan_of
    from cloister.query.shell import working

    check_price(spend, within)
    form = _form(form, output)
    for file in (output, receipt):  # before any charge
        if file is not None and not os.access(file if file.exists() else file.parent, os.W_OK):
            raise click.UsageError(f"{file} cannot be written.")
    with open_dataset(**data) as dataset:
        plan = plan_of(dataset, sql, spend, within, confidence)
        with working():
            answer = dataset.run(plan)
        _deliver(answer, form, output, dataset.left)
    if receipt is not None:
        _save_receipt(answer, receipt)


def _save_receipt(answer: "Answer", file: Path) -> None:
    # Groups that are not public were found first, at their own charge.
    receipts = [*answer.search, *([] if answer.receipt is None else [answer.receipt])]
    if not receipts:
        click.echo("There is no new receipt: the answer cost nothing.", err=True)
        return
    file.write_text("".join(f"{receipt.text()}\n" for receipt in receipts), encoding="ascii")
    if answer.receipt is None:
        click.echo("The receipt is of the search for groups, which was paid; the answer cost nothing.", err=True)


def _form(form: str | None, output: Path | None) -> str:
    from cloister.query.display import FORMATS

    ending = output.suffix.removeprefix(".") if output is not None else ""
    form = form or (ending if ending in FORMATS else "table")
    if output is None and form == "parquet":
        raise click.UsageError("Parquet is for files: say --output answer.parquet.")
    if output is not None and form == "table":
        raise click.UsageError(f"a file takes --format {', '.join(FORMATS)}, or an --output that ends so.")
    return form


def _deliver(answer: "Answer", form: str, output: Path | None, left: Loss) -> None:
    from cloister.query.display import plain_console, show_answer, written

    if form == "table":
        show_answer(answer, plain_console(), left)
        return
    try:
        if output is None:
            click.echo(written(answer, form), nl=False)
        else:
            output.write_bytes(written(answer, form))
    except OSError as error:  # already charged: show it rather than lose it
        show_answer(answer, plain_console(), left)
        raise click.ClickException(f"{output} could not be written: {error.strerror}.") from error
    click.echo(f"cost {answer.loss}; {left} left", err=True)
