"""Findings as one page that needs no network: verdict, attacker, success, curve, bound on epsilon, remedies, limits.

    save(findings, "attacks.html", title="Readmission model")
    to_html(finding)                                       # the page as text

The page is for the owner of the rows: an attack reads them without noise.
"""

import json
import math
import os
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path

from cloister.attack.finding import Finding, figure_text
from cloister.attack.report.charts import Drawn, epsilon_chart, risk_chart, roc_chart, success_chart
from cloister.data.report_page import figure, page
from cloister.privacy.errors import BadInput, StoreFailed
from cloister.privacy.loss import Loss, Relation
from cloister.privacy.number import lower_text, percent_limits
from cloister.version import __version__

__all__ = ["charts", "figure_text", "headline", "odds", "save", "save_json", "tiles", "to_html", "to_json"]

_OWNERS_VIEW = (
    "OWNER'S VIEW: attacks read the rows without noise. Not to be published; what is learned here is as sensitive as "
    "the rows."
)
_STYLE = """
section { margin-top: 2.4rem; border-top: 2px solid var(--line); } h3 { font-size: 1.05rem; margin: 1.4rem 0 .3rem; }
table.overview { border-collapse: collapse; background: var(--card); font-size: .95rem; }
.overview th, .overview td { padding: .3rem .8rem; text-align: left; border-bottom: 1px solid var(--line);
  vertical-align: top; } .overview thead { border-bottom: 2px solid var(--line); }
.overview caption { text-align: left; color: var(--soft); padding: .2rem 0; }
dl { margin: 0; } dt { float: left; clear: left; width: 13rem; color: var(--soft); } dd { margin: 0 0 .4rem 13.5rem; }
dl::after { content: ""; display: block; clear: both; }
@media (max-width: 30rem) { dt { float: none; width: auto; } dd { margin-left: 0; } }
"""
Findings = Finding | Sequence[Finding]


def to_html(findings: Findings, *, title: str = "Attacks", made_up: bool = False) -> str:
    """Return the report of one or several findings as a page.

    Args:
        findings: the results of attacks, the most important first.
        title: the title of the page.
        made_up: True if nothing that was attacked holds rows of people; the owner's warning is left out.
    """
    listed = _listed(findings)
    return page(f"{title}: attacks" if title != "Attacks" else title, _body(listed, title, made_up), style=_STYLE)


def save(findings: Findings, path: str | os.PathLike[str], *, title: str = "Attacks", made_up: bool = False) -> Path:
    """Write the report of one or several findings to a file; see `to_html`."""
    return _write(path, to_html(findings, title=title, made_up=made_up))


def to_json(findings: Findings) -> dict[str, object]:
    """Return figures and sentences of all findings, without the risk of each record."""
    listed = _listed(findings)
    return {
        "made_with": f"Cloister {__version__}",
        "verdict": headline(listed),
        "broken": any(finding.broken for finding in listed),
        "findings": [finding.to_json() for finding in listed],
    }


def save_json(findings: Findings, path: str | os.PathLike[str]) -> Path:
    """Write figures and sentences of all findings to a file; see `to_json`."""
    return _write(path, json.dumps(to_json(findings), indent=2, ensure_ascii=False, default=_plain) + "\n")


def headline(findings: Findings) -> str:
    """Return one sentence about all findings."""
    listed = _listed(findings)
    if len(listed) == 1:
        return listed[0].verdict
    broken = [finding for finding in listed if finding.broken]
    learned = [finding for finding in listed if finding.learned]
    if broken:
        return f"{len(broken)} of {len(listed)} attacks refute a claim: {_named(broken[0])}."
    if learned:
        most = max(learned, key=lambda finding: finding.advantage)
        return f"{len(learned)} of {len(listed)} attacks learn something beyond guessing, most {_named(most)}."
    return f"None of {len(listed)} attacks shows that it learns beyond guessing. This is no proof of safety."


def _listed(findings: Findings) -> list[Finding]:
    listed = [findings] if isinstance(findings, Finding) else list(findings)
    if not listed or not all(isinstance(finding, Finding) for finding in listed):
        raise BadInput("a report is about one finding or several. Pass what an attack returned.")
    return listed


def _write(path: str | os.PathLike[str], text: str) -> Path:
    file = Path(path)
    try:
        file.write_text(text, encoding="utf-8")
    except OSError as error:
        raise StoreFailed(f"no report was written to {file} ({error.strerror}). Choose another path.") from None
    return file


