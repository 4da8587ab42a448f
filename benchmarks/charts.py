"""A small line chart on two logarithmic axes, written as SVG: legible in light and dark, no library needed."""

import math
from html import escape
from pathlib import Path

WIDTH, HEIGHT = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 70, 190, 46, 48
# Paul Tol's bright scheme, told apart by most people with colour-blindness; dashes tell ours from the others.
COLOURS = ("#4477aa", "#66a3d9", "#aa3377", "#d977ab", "#ccbb44", "#228833", "#ee6677")
STYLE = """
    .card { fill: #fbfaf7; stroke: #d9d4c7; } .grid { stroke: #d9d4c7; } text { fill: #23211c; }
    text { font: 13px system-ui, "Segoe UI", "DejaVu Sans", sans-serif; } .title { font-size: 15px; }
    .middle { text-anchor: middle; } .end { text-anchor: end; }
    @media (prefers-color-scheme: dark) {
      .card { fill: #1d1f22; stroke: #3a3d42; } .grid { stroke: #3a3d42; } text { fill: #e8e4da; }
    }"""

Lines = dict[str, list[tuple[float, float]]]


def growth(path: Path, title: str, lines: Lines) -> None:
    """Write the chart. A line whose name begins with `Cloister` is drawn through, the others are dashed."""
    xs, ys = [x for line in lines.values() for x, _ in line], [y for line in lines.values() for _, y in line]
    across, up = _powers(xs), _powers(ys)

    def x_at(x: float) -> float:
        return LEFT + (math.log10(x) - across[0]) / (across[-1] - across[0]) * (WIDTH - LEFT - RIGHT)

    def y_at(y: float) -> float:
        return HEIGHT - BOTTOM - (math.log10(y) - up[0]) / (up[-1] - up[0]) * (HEIGHT - TOP - BOTTOM)

    parts = [f'<text class="title middle" x="{WIDTH / 2:.0f}" y="26">{escape(title)}</text>']
    for power in across:
        x = x_at(10.0**power)
        parts.append(f'<line class="grid" x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text class="middle" x="{x:.1f}" y="{HEIGHT - BOTTOM + 20}">{_power(power)} rows</text>')
    for power in up:
        y = y_at(10.0**power)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text class="end" x="{LEFT - 8}" y="{y + 4:.1f}">{_duration(power)}</text>')
    for (name, line), colour in zip(lines.items(), COLOURS, strict=False):
        points = " ".join(f"{x_at(x):.1f},{y_at(y):.1f}" for x, y in line)
        dash = "" if name.startswith("Cloister") else ' stroke-dasharray="6 4"'
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5"{dash}/>')
        parts += [f'<circle cx="{x_at(x):.1f}" cy="{y_at(y):.1f}" r="3.5" fill="{colour}"/>' for x, y in line]
    parts += _legend(lines)
    body = "\n  ".join(parts)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-labelledby="t">\n'
        f'  <title id="t">{escape(title)}</title>\n  <style>{STYLE}\n  </style>\n'
        f'  <rect class="card" x="0.5" y="0.5" width="{WIDTH - 1}" height="{HEIGHT - 1}" rx="10"/>\n  {body}\n</svg>\n',
        encoding="utf-8",
    )


def _legend(lines: Lines) -> list[str]:
    parts = []
    for place, (name, colour) in enumerate(zip(lines, COLOURS, strict=False)):
        y, x = TOP + 14 + 24 * place, WIDTH - RIGHT + 18
        dash = "" if name.startswith("Cloister") else ' stroke-dasharray="6 4"'
        parts.append(f'<line x1="{x}" y1="{y}" x2="{x + 26}" y2="{y}" stroke="{colour}" stroke-width="2.5"{dash}/>')
        parts.append(f'<text x="{x + 34}" y="{y + 4}">{escape(name)}</text>')
    return parts


def _powers(values: list[float]) -> list[int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return list(range(low, max(high, low + 1) + 1))


def _power(power: int) -> str:
    return "1" + "0" * power if power < 4 else f"10{str(power).translate(str.maketrans('0123456789', '⁰¹²³⁴⁵⁶⁷⁸⁹'))}"


def _duration(power: int) -> str:
    return f"{10.0 ** (power - 3):g} s" if power >= 3 else f"{10.0**power:g} ms"
