"""`cloister attack`: attack models, gradients, released tables and statistics; audit mechanisms, and the audit."""

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import click

from cloister.cli import check_outputs, progress_bar
from cloister.privacy.errors import BadInput

__all__ = ["attack"]

_NEW = click.Path(dir_okay=False, writable=True, path_type=Path)


class _Attacks(click.Group):
    """Commands that run code of others. Such code may end the program, which is no result, whatever its code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command."""
        try:
            return super().invoke(ctx)
        except SystemExit:
            raise BadInput(
                "the module that was named ended the program, so nothing was attacked. Name one that only defines, and "
                "a function that returns."
            ) from None


@click.group(cls=_Attacks)
def attack() -> None:
    """Attack models, tables, mechanisms and queries. Reads rows without noise: the owner's view."""


def _report_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options of a report, and check its files before any work."""

    @wraps(command)
    def checked(**options: Any) -> Any:
        check_outputs()
        return command(**options)

    for option in (
        click.option("--json", "json_file", type=_NEW, metavar="FILE", help="Write figures and sentences as JSON."),
        click.option("--html", type=_NEW, metavar="FILE", help="Write a page that needs no network."),
    ):
        option(checked)
    return checked


def _report(findings: Any, html: Path | None, json_file: Path | None, *, title: str, made_up: bool = False) -> None:
    """Write the files that were asked for, and say where they are."""
    from cloister.attack.report.page import save, save_json

    if html is not None:
        click.echo(f"Wrote {save(findings, html, title=title, made_up=made_up)}.")
    if json_file is not None:
        click.echo(f"Wrote {save_json(findings, json_file)}.")


def _input(_ctx: click.Context, _param: click.Parameter, text: str | None) -> Any:
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        raise click.BadParameter("write the input as JSON, such as 3, [1, 0, 2] or '\"yes\"'.") from None


def _model_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the argument of a model, and what is needed to read it."""
    for option in (
        click.option("--key", metavar="KEY", help="Public key of a model file: 'ed25519:…'."),
        click.option("--classes", metavar="A,B", help="Classes of a function or an endpoint, in order of its columns."),
        click.argument("model"),
    ):
        command = option(command)
    return command


def _model(name: str, key: str | None) -> Any:
    """Return a model that is named: an address, a file that `learn.save` wrote, or module:name."""
    from cloister.attack.files import imported

    if name.startswith(("http://", "https://")):
        return name
    if ":" not in name or Path(name).exists():
        if key is None:
            raise click.UsageError(
                "a model file that learn.save wrote is read with the public key of its owner: --key ed25519:…. Name "
                "any other model as module:name, a variable of a Python file in this folder."
            )
        from cloister.learn.persistence import load

        return load(name, key)
    return imported(name)


def _classes(text: str | None) -> list[Any] | None:
    """Return the classes that an option lists, as numbers if all are: so a table's labels are read."""
    if text is None:
        return None
    words = [word.strip() for word in text.split(",")]
    for kind in (int, float):
        try:
            return [kind(word) for word in words]
        except ValueError:
            continue
    return list(words)


_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


@attack.command("membership")
@_model_options
@click.option("--members", required=True, type=_FILE, metavar="FILE", help="Rows that it was trained with.")
@click.option("--others", required=True, type=_FILE, metavar="FILE", help="Rows that it was not trained with.")
@click.option("--label", required=True, metavar="COLUMN", help="Column that it predicts.")
@click.option("--method", "methods", multiple=True, metavar="NAME", help="loss, quantile, shadow, lira, lira-offline, "
              "rmia or labels; may be repeated.  [default: loss and quantile]")  # fmt: skip
