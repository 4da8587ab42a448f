"""Parts of an attack that are stored: its verdict in short, and its findings as a page of the hub shows them.

    facts     verdict, whether a claim is refuted, number of attacks, what was not run
    report    the findings as JSON, what a page shows of each, and the same as one HTML file

Numbers for each record are not kept, only the drawings made of them, so that no record can be found in a report.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cloister.attack.finding import Finding
from cloister.attack.report.page import charts, figure_text, headline, odds, tiles, to_html, to_json

__all__ = ["packed"]


def packed(
    findings: Sequence[Finding], skipped: Mapping[str, str], title: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the facts of an attack, and its report.

    Args:
        findings: the results, the most important first.
        skipped: the attacks that were not run, each with the reason.
        title: of the report.
    """
    facts = {
        "verdict": headline(findings),
        "broken": any(finding.broken for finding in findings),
        "learned": sum(finding.learned for finding in findings),
        "attacks": len(findings),
        "skipped": dict(skipped),
    }
    told = {**_plain(to_json(findings)), "not run": dict(skipped)}
    report = {"json": told, "html": to_html(findings, title=title), "shown": [_shown(one) for one in findings]}
    return facts, report


def _shown(finding: Finding) -> dict[str, Any]:
    """Return what a page shows of a finding. The drawings are SVG of ours, whose texts are escaped."""
    kept: dict[str, Any] = _plain(finding.to_json())
    return {
        **kept,
        "learned": finding.learned,
        "broken": finding.broken,
        "tiles": [list(pair) for pair in tiles(finding)],
        # The caption says what a picture shows, so that a screen reader need not read it twice.
        "charts": [[picture.replace('role="img"', 'aria-hidden="true"'), words] for picture, words in charts(finding)],
        "pictures": [list(pair) for pair in finding.pictures.items()],
        "bound": None if finding.epsilon is None else str(finding.epsilon),
        "odds": None if finding.claim is None else odds(finding.claim),
        "lines": [[name, figure_text(value)] for name, value in kept["figures"].items()],
    }


def _plain(value: Any) -> Any:
    """Return plain JSON: numbers of numpy as those of Python, and no infinite ones."""
    if isinstance(value, Mapping):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if hasattr(value, "item"):
        return _plain(value.item())
    return None if isinstance(value, float) and value - value != 0 else value
