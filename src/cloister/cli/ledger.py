"""`cloister ledger`: read, verify and, for its owner, repair a ledger."""

from pathlib import Path

import click

from cloister.privacy.ledger import Head, Ledger, verify
from cloister.privacy.ledger.store import open_store
from cloister.privacy.signing import PublicKey, SigningKey

__all__ = ["ledger"]


def _in_folder(_context: click.Context, _parameter: click.Parameter, path: str) -> str:
    """Return the ledger in a folder, as every --ledger option does."""
    return str(Path(path) / "ledger.db") if Path(path).is_dir() else path


_FILE = click.argument("file", callback=_in_folder)
_KEY = click.option("--key", required=True, help="Public key of the owner (ed25519:...), or a file that holds it.")
_OWNER = click.option("--key", required=True, type=click.Path(exists=True), help="File with the owner's private key.")
_KEPT = click.option("--kept", required=True, type=click.Path(), help="File outside the ledger that keeps the head.")


@click.group()
def ledger() -> None:
    """Read, verify and repair a ledger (a file, its folder, or a postgresql:// address)."""


@ledger.command("verify")
@_FILE
@_KEY
@click.option(
    "--head", help="Head from a receipt or a printout, or the file that keeps it: the ledger must contain it."
)
def verify_command(file: str, key: str, head: str | None) -> None:
    """Recompute every hash, signature and total of FILE, and name the first bad entry."""
    report = verify(file, PublicKey.load(key), _head(head) if head else None)
    click.echo(str(report))
    raise SystemExit(0 if report.ok else 1)


@ledger.command()
@_FILE
@_KEY
def show(file: str, key: str) -> None:
    """Show the budget, the privacy budget used and the rest of each account of FILE, recomputed from the entries."""
    report = verify(file, PublicKey.load(key))
    for balance in report.balances:
        click.echo(f"{balance.rules}\n  spent {balance.spent}\n  left  {balance.left}")
    click.echo(str(report))
    raise SystemExit(0 if report.ok else 1)


@ledger.command()
@_FILE
def head(file: str) -> None:
    """Print the head of FILE in one line, to keep elsewhere."""
    store = open_store(file, "read")
    with store.reading() as tables:
        last = tables.last()
    store.close()
    click.echo("" if last is None else str(last.head))


@ledger.command("show-head")
@_FILE
@click.argument("head")
@_OWNER
@_KEPT
def show_head(file: str, head: str, key: str, kept: str) -> None:
    """Prove with the newest HEAD that a restored ledger FILE is current, and unlock spending."""
    with Ledger.open(file, key=SigningKey.load(key), head=kept) as book:
        click.echo(f"The ledger contains it. Head {book.show_head(_head(head)).head}")


@ledger.command("write-off")
@_FILE
@click.argument("accounts", nargs=-1)
@_OWNER
@_KEPT
def write_off(file: str, accounts: tuple[str, ...], key: str, kept: str) -> None:
    """Give up what is left of ACCOUNTS in FILE (of all, if none is named)."""
    with Ledger.open(file, key=SigningKey.load(key), head=kept) as book:
        for account in book.accounts() if not accounts else [book.account(name) for name in accounts]:
            click.echo(f"{account.rules.key}: {book.write_off(account).lines[0].loss} written off.")


def _head(text: str) -> Head:
    return Head.parse(Path(text).read_text(encoding="ascii") if Path(text).is_file() else text)
