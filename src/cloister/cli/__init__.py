"""The command line: `cloister COMMAND`. One file per command in this folder, without logic.

A command is a file `NAME.py` here that holds a click command or group called `NAME`. It is found by its file and
loaded when called, so that `cloister --version` loads no other package.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import click

from cloister.privacy.errors import CloisterError
from cloister.version import __version__

__all__ = ["main", "progress_bar"]


@contextmanager
def progress_bar(label: str) -> Iterator[Callable[[float, str], None]]:
    """Yield a progress bar called with a share and a sentence; no output without a terminal."""
    if not sys.stderr.isatty():
        yield lambda _share, _sentence: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        BarColumn(), TimeElapsedColumn(), TextColumn("{task.description}"), console=Console(stderr=True)
    ) as bars:
        task = bars.add_task(label, total=1.0)
        yield lambda share, sentence: bars.update(task, completed=share, description=sentence)


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
