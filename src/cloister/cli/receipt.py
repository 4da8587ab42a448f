"""`cloister receipt`: read a receipt, and check it offline."""

from pathlib import Path

import click

from cloister.client import survey_wire
from cloister.hub.surveys import receipts
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
    if receipts.is_of_survey(text):
        click.echo(receipts.words(receipts.read(text)))
    else:
        click.echo("\n\n".join(map(str, _receipts(text))))


@receipt.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", required=True, help="Public key of the owner (ed25519:...), or a file that holds it.")
def verify(file: Path, key: str) -> None:
    """Check a receipt against the owner's public key, which you must have from elsewhere."""
    text = file.read_bytes()
    if receipts.is_of_survey(text):
        click.echo(
            f"{receipts.words(survey_wire.verify_receipt(text, PublicKey.load(key)))}\n\nThe receipt is genuine."
        )
        return
    parsed = _receipts(text)
    for each in parsed:
        each.verify(PublicKey.load(key))
    click.echo("\n\n".join([*map(str, parsed), _verdict(len(parsed))]))


def _verdict(number: int) -> str:
    """Return what was checked: each receipt by itself, so that one which was taken out of the file is not missed."""
    genuine = "The receipt is genuine." if number == 1 else f"All {number} receipts are genuine."
    return f"{genuine}\nIf the file held others before, that cannot be seen here: the ledger lists every charge."


def _receipts(text: bytes) -> list[Receipt]:
    """Return the receipts in a file, one on each line: a job with several charges has several."""
    return [Receipt.parse(line) for line in text.splitlines() if line.strip()] or [Receipt.parse(text)]
