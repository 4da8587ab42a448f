"""Pictures of a finding, as SVG in the colours of a report's page. They need no chart library."""

import math
from collections.abc import Sequence
from html import escape

import numpy as np

from cloister.attack.finding import EpsilonBound, Finding, Roc
from cloister.attack.intervals import Floats, curve
from cloister.privacy.loss import Loss
from cloister.privacy.number import limits_text, lower_text, percent_limits

__all__ = ["Drawn", "epsilon_chart", "risk_chart", "roc_chart", "success_chart"]

Drawn = tuple[str, str]
"""SVG and its caption."""

_WIDE, _TALL = 440, 300  # size of the curve's picture
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 14, 12, 46  # its margins
_MARKS = (0.001, 0.01)  # false-positive rates that are marked
_PIXELS = 0.8  # distance below which two points of a curve are drawn as one
_BINS = 10


def success_chart(finding: Finding) -> Drawn:
    """Draw the success with its interval, and the best guess without the target."""
    low, high = finding.interval
    ink = "other" if finding.learned else "made"
    rows = [("the attack", finding.success, ink), ("best guess", finding.baseline, "real")]
    parts = []
    for place, (name, value, colour) in enumerate(rows):
        y = 14 + 38 * place
        wide = 300 * _share(value)
        parts.append(_text(86, y + 16, name, anchor="end", ink="ink"))
        parts.append(f'<rect x="96" y="{y}" width="{wide:.1f}" height="22" rx="2" fill="var(--{colour})"/>')
    whisker = (96 + 300 * _share(low), 96 + 300 * _share(high))
    parts.append(
        f'<path d="M{whisker[0]:.1f} 25H{whisker[1]:.1f}M{whisker[0]:.1f} 19v12M{whisker[1]:.1f} 19v12" '
        'stroke="var(--ink)" stroke-width="2" fill="none"/>'
    )
    parts.append('<line x1="96" x2="96" y1="6" y2="82" stroke="var(--soft)"/>')
    parts += [_text(96 + 300 * tick, 98, f"{tick:.0%}", anchor="middle") for tick in (0.0, 0.25, 0.5, 0.75, 1.0)]
    limits = percent_limits(low, high, 1)
    text = (
        f"{finding.success:.1%} of {finding.measure} by the attack (95 % interval {limits[0]} % to {limits[1]} %), "
        f"{finding.baseline:.1%} by the best guess without the target; {finding.attempts:,} attempts."
    )
    return _svg(420, 104, parts), text


def roc_chart(roc: Roc, claim: Loss | None = None) -> Drawn:
    """Draw true positives against false positives on logarithmic axes, with 0.1 % and 1 % marked.

    Averages hide attacks that are sure of few records; logarithmic axes show them (Carlini et al. 2022). The dashed
    line is the most that a claim allows.
    """
    false, true = roc.points()
    decades = _decades(min(len(roc.negatives), len(roc.positives)))
    least = 10.0**-decades
    parts = _axes(decades)
    for rate in _MARKS:
        if rate >= least:
            x = _across(rate, decades)
            parts.append(
                f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP}" y2="{_TALL - _BOTTOM}" stroke="var(--soft)" '
                'stroke-dasharray="2 3"/>'
            )
            y = _up(max(roc.tpr_at(rate), least), decades)
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="var(--other)"/>')
    rates = np.geomspace(least, 1, 80)
    parts.append(_line(rates, rates, decades, "real", width=1.5))
    key = [("made", "the attack"), ("real", "guessing")]
    if claim is not None:
        parts.append(_line(rates, most_true(rates, claim), decades, "other", width=1.5, dash="6 4"))
        key.append(("other", f"most that {claim} allows"))
    parts.append(_steps(false, true, decades))
    low, high = roc.auc_interval()
    limits = limits_text(low, high, 3)
    at = ", ".join(f"{roc.tpr_at(rate):.2%} at {rate:.1%} false positives" for rate in _MARKS)
    coarse = (
        f" One false positive in {len(roc.negatives):,} other records is {1 / len(roc.negatives):.2%}: rates below "
        "that are those of no false positive at all."
        if len(roc.negatives) < 1 / _MARKS[0]
        else ""
    )
    text = (
        f"True positives: {at} (dots). Area under the curve {roc.auc:.3f}, 95 % interval {limits[0]} to {limits[1]}; "
        f"guessing has 0.5.{coarse}"
    )
    names = "".join(f'<span class="{ink}">{escape(name)}</span> ' for ink, name in key)
    return f'<p class="key">{names}</p>{_svg(_WIDE, _TALL, parts)}', text


def most_true(false: Floats, claim: Loss) -> Floats:
    """Return the largest true-positive rate that a claim allows at each false-positive rate (Kairouz et al. 2015)."""
    allowed = np.ones_like(false)
    points = curve(claim)
    for epsilon, delta in zip(points.epsilons, points.deltas, strict=True):
        allowed = np.minimum(allowed, np.exp(epsilon) * false + delta)
        allowed = np.minimum(allowed, 1 - np.exp(-epsilon) * (1 - delta - false))
    return np.clip(allowed, 0.0, 1.0)


def epsilon_chart(bound: EpsilonBound) -> Drawn:
    """Draw the lower bound that the attack proves beside the epsilon that the claim allows."""
    allowed = bound.allowed
    most = _round_up(max(bound.lower, allowed or 0.0, 1e-6) * 1.15)
    ink = "other" if bound.broken else "made"
    wide = 400 * min(1.0, bound.lower / most)
    parts = [
        '<rect x="10" y="26" width="400" height="14" rx="7" fill="var(--line)"/>',
        f'<rect x="10" y="26" width="{max(3.0, wide):.1f}" height="14" rx="7" fill="var(--{ink})"/>',
        _text(10, 58, "0"),
        _text(410, 58, f"{most:.3g}", anchor="end"),
    ]
    if allowed is not None:
        x = 10 + 400 * min(1.0, allowed / most)
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="18" y2="48" stroke="var(--ink)" stroke-width="2"/>')
        side = "end" if x > 300 else "start"
        parts.append(_text(x, 14, f"claim allows {allowed:.4g}", anchor=side, ink="ink"))
    return _svg(420, 64, parts), _bound_text(bound)


