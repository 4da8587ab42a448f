"""`cloister compare`: the textbook's exercise on a table. A lesson, not private."""

from pathlib import Path
from typing import Any

import click

__all__ = ["compare"]


def _ends(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, tuple[float, float]]:
    try:
        pairs = [(text.partition("=")[0], text.partition("=")[2].split(":")) for text in texts]
        return {name: (float(low), float(high)) for name, (low, high) in pairs}
    except ValueError:
        raise click.BadParameter("write NAME=LOW:HIGH, such as age=17:90.", ctx, param) from None


def _lists(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> dict[str, list[str]]:
    pairs = [text.partition("=") for text in texts]
    if not all(name and listed for name, _, listed in pairs):
        raise click.BadParameter("write NAME=ONE,TWO, such as sex=Female,Male.", ctx, param)
    return {name: [word.strip() for word in listed.split(",")] for name, _, listed in pairs}


def _words(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


@click.command()
@click.argument("file")
@click.option("--target", help="Column to predict.  [required, except for demo]")
@click.option(
    "--schema",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Schema with the public facts; or give them by hand:",
)
@click.option(
    "--bounds", metavar="NAME=LOW:HIGH", callback=_ends, multiple=True, help="Bounds of a number; may be repeated."
)
@click.option(
    "--categories",
    metavar="NAME=ONE,TWO",
    callback=_lists,
    multiple=True,
    help="Categories of a text column; may be repeated.",
)
@click.option("--classes", metavar="ONE,TWO", callback=_words, help="Classes of the target.")
@click.option("--group", help="Column with categories whose groups are compared.")
@click.option("--statistic", help="Column whose mean is released repeatedly.  [default: the first]")
@click.option(
    "--estimators",
    default="LogisticRegression,RandomForestClassifier",
    show_default=True,
    callback=_words,
    help="Classifiers of cloister.learn to compare.",
)
@click.option("--epsilons", default="0.1,0.3,1,3,10", show_default=True, callback=_words, help="Epsilons to try.")
@click.option("--delta", default="1e-6", show_default=True, help="Delta of the private models.")
@click.option("--repetitions", default=100, show_default=True, help="Number of releases of the mean at each epsilon.")
@click.option("--fits", default=5, show_default=True, help="Number of fits of each model at each epsilon.")
@click.option("--seed", default="0", show_default=True, help="Seed of all random choices.")
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the report: Markdown, and charts as HTML, PNG and SVG. Without it the report is printed.",
)
def compare(
    file: str,
    target: str | None,
    schema: Path | None,
    bounds: dict[str, Any],
    categories: dict[str, Any],
    output: Path | None,
    **more: Any,
) -> None:
    """Compare private and plain models on original and noisy rows of FILE (a CSV or Parquet file, or `demo`).

    A lesson: it shows true values and accuracy on raw rows, so nothing in it is private.
    """
    from rich.console import Console
    from rich.progress import Progress

    from cloister.lessons.compare.run import compare as run
    from cloister.lessons.compare.table import read_file

    table, facts, usual = read_file(file)
    goal = target or usual
    if goal is None:
        raise click.UsageError("say which column to predict: --target income.")
    with Progress(console=Console(stderr=True), transient=True) as bar:
        work = bar.add_task("fitting")
        comparison = run(
            table,
            goal,
            schema=schema or facts,
            bounds=bounds,
            categories=categories,
            progress=lambda done, every: bar.update(work, completed=done, total=every),
            **more,
        )
    if output is None:
        click.echo(comparison.markdown(), nl=False)
        return
    click.echo("A lesson, not private.")
    for path in comparison.write(output):
        click.echo(f"wrote {path}")
