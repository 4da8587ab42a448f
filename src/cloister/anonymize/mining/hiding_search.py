"""Greedy search for the changes to baskets that hide rules with the fewest side effects.

A rule is hidden in up to four ways: remove items of the rule until its support is too low, remove items of its
consequent until its confidence is too low, add its antecedent to baskets without its consequent, or mix the last two.
Each way picks its changes one by one, by the weight of the other rules that come closer to a threshold; the way with
the fewest side effects is taken. Afterwards lost rules are restored and ghost rules hidden where this helps more than
it harms, and changes that are not needed are undone.

Counts of a rule: `both`, baskets that contain the rule for certain; `left`, these and the baskets that may contain its
antecedent without being certain to contain its consequent, so that both / left is the lowest confidence. Without
unknown values these are the usual counts.
"""

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from cloister.anonymize.mining.rules import Rules, association_rules
from cloister.anonymize.mining.transactions import Codes, Transactions

__all__ = ["Change", "Hider", "Way", "best_search"]

Floats = NDArray[np.float64]
Table = NDArray[np.bool_]
Way = Literal["support", "confidence", "either"]

_NEAR = (0.5, 0.8)  # rules above this share of both thresholds are watched, so that they do not become valid
_WATCHED = 20_000  # the larger share is used if there are more rules to watch
_CELLS = 1 << 24  # cells of a table of candidate baskets by watched rules
_SEARCHES = ((2.0, False), (3.0, False), (2.0, True))  # fade and order: the best is taken
_MIXES = (1.0, 5.0)  # preference for additions over removals where both are mixed
_ENOUGH = 0.01  # no further search if lost and ghost rules are at most this share of the other rules
_REPAIRS = 2  # a repair may make another one possible
_ROUNDS = 5  # hiding one rule may expose another again
_EXPOSED, _LOST, _GHOST = 20, 2, 1  # weights of a sensitive rule that nearly becomes valid again, a lost, a ghost rule


class Change(NamedTuple):
    """One changed cell."""

    basket: int
    item: int
    added: bool


class Counts(NamedTuple):
    """Counts of all watched rules."""

    both: Codes
    left: Codes

    def copy(self) -> "Counts":
        """Return a copy to work on."""
        return Counts(self.both.copy(), self.left.copy())


class Plan(NamedTuple):
    """Changes, and the counts of all watched rules after them."""

    changes: list[Change]
    counts: Counts


def best_search(
    baskets: Transactions, targets: Rules, least: int, confidence: float, margin: float, blocking: bool, lower: Way
) -> "Hider":
    """Return the search with the fewest side effects among several: a greedy one depends on its order and weights."""
    best: Hider | None = None
    for fade, descending in _SEARCHES:
        hider = Hider(baskets, targets, least, confidence, margin, blocking, lower, fade, descending)
        hider.run()
        if best is None or hider.harm(hider.counts) < best.harm(best.counts):
            best = hider
        exposed, effects = best.harm(best.counts)
        if not exposed and effects <= _ENOUGH * best.keep.sum():
            break
    assert best is not None
    return best


class Pool(Protocol):
    """Possible changes of one kind. A basket is changed at most once, so tables are computed once per pool."""

    progress: float

    def best(self, counts: Counts) -> tuple[float, tuple[int, int]] | None:
        """Return the least cost and its candidate; None if there is none left."""

    def take(self, candidate: tuple[int, int], counts: Counts) -> Change:
        """Return a candidate's change and enter it into the counts."""


