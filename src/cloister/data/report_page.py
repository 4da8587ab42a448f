"""The page of a report: one file without a network, in light and dark, on paper; what every room's report shares.

    page("visits.csv: score", body)                       # body: strings of HTML, whose texts are escaped
    figure(svg, "Share of rows at risk, by attack.")      # a picture with a caption

A drawing uses the variables --ink, --soft, --line, --real, --made and --other of the page, so that one drawing serves
light, dark and print: `INK` has a placeholder for each, which `inked` replaces.
"""

from collections.abc import Iterable
from html import escape

__all__ = ["INK", "figure", "inked", "page"]

INK = {"ink": "#000101", "soft": "#000102", "line": "#000103", "real": "#000104", "made": "#000105", "other": "#000106"}
_STYLE = """
:root { color-scheme: light dark; --ink: #1b2326; --soft: #55616a; --line: #dddad2; --card: #ffffff; --back: #f6f4ef;
  --real: #8a8f98; --made: #0f6b66; --other: #b45309; --bad: #a3261d; --good: #0f6b66; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6eaea; --soft: #a3afb3; --line: #303c40; --card: #1a2224;
  --back: #11181a; --real: #9aa3ab; --made: #6fc9c1; --other: #f5b544; --bad: #ff9d91; --good: #6fc9c1; } }
@media print { :root { color-scheme: light; --ink: #000; --soft: #444; --line: #ccc; --card: #fff; --back: #fff;
  --real: #8a8f98; --made: #0f6b66; --other: #b45309; --bad: #a3261d; --good: #0f6b66; }
  figure, li, tr, .tile { break-inside: avoid; } h2 { break-after: avoid; } body { padding: 0; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 68rem; padding: 1.2rem; background: var(--back); color: var(--ink);
  font: 16px/1.5 Arial, "Liberation Sans", Helvetica, sans-serif; overflow-wrap: break-word; }
.owner { border: 2px solid var(--bad); border-radius: 8px; padding: .6rem .9rem; font-weight: 600; }
h1 { font-size: 1.5rem; margin: 1.2rem 0 .3rem; } h2 { font-size: 1.2rem; margin: 2rem 0 .4rem; }
.verdict { font-size: 1.2rem; font-weight: 600; margin: .2rem 0 .8rem; } .good { color: var(--good); }
.bad { color: var(--bad); } .soft, figcaption { color: var(--soft); }
.tiles { display: grid; gap: .8rem; grid-template-columns: repeat(auto-fit, minmax(13rem, 1fr)); }
.tile, figure { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: .8rem 1rem;
  margin: 0; }
.tile b { display: block; font-size: 1.5rem; } .charts { display: grid; gap: 1rem;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); }
svg { display: block; max-width: 100%; height: auto; } figcaption { margin-top: .5rem; }
.key { margin: 0 0 .3rem; font-size: .9rem; } .key span { margin-right: 1rem; white-space: nowrap; }
.key span::before { content: ""; display: inline-block; width: .8rem; height: .8rem; margin-right: .35rem;
  border-radius: 3px; background: var(--ink); print-color-adjust: exact; }
.key .made::before { background: var(--made); } .key .real::before { background: var(--real); }
.key .other::before { background: var(--other); } .key .line::before { background: var(--line); }
ul.checks { list-style: none; padding: 0; } ul.checks li { padding: .35rem 0; border-bottom: 1px solid var(--line); }
.word { display: inline-block; min-width: 3.4rem; font-weight: 700; } .scroll { overflow-x: auto; }
"""


def page(title: str, body: Iterable[str], *, style: str = "") -> str:
    """Return a whole page that loads nothing: no script, no font, no picture from elsewhere.

    Args:
        title: the title of the window.
        body: HTML in which every text is escaped.
        style: further rules, behind the common ones.
    """
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    text = "\n".join(body)
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{_STYLE}{style}</style>\n</head>\n<body>\n{text}\n</body>\n</html>\n"
    )


def figure(picture: str, text: str) -> str:
    """Return a picture with its caption, which is also its name for a screen reader."""
    caption = escape(text, quote=True)
    return f'<figure role="group" aria-label="{caption}">{picture}<figcaption>{caption}</figcaption></figure>'


def inked(svg: str) -> str:
    """Replace the colours of `INK` in a drawing by the variables of the page."""
    for name, colour in INK.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg
