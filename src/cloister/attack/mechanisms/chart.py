"""Picture of an audit: both output histograms, the distinguishing event, and the log ratio against the claim."""

from dataclasses import dataclass
from html import escape

import numpy as np

from cloister.attack.intervals import Floats
from cloister.attack.mechanisms.events import Event

__all__ = ["Sketch", "sketch", "sparkline", "svg"]

_BINS = 40
_FEW = 25  # bins with fewer samples get no ratio
_LEFT, _TOP, _WIDE, _TALL = 60, 84, 560, 140  # the upper panel
_RATIO_TOP, _RATIO_TALL = 252, 100  # the lower panel

_STYLE = """
.clo-audit{font:13px system-ui,sans-serif;max-width:100%;height:auto}
.clo-audit .paper{fill:#fff}.clo-audit text{fill:#1c1c1c}.clo-audit .soft{fill:#595959}
.clo-audit .axis{stroke:#8a8a8a}.clo-audit .event{fill:#000;opacity:.09}
.clo-audit .a{fill:#2f6fc4}.clo-audit .b{fill:#c96a10}.clo-audit .claim{stroke:#b3261e;stroke-dasharray:5 4}
@media (prefers-color-scheme:dark){
.clo-audit .paper{fill:#16181c}.clo-audit text{fill:#f0f0f0}.clo-audit .soft{fill:#b4b4b4}
.clo-audit .event{fill:#fff;opacity:.13}.clo-audit .a{fill:#7fb2ff}.clo-audit .b{fill:#ffb066}
.clo-audit .claim{stroke:#ff8a80}}
"""


@dataclass(frozen=True, slots=True)
class Sketch:
    """Histograms of both sides over one axis. `ratio` is ln(left / right), or None where there are too few samples."""

    axis: str
    labels: tuple[str, ...]
    left: tuple[float, ...]
    right: tuple[float, ...]
    inside: tuple[bool, ...]
    ratio: tuple[float | None, ...]

    @classmethod
    def of(cls, axis: str, labels: list[str], left: Floats, right: Floats, inside: list[bool], few: float) -> "Sketch":
        """Build a sketch from probabilities; a ratio needs at least `few` on one side."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.log(left) - np.log(right)
        drawn = [float(r) if max(a, b) > few else None for r, a, b in zip(ratio, left, right, strict=True)]
        return cls(axis, tuple(labels), tuple(left.tolist()), tuple(right.tolist()), tuple(inside), tuple(drawn))


def sketch(event: Event, left: Floats, right: Floats) -> Sketch:
    """Bin the held-out scores of the event's feature so that no bin straddles its threshold."""
    values = np.unique(np.concatenate((left, right)))
    few_values = len(values) <= _BINS
    middle = values if few_values else _middles(event.threshold, left, right)
    cuts = (middle[:-1] + middle[1:]) / 2
    heights = [np.bincount(np.searchsorted(cuts, side), minlength=len(middle)) / len(side) for side in (left, right)]
    labels, inside = [f"{value:.3g}" for value in middle], event.holds(middle).tolist()
    return Sketch.of(event.feature.name, labels, heights[0], heights[1], inside, _FEW / len(left))


def _middles(threshold: float, left: Floats, right: Floats) -> Floats:
    """Return equal bins over the bulk of both sides, shifted so that the threshold is a border of two bins."""
    pooled = np.concatenate((left, right))
    low, high = np.quantile(pooled[np.isfinite(pooled)], [0.002, 0.998])
    low, high = min(low, threshold), max(high, threshold)
    step = (high - low) / _BINS or 1.0
    if (pooled == np.rint(pooled)).all():
        step = np.ceil(step)  # every bin holds the same number of integers
    steps = np.arange(np.floor((low - threshold) / step), np.ceil((high - threshold) / step) + 1)
    return np.asarray(threshold + (steps + 0.5) * step)


def sparkline(heights: tuple[float, ...]) -> str:
    """Return one line of terminal block characters."""
    top = max(heights, default=0.0) or 1.0
    return "".join(" ▁▂▃▄▅▆▇█"[min(8, int(np.ceil(8 * height / top)))] for height in heights)


