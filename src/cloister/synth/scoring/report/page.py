"""A score as one page: a verdict, and a caption under each chart. Needs no network, prints well, follows dark mode."""

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from cloister.attack.report.interval import percent
from cloister.data.report_page import figure
from cloister.data.report_page import page as report_page
from cloister.synth.scoring.report.charts import (
    MOST_COLUMNS,
    apart_chart,
    attacks_chart,
    chance_chart,
    columns_charts,
    distances_chart,
    learning_chart,
    maps_charts,
    marginals_chart,
    ranges_chart,
)
from cloister.synth.scoring.utility.learning import Learning
from cloister.synth.scoring.utility.numbers import SHARES, worst_first
from cloister.synth.scoring.utility.utility_checks import kept_words
from cloister.synth.scoring.verdict import Verdict, judge
from cloister.version import __version__

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["page"]

_STYLE = """
.small { grid-template-columns: repeat(auto-fit, minmax(min(100%, 18rem), 1fr)); }
table.numbers { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.numbers th, .numbers td { padding: .15rem .7rem; text-align: right; white-space: nowrap; }
.numbers tbody { border-top: 1px solid var(--line); } .numbers th:first-child { text-align: left; }
.numbers .synthetic { color: var(--made); } .numbers .real { color: var(--soft); }
dl { margin: 0; } dt { float: left; clear: left; width: 9rem; color: var(--soft); } dd { margin: 0 0 .4rem 9rem; }
@media (max-width: 30rem) { dt { float: none; } dd { margin-left: 0; } }
"""


def page(score: "Score", title: str) -> str:
    """Return the page as text."""
    return report_page(f"{title}: score", _body(score, judge(score), title), style=_STYLE)


def _body(score: "Score", verdict: Verdict, title: str) -> Iterator[str]:
    from cloister.synth.scoring.score import OWNERS_VIEW

    yield f'<header><p class="owner" role="note">{escape(OWNERS_VIEW)}</p>'
    yield f"<h1>{escape(title)}</h1>"
    yield f'<p class="verdict {"good" if verdict.passed else "bad"}">{escape(verdict.headline)}</p>'
    counts = ", ".join(f"{count:,} {name}" for name, count in score.rows.items() if count)
    summary = f"{counts} rows, {len(score.columns)} columns. {_claim(score)}"
    yield f'<p class="soft">{escape(summary)}</p>'
    yield f'<p class="soft">{_when(score)}</p></header><main>'
    yield f'<div class="tiles">{"".join(_tiles(score))}</div>'
    yield "<h2>What was checked</h2>"
    yield f'<ul class="checks">{"".join(_checks(verdict))}</ul>'
    yield from _quantiles(score)
    yield '<h2>Is it useful?</h2><div class="charts">'
    yield from (figure(*chart) for chart in _useful(score))
    yield "</div><h2>Column by column</h2>"
    if len(score.shapes) > MOST_COLUMNS:
        yield f'<p class="soft">The {MOST_COLUMNS} of {len(score.shapes)} columns that are farthest off.</p>'
    yield '<p class="key"><span class="real">real rows</span> <span class="made">synthetic rows</span></p>'
    yield '<div class="charts small">'
    yield from (figure(drawn, text) for drawn, text in columns_charts(score))
    yield "</div>"
    for heading, sentence, drawn in maps_charts(score):
        yield f'<h2>{escape(heading)}</h2><p class="soft">{escape(sentence)}</p><div class="charts small">'
        yield from (figure(chart, text) for chart, text in drawn)
        yield "</div>"
    yield "<h2>Is it private?</h2>"
    yield '<p class="soft">Attacks can show that a table leaks. That it does not is shown by how it was made.</p>'
    yield '<div class="charts">'
    yield from (figure(*chart) for chart in _private(score))
    yield "</div>"
    if score.made:
        yield "<h2>How it was made</h2><dl>"
        yield from (f"<dt>{escape(word)}</dt><dd>{escape(text)}</dd>" for word, text in score.made.items())
        yield "</dl>"
    yield "</main>"
    yield f'<footer class="soft"><p>{escape(_small_print(score))}</p></footer>'


def _quantiles(score: "Score") -> Iterator[str]:
    """Yield a table of quantiles, real above synthetic."""
    numbers = worst_first(score.numbers, MOST_COLUMNS)
    if not numbers:
        return
    yield "<h2>Numbers, real and synthetic</h2>"
    yield (
        '<p class="soft">So many of the rows are at most the value below, in the real and in the synthetic table; the '
        "number that is farthest off first.</p>"
    )
    head = "".join(f'<th scope="col">{percent(share, 0)}</th>' for share in SHARES)
    first = f'<thead><tr><th scope="col">number</th><th></th>{head}</tr></thead>'
    yield f'<div class="scroll"><table class="numbers">{first}'
    for number in numbers:
        name = f'<th scope="rowgroup" rowspan="2">{escape(number.name)}</th>'
        rows = [
            f'<td class="{kind}">{kind}</td>{"".join(f"<td>{escape(value)}</td>" for value in values)}'
            for kind, values in number.table
        ]
        yield f"<tbody><tr>{name}{rows[0]}</tr><tr>{rows[1]}</tr></tbody>"
    yield "</table></div>"


