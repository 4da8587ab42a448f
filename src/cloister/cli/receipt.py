"""`cloister receipt`: read a receipt, and check it offline."""

from pathlib import Path

import click

from cloister.hub.surveys import proof, receipts
from cloister.privacy.receipt import Receipt
from cloister.privacy.signing import PublicKey

__all__ = ["receipt"]


@click.group()
def receipt() -> None:
    """Read and verify receipts of releases, and of surveys."""


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
def show(file: Path) -> None:
    """Print what a receipt says. It proves nothing until it is verified."""
    text = file.read_bytes()
    click.echo(receipts.words(receipts.read(text)) if receipts.is_of_survey(text) else str(Receipt.parse(text)))


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", required=True, help="Public key of the owner (ed25519:...), or a file that holds it.")
def verify(file: Path, key: str) -> None:
    """Check a receipt against the owner's public key, which you must have from elsewhere."""
    text = file.read_bytes()
    if receipts.is_of_survey(text):
        summary = receipts.words(proof.verify(text, PublicKey.load(key)))
    else:
        parsed = Receipt.parse(text)
        parsed.verify(PublicKey.load(key))
        summary = str(parsed)
    click.echo(f"{summary}\n\nThe receipt is genuine.")
