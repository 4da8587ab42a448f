"""The provenance of a synthetic table, in words for a report, from its metadata file."""

from collections.abc import Mapping
from typing import Any

from cloister.attack.report.interval import percent
from cloister.privacy.loss import Loss
from cloister.synth.planning import METHODS

__all__ = ["told_making"]

_MOST_NAMED = 12


def told_making(synthetic: Any) -> dict[str, str]:
    """Return facts about the generation of a table; empty if nothing is known.

    Privacy: repeats what was released with the table.
    """
    side = getattr(synthetic, "side", None)
    if not isinstance(side, Mapping) or "method" not in side:
        return {}
    method, relation = str(side["method"]), Loss.from_json(side["loss"]).relation
    facts = {
        "Method": f"{method}: {METHODS[method]}" if method in METHODS else method,
        "Protects": f"{side['unit']}; the promise compares tables with and without them ({relation}).",
    }
    if not side["private"]:
        facts["Not private"] = "the noise came from a seed, which protects nobody."
    facts["Measured"] = _measured(side["measured"])
    means = side["expected error"].get("mean over marginals of so many columns", {})
    if means:
        errors = ", ".join(f"{percent(float(error))} for {_columns(int(count))}" for count, error in means.items())
        margin = percent(float(side["expected error"]["margin of these means (95 %)"]))
        facts["Expected error"] = (
            f"{errors}, each ± {margin}: what the metadata file tells the person who gets the table."
        )
    facts["Rules"] = _rules(side)
    receipt = side.get("receipt")
    facts["Receipt"] = "none" if receipt is None else "signed, in the metadata file: anybody can check what was paid."
    return {word: text for word, text in facts.items() if text}


def _measured(marginals: Any) -> str:
    several = list(
        dict.fromkeys(" × ".join(marginal["columns"]) for marginal in marginals if len(marginal["columns"]) > 1)
    )
    singles = len({tuple(marginal["columns"]) for marginal in marginals if len(marginal["columns"]) == 1})
    parts = [f"{_columns(singles)} alone"] if singles else []
    if several:
        more = f" and {len(several) - _MOST_NAMED} more" if len(several) > _MOST_NAMED else ""
        parts.append(f"together {', '.join(several[:_MOST_NAMED])}{more}")
    more = "Each count with noise; what was not measured is as if columns had no part in each other."
    return f"{'; '.join(parts)}. {more}" if parts else ""


def _columns(count: int) -> str:
    return f"{count} column{'' if count == 1 else 's'}"


def _rules(side: Mapping[str, Any]) -> str:
    count = len(side.get("never") or ()) + len(side.get("determines") or ())
    return f"{count} declared in the schema; every row keeps {'it' if count == 1 else 'them'}." if count else ""
