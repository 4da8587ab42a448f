"""Every model's value by its definition, in plain Python: slow, and shares nothing with the package."""

import itertools
import math
from collections import Counter, defaultdict

import numpy as np
from scipy.optimize import linprog


def classes(rows, quasi):
    """The rows of each combination of quasi-identifiers."""
    groups = defaultdict(list)
    for i in range(len(rows[quasi[0]])) if quasi else ():
        groups[tuple(rows[name][i] for name in quasi)].append(i)
    return dict(groups)


def overlapping(rows, quasi, star="*"):
    """For each row, the rows that match it where neither is suppressed."""
    count = len(rows[quasi[0]])
    return {
        tuple(rows[name][i] for name in quasi): [
            j for j in range(count) if all(rows[n][i] == rows[n][j] or star in (rows[n][i], rows[n][j]) for n in quasi)
        ]
        for i in range(count)
    }


def transport(p, q, ground):
    """The earth mover's distance, as a linear programme over all flows."""
    size = len(p)
    cost = [ground(i, j) for i in range(size) for j in range(size)]
    out = np.kron(np.eye(size), np.ones(size))
    into = np.kron(np.ones(size), np.eye(size))
    solved = linprog(cost, A_eq=np.vstack([out, into]), b_eq=[*p, *q], bounds=(0, None), method="highs")
    assert solved.status == 0
    return solved.fun


def diversity(groups, values, domain, ground=None, q=None):
    """Values of a sensitive column, each the worst of all classes."""
    total = Counter(values)
    q = q or {v: total[v] / len(values) for v in domain}
    found = defaultdict(list)
    for members in groups:
        counts = Counter(values[i] for i in members)
        p = {v: counts[v] / len(members) for v in domain}
        present = [v for v in domain if p[v]]
        found["distinct_l"].append(len([v for v in present if v is not None]))
        found["frequency_l"].append(1 / max(p.values()))
        found["entropy_l"].append(math.exp(-sum(p[v] * math.log(p[v]) for v in present)))
        found["t_equal"].append(sum(abs(p[v] - q[v]) for v in domain) / 2)
        found["kl"].append(sum(p[v] * math.log(p[v] / q[v]) if q[v] else math.inf for v in present))
        needed = [v for v in domain if q[v]]
        found["kl_reverse"].append(sum(q[v] * math.log(q[v] / p[v]) if p[v] else math.inf for v in needed))
        gains = {v: (p[v] - q[v]) / q[v] if q[v] else math.inf for v in domain if p[v] > q[v] + 1e-12}
        beta = max(gains.values(), default=0.0)
        found["beta"].append(beta)
        allowed = all(q[v] and gain <= -math.log(q[v]) + 1e-9 for v, gain in gains.items())
        found["beta_enhanced"].append(beta if allowed else math.inf)
        for v in domain:
            found["alpha", v].append(p[v])
        ranked = sorted(counts.values(), reverse=True)
        for size in (1, 2, 3):
            tail = sum(ranked[size - 1 :])
            found["recursive", size].append(ranked[0] / tail if tail else math.inf)
        if ground is not None:
            found["transport"].append(transport([p[v] for v in domain], [q[v] for v in domain], ground))
    low = ("distinct_l", "frequency_l", "entropy_l")
    return {name: min(each) if name in low else max(each) for name, each in found.items()}


def set_support(baskets, m):
    """The smallest number of sets that contain a combination of at most m items, over those that occur."""
    sets = [frozenset(basket) for basket in baskets if basket is not None]
    subsets = {
        frozenset(some) for one in sets for size in range(1, m + 1) for some in itertools.combinations(one, size)
    }
    return min(sum(some <= each for each in sets) for some in subsets)


def largest_invariant(releases, quasi, sensitive, ids):
    """The largest m for which a series of releases is m-invariant, and the fewest values left by intersection."""
    smallest, valid, sets_of = math.inf, True, defaultdict(list)
    for release in releases:
        for members in classes(release, quasi).values():
            values = [release[sensitive][i] for i in members]
            smallest, valid = min(smallest, len(values)), valid and len(set(values)) == len(values)
            for person in {release[ids][i] for i in members} - {None}:
                sets_of[person].append(frozenset(values))
    changed = sum(len(set(sets)) > 1 for sets in sets_of.values())
    left = min((len(frozenset.intersection(*sets)) for sets in sets_of.values()), default=0)
    return (0 if changed or not valid else smallest), changed, left
