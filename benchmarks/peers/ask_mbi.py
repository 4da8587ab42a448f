"""Reference AIM and MST on `mbi` (McKenna's private-pgm), after the published pseudo-code, in its own environment.

    python ask_mbi.py cells.npz aim|mst RHO SEED OUT.npz

AIM: McKenna, Mullins, Sheldon & Miklau 2022, algorithm 4: all three-way marginals as the workload, T = 16 d rounds
planned, nine tenths of each round for the measurement, 80 MB for the model, noise halved where a round shows little.
MST: McKenna, Miklau & Sheldon 2021: a third each for columns, choice and pairs; cells below three sigma taken together.
Noise is numpy's, as in the published code: a reference for how good a table can be, not a private implementation.
"""

import json
import resource
import sys
import time
import warnings
from contextlib import suppress
from itertools import combinations

import numpy as np

warnings.simplefilter("ignore")

import jax  # noqa: E402

jax.config.update("jax_enable_x64", True)

from mbi import Dataset, Domain, LinearMeasurement  # noqa: E402
from mbi.estimation import MirrorDescent  # noqa: E402
from mbi.junction_tree import hypothetical_model_size, make_junction_tree, maximal_cliques  # noqa: E402
from mbi.marginal_oracles import message_passing_stable  # noqa: E402

ROUND_STEPS, LAST_STEPS, MODEL_MB = 250, 1000, 80
MOST_CELLS, KEPT_CELLS = 5_000_000, 300_000


def main(path, method, rho, seed, out):
    with np.load(path) as file:
        cells, sizes = file["cells"], file["sizes"]
    names = [f"c{i}" for i in range(len(sizes))]
    domain = Domain(names, [int(size) for size in sizes])
    data = Dataset({name: cells[:, i] for i, name in enumerate(names)}, domain)
    random = np.random.default_rng(int(seed))
    start, worked = time.perf_counter(), time.process_time()
    made, measured = {"aim": aim, "mst": mst}[method](data, float(rho), random)
    seconds, processor = time.perf_counter() - start, time.process_time() - worked
    np.savez_compressed(out, cells=np.column_stack([made[name] for name in names]))
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"seconds": seconds, "processor": processor, "memory": memory, "measured": measured}


def counts(data, clique):
    return np.asarray(data.project(clique).datavector(), dtype=float)


def noisy(data, clique, sigma, random):
    exact = counts(data, clique)
    return LinearMeasurement(exact + random.normal(0, sigma, exact.size), clique, sigma)


def pick(scores, sensitivity, epsilon, random):
    """The exponential mechanism."""
    logs = 0.5 * epsilon / sensitivity * (scores - scores.max())
    chances = np.exp(logs)
    return int(random.choice(len(scores), p=chances / chances.sum()))


class Answers:
    """Marginals of a model over columns that need not lie in one clique.

    mbi's `project` eliminates variables anew for each question, which takes most of an hour for all triples in all
    rounds; this collects conditionals along the junction tree, and gives the same numbers. What would need a huge table
    has no answer, and is no candidate in that round: mbi would need the same table.
    """

    def __init__(self, model):
        self.domain, self.total = model.domain, float(model.total)
        tree = make_junction_tree(self.domain, model.potentials.cliques)[0]
        cliques = maximal_cliques(tree)
        beliefs = message_passing_stable(model.potentials.expand(cliques), 1.0)
        self.children, self.roots, self.tables, self.below = {}, [], {}, {}
        for clique in cliques:
            if clique not in self.children:
                self.roots.append(clique)
                self._grow(tree, clique, None, beliefs)

    def _grow(self, tree, clique, parent, beliefs):
        shared = () if parent is None else tuple(name for name in clique if name in parent)
        table = np.asarray(beliefs.project(clique).values, dtype=float)
        if shared:
            others = tuple(i for i, name in enumerate(clique) if name not in shared)
            whole = table.sum(axis=others, keepdims=True)
            table = np.divide(table, whole, out=np.zeros_like(table), where=whole > 0)
        self.tables[clique] = table, shared
        self.children[clique] = [one for one in tree.neighbors(clique) if one != parent]
        for one in self.children[clique]:
            self._grow(tree, one, clique, beliefs)
        own = set(clique) - set(shared)
        self.below[clique] = own.union(*(self.below[one] for one in self.children[clique]))

    def all(self, questions):
        known, found = {}, {}
        for one in questions:
            with suppress(MemoryError):
                found[one] = self._answer(one, known)
        return found

    def _answer(self, names, known):
        columns, table = (), np.array(1.0)
        for root in self.roots:
            some = frozenset(names) & self.below[root]
            if some:
                more, other = self._collect(root, some, known)
                columns, table = (*columns, *more), np.multiply.outer(table, other)
        return np.transpose(table, [columns.index(name) for name in names]).ravel() * self.total

    def _collect(self, clique, wanted, known):
        if (clique, wanted) in known:
            return known[clique, wanted]
        table, shared = self.tables[clique]
        parts = [self._collect(one, wanted & self.below[one], known) for one in self.children[clique]
                 if wanted & self.below[one]]  # fmt: skip
        needed = set(shared) | set(wanted) | {name for columns, _ in parts for name in columns}
        axes = tuple(i for i, name in enumerate(clique) if name not in needed)
        columns, table = tuple(name for name in clique if name in needed), table.sum(axis=axes)
        for k, (more, other) in enumerate(parts):
            later = {name for rest, _ in parts[k + 1 :] for name in rest}
            kept = [
                name for name in dict.fromkeys((*columns, *more)) if name in wanted or name in shared or name in later
            ]
            number = {name: i for i, name in enumerate(dict.fromkeys((*columns, *more)))}
            if self.domain.size(tuple(number)) > MOST_CELLS:
                raise MemoryError
            table = np.einsum(
                table, [number[x] for x in columns], other, [number[x] for x in more], [number[x] for x in kept],
                optimize=True,
            )  # fmt: skip
            columns = tuple(kept)
        if table.size <= KEPT_CELLS:
            known[clique, wanted] = columns, table
        return columns, table