class Hider:
    """The state of the search: the baskets, the watched rules and the changes so far.

    Args:
        baskets: the original baskets.
        targets: the sensitive rules with their counts.
        least, confidence: the thresholds; `margin` is the share by which sensitive rules must be below them.
        blocking: True if cells become unknown. `certain` and `possible` are one table otherwise.
        lower: the measure to lower.
        fade: power at which the weight of a rule falls with the steps that it survives.
        descending: True to hide the rules with the most baskets first.
    """

    def __init__(
        self,
        baskets: Transactions,
        targets: Rules,
        least: int,
        confidence: float,
        margin: float,
        blocking: bool,
        lower: Way,
        fade: float = 2.0,
        descending: bool = False,
    ) -> None:
        self.blocking, self.lower, self.fade, self.descending = blocking, lower, fade, descending
        self.certain = baskets.dense()
        self.possible = self.certain.copy() if blocking else self.certain
        watched = _near_rules(baskets, least, confidence)
        wanted = set(targets.keys())
        others = watched.take(np.array([key not in wanted for key in watched.keys()], bool))  # noqa: SIM118
        self.sensitive = np.repeat([True, False], [len(targets), len(others)])
        sides = [targets.membership(), others.membership()]
        self.antecedent, self.consequent = (np.concatenate([side[n] for side in sides]) for n in (0, 1))
        self.whole = self.antecedent | self.consequent
        self.counts = Counts(
            np.concatenate([targets.counts, others.counts]),
            np.concatenate([targets.antecedent_counts, others.antecedent_counts]),
        )
        self.strict = np.zeros(len(self.sensitive), bool)
        self.least = np.where(self.sensitive, least * (1 - margin), least)
        self.confidence = np.where(self.sensitive, confidence * (1 - margin), confidence)
        self.keep = self.valid(self.counts) & ~self.sensitive
        self.strict = self.valid(self.counts) & self.sensitive
        self.original = self.certain.copy()

    def valid(self, counts: Counts) -> Table:
        """Return which watched rules reach both thresholds; a rule to hide, which reach the one that is lowered."""
        # A quotient, as the miner computes it: a product could round to the other side of the threshold.
        strong = counts.both / np.maximum(counts.left, 1) >= self.confidence
        frequent = counts.both >= self.least
        if self.lower == "either":
            return frequent & strong
        return np.where(self.strict, frequent if self.lower == "support" else strong, frequent & strong)

    def run(self) -> None:
        """Hide the rules in the order of their baskets; then repair and undo."""
        for _ in range(_ROUNDS):
            exposed = np.flatnonzero(self.valid(self.counts) & self.sensitive)
            if not len(exposed):
                break
            for rule in exposed[np.argsort(self.counts.both[exposed] * (-1 if self.descending else 1), kind="stable")]:
                plans = self._hiding_plans(int(rule)) if self.valid(self.counts)[rule] else []
                if plans:
                    self._apply(min(plans, key=lambda plan: (self.harm(plan.counts), len(plan.changes))))
        if not self.blocking:
            self._repair()
        self._undo()

    def _hiding_plans(self, rule: int) -> list[Plan]:
        attempts: list[tuple[str, list[Pool]]] = []
        if self.lower != "confidence":
            attempts.append(("support", [Removals(self, rule, self.whole[rule])]))
        if self.lower != "support":
            items = self.consequent[rule]
            attempts.append(("confidence", [Removals(self, rule, items)]))
            additions = Additions.of_antecedent(self, rule)
            if additions is not None:
                attempts.append(("confidence", [additions]))
                attempts += [("confidence", [Removals(self, rule, items), additions.again(more)]) for more in _MIXES]
        plans = [self._search(rule, pools, goal) for goal, pools in attempts]
        return [plan for plan in plans if plan is not None]

    def _search(self, rule: int, pools: Sequence[Pool], goal: str) -> Plan | None:
        """Take the change with the least cost per progress until the goal is reached; None if it cannot be."""
        counts, changes = self.counts.copy(), []
        while not self._reached(rule, goal, counts):
            offers = [(pool.best(counts), pool) for pool in pools]
            open_ = [((offer[0] + 1e-9) / pool.progress, n) for n, (offer, pool) in enumerate(offers) if offer]
            if not open_:
                return None
            offer, pool = offers[min(open_)[1]]
            assert offer is not None
            changes.append(pool.take(offer[1], counts))
        return Plan(changes, counts)

    def _reached(self, rule: int, goal: str, counts: Counts) -> bool:
        both, left = int(counts.both[rule]), int(counts.left[rule])
        rare = both < self.least[rule]
        weak = both / max(left, 1) < self.confidence[rule]
        if goal == "valid":
            return not rare and not weak
        return bool(rare if goal == "support" else weak or (rare and self.lower == "either"))

    def harm(self, counts: Counts) -> tuple[int, int]:
        """Return the number of exposed rules, which comes first, and the weighted number of lost and ghost rules."""
        valid = self.valid(counts)
        lost, ghosts = (self.keep & ~valid).sum(), (valid & ~self.keep & ~self.sensitive).sum()
        return int((valid & self.sensitive).sum()), int(_LOST * lost + _GHOST * ghosts)

    def weights(self, counts: Counts, step_both: int, step_left: int, rules: Codes) -> Floats:
        """Return the weight of changing the counts of these watched rules by one step, as a column.

        A rule that becomes invalid, or wrongly valid, by the step has weight 1; others less, the more such steps they
        still survive.
        """
        both, confidence, least = counts.both[rules], self.confidence[rules], self.least[rules]
        gain = step_both - confidence * step_left  # of both - confidence · left, which is not negative if valid
        slack = both - confidence * counts.left[rules]
        now = (both >= least) & (slack >= 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            fall = np.where(gain < 0, np.floor(slack / -gain + 1e-9), np.inf)
            rise = np.where(gain > 0, np.ceil(-slack / gain - 1e-9) - 1, np.inf)
        if step_both < 0:
            fall = np.minimum(fall, both - least)
        rise = np.maximum(rise, least - both - 1) if step_both > 0 else np.where(both >= least, rise, np.inf)
        losing = np.where(now & self.keep[rules], _LOST / (1 + np.maximum(fall, 0)) ** self.fade, 0.0)
        gaining = np.where(~now & ~self.keep[rules], _GHOST / (1 + np.maximum(rise, 0)) ** self.fade, 0.0)
        return np.asarray(losing + gaining * np.where(self.sensitive[rules], _EXPOSED, 1))[:, None]

    def _apply(self, plan: Plan) -> None:
        for change in plan.changes:
            table = self.possible if change.added else self.certain
            table[change.basket, change.item] = change.added
        self.counts = plan.counts

    def _repair(self) -> None:
        """Restore lost rules and hide ghost rules where the sum of side effects falls."""
        for rule in np.tile(np.flatnonzero(self.valid(self.counts) != self.keep), _REPAIRS):
            valid = bool(self.valid(self.counts)[rule])
            if self.sensitive[rule] or valid == self.keep[rule]:
                continue
            plans = self._hiding_plans(int(rule)) if valid else self._restoring_plans(int(rule))
            better = [plan for plan in plans if self.harm(plan.counts) < self.harm(self.counts)]
            if better:
                self._apply(min(better, key=lambda plan: (self.harm(plan.counts), len(plan.changes))))

    def _restoring_plans(self, rule: int) -> list[Plan]:
        pool = Additions.of_rule(self, rule)
        plan = None if pool is None else self._search(rule, [pool], "valid")
        return [] if plan is None else [plan]

    def _undo(self) -> None:
        """Restore changed cells one by one, as long as side effects do not grow and no sensitive rule is exposed."""
        for basket, item in np.argwhere(self.changed):
            values = self.certain[basket, item], self.possible[basket, item]
            before = self._contained(basket)
            self.certain[basket, item] = self.possible[basket, item] = self.original[basket, item]
            after = self._contained(basket)
            counts = Counts(*(now + new - old for now, new, old in zip(self.counts, after, before, strict=True)))
            if self.harm(counts) > self.harm(self.counts):
                self.certain[basket, item], self.possible[basket, item] = values
            else:
                self.counts = counts

    @property
    def changed(self) -> Table:
        """Return which cells differ from the original, or are unknown."""
        return np.asarray((self.certain != self.original) | (self.possible != self.original))

    def _contained(self, basket: int) -> tuple[Codes, Codes]:
        """Return which watched rules, and which antecedents, a basket contains."""
        whole = ~(self.whole & ~self.certain[basket]).any(axis=1)
        left = ~(self.antecedent & ~self.possible[basket]).any(axis=1)
        left &= whole | (self.consequent & ~self.certain[basket]).any(axis=1)
        return whole.astype(np.int64), left.astype(np.int64)


def _near_rules(baskets: Transactions, least: int, confidence: float) -> Rules:
    """Return the rules that are valid, or near enough to become valid."""
    for share in _NEAR:
        rules = association_rules(baskets, max(share * least, 1) / max(len(baskets), 1), share * confidence)
        if len(rules) <= _WATCHED:
            break
    return rules


class Removals:
    """Removals (or blocking) of one of these items in the baskets that contain a rule."""

    progress = 1.0

    def __init__(self, hider: Hider, rule: int, items: Table) -> None:
        self.hider = hider
        self.baskets = np.flatnonzero(hider.certain[:, hider.whole[rule]].all(axis=1))
        self.items = np.flatnonzero(items)
        self.rules = np.flatnonzero(hider.whole[:, self.items].any(axis=1))
        self.whole = _contains(hider.certain[self.baskets], hider.whole[self.rules])
        possible = _contains(hider.possible[self.baskets], hider.antecedent[self.rules])
        certain = _contains(hider.certain[self.baskets], hider.consequent[self.rules])
        self.left = possible * np.maximum(self.whole, 1 - certain)
        # An unknown consequent: the antecedent may now be there without it.
        self.opened = possible * certain * (1 - self.whole) if hider.blocking else None
        self.in_left, self.in_right = (side[self.rules][:, self.items] for side in (hider.antecedent, hider.consequent))
        self.free = np.ones(len(self.baskets), bool)
        self.costs = [Cost(self.whole), Cost(self.left - self.whole if self.opened is None else self.opened)]

    def best(self, counts: Counts) -> tuple[float, tuple[int, int]] | None:
        """Return the least cost and its (basket, item)."""
        if not self.free.any():
            return None
        right, together = (self.hider.weights(counts, -1, step, self.rules) for step in (0, -1))
        cost = self.costs[0].of(right * self.in_right + together * self.in_left)
        if self.opened is None:
            alone = self.hider.weights(counts, 0, -1, self.rules) * self.in_left
        else:
            alone = self.hider.weights(counts, 0, 1, self.rules) * self.in_right
        cost = np.where(self.free[:, None], cost + self.costs[1].of(alone), np.inf)
        basket, item = divmod(int(np.argmin(cost)), cost.shape[1])
        return float(cost[basket, item]), (basket, item)

    def take(self, candidate: tuple[int, int], counts: Counts) -> Change:
        """Return a candidate's change and enter it into the counts."""
        basket, item = candidate
        self.free[basket] = False
        in_left, in_right = self.in_left[:, item], self.in_right[:, item]
        counts.both[self.rules] -= (self.whole[basket] > 0) & (in_left | in_right)
        if self.opened is None:
            counts.left[self.rules] -= (self.left[basket] > 0) & in_left
        else:
            counts.left[self.rules] -= (self.whole[basket] > 0) & in_left
            counts.left[self.rules] += (self.opened[basket] > 0) & in_right
        return Change(int(self.baskets[basket]), int(self.items[item]), added=False)


class Additions:
    """Additions of the only item that a basket lacks of an itemset."""

    def __init__(self, hider: Hider, baskets: Codes, items: Codes, progress: float) -> None:
        self.hider, self.baskets, self.items, self.progress = hider, baskets, items, progress
        self.rules = np.flatnonzero(hider.whole[:, np.unique(items)].any(axis=1))
        left = _lacks_one(hider.possible[baskets], hider.antecedent[self.rules], items)
        whole = np.zeros_like(left)
        if hider.blocking:
            left &= _contains(hider.certain[baskets], hider.consequent[self.rules]) == 0
        else:
            whole = _lacks_one(hider.certain[baskets], hider.whole[self.rules], items)
        self.left, self.whole = left, whole
        steps = [(1, 1, left & whole), (0, 1, left & ~whole), (1, 0, whole & ~left)]
        self.tables = [(both, one_side, Cost(table.astype(np.float32))) for both, one_side, table in steps]
        self.free = np.ones(len(baskets), bool)

    @classmethod
    def of_antecedent(cls, hider: Hider, rule: int) -> "Additions | None":
        """Return additions that complete the antecedent of a rule in baskets without its consequent."""
        lacking = np.asarray(~hider.certain[:, hider.consequent[rule]].all(axis=1))
        needed = int(hider.counts.both[rule] / hider.confidence[rule] - hider.counts.left[rule]) + 1
        return cls._of(hider, hider.antecedent[rule], lacking, needed, float(hider.confidence[rule]))

    @classmethod
    def of_rule(cls, hider: Hider, rule: int) -> "Additions | None":
        """Return additions that complete a rule, to restore it."""
        both, left = hider.counts.both[rule], hider.counts.left[rule]
        short = max(
            hider.least[rule] - both, (hider.confidence[rule] * left - both) / (1 - hider.confidence[rule] + 1e-9)
        )
        return cls._of(hider, hider.whole[rule], np.ones(len(hider.certain), bool), int(short) + 1, 1.0)

    @classmethod
    def _of(cls, hider: Hider, itemset: Table, allowed: Table, needed: int, progress: float) -> "Additions | None":
        missing = itemset & ~hider.possible
        baskets = np.flatnonzero(allowed & (missing.sum(axis=1) == 1))
        lengths = hider.possible[baskets].sum(axis=1)  # a short basket completes few other rules
        baskets = baskets[np.argsort(lengths, kind="stable")][: 2 * needed + 100]
        if not len(baskets) or len(baskets) * len(hider.whole) > _CELLS:
            return None
        return cls(hider, baskets, np.argmax(missing[baskets], axis=1), progress)

    def again(self, more: float) -> "Additions":
        """Return the same additions, all free, preferred by a factor."""
        fresh = object.__new__(Additions)
        fresh.__dict__.update(self.__dict__, free=np.ones(len(self.baskets), bool), progress=more * self.progress)
        fresh.tables = [(both, left, Cost(cost.table)) for both, left, cost in self.tables]
        return fresh

    def best(self, counts: Counts) -> tuple[float, tuple[int, int]] | None:
        """Return the least cost and its basket."""
        if not self.free.any():
            return None
        parts = [cost.of(self.hider.weights(counts, both, left, self.rules)) for both, left, cost in self.tables]
        cost = np.where(self.free, sum(parts)[:, 0], np.inf)  # type: ignore[index]
        basket = int(np.argmin(cost))
        return float(cost[basket]), (basket, 0)

    def take(self, candidate: tuple[int, int], counts: Counts) -> Change:
        """Return a candidate's change and enter it into the counts."""
        basket = candidate[0]
        self.free[basket] = False
        counts.both[self.rules] += self.whole[basket]
        counts.left[self.rules] += self.left[basket]
        return Change(int(self.baskets[basket]), int(self.items[basket]), added=True)


class Cost:
    """Product of a table and weights, updated for the weights that have changed: a change touches few rules."""

    def __init__(self, table: NDArray[np.float32]) -> None:
        self.table = np.asfortranarray(table)
        self.weights: Floats | None = None

    def of(self, weights: Floats) -> Floats:
        """Return table @ weights."""
        if self.weights is None:
            self.cost = np.asarray(self.table @ weights, np.float64)
        else:
            rows = np.flatnonzero((weights != self.weights).any(axis=1))
            if len(rows):
                self.cost = self.cost + self.table[:, rows] @ (weights[rows] - self.weights[rows])
        self.weights = weights
        return self.cost


def _contains(baskets: Table, itemsets: Table) -> NDArray[np.float32]:
    """Return 1 where a basket (row) contains an itemset (column)."""
    sizes = itemsets.sum(axis=1)
    return np.asarray(baskets.astype(np.float32) @ itemsets.T.astype(np.float32) == sizes, np.float32)


def _lacks_one(baskets: Table, itemsets: Table, items: Codes) -> Table:
    """Return True where a basket lacks exactly the one item of an itemset that is to be added to it."""
    inside = baskets.astype(np.float32) @ itemsets.T.astype(np.float32)
    return np.asarray((inside == itemsets.sum(axis=1) - 1) & itemsets[:, items].T)
