"""`cloister schema`: write a first schema, and check one."""

import click

from cloister.data.schema import Schema

__all__ = ["schema"]


@click.group()
def schema() -> None:
    """Write down what is public about tables, and check it."""


@schema.command("draft")
@click.argument("file")
def draft_command(file: str) -> None:
    """Print a schema with blanks for FILE (CSV, Parquet, DuckDB, or a postgresql:// address). Reads no value.

    Roles and regulation tags of columns are proposed from their names.
    """
    from cloister.data.draft import draft

    click.echo(draft(file), nl=False)


@schema.command("draft-as-owner")
@click.argument("file")
def draft_as_owner_command(file: str) -> None:
    """Print a schema for FILE with bounds and categories taken from its VALUES, each marked to be confirmed."""
    from cloister.data.draft import draft_as_owner

    click.echo(draft_as_owner(file), nl=False)


@schema.command("check")
@click.argument("file", type=click.Path(exists=True, dir_okay=False))
@click.option(
    "--against",
    metavar="DATA",
    help="Count what becomes of the rows of DATA (a file, a folder, an address). The OWNER'S view: it reads values.",
)
def check_command(file: str, against: str | None) -> None:
    """List every problem of the schema in FILE, in order; none may be left.

    With --against, say for each column how many rows of DATA are left out, how many values are clipped to a bound, are
    outside the categories or do not read as the column's type. Nothing of that may be published or shown to users.
    """
    checked = Schema.load(file)
    checked.check()
    columns = sum(len(table.columns) for table in checked.tables.values())
    click.echo(f"{file}: {len(checked.tables)} tables, {columns} columns, protects {checked.unit}. No problem found.")
    if identifiers := [f"{table.name}.{name}" for table in checked.tables.values() for name in table.identifiers]:
        click.echo(f"Identifiers, which no query, model or synthetic table uses: {', '.join(identifiers)}.")
    if against is not None:
        from cloister.data.schema_fit import fit_of, fit_text

        click.echo(fit_text(fit_of(against, checked)))
