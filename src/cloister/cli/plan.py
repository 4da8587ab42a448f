"""`cloister plan`: the cost and expected error of a query. Costs nothing and reads nothing."""

import tempfile
from pathlib import Path
from typing import Any

import click

from cloister.cli.query import check_price, data_options, open_dataset, price_options
from cloister.privacy.loss import Loss

__all__ = ["plan"]


@click.command()
@data_options
@click.argument("sql")
@price_options
def plan(sql: str, spend: Loss | None, within: str | None, confidence: str, ledger: Path, **data: Any) -> None:
    """Show what asking SOURCE a question in SQL would cost, and how wrong the answer may be. Free; reads no row."""
    from cloister.query.explain import plan_of

    check_price(spend, within)
    with tempfile.TemporaryDirectory() as passing:  # a plan must not open a permanent account
        folder = ledger if _has_account(ledger, **data) else Path(passing)
        with open_dataset(ledger=folder, **data) as dataset:
            click.echo(str(plan_of(dataset, sql, spend, within, confidence)))


def _has_account(folder: Path, schema: str, name: str | None, **_: Any) -> bool:
    """Return True if the ledger in a folder has the account that the dataset would use."""
    from cloister.data.schema import Schema
    from cloister.privacy.ledger import Ledger

    if not (folder / "ledger.db").exists():
        return False
    account = name or next(iter(Schema.load(schema).tables))
    with Ledger.in_folder(folder) as ledger:
        return bool(ledger.balances(account))