@click.option(
    "--fit", metavar="MODULE:NAME", help="Estimator, or function of rows and labels, that fits a shadow model."
)
@click.option("--shadows", type=click.IntRange(2, 1024), default=16, show_default=True, help="Number of shadow models.")
@click.option("--labels-only", is_flag=True, help="The attacker sees labels, no probabilities.")
@click.option("--claim", metavar="LOSS", help="Loss that the model states.")
@click.option("--seed", type=int, help="Repeat a run.")
@_report_options
def membership_command(
    model: str,
    key: str | None,
    classes: str | None,
    members: Path,
    others: Path,
    label: str,
    methods: tuple[str, ...],
    fit: str | None,
    shadows: int,
    labels_only: bool,
    claim: str | None,
    seed: int | None,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Find out whether a model tells its training rows from others. Exit code 1 if a claim is refuted.

    MODEL is a file that `learn.save` wrote, module:name of a fitted estimator or a function, or an http address that
    answers JSON.
    """
    from cloister.attack.files import imported, labelled_rows
    from cloister.attack.models.membership import membership_suite
    from cloister.privacy.loss import Loss

    chosen = methods or (("labels",) if labels_only else ("loss", "quantile"))
    with progress_bar("asking the model") as progress:
        findings = membership_suite(
            _model(model, key),
            members=labelled_rows(members, label),
            others=labelled_rows(others, label),
            methods=chosen,
            access="labels only" if labels_only else "black box",
            fit=None if fit is None else imported(fit),
            shadows=shadows,
            classes=_classes(classes),
            claim=None if claim is None else Loss.parse(claim),
            random_state=seed,
            progress=progress,
        )
    _finish(findings, html, json_file, title=model)


@attack.command("steal")
@_model_options
@click.option("--test", required=True, type=_FILE, metavar="FILE", help="Rows on which copy and target are compared.")
@click.option("--rows", type=_FILE, metavar="FILE", help="Rows of the population to ask about.")
@click.option("--box", nargs=2, type=float, metavar="LEAST LARGEST", help="Limits of all features, to draw rows from.")
@click.option("--queries", type=click.IntRange(min=10), help="Most rows to ask about.")
@click.option("--labels-only", is_flag=True, help="The attacker sees labels, no probabilities.")
@click.option("--seed", type=int, help="Repeat a run.")
@_report_options
def steal_command(
    model: str,
    key: str | None,
    classes: str | None,
    test: Path,
    rows: Path | None,
    box: tuple[float, float] | None,
    queries: int | None,
    labels_only: bool,
    seed: int | None,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Copy a model by asking it, and measure how often the copy agrees with it. MODEL is as for `membership`."""
    from cloister.attack.files import read_table, rows_as_array
    from cloister.attack.models.stealing import steal

    with progress_bar("asking the model") as progress:
        finding = steal(
            _model(model, key),
            test=rows_as_array(read_table(test)),
            rows=None if rows is None else rows_as_array(read_table(rows)),
            box=box,
            queries=queries,
            labels_only=labels_only,
            classes=_classes(classes),
            random_state=seed,
            progress=progress,
        )
    _finish([finding], html, json_file, title=model)


@attack.command("inversion")
@_model_options
@click.option("--victims", required=True, type=_FILE, metavar="FILE",
              help="Rows to compare with; the attacker does not see them.")  # fmt: skip
@click.option("--label", required=True, metavar="COLUMN", help="Column that it predicts.")
@click.option("--box", nargs=2, type=float, required=True, metavar="LEAST LARGEST", help="Limits of all features.")
@click.option("--method", type=click.Choice(("hill climbing", "gradient")), default="hill climbing", show_default=True,
              help="Search by answers, or by gradients of a JAX function.")  # fmt: skip
@click.option("--seed", type=int, help="Repeat a run.")
@_report_options
def inversion_command(
    model: str,
    key: str | None,
    classes: str | None,
    victims: Path,
    label: str,
    box: tuple[float, float],
    method: str,
    seed: int | None,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Search for the inputs that a model takes for its classes. MODEL is as for `membership`."""
    from cloister.attack.files import labelled_rows
    from cloister.attack.models.inversion import inversion

    with progress_bar("climbing") as progress:
        finding = inversion(
            _model(model, key),
            victims=labelled_rows(victims, label),
            box=box,
            method=method,
            classes=_classes(classes),
            random_state=seed,
            progress=progress,
        )
    _finish([finding], html, json_file, title=model)


@attack.command("gradients")
@click.argument("victims", metavar="MODULE:NAME")
@click.option("--rows", "kind", type=click.Choice(("records", "images", "table")), default="records", show_default=True,
              help="What is searched: one record in closed form, images, or rows of a table.")  # fmt: skip
@click.option("--shape", metavar="H,W", help="Shape of an image.")
@click.option("--columns", metavar="MODULE:NAME", help="Columns of a table: categories and numbers.")
@click.option("--clip", type=click.FloatRange(min=0, min_open=True), help="Norm to which a client's update is clipped.")
@click.option("--spend", metavar="LOSS", help="Loss of one clipped update, which fixes the noise: 'rho 0.5'.")
@click.option("--clients", type=click.IntRange(min=2), help="Clients of a secure sum.")
@click.option("--lot", type=click.IntRange(min=2), help="Records of a larger lot.")
@_report_options
def gradients_command(
    victims: str,
    kind: str,
    shape: str | None,
    columns: str | None,
    clip: float | None,
    spend: str | None,
    clients: int | None,
    lot: int | None,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Search for the rows behind a gradient, without a defence and with each that an option names.

    MODULE:NAME is a `GradientStep` of `cloister.attack.updates` (loss, parameters, rows), or a list of them.
    """
    from functools import partial

    from cloister.attack import updates
    from cloister.attack.files import imported
    from cloister.privacy.loss import Loss

    if (kind == "images") != (shape is not None) or (kind == "table") != (columns is not None):
        raise click.UsageError("--rows images needs --shape H,W, and --rows table needs --columns MODULE:NAME.")
    if spend is not None and clip is None:
        raise click.UsageError("noise needs a bound on the update: give --clip too.")
    defences = [] if clip is None else [updates.Defence.clipping(clip)]
    defences += [] if spend is None or clip is None else [updates.Defence.noise(clip, Loss.parse(spend))]
    defences += [] if clients is None else [updates.Defence.secure_sum(clients)]
    defences += [] if lot is None else [updates.Defence.larger_lot(lot)]
    search: Any = updates.record_leak
    if shape is not None:
        search = partial(updates.image_leak, shape=tuple(int(size) for size in shape.split(",")))
    elif columns is not None:
        search = partial(updates.table_leak, columns=imported(columns))
    with progress_bar("searching") as progress:
        findings = updates.compare_defences(imported(victims), search, defences, progress=progress)
    _finish(findings, html, json_file, title=victims)


@attack.command("poison")
@click.argument("fit", metavar="MODULE:NAME")
@click.option("--train", required=True, type=_FILE, metavar="FILE", help="Clean training rows.")
@click.option("--test", required=True, type=_FILE, metavar="FILE", help="Clean rows to measure on.")
@click.option("--label", required=True, metavar="COLUMN", help="Column that is predicted.")
@click.option("--share", type=click.FloatRange(0, 1, min_open=True), default=0.1, show_default=True,
              help="Share of the training rows whose label is false.")  # fmt: skip
@click.option("--repeats", type=click.IntRange(min=2), default=5, show_default=True, help="Poisoned models.")
@_report_options
def poison_command(
    fit: str,
    train: Path,
    test: Path,
    label: str,
    share: float,
    repeats: int,
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Train with and without false labels, and measure the damage on clean rows.

    MODULE:NAME is an estimator, or a function of rows and labels that returns a model.
    """
    from cloister.attack.files import imported, labelled_rows
    from cloister.attack.models.poisoning import poison_training

    with progress_bar("training") as progress:
        finding = poison_training(
            imported(fit), *labelled_rows(train, label), *labelled_rows(test, label), share=share, repeats=repeats,
            progress=progress,
        )  # fmt: skip
    _finish([finding], html, json_file, title=fit)


@attack.command("link")
@click.argument("released", type=_FILE)
@click.argument("known", type=_FILE)
@click.option("--on", required=True, metavar="A,B", help="Columns of both files that identify people.")
@click.option("--names", metavar="COLUMN", help="Column of KNOWN with the people's names; never printed.")
@click.option(
    "--truth", metavar="COLUMN", help="Column of both files with the same id for one person, to count matches."
)
@click.option("--tolerance", "tolerances", multiple=True, metavar="COLUMN=NUMBER",
              help="Allow values to differ; may be repeated.")  # fmt: skip
@_report_options
def link_command(
    released: Path,
    known: Path,
    on: str,
    names: str | None,
    truth: str | None,
    tolerances: tuple[str, ...],
    html: Path | None,
    json_file: Path | None,
) -> None:
    """Join a released table with a list of known people: how many are found, and how many columns make rows unique."""
    from cloister.attack.files import read_table
    from cloister.attack.tables import linkage, scored_linkage, uniqueness

    columns = [name.strip() for name in on.split(",") if name.strip()]
    rows, people = read_table(released), read_table(known)
    found = (
        scored_linkage(rows, people, on=columns, tolerance=_numbers(tolerances), truth=truth)
        if tolerances
        else linkage(rows, people, on=columns, names=names, truth=truth)
    )
    attacks = [found, uniqueness(rows, columns=columns)]
    for result in attacks:
        click.echo(str(result))
    _report([result.finding(released.name) for result in attacks], html, json_file, title=released.name)


@attack.command("synthetic")
@click.argument("real", type=_FILE)
@click.argument("made", type=_FILE)
@click.argument("holdout", type=_FILE)
@click.option("--schema", required=True, type=_FILE, help="Schema with the public facts.")
@click.option("--of", "table", metavar="TABLE", help="Table of the schema to use, if there are several.")
@_report_options
def synthetic_command(
    real: Path, made: Path, holdout: Path, schema: Path, table: str | None, html: Path | None, json_file: Path | None
) -> None:
    """Attack the synthetic table MADE: copies, closest rows, membership, singling out.

    REAL are the rows it was made from, HOLDOUT rows of the same population that the generator did not read: they show
    what chance gives. `cloister synth score` tells its usefulness too.
    """
    from cloister.attack.files import read_table
    from cloister.synth.output.shared_table import read_table as read_synthetic
    from cloister.synth.output.shared_table import side_path
    from cloister.synth.scoring.score import score

    rows: Any = read_synthetic(made) if side_path(made).exists() else read_table(made)
    with progress_bar("attacking") as progress:
        found = score(
            read_table(real), rows, schema, read_table(holdout), table=table, models=False, progress=progress
        ).findings()
    if not found:
        raise click.UsageError("HOLDOUT holds rows of REAL, so the attacks would compare rows with themselves.")
    _finish(found, html, json_file, title=made.name)


@attack.command("reconstruct")
@click.argument("published", type=_FILE)
@click.option("--most", type=click.IntRange(min=1), default=1_000, show_default=True, help="Tables to look for.")
@click.option("--seconds", type=click.FloatRange(min=0), help="Time limit of the search.")
def reconstruct_command(published: Path, most: int, seconds: float | None) -> None:
    """Find the tables that fit published counts, medians and means by group.

    PUBLISHED is a JSON file: {"attributes": {"sex": ["f", "m"]}, "ages": [0, 110], "statistics": [{"who": {},
    "count": 7, "median": 30, "mean": "38"}, …]}. If few tables fit, the people are known.
    """
    from cloister.attack.queries.reconstruction import read_published, reconstruct

    found = reconstruct(*read_published(published.read_text(encoding="utf-8")), most=most, seconds=seconds)
    click.echo(found)


def _numbers(texts: tuple[str, ...]) -> dict[str, float]:
    try:
        return {name: float(number) for name, _, number in (text.rpartition("=") for text in texts)}
    except ValueError:
        raise click.BadParameter("write a tolerance as COLUMN=NUMBER, such as age=2.") from None


def _finish(findings: Any, html: Path | None, json_file: Path | None, *, title: str) -> None:
    """Print the findings, write the reports, and end with exit code 1 if a claim is refuted."""
    for finding in findings:
        click.echo(str(finding))
    _report(findings, html, json_file, title=title)
    if any(finding.broken for finding in findings):
        raise click.exceptions.Exit(1)


@attack.command("audit")
@click.argument("mechanism", metavar="MODULE:FUNCTION")
@click.option("--claim", required=True, metavar="LOSS", help="Loss that it states: 'epsilon 1', 'rho 0.1', "
              "'epsilon 1 delta 1e-6', with 'replace-one' if neighbours differ so.")  # fmt: skip
@click.option("--left", callback=_input, metavar="JSON", help="An input.")
@click.option("--right", callback=_input, metavar="JSON", help="Its neighbour.")
@click.option("--pairs", metavar="MODULE:FUNCTION", help="Function that returns pairs of neighbouring inputs instead: "
              "the worst of them is searched for.")  # fmt: skip
@click.option("--samples", type=click.IntRange(min=100), default=100_000, show_default=True, help="Samples a side.")
@click.option("--confidence", type=click.FloatRange(0, 1, min_open=True, max_open=True), default=0.95,
              show_default=True, help="Chance that a true claim survives.")  # fmt: skip
@click.option("--family", type=click.Choice(("gaussian",)), help="Law of the noise, if it is known: a sharper bound.")
@_report_options
def audit_command(
    mechanism: str,
    claim: str,
    left: Any,
    right: Any,
    pairs: str | None,
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
    from cloister.attack import audit, audit_worst
    from cloister.attack.files import imported
    from cloister.privacy.loss import Loss

    source = click.get_current_context().get_parameter_source
    inputs = [name for name in ("left", "right") if source(name) is click.core.ParameterSource.COMMANDLINE]
    if pairs is None and len(inputs) < 2:
        raise click.UsageError("give two neighbouring inputs as --left JSON --right JSON, or --pairs.")
    if pairs is not None and (inputs or family is not None):
        raise click.UsageError("--pairs goes without --left, --right and --family.")
    if pairs is None and left == right:
        raise click.UsageError("--left and --right are equal, so that no claim can be refuted. Give two neighbours.")
    function, loss = imported(mechanism), Loss.parse(claim)
    if pairs is not None:
        searched = audit_worst(function, imported(pairs)(), loss, n=samples, confidence=confidence)
        click.echo(str(searched))
        found = searched.audit
    else:
        found = audit(function, left, right, loss, n=samples, confidence=confidence, family=family)
        click.echo(str(found))
    _report(found.finding(mechanism), html, json_file, title=mechanism, made_up=True)
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
