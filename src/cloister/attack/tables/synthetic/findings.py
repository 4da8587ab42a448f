"""Attacks on a synthetic table as findings: success beside chance, what the attacker has, what would stop it."""

from dataclasses import replace
from typing import Any

from cloister.attack.finding import EpsilonBound, Finding
from cloister.attack.intervals import curve
from cloister.attack.mechanisms.audit_one_run import epsilon_from_guesses
from cloister.attack.report.interval import Interval
from cloister.attack.tables.synthetic.attack_sample import Attacks
from cloister.attack.tables.synthetic.closeness import Closeness
from cloister.attack.tables.synthetic.copies import Copies
from cloister.attack.tables.synthetic.membership import Membership
from cloister.attack.tables.synthetic.singling_out import SinglingOut
from cloister.privacy.loss import Loss

__all__ = ["REFUTED", "synthetic_findings"]

REFUTED = 1e-4  # the risk of calling a true claim false
_SHUFFLE = "the choice of the rows that were held out is taken as fair coins, and is a shuffle"
_UNLIKE = (
    "held-out rows differ from real ones without the table, as a guess from the rows alone shows, so no claim is "
    "tested. Hold rows out by chance"
)
_MAKE = (
    "make the table with a privacy loss, which bounds every such attack: synth.aim(ds, spend=epsilon(1, delta='1e-6'))"
)
_LESS = "spend less, or give each person fewer rows: the claim bounds the loss of one unit"
_COARSER = "give columns fewer values or wider bins: rows that are alike single nobody out"


def synthetic_findings(
    copies: Copies, attacks: Attacks, *, target: str, claim: Loss | None = None, rows: int
) -> tuple[Finding, ...]:
    """Return the attacks on a synthetic table as findings; none without rows that were held out.

    Args:
        copies: the rows that occur in the table.
        attacks: the other attacks; those that were skipped are left out.
        target: the table's name.
        claim: the loss that the table states, for one row.
        rows: real rows.

    Privacy: none. It reads what was computed from real rows, and is for the owner.
    """
    if copies.fresh is None:
        return ()
    found = [_copies(copies, copies.fresh, rows)]
    if attacks.closeness is not None:
        found.append(_closeness(attacks.closeness, attacks.rows))
    if attacks.membership is not None:
        found.append(_membership(attacks.membership, claim))
    if attacks.singling_out is not None:
        found.append(_singling_out(attacks.singling_out))
    remedy = _MAKE if claim is None else _LESS
    blind = 0.5 if attacks.membership is None else attacks.membership.blind
    findings = [
        Finding(target=target, access="release", claim=claim, remedies=(remedy, *more), **facts)
        for facts, more in found
    ]
    return tuple(findings) if blind <= 0.5 else tuple(_beside_blind(one, blind) for one in findings)


def _beside_blind(finding: Finding, blind: float) -> Finding:
    """Return a finding on rows that were not held out by chance: beside what a guess without the table reaches."""
    guesses = finding.baseline == 0.5  # of who was in the table; others are beside the share of held-out rows
    notes = (*(note for note in finding.notes if note != _SHUFFLE), _UNLIKE)
    return replace(finding, baseline=blind if guesses else finding.baseline, epsilon=None, notes=notes)


_Facts = tuple[dict[str, Any], tuple[str, ...]]


def _copies(copies: Copies, fresh: Interval, rows: int) -> _Facts:
    return {
        "attack": "exact copies",
        "knowledge": "the synthetic table",
        "measure": "real rows that are in the table, with all values",
        "success": copies.real.value,
        "interval": _beside(copies.real, fresh),
        "baseline": fresh.value,
        "attempts": rows,
        "figures": {"synthetic rows equal to a real one": f"{copies.synthetic:,} of {copies.rows:,}",
                    **_chance(copies.chance)},
        "notes": ("The guess is the share of held-out rows that are in the table by chance.",),
    }, (_COARSER,)  # fmt: skip


def _closeness(near: Closeness, rows: int) -> _Facts:
    return {
        "attack": "closest rows",
        "knowledge": "the synthetic table, and a real row beside a row of somebody else",
        "measure": "pairs in which the real row is nearer to the table",
        "success": near.nearer.value,
        "interval": _ends(near.nearer),
        "baseline": 0.5,
        "attempts": rows,
        "figures": {"synthetic rows closer to a real row": near.closer.text(1, percent=True)},
    }, ()  # fmt: skip


def _membership(guessed: Membership, claim: Loss | None) -> _Facts:
    bound = None
    if claim is not None:
        stated = claim if claim.measure == "epsilon" else claim.as_epsilon(delta="1e-9")
        delta, allowed = float(stated.delta), float(curve(stated).epsilons[0])
        lower = epsilon_from_guesses(guessed.correct, guessed.guesses, guessed.guesses, delta, 1 - REFUTED)
        bound = EpsilonBound(lower, delta, 1 - REFUTED, allowed)
    return {
        "attack": f"membership by {guessed.attacker}",
        "knowledge": "the synthetic table, and rows of which half were in the real one",
        "measure": "guesses of membership that are right",
        "success": guessed.right.value,
        "interval": _ends(guessed.right),
        "baseline": 0.5,
        "attempts": guessed.guesses,
        "epsilon": bound,
        "figures": {
            "members found": guessed.found.text(1, percent=True),
            "of others accused": guessed.accused.text(1, percent=True),
            **{f"area under the curve, {name}": area.text() for name, area in guessed.areas.items()},
        },
        "notes": () if claim is None else (_SHUFFLE,),
    }, ()  # fmt: skip


def _singling_out(single: SinglingOut) -> _Facts:
    return {
        "attack": "singling out",
        "knowledge": "the synthetic table, from which rules are derived",
        "measure": "rules that match exactly one real row",
        "success": single.real.value,
        "interval": _beside(single.real, single.fresh),
        "baseline": single.fresh.value,
        "attempts": single.rules,
        "figures": {"risk beyond chance": f"{single.risk:.1%}", **_chance(single.chance)},
        "notes": ("The guess is what rules would match if the table knew nobody.",),
    }, (_COARSER,)  # fmt: skip


def _ends(figure: Interval) -> tuple[float, float]:
    return (0.0 if figure.low is None else figure.low), (1.0 if figure.high is None else figure.high)


def _beside(figure: Interval, chance: Interval) -> tuple[float, float]:
    """Return the interval of a share, widened by the doubt in what chance gives."""
    low, high = _ends(figure)
    doubt = max(0.0, _ends(chance)[1] - chance.value)
    return max(0.0, min(low, figure.value - doubt)), min(1.0, high + doubt)


def _chance(value: float | None) -> dict[str, str]:
    return {} if value is None else {"probability if the table knew nobody": f"{value:.3g}"}
