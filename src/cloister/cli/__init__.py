"""The command line: `cloister COMMAND`. One file per command in this folder, without logic.

A command is a file `NAME.py` here that holds a click command or group called `NAME`. It is found by its file and
loaded when called, so that `cloister --version` loads no other package.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib import import_module
from itertools import combinations
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import click

from cloister.privacy.errors import CloisterError
from cloister.version import __version__

__all__ = ["check_outputs", "main", "progress_bar"]

_BESIDE = ("", ".anonymized.json", ".side.json")  # a table, and the facts beside a released or a synthetic one


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


def check_outputs(besides: Sequence[Path] = ()) -> None:
    """Refuse to write a file that the running command reads, or two outputs to one file, whatever is forced.

    Options of the type `click.Path(writable=True)` name the outputs; every other parameter may name an input.

    Args:
        besides: further files that the command writes.

    Raises:
        click.UsageError: before anything is written.
    """
    context = click.get_current_context()
    outputs, inputs = list(besides), set()
    for parameter in context.command.params:
        value = context.params.get(parameter.name or "")
        if isinstance(parameter.type, click.Path) and parameter.type.writable:
            outputs += [Path(value)] if value is not None else []
        else:
            named = isinstance(parameter, click.Argument) or parameter.metavar == "SOURCE"
            inputs |= {path for path in _existing(value) if named or path.is_file()}
    for output in outputs:
        target = output.resolve()
        folders = target.parents if target.suffix.lower() == ".parquet" else ()  # a folder's other files are not read
        for path in inputs:
            if target == path or path in folders:
                raise click.UsageError(f"{output} is read here, and would be changed. Write to another file.")
    for one, other in combinations(outputs, 2):
        if one.resolve() == other.resolve():
            raise click.UsageError(f"{one} would be written twice. Give each its own name.")


def _existing(value: Any) -> Iterator[Path]:
    """Yield the files and folders that the value of a parameter names: FILE, COLUMN=FILE, or several."""
    if isinstance(value, list | tuple):
        for entry in value:
            yield from _existing(entry)
    elif isinstance(value, str | Path):
        for name in {str(value), str(value).partition("=")[2]} - {""}:
            for ending in _BESIDE:
                with suppress(OSError, ValueError):  # too long, or no path at all
                    if (path := Path(f"{name}{ending}")).exists():
                        yield path.resolve()


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
