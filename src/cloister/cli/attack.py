"""`cloister attack`: audit other people's code, and the audit itself on a zoo of broken mechanisms."""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import click

__all__ = ["attack"]

_NEW = click.Path(dir_okay=False, writable=True, path_type=Path)


@click.group()
def attack() -> None:
    """Attack models, tables, mechanisms and queries. Reads rows without noise: the owner's view."""


def _report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a report."""
    for option in (
        click.option("--json", "json_file", type=_NEW, metavar="FILE", help="Write figures and sentences as JSON."),
        click.option("--html", type=_NEW, metavar="FILE", help="Write a page that needs no network."),
    ):
        command = option(command)
    return command


def _report(findings: Any, html: Path | None, json_file: Path | None, *, title: str, made_up: bool = False) -> None:
    """Write the files that were asked for, and say where they are."""
    from cloister.attack.report.page import save, save_json

    if html is not None:
        click.echo(f"Wrote {save(findings, html, title=title, made_up=made_up)}.")
    if json_file is not None:
        click.echo(f"Wrote {save_json(findings, json_file)}.")


def _input(_ctx: click.Context, _param: click.Parameter, text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise click.BadParameter("write the input as JSON, such as 3, [1, 0, 2] or '\"yes\"'.") from None


class _Named(NamedTuple):
    """A function, and the name it was called by."""

    name: str
    function: Callable[[Any], Any]


def _function(_ctx: click.Context, _param: click.Parameter, name: str) -> _Named:
    """Import the function that `module:function` names, from this folder or from what is installed."""
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
        raise click.BadParameter(
            f"name a function as module:function, such as mechanisms:noisy_count, not {name[:80]!r}."
        )
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise click.BadParameter(f"there is no module {module} in this folder, and none is installed.") from None
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise click.BadParameter(f"{module} has no {attribute}.")
        found = getattr(found, part)
    if not callable(found):
        raise click.BadParameter(f"{name} is a {type(found).__name__}. Name a function from data to an output.")
    return _Named(name, found)


@attack.command("audit")
@click.argument("mechanism", metavar="MODULE:FUNCTION", callback=_function)
@click.option("--claim", required=True, metavar="LOSS", help="Loss that it states: 'epsilon 1', 'rho 0.1', "
              "'epsilon 1 delta 1e-6', with 'replace-one' if neighbours differ so.")  # fmt: skip
@click.option("--left", required=True, callback=_input, metavar="JSON", help="An input.")
@click.option("--right", required=True, callback=_input, metavar="JSON", help="Its neighbour.")
@click.option("--samples", type=click.IntRange(min=100), default=100_000, show_default=True, help="Samples a side.")
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
              show_default=True, help="Chance that a true claim survives.")  # fmt: skip
@click.option("--family", type=click.Choice(("gaussian",)), help="Law of the noise, if it is known: a sharper bound.")
@_report_options
def audit_command(
    mechanism: _Named,
    claim: str,
    left: Any,
    right: Any,
    samples: int,
    confidence: float,
    family: Any,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Try to refute the claim of a function from data to an output, on two neighbouring inputs.

    The module is imported from this folder or from what is installed, and the function is called 2 × SAMPLES times; a
    `sample(data, n)` attribute is called once a side. Exit code 1 if the claim is refuted.
    """
    from cloister.attack import audit
    from cloister.privacy.loss import Loss

    found = audit(
        mechanism.function, left, right, Loss.parse(claim), n=samples, confidence=confidence, family=family
    )  # fmt: skip
    click.echo(str(found))
    _report(found.finding(mechanism.name), html, json_file, title=mechanism.name, made_up=True)
    if found.broken:
        raise click.exceptions.Exit(1)


@attack.command("zoo")
@click.option("--samples", type=click.IntRange(min=100), default=50_000, show_default=True, help="Samples a side.")
@click.option("--repeats", type=click.IntRange(min=1), default=1, show_default=True, help="Audits of each honest twin.")
@_report_options
def zoo_command(samples: int, repeats: int, html: Path | None, json_file: Path | None) -> None:
    """Audit every broken mechanism of the zoo and its honest twin. Exit code 1 if one is missed or a twin accused."""
    from cloister.attack import zoo

    results = []
    for result in zoo.run(samples=samples, repeats=repeats):
        click.echo(result)
        results.append(result)
    caught, alarms = sum(result.caught for result in results), sum(result.false_alarms for result in results)
    click.echo(f"{caught} of {len(results)} broken mechanisms caught, {alarms} of {repeats * len(results)} audits of "
               "honest ones accuse them.")  # fmt: skip
    findings = [result.broken.finding(result.twins.name) for result in results]
    _report(findings, html, json_file, title="The zoo", made_up=True)
    if caught < len(results) or alarms:
        raise click.exceptions.Exit(1)
