"""The command line: thin, lazy, and one sentence for a refusal."""

import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

import cloister
from cloister import cli
from cloister.privacy.errors import OverBudget


def invoke(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli.main, arguments)
    return result.exit_code, result.output


def test_it_says_its_version():
    assert invoke("--version") == (0, f"cloister {cloister.__version__}\n")


def test_the_installed_command_is_this_one():
    command = Path(sys.executable).parent / "cloister"
    done = subprocess.run([command, "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"cloister {cloister.__version__}\n"


def test_every_file_is_a_command_of_its_own_name_with_a_help():
    folder = Path(cli.__file__).parent
    files = {path.stem for path in folder.glob("*.py")} - {"__init__"}
    ctx = click.Context(cli.main)
    assert set(cli.main.list_commands(ctx)) == files
    for name in files:
        command = cli.main.get_command(ctx, name)
        assert isinstance(command, click.Command)
        assert command.name == name
        assert command.help


def test_the_commands_of_the_core_are_there():
    assert {"demo", "ledger", "receipt"} <= set(cli.main.list_commands(click.Context(cli.main)))


def test_a_command_is_loaded_only_when_it_is_called():
    code = "import sys; from cloister import cli; print(*[m for m in sys.modules if m.startswith('cloister.')])"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    assert "cloister.cli" in loaded
    assert not [
        name for name in loaded if name.startswith(("cloister.cli.", "cloister.attack", "cloister.privacy.ledger"))
    ]


def test_an_unknown_command_is_refused_with_the_usage():
    status, output = invoke("nonsense")
    assert status == 2
    assert "No such command 'nonsense'" in output


def test_a_refusal_is_one_sentence_and_not_a_traceback():
    @click.command()
    def ask() -> None:
        raise OverBudget("needs rho 0.1, 0.03 is left. Lower spend or ask the owner.")

    group = cli.Commands("cloister")
    group.get_command = lambda ctx, name: ask  # type: ignore[method-assign]
    result = CliRunner().invoke(group, ["ask"])
    assert result.exit_code == 1
    assert result.output == "Error: CLO-204: needs rho 0.1, 0.03 is left. Lower spend or ask the owner.\n"


def test_a_mistake_of_ours_is_not_dressed_up_as_a_refusal():
    @click.command()
    def ask() -> None:
        raise ZeroDivisionError

    group = cli.Commands("cloister")
    group.get_command = lambda ctx, name: ask  # type: ignore[method-assign]
    with pytest.raises(ZeroDivisionError):
        CliRunner().invoke(group, ["ask"], catch_exceptions=False)


def test_a_ledgers_folder_does_for_its_file(tmp_path):
    from click.testing import CliRunner

    from cloister.privacy.ledger import Ledger
    from cloister.privacy.loss import rho

    with Ledger.in_folder(tmp_path) as book:
        book.open_account("visits", rho(1))
        key = str(book.key.public)
    for place in (tmp_path, tmp_path / "ledger.db"):
        done = CliRunner().invoke(cli.main, ["ledger", "show", str(place), "--key", key])
        assert done.exit_code == 0, done.output
        assert "visits" in done.output
