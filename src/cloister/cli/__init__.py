"""The command line: `cloister COMMAND`. One file per command in this folder, without logic.

A command is a file `NAME.py` here that holds a click command or group called `NAME`. It is found by its file and
loaded when called, so that `cloister --version` loads no other package.
"""

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import click

from cloister.privacy.errors import CloisterError
from cloister.version import __version__

__all__ = ["main"]


class Commands(click.Group):
    """Commands from the files of this folder."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands, without loading them."""
        return sorted(module.name for module in iter_modules(__path__))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Load the command of that name."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command: click.Command = getattr(import_module(f"cloister.cli.{cmd_name}"), cmd_name)
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run, and print a refusal as its message instead of a traceback."""
        try:
            return super().invoke(ctx)
        except CloisterError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="cloister", message="%(prog)s %(version)s")
def main() -> None:
    """Learn from data that nobody is allowed to see."""
