"""`cloister local`: choose mechanisms, perturb answers, collect reports, estimate shares."""

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

__all__ = ["local"]

_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
_NEW = click.Path(dir_okay=False, writable=True, path_type=Path)


def _words(_ctx: click.Context, _param: click.Parameter, text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _ends(ctx: click.Context, param: click.Parameter, text: str | None) -> tuple[str, str] | None:
    if text is None:
        return None
    low, colon, high = text.partition(":")
    if not (low and colon and high):
        raise click.BadParameter("write LOW:HIGH, such as 17:90.", ctx, param)
    return low, high


@contextmanager
def _progress(paths: Sequence[Path], label: str) -> Iterator[Callable[[int], object]]:
    """Yield a progress bar over the bytes of files, called after each read; none without a terminal."""
    if not sys.stderr.isatty():
        yield lambda _read: None
        return
    with click.progressbar(length=sum(path.stat().st_size for path in paths), label=label, file=sys.stderr) as bar:
        yield bar.update


@click.group()
def local() -> None:
    """Collect answers with noise added on each respondent's device."""


@local.command()
@click.argument("question")
@click.option("--yes-no", is_flag=True, help="Ask a question with the answers no and yes.")
@click.option("--choices", metavar="ONE,TWO", callback=_words, help="Answers, of which one is chosen.")
@click.option("--domain", type=int, help="Number of answers, if they are numbers from 0.")
@click.option("--up-to", type=int, help="Largest number of answers that may be chosen together.")
@click.option("--between", metavar="LOW:HIGH", callback=_ends, help="Bounds of a number whose mean is estimated.")
@click.option(
    "--levels", default="0.5,1,2", show_default=True, callback=_words, help="Epsilons that respondents choose from."
)
@click.option("--people", default=1000, show_default=True, help="Expected number of respondents.")
@click.option("--most-bits", type=int, help="Largest number of bits of an answer.")
@click.option("--output", type=_NEW, help="Add the question to this JSON file, for `perturb`, `collect` and browsers.")
def advise(question: str, levels: list[str], people: int, output: Path | None, **asked: Any) -> None:
    """Show which mechanism errs least at each level of a QUESTION, and write it down."""
    from cloister.local.console import advised
    from cloister.local.survey.question import read_questions, write_questions

    record, report = advised(question, levels, people, **asked)
    click.echo(report)
    if output is not None:
        others = read_questions(output) if output.exists() else ()
        write_questions([*(other for other in others if other.id != record.id), record], output)
        click.echo(f"wrote {output}")


@local.command()
@click.argument("questions", type=_FILE)
@click.argument("answers", type=_FILE)
@click.option("--level", help="Level of rows that name none in a column QUESTION.level.")
@click.option("--skip-wrong", is_flag=True, help="Count and skip invalid answers instead of stopping.")
@click.option("--output", type=_NEW, required=True, help="File of JSON lines: one envelope for each report.")
def perturb(questions: Path, answers: Path, level: str | None, skip_wrong: bool, output: Path) -> None:
    """Turn ANSWERS (CSV or JSON lines, one column per question) into reports, as devices do.

    Run it where the answers are. Each run costs every person the levels of the questions they answer, again.
    """
    from cloister.local.survey.answers import envelopes, matched_rows, read_rows
    from cloister.local.survey.question import read_questions

    written = 0
    skipped = Counter[str]()
    question_list = read_questions(questions)
    beside = output.with_name(f".{output.name}.{os.getpid()}")  # a refused row leaves no partial file
    try:
        with _progress([answers], "perturbing") as read, beside.open("wb") as file:
            csv = answers.suffix not in (".jsonl", ".ndjson", ".json")
            rows = matched_rows(question_list, read_rows(answers, read), header=csv)
            for envelope in envelopes(question_list, rows, level, skipped=skipped if skip_wrong else None):
                file.write(envelope + b"\n")
                written += 1
        beside.replace(output)
    finally:
        beside.unlink(missing_ok=True)
    click.echo(f"wrote {written:,} reports to {output}")
    for question, times in sorted(skipped.items()):
        click.echo(f"  skipped, no answer to {question}: {times:,} (only for the person who holds the answers)")


@local.command()
@click.argument("questions", type=_FILE)
@click.argument("reports", type=_FILE, nargs=-1, required=True)
@click.option("--counts", type=_NEW, required=True, help="File with the counts so far; made if it does not exist.")
def collect(questions: Path, reports: tuple[Path, ...], counts: Path) -> None:
    """Count REPORTS (JSON lines) on QUESTIONS. Malformed, replayed and unexpected reports are refused and counted."""
    from cloister.local.console import same_questions
    from cloister.local.survey import file
    from cloister.local.survey.collection import Collection
    from cloister.local.survey.question import read_questions

    question_list = read_questions(questions)
    collection = same_questions(file.load(counts), question_list) if counts.exists() else Collection(question_list)
    before, refused = collection.n, collection.refused.total()
    with _progress(reports, "collecting") as read:
        for path in reports:
            with path.open("rb") as lines:
                collection.collect(_told(lines, read))
    file.save(collection, counts)
    click.echo(f"counted {collection.n - before:,} reports, refused {collection.refused.total() - refused:,}")
    for reason, times in sorted(collection.refused.items()):
        click.echo(f"  {reason}: {times:,} in all")


def _told(lines: Any, read: Callable[[int], object]) -> Iterator[bytes]:
    """Yield lines of at most one megabyte: a longer one arrives in pieces, each of which is refused."""
    while line := lines.readline(1 << 20):
        read(len(line))
        yield line


@local.command()
@click.argument("counts", type=_FILE)
@click.option("--question", "only", help="Estimate this question only.")
@click.option("--confidence", default="0.95", show_default=True, help="Confidence level of the intervals.")
@click.option(
    "--weights",
    type=click.Choice(["variance", "people"]),
    default="variance",
    show_default=True,
    help="Weights of levels: for the least error, or for all respondents whatever level they chose.",
)
@click.option(
    "--fakes", type=int, help="Number of made-up reports whose effect is bounded.  [default: one in a hundred]"
)
@click.option("--chart", type=_NEW, help="Draw estimates with intervals: .svg, .png or .html.")
@click.option("--teaching", type=_FILE, help="Table of true answers, shown beside the estimates. For teaching.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON instead of tables.")
def estimate(
    counts: Path, only: str | None, chart: Path | None, teaching: Path | None, as_json: bool, **how: Any
) -> None:
    """Estimate shares with intervals from COUNTS, all levels together."""
    from cloister.local.analysis.chart import draw
    from cloister.local.console import findings, true_shares, written
    from cloister.local.survey import file

    estimates = findings(file.load(counts), only, **how)
    truths = true_shares(estimates, teaching) if teaching else {}
    click.echo(written(estimates, truths, as_json))
    if chart is not None:
        draw(estimates, chart, truths)
        click.echo(f"wrote {chart}", err=as_json)
