"""Draw charts with Vega-Lite, without a network: Altair, the common style, and files as SVG, PNG or HTML.

Every room that draws uses this module. What is drawn stays with the numbers: shapes of models (learn), findings of
surveys (local), scores of synthetic tables (synth), lessons, answers and survey results (hub).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cloister.privacy.errors import MissingExtra

__all__ = ["PALETTE", "altair", "chart_of", "name_axis", "style", "to_html", "to_png", "to_svg"]

# Distinct in lightness too, for colour-blind readers (after Okabe and Ito).
PALETTE = {
    "blue": "#3b4fa0",
    "teal": "#0f6b66",
    "orange": "#b45309",
    "purple": "#9c3d78",
    "green": "#5b7a1e",
    "grey": "#6b6b6b",
}
_FONT = "Arial, Liberation Sans, Helvetica, sans-serif"


def altair(missing: str = "charts need Altair: pip install 'cloister[hub]'.") -> Any:
    """Return Altair.

    Raises:
        MissingExtra: it is not installed, or the renderer is not; with the message `missing`.
    """
    try:
        import altair as alt
        import vl_convert  # noqa: F401
    except ImportError:
        raise MissingExtra(missing) from None
    return alt


def chart_of(points: Iterable[Mapping[str, Any]]) -> Any:
    """Return a chart of these records, without marks."""
    alt = altair()
    return alt.Chart(alt.InlineData(values=list(points)))


def name_axis(names: Iterable[str], most: int, letter: float = 8.2) -> Any:
    """Return an axis of names, one line each.

    Args:
        names: the names, to reserve space for the longest. Fonts differ in width from the one used for measuring.
        most: the limit of a name in pixels.
        letter: the width of a letter in pixels.
    """
    room = min(round(1.18 * most) + 12, 12 + max((round(letter * len(name)) for name in names), default=0))
    return altair().Axis(labelLimit=most, minExtent=room, ticks=False, domain=False, grid=False)


def style(ink: Mapping[str, str], *, size: int, gap: int, right: int) -> dict[str, Any]:
    """Return the configuration of a chart: no background and no frame, quiet axes.

    Args:
        ink: the colours `ink`, `soft` and `line`.
        size: the font size of labels.
        gap: the distance of titles in pixels.
        right: the padding on the right in pixels.
    """
    words = {
        "labelColor": ink["ink"],
        "titleColor": ink["soft"],
        "titleFontWeight": "normal",
        "labelFontSize": size,
        "titleFontSize": size,
    }
    lines = dict.fromkeys(("gridColor", "domainColor", "tickColor"), ink["line"])
    return {
        "background": None,
        "font": _FONT,
        "padding": {"left": 4, "right": right, "top": 6, "bottom": 4},
        "view": {"stroke": None},
        "title": {"color": ink["ink"], "anchor": "start", "fontSize": size + 1, "fontWeight": 600, "offset": gap},
        "axis": {**words, **lines, "titlePadding": gap},
    }


def to_svg(chart: Any, config: dict[str, Any] | None = None) -> str:
    """Render a chart, or its specification as JSON, as SVG."""
    import vl_convert

    spec = chart if isinstance(chart, str) else chart.to_json(indent=None)
    text: str = vl_convert.vegalite_to_svg(spec, config=config, allowed_base_urls=[])
    return text


def to_png(chart: Any) -> bytes:
    """Render a chart as PNG, in twice its size."""
    import vl_convert

    image: bytes = vl_convert.vegalite_to_png(chart.to_json(), scale=2, allowed_base_urls=[])
    return image


def to_html(charts: Sequence[Any], title: str = "") -> str:
    """Return charts below each other, as one page that needs no network."""
    combined = altair().vconcat(*charts)
    page: str = (combined.properties(title=title) if title else combined).to_html(inline=True)
    return page
