"""`cloister hub`: set up, run and look after a hub."""

import os
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.hub.core.settings import Settings

__all__ = ["hub"]

_FILE = click.Path(dir_okay=False, path_type=Path)
_FOLDER = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the hub.  [default: CLOISTER_FOLDER, or cloister-hub]",
)


def _settings(folder: Path | None = None, **changes: Any) -> "Settings":
    """Return the settings of the environment, overridden by the command line."""
    from cloister.hub.core.settings import Settings
    from cloister.privacy.errors import MissingExtra

    if not all(find_spec(name) for name in ("alembic", "fastapi", "sqlalchemy", "uvicorn")):
        raise MissingExtra("a hub needs its packages. Run: pip install 'cloister[hub]'")
    options = {name: value for name, value in {"folder": folder, **changes}.items() if value is not None}
    settings = Settings.from_environment(**options)
    if settings.address == Settings().address:  # not given: it is on this machine, at any port
        settings = replace(settings, address=f"http://127.0.0.1:{settings.port}")
    return settings


def _open(folder: Path | None) -> "Hub":
    from cloister.hub.core.hub import Hub

    return Hub.open(_settings(folder))


@click.group()
def hub() -> None:
    """Set up, run and look after a hub, where owners share data and researchers ask."""
    os.umask(0o077)  # written files are readable by the hub's own user only


@hub.command()
@_FOLDER
@click.option(
    "--operator", required=True, metavar="EMAIL", help="E-mail address of the operator, who gets the first invitation."
)
def init(folder: Path | None, operator: str) -> None:
    """Make a new hub: its folder, keys, ledger and database, and an invitation for its operator."""
    from cloister.hub.ops.setup import begin

    created = begin(_settings(folder), operator)
    click.echo(f"A hub in {created.folder}. Its receipts are signed by\n  {created.public_key}")
    click.echo(f"Copy {created.master_key} to a safe place: without it nothing can be opened or restored.")
    click.echo(f"Start it with `cloister hub serve`, then open, within 7 days,\n  {created.invitation}")


@hub.command()
@_FOLDER
@click.option("--host", help="Address to listen on.  [default: CLOISTER_HOST, or 127.0.0.1]")
@click.option("--port", type=int, help="Port to listen on.  [default: CLOISTER_PORT, or 8400]")
def serve(folder: Path | None, host: str | None, port: int | None) -> None:
    """Serve pages and run jobs, until Ctrl-C."""
    from cloister.hub.ops.serve import serve as run

    settings = _settings(folder, host=host, port=port)
    _open(folder).close()  # refused before anything is announced
    click.echo(f"{settings.name} is at {settings.address}; listening on {settings.host}:{settings.port}.", err=True)
    raise SystemExit(run(settings))


@hub.command()
@_FOLDER
@click.option("--count", default=1, show_default=True, type=click.IntRange(1, 64), help="Number of processes.")
def worker(folder: Path | None, count: int) -> None:
    """Run jobs only, beside a hub whose pages are served elsewhere."""
    from cloister.hub.ops.serve import work

    raise SystemExit(work(_settings(folder), count))


@hub.command()
@click.option(
    "--folder",
    default="cloister-demo",
    show_default=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the hub; an existing one is used again.",
)
@click.option("--port", type=int, help="Port to listen on.  [default: CLOISTER_PORT, or 8400]")
@click.option("--serve/--no-serve", "serving", default=True, help="Serve the hub after making it.  [default: serve]")
def demo(folder: Path, port: int | None, serving: bool) -> None:
    """Make a hub with a hospital, a clinic and two researchers in it, and serve it."""
    from cloister.hub.ops.demo import make_demo
    from cloister.hub.ops.serve import serve as run

    settings = _settings(folder, port=port)
    click.echo(make_demo(settings).sheet())
    if serving:
        raise SystemExit(run(settings))


@hub.command()
@click.argument("email")
@_FOLDER
@click.option("--role", "roles", multiple=True, help="Role of the user, such as 'data user'; may be repeated.")
@click.option("--organisation", default="", help="Organisation of the user; made if it does not exist.")
@click.option("--country", default="", help="Country of the organisation, as two letters; set if it has none yet.")
def invite(email: str, folder: Path | None, roles: tuple[str, ...], organisation: str, country: str) -> None:
    """Print an invitation link for EMAIL."""
    from cloister.hub.ops.setup import invitation_link

    with _open(folder) as opened:
        click.echo(invitation_link(opened, email, roles or ("data user",), organisation, country))


@hub.command()
@click.argument("file", type=_FILE)
@_FOLDER
def backup(file: Path, folder: Path | None) -> None:
    """Copy a hub, running or not, into FILE: all but the master key and the ledger's head."""
    from cloister.hub.ops.backup import backup as copy
    from cloister.hub.ops.ledger_heads import newest_head

    with _open(folder) as opened:
        done = copy(opened, file)
        click.echo(f"{done.files} files in {done.place}.")
        for note in done.notes:
            click.echo(note)
        click.echo(f"The head at this moment:\n  {newest_head(opened)}")


@hub.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--master-key",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with the master key, to be put into FOLDER, unless the environment names one.",
)
def restore(file: Path, folder: Path, master_key: Path | None) -> None:
    """Make a hub in FOLDER from the copy in FILE. It refuses to spend until the newest head is shown."""
    from cloister.hub.ops.backup import restore as make

    done = make(file, _settings(folder), master_key)
    click.echo(f"{done.files} files in {done.place}.")
    for note in done.notes:
        click.echo(note)


@hub.command("show-head")
@click.argument("head")
@_FOLDER
def show_head(head: str, folder: Path | None) -> None:
    """Prove with the newest HEAD (a line, a file, or a receipt) that a restored hub is current, and unlock spending."""
    from cloister.hub.ops.ledger_heads import show_head as show

    with _open(folder) as opened:
        click.echo(f"The ledger contains it. Head {show(opened, head)}")


@hub.command("write-off")
@click.argument("datasets", nargs=-1, required=True)
@_FOLDER
def write_off(datasets: tuple[str, ...], folder: Path | None) -> None:
    """Give up what is left of the budgets of DATASETS, in the name of their owners."""
    from cloister.hub.ops.ledger_heads import require_accounts
    from cloister.hub.ops.ledger_heads import write_off as give_up

    with _open(folder) as opened:
        require_accounts(opened, datasets)  # a mistyped name discards none of the others
        for name in datasets:
            for account, loss in give_up(opened, name):
                click.echo(f"{account}: {loss} written off.")


@hub.command("policy-test")
@click.argument("policy", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("cases", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--schema", type=click.Path(exists=True), help="Schema of the dataset, to check which columns are seen.")
def policy_test(policy: Path, cases: Path, schema: str | None) -> None:
    """Ask POLICY the questions in CASES, and compare its decisions with the expected ones."""
    from cloister.data.schema import Schema
    from cloister.hub.policy.text.check import run as ask

    report = ask(
        policy.read_text(encoding="utf-8"),
        cases.read_text(encoding="utf-8"),
        None if schema is None else Schema.load(schema),
    )
    click.echo(str(report))
    raise SystemExit(0 if report.passed else 1)
