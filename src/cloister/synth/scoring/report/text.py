"""A score as text for a terminal of 80 columns."""

from collections.abc import Iterator
from textwrap import wrap
from typing import TYPE_CHECKING

from cloister.attack.report.interval import percent
from cloister.synth.scoring.utility.numbers import SHARES, worst_first

if TYPE_CHECKING:
    from cloister.synth.scoring.score import Score

__all__ = ["told", "wrapped"]

_WIDTH = 80
_MOST_NUMBERS = 12


def wrapped(text: str, before: str) -> list[str]:
    """Wrap to lines of at most 80 characters, continuation lines indented as far as the first."""
    return wrap(text, _WIDTH, initial_indent=before, subsequent_indent=" " * len(before)) or [before]


def told(score: "Score") -> str:
    """Format the score as a table."""
    from cloister.synth.scoring.score import OWNERS_VIEW
    from cloister.synth.scoring.verdict import judge

    counts = ", ".join(f"{count:,} {name}" for name, count in score.rows.items() if count)
    verdict = judge(score)
    lines = [*wrapped(OWNERS_VIEW, ""), "", *wrapped(verdict.headline, ""), ""]
    lines += wrapped(f"{counts} rows; {len(score.columns)} columns; 95 % intervals in brackets", "")
    if score.left_out:
        lines += wrapped(f"not scored, without public values or bounds: {', '.join(score.left_out)}", "")
    if score.absent:
        lines += wrapped(f"not scored, not in the synthetic table: {', '.join(score.absent)}", "")
    lines += [
        line
        for check in verdict.checks
        if check.about == "note"
        for line in wrapped(f"{check.name}: {check.reason}", "")
    ]
    return "\n".join([*lines, "", *_useful(score), "", *_quantiles(score), *_private(score)])


def _useful(score: "Score") -> Iterator[str]:
    yield f"{'USEFULNESS':<34}{'synthetic':>12}{'bootstrap':>12}{'independent':>13}{'score':>9}"
    for marginal in score.marginals:
        chosen = f"{len(marginal.errors)}, {'drawn' if marginal.drawn else 'all'}"
        mark = f"{marginal.score:.2f}" if marginal.score is not None and marginal.way > 1 else ""
        fresh, alone = marginal.frames["bootstrap"], marginal.frames["independent"]
        name = f"  {marginal.way}-way marginals ({chosen})"
        yield f"{name:<34}{marginal.mean.value:>12.4f}{fresh:>12.4f}{alone:>13.4f}{mark:>9}"
    if score.kept is not None:
        much = percent(max(0.0, min(1.0, score.kept)), 0)
        yield f"{'  between columns, kept':<38}{much}; fresh rows 100 %, independent 0 %"
    for name, dependence in (
        ("correlation, mean difference", score.correlations),
        ("bits shared, the same", score.information),
    ):
        if dependence is not None and dependence.mean is not None:
            yield f"{f'  {name}':<38}{dependence.mean:.4f}{_fresh(dependence.fresh)}"
    yield f"{'  range queries, mean error':<38}{score.ranges.mean.text(4)}{_fresh(score.ranges.fresh)}"
    far = worst_first(score.numbers, 1)
    if far:
        yield f"{'  KS distance of numbers, worst':<38}{far[0].ks:.4f} ({far[0].name:.28})"
    for model in score.propensity:
        size = f"{model.ratio:.2f}" if model.ratio < 100 else f"{model.ratio:.3g}"
        yield f"{f'  told apart by {model.model}':<38}pMSE {size} times that of chance"
    if score.learning is not None:
        yield from _learned(score)


def _quantiles(score: "Score") -> Iterator[str]:
    numbers = worst_first(score.numbers, _MOST_NUMBERS)
    if not numbers:
        return
    head = "".join(f"{percent(share, 0):>12}" for share in SHARES)
    yield f"{'QUANTILES':<20}{head}"
    for number in numbers:
        for kind, values in number.table:
            name = f"  {number.name:.17}" if kind == "real" else "    synthetic"
            yield f"{name:<20}{''.join(f'{value:>12}' for value in values)}"
    yield ""


def _learned(score: "Score") -> Iterator[str]:
    learning = score.learning
    assert learning is not None
    yield ""
    yield f"PREDICTING {learning.target}"[:_WIDTH]
    for model, synthetic in learning.synthetic.items():
        for trained, result in (("synthetic", synthetic), ("real", learning.real[model])):
            auc = "" if result.auc is None else f"  AUC {result.auc.value:.3f}"
            yield f"{f'  {model}, trained on {trained}':<45}{result.accuracy.text(1, percent=True)}{auc}"
    yield f"{'  the more frequent class':<45}{100 * learning.floor:.1f} %"
    if not learning.held_back:
        yield "  tested on rows that the generator saw: all of these are too good"


def _private(score: "Score") -> Iterator[str]:
    copies, near, guessed, single = score.copies, score.closeness, score.membership, score.singling_out
    yield "PRIVACY"
    yield f"{'  real rows copied exactly':<45}{copies.real.text(2, percent=True)}"
    if copies.fresh is None:
        yield "  no rows were held back: copying cannot be told from likeness"
        return
    yield f"{'    held-back rows met by chance':<45}{copies.fresh.text(2, percent=True)}"
    if near is not None and guessed is not None:
        yield f"{'  real rows nearer than strangers':<45}{near.nearer.text(1, percent=True)}"
        yield f"{f'  synthetic rows closer to {score.attacked:,} real ones':<45}{near.closer.text(1, percent=True)}"
        yield f"{'  guesses who was in that are right':<45}{guessed.right.text(1, percent=True)}"
        yield f"{'    of those in, found (1 % falsely accused)':<45}{guessed.found.text(1, percent=True)}"
    if single is not None:
        yield f"{'  rules that fit one real row':<45}{single.real.text(1, percent=True)}"
        yield f"{'    if the table knew nobody':<45}{single.fresh.text(1, percent=True)}"
    for name in score.not_tried:
        yield f"{f'  {name}':<45}not tried: too many rows"
    claim = "states no loss: it is not private" if score.claim is None else f"states {score.claim}"
    yield f"{'  the table':<45}{claim}"


def _fresh(value: float | None) -> str:
    return "" if value is None else f", fresh {value:.4f}"