def svg(drawn: Sketch, lines: tuple[str, str, str], claimed: float) -> str:
    """Return a self-contained SVG, legible on light and dark pages."""
    parts = [
        '<svg xmlns="http://www.w3.org/2000/svg" class="clo-audit" viewBox="0 0 640 400" width="640" role="img">',
        f"<title>{escape(lines[0])}</title><style>{_STYLE}</style>",
        '<rect class="paper" width="640" height="400" rx="8"/>',
        f'<text x="20" y="26" font-weight="600">{escape(lines[0])}</text>',
        f'<text x="20" y="46" class="soft">{escape(lines[1])}</text>',
        f'<text x="20" y="66" class="soft">{escape(lines[2])}</text>',
        '<rect class="a" x="510" y="56" width="10" height="10"/><text x="524" y="66">left</text>',
        '<rect class="b" x="566" y="56" width="10" height="10"/><text x="580" y="66">right</text>',
        *_event(drawn),
        *_histogram(drawn),
        *_ratios(drawn, claimed),
        *_labels(drawn),
        "</svg>",
    ]
    return "".join(parts)


def _x(drawn: Sketch, position: float) -> float:
    return _LEFT + _WIDE * position / len(drawn.left)


def _bar(kind: str, x: float, y: float, width: float, height: float) -> str:
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}"/>'


def _event(drawn: Sketch) -> list[str]:
    width = _WIDE / len(drawn.left)
    tall = _RATIO_TOP + _RATIO_TALL - _TOP
    return [_bar("event", _x(drawn, i), _TOP, width, tall) for i, inside in enumerate(drawn.inside) if inside]


def _histogram(drawn: Sketch) -> list[str]:
    top, half = max(*drawn.left, *drawn.right, 1e-12), 0.46 * _WIDE / len(drawn.left)
    bars = []
    for i, pair in enumerate(zip(drawn.left, drawn.right, strict=True)):
        for side, (kind, share) in enumerate(zip("ab", pair, strict=True)):
            height = _TALL * share / top
            bars.append(_bar(kind, _x(drawn, i + 0.04) + side * half, _TOP + _TALL - height, half, height))
    floor = _TOP + _TALL
    line = f'<line class="axis" x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{floor}" y2="{floor}"/>'
    return [*bars, line, f'<text class="soft" x="{_LEFT - 6}" y="{_TOP + 10}" text-anchor="end">{top:.2g}</text>']


def _ratios(drawn: Sketch, claimed: float) -> list[str]:
    """Draw ln(left / right) by bin, cut off at twice the claim, with the claim on both sides of zero."""
    zero, unit = _RATIO_TOP + _RATIO_TALL / 2, _RATIO_TALL / 4 / max(claimed, 1e-12)
    width = 0.6 * _WIDE / len(drawn.left)
    parts = []
    for i, ratio in enumerate(drawn.ratio):
        if ratio is not None:
            height = min(abs(ratio) * unit, _RATIO_TALL / 2)
            kind, top = ("a", zero - height) if ratio > 0 else ("b", zero)
            parts.append(_bar(kind, _x(drawn, i + 0.2), top, width, height))
    for level, kind in ((-claimed, "claim"), (0.0, "axis"), (claimed, "claim")):
        y, name = zero - level * unit, f"{level:.3g}"
        parts.append(f'<line class="{kind}" x1="{_LEFT}" x2="{_LEFT + _WIDE}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="soft" x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{name}</text>')
    return [*parts, f'<text class="soft" x="{_LEFT}" y="{_RATIO_TOP - 6}">ln(left / right), dashed: the claim</text>']


def _labels(drawn: Sketch) -> list[str]:
    floor, every = _RATIO_TOP + _RATIO_TALL + 18, max(1, len(drawn.labels) // 6)
    ticks = [
        f'<text class="soft" x="{_x(drawn, i + 0.5):.1f}" y="{floor}" text-anchor="middle">{escape(label[:12])}</text>'
        for i, label in enumerate(drawn.labels)
        if i % every == 0
    ]
    return [*ticks, f'<text x="340" y="{floor + 20}" text-anchor="middle">{escape(drawn.axis)}, event shaded</text>']
