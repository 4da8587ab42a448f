"""Receipts of a survey in words, for respondents and for readers of an analysis."""

import json
from decimal import ROUND_CEILING, ROUND_FLOOR, ROUND_HALF_UP
from typing import Any

from cloister.client import survey_wire
from cloister.privacy.errors import ReceiptRejected
from cloister.privacy.number import number_text

__all__ = ["is_of_survey", "read", "words"]

_MOST_LINES = 200


def is_of_survey(text: str | bytes) -> bool:
    """Return True if this looks like a receipt of a survey; it proves nothing."""
    try:
        read(text)
    except ReceiptRejected:
        return False
    return True


def read(text: str | bytes) -> dict[str, Any]:
    """Return the content of a receipt. It proves nothing until `proof.verify` has checked it."""
    try:
        body = json.loads(text)["receipt"]
        valid = isinstance(body, dict) and body["form"] in (survey_wire.TAKEN, survey_wire.ANALYSIS)
    except (ValueError, TypeError, KeyError, RecursionError):
        valid = False
    if not valid:
        raise ReceiptRejected("this is no receipt of a survey. Ask for the file as it was issued.")
    return dict(body)


def words(body: dict[str, Any]) -> str:
    """Return a receipt in words."""
    lines = [
        f"survey      {body.get('survey')}",
        f"wave        {body.get('wave')}",
        f"day         {body.get('day')}",
    ]
    lines += _taken(body) if body["form"] == survey_wire.TAKEN else _analysis(body)
    return "\n".join(lines[:_MOST_LINES])


def _taken(body: dict[str, Any]) -> list[str]:
    levels = body.get("levels")
    chosen = ", ".join(f"{name} {level}" for name, level in levels.items()) if isinstance(levels, dict) else ""
    return [
        f"reports     {body.get('reports')}",
        f"levels      {chosen}",
        "Reports were taken; the hub never saw answers.",
    ]


def _analysis(body: dict[str, Any]) -> list[str]:
    lines = [
        f"title       {body.get('title')}",
        f"computed    {body.get('computed')}",
        f"people      {body.get('people')}",
        f"submissions {body.get('submissions')}",
    ]
    cost = body.get("published")
    if isinstance(cost, dict):
        lines.append(
            f"published   epsilon {cost.get('epsilon')}, delta {cost.get('delta')}; trusted: {cost.get('shuffler')}"
        )
    for estimate in body.get("estimates") or []:
        lines.append(f"{estimate.get('question')}: {estimate.get('reports')} reports")
        lines += [
            f"  {row.get('value')}: {_short(row.get('raw'))} [{_short(row.get('low'), ROUND_FLOOR)}, "
            f"{_short(row.get('high'), ROUND_CEILING)}]"
            for row in estimate.get("values") or []
        ]
    return lines


def _short(text: Any, rounding: str = ROUND_HALF_UP) -> str:
    try:
        return number_text(float(text), 4, rounding)
    except (TypeError, ValueError):
        return str(text)
