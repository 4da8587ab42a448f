"""The rows that are attacked: a sample of the real ones and as many held-out ones, with every synthetic row.

A recipient has the whole table. An attack on a tenth of a copy finds a tenth of it, and would call the copy harmless.
Synthetic rows are therefore never left out: if there is too much work, fewer people are attacked, which widens
intervals without bias; if even a hundred are too many, the attack is skipped and reported as such.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from cloister.attack.tables.synthetic.closeness import Closeness, closest, compare_closeness, width
from cloister.attack.tables.synthetic.coded_rows import CodedRows
from cloister.attack.tables.synthetic.membership import Membership, attack_membership
from cloister.attack.tables.synthetic.singling_out import SinglingOut, attack_singling_out

__all__ = ["FEWEST", "Attacks", "attack"]

FEWEST = 100  # people, or rules: fewer decide nothing
_OVERHEAD = 100  # finding the largest of the products costs as much as this many more codes
_MOST_WORK = 50_000**2 * (300 + _OVERHEAD)  # pairs of rows times codes: 20 s on one core, for each of two tables
_MOST_FITS = 10**10  # rows times rules: as long as that
_SPLIT_SEED = 20260102  # of a split that ignores the rows
_TRIES = 8  # for each rule that fits one synthetic row
Progress = Callable[[float, str], None]


@dataclass(frozen=True, slots=True)
class Attacks:
    """Results of the attacks.

    Attributes:
        closeness, membership, singling_out: None if skipped, or if no rule fits exactly one synthetic row.
        rows: number of real rows, and of held-out ones, that the first two attacked.
        not_tried: descriptions of the attacks for which the synthetic table has too many rows.
    """

    closeness: Closeness | None = None
    membership: Membership | None = None
    singling_out: SinglingOut | None = None
    rows: int = 0
    not_tried: tuple[str, ...] = ()


def attack(
    real: CodedRows,
    holdout: CodedRows,
    synthetic: CodedRows,
    most: int,
    rules: int,
    random: np.random.Generator,
    say: Progress,
) -> Attacks:
    """Attack up to `most` real rows and as many held-out ones, and try the given number of rules."""
    # As many of both: else the larger set would be closer, and better matched, by chance.
    equal = min(len(real), len(holdout))
    both = real.at_most(equal, random), holdout.at_most(equal, random)
    wanted = min(equal, most)
    rows = min(wanted, _affordable_targets(synthetic))
    near = guessed = None
    if rows >= min(wanted, FEWEST):
        targets = both[0].at_most(rows, random), both[1].at_most(rows, random)
        to_real = closest(synthetic, targets[0], lambda done, text: say(0.15 / 0.4 * done, text))
        to_held = closest(synthetic, targets[1], lambda done, text: say(0.15 / 0.4 * (1 + done), text))
        near = compare_closeness(to_real, to_held)
        say(0.8, "guessing who was in the table")
        guessed = attack_membership(*targets, synthetic, (to_real[1], to_held[1]), random, both)
        if max(near.nearer.low or 0.0, guessed.right.low or 0.0) > 0.5:
            guessed = replace(guessed, blind=_without_table(*targets))
    say(0.9, "singling people out")
    tried = min(rules, _affordable_rules(real, holdout, synthetic))
    enough = tried >= min(rules, FEWEST)
    single = attack_singling_out(real, holdout, synthetic, tried, random) if enough else None
    not_tried = (() if near else ("closest rows", "membership")) + (() if enough else ("singling out",))
    return Attacks(near, guessed, single, rows if near else 0, not_tried)


def _without_table(real: CodedRows, holdout: CodedRows) -> float:
    """Return the share of rows that are told apart without the synthetic table: 1/2 for one population."""
    from cloister.attack.models.membership_finding import blind_guess

    draw = np.random.default_rng(_SPLIT_SEED)
    return blind_guess(np.concatenate((real.points, holdout.points)), len(real), draw)[0]


def _affordable_targets(synthetic: CodedRows) -> int:
    return _MOST_WORK // (len(synthetic) * (width(synthetic.sides) + _OVERHEAD))


def _affordable_rules(real: CodedRows, holdout: CodedRows, synthetic: CodedRows) -> int:
    return _MOST_FITS // (_TRIES * len(synthetic) + len(real) + len(holdout))