def _bound_text(bound: EpsilonBound) -> str:
    delta = f" at delta {bound.delta:.3g}" if bound.delta else ""
    known = f"The attack shows an epsilon of at least {lower_text(bound.lower, 4)}{delta}"
    sure = f", with {100 * bound.confidence:.10g} % confidence"
    if bound.allowed is None:
        return f"{known}{sure}. No claim was given."
    word = "is refuted" if bound.broken else "is not refuted; that proves nothing about better attacks"
    return f"{known}{sure}. The claim allows {bound.allowed:.4g} and {word}."


def risk_chart(risk: Floats) -> Drawn:
    """Draw how many records are attacked with which probability of a right conclusion; no record is named."""
    counts, _ = np.histogram(np.clip(risk, 0, 1), bins=_BINS, range=(0, 1))
    highest = max(int(counts.max()), 1)
    parts = []
    for place, count in enumerate(counts.tolist()):
        tall = 120 * count / highest
        x = 24 + 38 * place
        parts.append(
            f'<rect x="{x}" y="{140 - tall:.1f}" width="32" height="{tall:.1f}" rx="2" fill="var(--made)"/>'
            + (_text(x + 16, 134 - tall, f"{count:,}", anchor="middle") if count else "")
        )
    parts.append('<line x1="20" x2="408" y1="140" y2="140" stroke="var(--soft)"/>')
    parts += [_text(24 + 38 * place, 156, f"{place / _BINS:.0%}") for place in (0, 5)]
    parts.append(_text(404, 156, "100%", anchor="end"))
    sure = int((risk >= 0.9).sum())
    text = (
        f"Probability that the attacker's conclusion about a record is right, for {len(risk):,} records: "
        f"{float(np.mean(risk)):.1%} on average, at least 90 % for {sure:,} of them."
    )
    return _svg(420, 162, parts), text


# Axes of the curve. A rate below the axis is drawn on it: zero has no logarithm.


def _decades(records: int) -> int:
    return min(6, max(3, math.ceil(math.log10(max(records, 1)))))


def _across(rate: float, decades: int) -> float:
    return _LEFT + (_WIDE - _LEFT - _RIGHT) * (1 + math.log10(max(rate, 10.0**-decades)) / decades)


def _up(rate: float, decades: int) -> float:
    return _TOP + (_TALL - _TOP - _BOTTOM) * -math.log10(max(rate, 10.0**-decades)) / decades


def _axes(decades: int) -> list[str]:
    parts = []
    for decade in range(decades + 1):
        rate = 10.0**-decade
        x, y, label = _across(rate, decades), _up(rate, decades), f"{100 * rate:.10g}%"
        parts.append(f'<path d="M{x:.1f} {_TOP}V{_TALL - _BOTTOM}M{_LEFT} {y:.1f}H{_WIDE - _RIGHT}" '
                     'stroke="var(--line)" fill="none"/>')  # fmt: skip
        parts.append(_text(x, _TALL - _BOTTOM + 17, label, anchor="end" if decade == 0 else "middle"))
        parts.append(_text(_LEFT - 6, y + 4, label, anchor="end"))
    parts.append(_text((_LEFT + _WIDE) / 2, _TALL - 8, "false positives", anchor="middle"))
    parts.append(
        f'<text x="12" y="{_TALL / 2 - 12:.0f}" font-size="12" fill="var(--soft)" text-anchor="middle" '
        f'transform="rotate(-90 12 {_TALL / 2 - 12:.0f})">true positives</text>'
    )
    return parts


def _line(x: Floats, y: Floats, decades: int, ink: str, *, width: float, dash: str = "") -> str:
    points = " ".join(
        f"{_across(a, decades):.1f},{_up(b, decades):.1f}" for a, b in zip(x.tolist(), y.tolist(), strict=True)
    )
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'<polyline points="{points}" fill="none" stroke="var(--{ink})" stroke-width="{width}"{dashed}/>'


def _steps(false: Floats, true: Floats, decades: int) -> str:
    """Draw the curve as steps, without points that would lie on each other."""
    places = [(_across(a, decades), _up(b, decades)) for a, b in zip(false.tolist(), true.tolist(), strict=True)]
    kept = [places[0]]
    for x, y in places[1:]:
        if abs(x - kept[-1][0]) + abs(y - kept[-1][1]) >= _PIXELS:
            kept.append((x, y))
    way = f"M{kept[0][0]:.1f} {kept[0][1]:.1f}" + "".join(f"H{x:.1f}V{y:.1f}" for x, y in [*kept[1:], places[-1]])
    return f'<path d="{way}" fill="none" stroke="var(--made)" stroke-width="2.4"/>'


def _round_up(value: float) -> float:
    step = 10.0 ** math.floor(math.log10(value))
    return next(step * size for size in (1, 2, 5, 10) if step * size >= value)


def _share(value: float) -> float:
    return min(1.0, max(0.0, value))


def _text(x: float, y: float, words: str, *, anchor: str = "start", ink: str = "soft") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="12" fill="var(--{ink})" text-anchor="{anchor}">{escape(words)}'
        "</text>"
    )


def _svg(wide: int, tall: int, parts: Sequence[str]) -> str:
    return f'<svg viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}" role="img">{"".join(parts)}</svg>'
