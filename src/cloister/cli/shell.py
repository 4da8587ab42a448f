"""`cloister shell`: many queries in one session."""

from pathlib import Path
from typing import Any

import click

from cloister.cli.query import data_options, open_dataset, price_options
from cloister.privacy.loss import Loss

__all__ = ["shell"]


@click.command()
@data_options
@price_options
def shell(spend: Loss | None, within: str | None, confidence: str, ledger: Path, **data: Any) -> None:
    r"""Ask SOURCE questions in SQL, one after the other, with history and completion. \help says how."""
    from cloister.query.display import plain_console
    from cloister.query.prompt import open_reader
    from cloister.query.shell import COMMANDS, Shell

    with open_dataset(ledger=ledger, **data) as dataset:
        console = plain_console()
        reader = open_reader(dataset.account.name, dataset.schema, ledger / "history", list(COMMANDS), console)
        Shell(dataset, reader, console, spend=spend, within=within, confidence=confidence).run()