def _when(score: "Score") -> str:
    day = f'<time datetime="{score.scored.isoformat()}">{score.scored.day} {score.scored:%B %Y}</time>'
    return f"Table <b>{escape(score.table)}</b>, scored on {day} with Cloister {escape(__version__)}."


def _claim(score: "Score") -> str:
    if score.claim is None:
        return "It states no privacy loss."
    loss = score.claim if score.claim.measure == "epsilon" else score.claim.as_epsilon(delta="1e-9")
    read = "" if loss is score.claim else f" (an epsilon of {float(loss.amount):.3g} at delta {float(loss.delta):.1g})"
    return f"It states a privacy loss of {score.claim}{read} for {score.unit}."


def _tiles(score: "Score") -> Iterator[str]:
    tiles: list[tuple[str, str]] = []
    share = score.usefulness if score.kept is None else score.kept
    if share is not None:
        number, words = kept_words(share).split(" of ", 1)
        tiles.append((number, f"of {words} (100\u00a0%: as much as in fresh rows)"))
    if score.learning is not None:
        tiles.append(_learned(score.learning))
    if score.membership is not None:
        right = percent(score.membership.right.value)
        tiles.append((right, "of guesses who was in the table are right; chance is 50 %"))
    more = "" if score.copies.fresh is None else f"; of rows it never saw, {percent(score.copies.fresh.value, 2)}"
    tiles.append((percent(score.copies.real.value, 2), f"of the real rows occur in it to the last digit{more}"))
    yield from (f'<div class="tile"><b>{escape(number)}</b>{escape(words)}</div>' for number, words in tiles)


def _learned(learning: Learning) -> tuple[str, str]:
    """Return the AUC if there is one: with a dominant class, accuracy is high without any model."""
    synthetic, real = (models["logistic regression"] for models in (learning.synthetic, learning.real))
    if synthetic.auc is not None and real.auc is not None:
        words = f"is the AUC of {learning.target} predicted from it in real rows; from real ones {real.auc.value:.2f}"
        return f"{synthetic.auc.value:.2f}", f"{words}; chance is 0.50"
    words = (
        f"of real rows have {learning.target} predicted right from it; from real ones {percent(real.accuracy.value)}"
    )
    return percent(synthetic.accuracy.value), f"{words}; always the most frequent answer {percent(learning.floor)}"


def _checks(verdict: Verdict) -> Iterator[str]:
    for check in verdict.checks:
        kind = {True: "good", False: "bad", None: "soft"}[check.passed]
        yield (
            f'<li><span class="word {kind}">{check.word}</span> <b>{escape(check.name)}</b>: '
            f"{escape(check.reason)}</li>"
        )


def _useful(score: "Score") -> Sequence[tuple[str, str]]:
    charts = [marginals_chart(score), ranges_chart(score)]
    charts += [learning_chart(score)] if score.learning is not None else []
    return [*charts, apart_chart(score)] if score.propensity else charts


def _private(score: "Score") -> Sequence[tuple[str, str]]:
    charts = [chance_chart(score)]
    if score.membership is None or score.closeness is None:
        return charts
    return [attacks_chart(score), *charts, distances_chart(score)]


def _small_print(score: "Score") -> str:
    drawn = [marginal for marginal in score.marginals if marginal.drawn]
    parts = [f"Of {marginal.way}-way marginals {len(marginal.errors)} were chosen at random." for marginal in drawn]
    if score.attacked:
        rows = score.rows["synthetic"]
        parts.append(
            f"Attacks by distance and for membership used all {rows:,} synthetic rows on {score.attacked:,} real rows "
            "and as many held back; those for copies and for single persons, on all rows."
        )
    if score.not_tried:
        parts.append(f"Too many rows to be tried: {', '.join(score.not_tried)}.")
    if score.absent:
        parts.append(f"Not in the synthetic table, hence not scored: {', '.join(score.absent)}.")
    if score.left_out:
        parts.append(f"Without public values or bounds, hence not scored: {', '.join(score.left_out)}.")
    parts.append(f"Intervals hold with 95 % confidence. Random choices: seed {score.seed}.")
    return " ".join(parts)
