"""`cloister receipt`: read a receipt, and check it offline."""

from pathlib import Path

import click

from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import PublicKey

__all__ = ["receipt"]


@click.group()
def receipt() -> None:
    """Read and verify receipts of releases."""


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def show(file: Path) -> None:
    """Print what a receipt says. It proves nothing until it is verified."""
    click.echo(str(Receipt.parse(file.read_bytes())))


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", required=True, help="The owner's public key (ed25519:...), or a file that holds it.")
def verify(file: Path, key: str) -> None:
    """Check a receipt against the owner's public key, which you must have from elsewhere."""
    found = Receipt.parse(file.read_bytes())
    found.verify(PublicKey.load(key))
    click.echo(f"{found}\n\nThe receipt is genuine.")