def _plain(value: object) -> object:
    """Return a number of numpy as one of Python."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a figure is a number or text, not {type(value).__name__}.")


def _named(finding: Finding) -> str:
    return f"{finding.attack} against {finding.target}"


def _kind(finding: Finding) -> str:
    return "bad" if finding.broken or finding.learned else "good"


def _body(findings: Sequence[Finding], title: str, made_up: bool) -> Iterator[str]:
    kind = "bad" if any(_kind(finding) == "bad" for finding in findings) else "good"
    note = "" if made_up else f'<p class="owner" role="note">{escape(_OWNERS_VIEW)}</p>'
    yield f"<header>{note}<h1>{escape(title)}</h1>"
    yield f'<p class="verdict {kind}">{escape(headline(findings))}</p></header><main>'
    if len(findings) > 1:
        yield from _overview(findings)
    for finding in findings:
        yield from _section(finding, alone=len(findings) == 1)
    yield "</main>"
    text = (
        "An attack that fails proves nothing: a better one may succeed. What bounds every attack is a privacy loss "
        "that is accounted for. Intervals and bounds hold at the stated confidence for the attack that was run."
    )
    yield f'<footer class="soft"><p>{escape(text)} Made with Cloister {escape(__version__)}.</p></footer>'


def _overview(findings: Sequence[Finding]) -> Iterator[str]:
    yield '<div class="scroll" tabindex="0" role="region" aria-label="All attacks"><table class="overview">'
    yield "<caption>All attacks, with 95 % intervals.</caption><thead><tr>"
    heads = ("attack", "target", "success", "by guessing", "epsilon at least", "claim", "verdict")
    yield "".join(f'<th scope="col">{head}</th>' for head in heads) + "</tr></thead><tbody>"
    for finding in findings:
        limits = percent_limits(*finding.interval, 1)
        bound = finding.epsilon
        cells = (
            finding.target,
            f"{finding.success:.1%} ({limits[0]} to {limits[1]})",
            f"{finding.baseline:.1%}",
            "" if bound is None else lower_text(bound.lower, 3),
            "" if finding.claim is None else str(finding.claim),
        )
        row = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        word = "refuted" if finding.broken else "learns" if finding.learned else "nothing shown"
        yield f'<tr><th scope="row">{escape(finding.attack)}</th>{row}<td class="{_kind(finding)}">{word}</td></tr>'
    yield "</tbody></table></div>"


def _section(finding: Finding, *, alone: bool) -> Iterator[str]:
    yield f"<section><h2>{escape(_named(finding))}</h2>"
    if not alone:
        yield f'<p class="verdict {_kind(finding)}">{escape(finding.verdict)}</p>'
    shown = (f'<div class="tile"><b>{escape(number)}</b>{escape(words)}</div>' for number, words in tiles(finding))
    yield f'<div class="tiles">{"".join(shown)}</div>'
    yield "<h3>What the attacker knew</h3>"
    yield f"<p><b>{escape(finding.access.capitalize())}.</b> {escape(_sentence(finding.knowledge))}</p>"
    yield '<h3>What was learned</h3><div class="charts">'
    yield from (figure(*drawn) for drawn in charts(finding))
    yield "</div>"
    if finding.claim is not None:
        yield f'<p class="soft">{escape(odds(finding.claim))}</p>'
    if finding.figures:
        yield "<h3>Figures</h3><dl>"
        yield from (
            f"<dt>{escape(name)}</dt><dd>{escape(figure_text(value))}</dd>" for name, value in finding.figures.items()
        )
        yield "</dl>"
    if finding.pictures:
        yield '<h3>Pictures</h3><div class="charts">'
        yield from (figure(fragment, name) for name, fragment in finding.pictures.items())
        yield "</div>"
    yield from _list("What would have stopped it", finding.remedies)
    yield from _list("Limits of this run", finding.notes)
    yield "</section>"


def tiles(finding: Finding) -> Iterator[tuple[str, str]]:
    """Yield the main numbers of a finding, each with what it is."""
    limits = percent_limits(*finding.interval, 1)
    numbers = [
        (f"{finding.success:.1%}", f"of {finding.measure} ({limits[0]} to {limits[1]} %)"),
        (f"{finding.baseline:.1%}", "by the best guess without the target"),
        (f"{finding.advantage:.1%}", "advantage: share of what guessing leaves open"),
    ]
    if finding.epsilon is not None:
        allowed = finding.epsilon.allowed
        claim = "no claim was given" if allowed is None else f"the claim allows {allowed:.4g}"
        numbers.append((f"ε ≥ {lower_text(finding.epsilon.lower, 3)}", claim))
    yield from numbers


def charts(finding: Finding) -> Iterator[Drawn]:
    """Draw a finding: success, curve, bound on epsilon, and how sure the attacker is of how many records."""
    yield success_chart(finding)
    if finding.roc is not None:
        yield roc_chart(finding.roc, finding.claim)
    if finding.epsilon is not None:
        yield epsilon_chart(finding.epsilon)
    if finding.risk is not None and len(finding.risk):
        yield risk_chart(finding.risk)


def odds(claim: Loss) -> str:
    """Return what a claim bounds: the posterior of somebody who is not sure before (Wasserman and Zhou 2010)."""
    loss = claim if claim.measure == "epsilon" else claim.as_epsilon(delta="1e-6")
    most = 1 / (1 + math.exp(-float(loss.amount)))
    delta = f", but for a probability of {float(loss.delta):.1g}" if loss.delta else ""
    fact = (
        "whether somebody's rows were used"
        if claim.relation is Relation.ADD_REMOVE
        else "which of two values somebody's row has"
    )
    return (
        f"If {claim} is true, no attacker whose odds are even before becomes more than {most:.1%} sure of "
        f"{fact}{delta}."
    )


def _sentence(text: str) -> str:
    ended = text if text.endswith((".", "!", "?")) else f"{text}."
    return ended[:1].upper() + ended[1:]


def _list(heading: str, sentences: Sequence[str]) -> Iterator[str]:
    if sentences:
        yield f'<h3>{escape(heading)}</h3><ul class="checks">'
        yield from (f"<li>{escape(_sentence(sentence))}</li>" for sentence in sentences)
        yield "</ul>"
