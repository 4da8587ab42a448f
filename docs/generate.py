"""The pages of the docs that are made from the code: errors, command line, settings, benchmarks, reference.

`make docs` and `make bench` write them; a test fails when they are not what the code says.
"""

import ast
import json
from collections.abc import Iterator
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click

from cloister.attack.zoo import ZOO
from cloister.cli import main as cloister
from cloister.hub.ops.settings_page import settings_page
from cloister.privacy.errors import CloisterError, catalogue

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
MADE = "<!-- Made by docs/generate.py from {}. Edit that, then run `make docs`. -->\n"


def pages() -> dict[str, str]:
    """Every generated page, by its path under docs/."""
    made = {"errors.md": errors(), "cli.md": command_line(), "benchmarks.md": benchmarks(), "zoo.md": zoo()}
    made["hub-settings.md"] = MADE.format("src/cloister/hub/core/settings.py") + "\n" + settings_page()
    return made | {f"reference/{room.name}.md": reference(room) for room in rooms()}


# Errors.


def errors() -> str:
    """One section a code, under the branch of the tree it hangs on."""
    parts = [
        MADE.format("src/cloister/privacy/errors.py"),
        "# Errors\n",
        "Every refusal carries a code. Its message says what was asked, the rule, what was got and what to do next,\n"
        "and never contains a value from a private table. All are a `cloister.privacy.errors.CloisterError`.\n",
    ]
    for branch in CloisterError.__subclasses__():
        members = [kind for kind in catalogue() if issubclass(kind, branch)]
        if members:
            parts += [f"## {branch.__name__}\n", f"{cleandoc(branch.__doc__ or '')}\n"]
            parts += [_error(kind) for kind in members]
    return "\n".join(parts)


def _error(kind: type[CloisterError]) -> str:
    meaning = cleandoc(kind.__doc__ or "")
    return f"### {kind.code} {kind.__name__}\n\n{meaning}\n\n*Way out:* {kind.way_out}\n"


# The zoo of broken mechanisms.

_KINDS = {
    "mechanism": ("Mechanisms", "mechanisms.py"),
    "query": ("Queries", "queries.py"),
    "training": ("Training", "training.py"),
    "protocol": ("Protocols", "protocols.py"),
}


def zoo() -> str:
    """Every fault of the zoo, by kind, and how to run it."""
    parts = [
        MADE.format("src/cloister/attack/zoo/"),
        "# The zoo\n",
        "Faults that people make when they write a private mechanism, a query engine, a training loop or a\n"
        "protocol. Each is a broken mechanism beside an honest twin with the same claim. `cloister attack zoo`\n"
        "audits all of them: an audit is worth using if it refutes the broken ones and never accuses a twin.\n"
        "[Benchmarks](benchmarks.md) has the result. To test your own auditor, take the pairs from\n"
        "`cloister.attack.zoo.ZOO`.\n",
    ]
    for kind, (title, file) in _KINDS.items():
        rows = [[t.name, t.fault, str(t.claim), t.reference or "—"] for t in ZOO if t.kind == kind]
        parts += [f"## {title}\n", f"Code: `src/cloister/attack/zoo/{file}`.\n"]
        parts.append(_table(["fault", "what is wrong", "claim", "described in"], rows))
    return "\n".join(parts)


# Command line.


def command_line() -> str:
    """What `--help` says, command by command."""
    parts = [
        MADE.format("the help of each command"),
        "# Command line\n",
        "`cloister` is thin: each command calls the library and prints what it returns. A refusal is one sentence\n"
        "with its [code](errors.md) and the exit status 1; a misspelt call has the exit status 2.\n",
    ]
    for name, text in _help("cloister", cloister):
        parts.append(f"## {name}\n\n```text\n{text}\n```\n")
    return "\n".join(parts)


def _help(name: str, command: click.Command, parent: click.Context | None = None) -> Iterator[tuple[str, str]]:
    # Under its parent, as when it is called: the names of the help option come from there, and click remembers them.
    ctx = click.Context(command, parent, info_name=name, terminal_width=100, **command.context_settings)
    yield ctx.command_path, command.get_help(ctx)
    if isinstance(command, click.Group):
        for inner in command.list_commands(ctx):
            found = command.get_command(ctx, inner)
            if found is not None and not found.hidden:
                yield from _help(inner, found, ctx)


# Benchmarks.


def benchmarks() -> str:
    """One section a result, in the order of the file names."""
    parts = [
        MADE.format("benchmarks/results/*.json (`make bench`)"),
        "# Benchmarks\n",
        "One question per file in `benchmarks/`. `make bench` asks them all again on your machine.\n",
    ]
    for path in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        parts.append(_benchmark(path.stem, json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(parts)


def _benchmark(name: str, result: dict[str, Any]) -> str:
    parts = [f"## {result['title']}\n", f"{result['question']}\n"]
    for table in result["tables"]:
        parts += [f"*{table['caption']}*\n", _table(table["columns"], table["rows"])]
    if result["bars"]:
        rows = [[bar["bar"], bar["measured"], "yes" if bar["met"] else "**no**"] for bar in result["bars"]]
        parts += ["*Bars*\n", _table(["bar", "measured", "met"], rows)]
    parts += [f"- {note}" for note in result["notes"]] + [""] * bool(result["notes"])
    parts.append(f"<small>`benchmarks/{name}.py`, {result['date']}, {_machine(result['machine'])}</small>\n")
    return "\n".join(parts)


def _machine(facts: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in facts["packages"].items())
    where = f"{facts['cores']} cores of {facts['cpu']}, {facts['memory_gb']} GB, {facts['system']}"
    return f"{where}; Python {facts['python']}, {versions}"


def _table(columns: list[Any], rows: list[list[Any]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in lines) + "\n"


# Reference.


def rooms() -> list[Path]:
    """The folders of the package that hold Python."""
    return sorted(
        path.parent for path in (ROOT / "src" / "cloister").glob("*/__init__.py") if path.parent.name != "cli"
    )


def reference(room: Path) -> str:
    """Every module of a room that says what it offers, for mkdocstrings to fill in."""
    parts = [MADE.format("the modules of the room"), f"# cloister.{room.name}\n"]
    doc = ast.get_docstring(ast.parse((room / "__init__.py").read_text(encoding="utf-8")))
    if doc:
        parts.append(f"{doc.partition(chr(10))[0]}\n")
    for path in sorted(room.rglob("*.py")):
        if path.name != "__init__.py" and "__all__" in path.read_text(encoding="utf-8"):
            name = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
            parts.append(f"::: {name}\n")
    return "\n".join(parts)


def write() -> None:
    """Write every page."""
    for name, text in pages().items():
        path = DOCS / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