def aim(data, rho, random):
    domain, d = data.domain, len(data.domain.attributes)
    triples = list(combinations(domain.attributes, 3))
    candidates = [part for k in (1, 2, 3) for part in combinations(domain.attributes, k)]
    worth = {one: sum(len(set(one) & set(asked)) for asked in triples) for one in candidates}
    truth = {one: counts(data, one) for one in candidates}
    planned = 16 * d
    sigma = np.sqrt(planned / (2 * 0.9 * rho))
    epsilon = np.sqrt(8 * 0.1 * rho / planned)
    measured = [noisy(data, (name,), sigma, random) for name in domain.attributes]
    used = d / (2 * sigma**2)
    model = MirrorDescent().estimate(domain, measured, iters=ROUND_STEPS)
    last = False
    while not last:
        left = rho - used
        if left < 2 * (0.5 / sigma**2 + epsilon**2 / 8):
            sigma, epsilon, last = np.sqrt(1 / (2 * 0.9 * left)), np.sqrt(8 * 0.1 * left), True
        used = rho if last else used + 0.5 / sigma**2 + epsilon**2 / 8
        present = [one.clique for one in measured]
        limit = MODEL_MB * used / rho
        fits = [one for one in candidates if hypothetical_model_size(domain, [*present, one]) <= limit]
        expected = Answers(model).all(fits)
        fits = list(expected)
        scores = np.array(
            [
                worth[one] * (np.abs(truth[one] - expected[one]).sum() - np.sqrt(2 / np.pi) * sigma * domain.size(one))
                for one in fits
            ]
        )
        chosen = fits[pick(scores, max(worth[one] for one in fits), epsilon, random)]
        measured.append(noisy(data, chosen, sigma, random))
        model = MirrorDescent().estimate(domain, measured, iters=ROUND_STEPS, warm_start=model)
        after = np.asarray(model.project(chosen).datavector())
        if np.abs(after - expected[chosen]).sum() <= sigma * np.sqrt(2 / np.pi) * domain.size(chosen):
            sigma, epsilon = sigma / 2, 2 * epsilon
        print(f"  {len(measured)} measured, {used / rho:.2f} used", file=sys.stderr, flush=True)
        if len(measured) % 25 == 0:
            jax.clear_caches()  # every round compiles programs of its own; after a hundred, LLVM finds no memory
    model = MirrorDescent().estimate(domain, measured, iters=LAST_STEPS, warm_start=model)
    return model.synthetic_data(rows=data.records).to_dict(), len(measured)


def mst(data, rho, random):
    domain, d = data.domain, len(data.domain.attributes)
    sigma = np.sqrt(3 / (2 * rho))
    singles = [noisy(data, (name,), sigma * np.sqrt(d), random) for name in domain.attributes]
    merges = {one.clique[0]: merge(np.asarray(one.noisy_measurement), 3 * one.stddev) for one in singles}
    small = Dataset(
        {name: merges[name][column] for name, column in data.to_dict().items()},
        Domain(domain.attributes, [int(merges[name].max()) + 1 for name in domain.attributes]),
    )
    measured = []
    for one in singles:  # sums of cells that are taken together, at the noise that sums have
        name = one.clique[0]
        members = np.bincount(merges[name])
        sums = np.bincount(merges[name], np.asarray(one.noisy_measurement))
        worst = float(one.stddev * np.sqrt(members.max()))
        measured.append(LinearMeasurement(sums, one.clique, worst if members.max() > 1 else one.stddev))
    model = MirrorDescent().estimate(small.domain, measured, iters=LAST_STEPS)
    pairs = list(combinations(domain.attributes, 2))
    gaps = {pair: np.abs(counts(small, pair) - np.asarray(model.project(pair).datavector())).sum() for pair in pairs}
    epsilon = np.sqrt(8 * rho / 3 / (d - 1))
    part, tree = {name: name for name in domain.attributes}, []
    for _ in range(d - 1):
        still = [pair for pair in pairs if part[pair[0]] != part[pair[1]]]
        chosen = still[pick(np.array([gaps[pair] for pair in still]), 1.0, epsilon, random)]
        tree.append(chosen)
        gone, kept = part[chosen[1]], part[chosen[0]]
        part = {name: kept if one == gone else one for name, one in part.items()}
    measured += [noisy(small, pair, sigma * np.sqrt(d - 1), random) for pair in tree]
    model = MirrorDescent().estimate(small.domain, measured, iters=LAST_STEPS, warm_start=model)
    made = model.synthetic_data(rows=data.records).to_dict()
    return {name: spread(made[name], merges[name], random) for name in domain.attributes}, len(measured)


def merge(values, least):
    """Heavy cells stay, all others become one."""
    heavy = values >= least
    return np.where(heavy, np.cumsum(heavy) - 1, heavy.sum()).astype(np.int64)


def spread(column, merged, random):
    """Back to the domain's cells, evenly within those that were taken together."""
    members = [np.flatnonzero(merged == group) for group in range(int(merged.max()) + 1)]
    found = np.zeros(len(column), dtype=np.int64)
    for group, cells in enumerate(members):
        here = np.flatnonzero(np.asarray(column) == group)
        found[here] = random.choice(cells, len(here))
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
