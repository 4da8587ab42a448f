"""Attacks that use more than the released rows: several releases of the same people, or the algorithm itself."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from cloister.attack.tables.columns import Classes, Floats, Integers, as_text, classes, encode, require, to_arrow
from cloister.attack.tables.generalised import Hierarchies
from cloister.attack.tables.matching import Pairs, compatible
from cloister.attack.tables.result import TableAttack
from cloister.privacy.errors import BadInput

__all__ = ["Intersection", "Minimality", "intersection", "minimality"]

_CELLS = 1 << 30


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Intersection(TableAttack):
    """Result of an intersection attack.

    Attributes:
        possible: for each person the sensitive values that all releases allow. As sensitive as the rows.
        single: number of people with one possible value already in one of the releases.
        contradictions: number of people with no possible value: not in all releases, or their value changed.
    """

    possible: tuple[tuple[Any, ...], ...] = field(repr=False)
    single: int
    contradictions: int

    def counts(self) -> dict[str, Any]:
        """Return the people with one value in a single release, and those with none in common."""
        return {"certain_from_one_release": self.single, "contradictions": self.contradictions}


def intersection(
    releases: Sequence[object],
    people: object,
    *,
    on: Sequence[str],
    sensitive: str,
    hierarchies: Hierarchies | None = None,
) -> Intersection:
    """Intersect the sensitive values that several releases of the same people allow for each person.

    The risk of a person is 1 / (number of values that remain): the success of a guess among them.

    Args:
        releases: two or more published tables; a quasi-identifier may be missing in some of them.
        people: the people attacked, with exact quasi-identifiers; the owner may give the original table.
        on: the quasi-identifiers.
        sensitive: the sensitive column of all releases.
        hierarchies: for a column, the ancestors of each value.

    >>> first = {"age": ["<30", "<30", ">=30"], "ill": ["AIDS", "flu", "flu"]}
    >>> second = {"age": ["<35", "<35"], "ill": ["AIDS", "TB"]}
    >>> intersection([first, second], {"age": [28]}, on=["age"], sensitive="ill").possible
    (('AIDS',),)
    """
    if len(releases) < 2:
        raise BadInput("an intersection needs at least two releases of the same people. Use `identification` for one.")
    known = to_arrow(people)
    group = classes(known, require(known, on, "a quasi-identifier"))
    tables = [to_arrow(release) for release in releases]
    for table in tables:
        require(table, [sensitive], "the sensitive column")
    codes, domain = encode(pa.concat_arrays([_texts(table, sensitive) for table in tables]))
    ends = np.cumsum([table.num_rows for table in tables])
    if len(group.sizes) * len(domain) > _CELLS:
        raise BadInput(
            f"{len(group.sizes):,} kinds of people times {len(domain):,} values are too many. Attack fewer people."
        )
    allowed = np.ones((len(group.sizes), len(domain)), dtype=bool)
    single = np.zeros(len(group.sizes), dtype=bool)
    fewest = np.full(len(group.sizes), len(domain))
    views = []
    for table, end in zip(tables, ends, strict=True):
        release, view = _allowed(table, codes[end - table.num_rows : end], group, len(domain), hierarchies)
        views.append(view)
        single |= release.sum(axis=1) == 1
        fewest = np.minimum(fewest, np.where(release.any(axis=1), release.sum(axis=1), len(domain)))
        allowed &= release
    sizes = allowed.sum(axis=1)
    risk = np.where(sizes > 0, 1 / np.maximum(sizes, 1), 0.0)[group.of]
    contradictions = int(np.sum(sizes[group.of] == 0))
    cells, rows = domain.to_pylist(), [np.flatnonzero(row) for row in allowed]
    values = [tuple(sorted((cells[i] for i in row), key=as_text)) for row in rows]
    return Intersection(
        name=f"intersection of {len(tables)} releases on {sensitive}",
        attacker=f"knows {len(risk):,} people who are in all {len(tables)} releases",
        criterion=f"one value of {sensitive} is possible in all releases",
        subject="people",
        risk=risk,
        at_risk=int(np.sum(sizes[group.of] == 1)),
        baseline=float(np.mean(1 / np.maximum(fewest, 1)[group.of])) if len(risk) else 0.0,
        worst=_worst_intersection(views, sizes, fewest, values, sensitive),
        remedies=(
            "Release further tables with the classes of the first release, or with counterfeits (m-invariance).",
            "Do not release the same people twice; publish the difference, or withdraw the earlier release.",
        ),
        notes=(
            "Guessing means: among the values that the smallest single release allows.",
            *_contradicted(contradictions, len(risk)),
            *dict.fromkeys(note for _, pairs in views for note in pairs.notes),
        ),
        possible=tuple(values[i] for i in group.of),
        single=int(np.sum(single[group.of])),
        contradictions=contradictions,
    )


def _contradicted(count: int, people: int) -> list[str]:
    """Return a sentence about people for whom the releases allow no value together."""
    return [] if not count else [
        f"For {count:,} of {people:,} people no value is possible in all releases: they are not in all of them, their "
        "values were changed in between, or a label was misread. They are not counted as at risk, which they may be."
    ]  # fmt: skip


def _texts(table: pa.Table, name: str) -> pa.Array:
    codes, values = encode(table.column(name))
    texts = pa.array([None if cell is None else str(cell) for cell in values.to_pylist()], pa.string())
    return texts.take(pa.array(codes))


def _allowed(
    table: pa.Table, codes: Integers, people: Classes, width: int, hierarchies: Hierarchies | None
) -> tuple[NDArray[np.bool_], tuple[Classes, Pairs]]:
    """Return which sensitive values a release allows for each class of people, its classes and the pairs."""
    shared = [name for name in people.names if name in table.column_names]
    rows = classes(table, require(table, shared, "a quasi-identifier"))
    columns = [people.names.index(name) for name in shared]
    part = Classes(tuple(shared), people.of, people.sizes, people.codes[:, columns],
                   tuple(people.values[i] for i in columns))  # fmt: skip
    pairs = compatible(rows, part, hierarchies)
    present = np.zeros((len(rows.sizes), width), dtype=bool)
    present[rows.of, codes] = True
    allowed = np.zeros((len(people.sizes), width), dtype=bool)
    present_people, first = np.unique(pairs.people, return_index=True)
    if len(first):
        allowed[present_people] = np.logical_or.reduceat(present[pairs.rows], first, axis=0)
    return allowed, (rows, pairs)


def _worst_intersection(
    views: Sequence[tuple[Classes, Pairs]],
    sizes: Integers,
    fewest: Integers,
    values: Sequence[tuple[Any, ...]],
    sensitive: str,
) -> dict[str, str]:
    """Return the released values of the person for whom the releases together rule out most; not the exact ones."""
    narrowed = np.where(sizes > 0, fewest / np.maximum(sizes, 1), 0.0)
    if not len(narrowed) or narrowed.max() == 0:
        return {}
    number = int(np.argmax(narrowed))
    shown = {}
    for i, (rows, pairs) in enumerate(views, 1):
        row = int(pairs.rows[np.searchsorted(pairs.people, number)])
        shown[f"release {i}"] = ", ".join(f"{name} {value}" for name, value in rows.describe(row).items())
    return {
        **shown,
        sensitive: ", ".join(as_text(value) for value in values[number]),
        "smallest single release": f"{fewest[number]} values",
    }


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Minimality(TableAttack):
    """Result of a minimality attack.

    Attributes:
        claimed: the bound 1/l that the release claims for the sensitive values.
        undecided: number of released rows in classes that cannot be split by original group; nothing was concluded.
    """

    claimed: float
    undecided: int

    def counts(self) -> dict[str, Any]:
        """Return the claimed bound and the rows without a conclusion."""
        return {"claimed": self.claimed, "undecided": self.undecided}


class _Part(NamedTuple):
    """A group of people with equal exact values, as far as it is in one released class.

    Attributes:
        people: number of the group's people in the class.
        outside: number of its people in other classes.
        sensitive_outside: number of rows with the sensitive value among those.
    """

    people: int
    outside: int
    sensitive_outside: int


def minimality(
    released: object,
    people: object,
    *,
    on: Sequence[str],
    sensitive: str,
    values: Sequence[Any],
    l: int,  # noqa: E741
    k: int = 1,
    hierarchies: Hierarchies | None = None,
) -> Minimality:
    """Use that the algorithm generalises only where the original groups violate l-diversity (Wong et al., VLDB 2007).

    The attacker knows the exact quasi-identifiers of all people in the release, and that a sensitive value may make up
    at most 1/l of a class. A released class of several original groups would not have been formed if each of them
    had satisfied this. So worlds without a violation are left out. With N_j people of group j in a class, n rows with
    the value and n_j of them in group j, a world has the weight prod C(N_j, n_j) with sum n_j = n, and

        Pr[person of group j has the value] = sum over worlds with a violation of weight * n_j / N_j, normalised.

    The risk of a person is the largest of these probabilities over the values, averaged over the person's classes.

    Args:
        released: the published table.
        people: all people in the release, with exact quasi-identifiers.
        on: the quasi-identifiers.
        sensitive: the sensitive column.
        values: its sensitive values; each is bounded by 1/l by itself.
        l: the parameter of l-diversity that the release claims.
        k: the smallest class that the algorithm allows; smaller original groups explain a class by themselves.
        hierarchies: for a column, the ancestors of each value.

    >>> release = {"q": ["*"] * 4 + ["b"] * 3, "ill": ["HIV", "HIV"] + ["none"] * 5}
    >>> people = {"q": ["a", "a", "b", "b", "b", "b", "b"]}
    >>> minimality(release, people, on=["q"], sensitive="ill", values=["HIV"], l=2).risk.tolist()
    [1.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    """
    if l < 2 or k < 1 or not values:
        raise BadInput("a minimality attack needs l of at least 2, k of at least 1 and at least one sensitive value.")
    table, known = to_arrow(released), to_arrow(people)
    columns = require(table, on, "a quasi-identifier")
    require(known, columns, "a quasi-identifier")
    rows, group = classes(table, columns), classes(known, columns)
    codes, domain = encode(table.column(*require(table, [sensitive], "the sensitive column")))
    members, notes = _assign(rows, group, hierarchies)
    undecided = sum(int(rows.sizes[c]) for c in range(len(rows.sizes)) if c not in members)
    risk, worst = np.zeros(len(group.sizes)), np.zeros(len(group.sizes), dtype=np.int64)
    cells = domain.to_pylist()
    for value in values:
        hits = np.bincount(rows.of, weights=codes == (cells.index(value) if value in cells else -1)).astype(np.int64)
        probability, likeliest = _credibility(members, hits, rows, group, l, k)
        worst = np.where(probability > risk, likeliest, worst)
        risk = np.maximum(risk, probability)
    per_person = risk[group.of]
    total = np.isin(codes, [i for i, cell in enumerate(cells) if cell in {*values}])
    return Minimality(
        name=f"minimality of {sensitive}",
        attacker=f"has all people's exact values, and knows that the algorithm generalises only for {l}-diversity",
        criterion=f"the probability of a sensitive value exceeds the claimed 1/{l}",
        subject="people",
        risk=per_person,
        at_risk=int(np.sum(per_person > 1 / l + 1e-9)),
        baseline=float(np.mean(total)) if len(total) else 0.0,
        worst=_worst(rows, risk, worst),
        remedies=(
            "Generalise all columns globally before looking at the sensitive column, then suppress.",
            "Use an algorithm that does not depend on the sensitive values, or m-confidentiality (Wong et al. 2007).",
        ),
        notes=notes,
        claimed=1 / l,
        undecided=undecided,
    )


def _worst(rows: Classes, risk: Floats, classes_of: Integers) -> dict[str, str]:
    """Return the class and the probability of the group with the highest risk; empty if nobody has any."""
    origin = int(np.argmax(risk)) if len(risk) else 0
    if not len(risk) or risk[origin] <= 0:
        return {}
    return {**rows.describe(int(classes_of[origin])), "probability": f"{risk[origin]:.0%}"}


def _assign(
    rows: Classes, people: Classes, hierarchies: Hierarchies | None
) -> tuple[dict[int, dict[int, int]], tuple[str, ...]]:
    """Return for each released class the number of its rows from each original group, where that is certain; and notes.

    A class that only one group fits is that group's. A class whose size is all that is left of its groups takes it all.
    """
    pairs = compatible(rows, people, hierarchies)
    fits: dict[int, list[int]] = {}
    for origin, number in zip(pairs.people.tolist(), pairs.rows.tolist(), strict=True):
        fits.setdefault(number, []).append(origin)
    left = people.sizes.tolist()
    members: dict[int, dict[int, int]] = {}
    changed = True
    while changed:
        changed = False
        for number in [number for number in fits if number not in members]:
            open_groups = [origin for origin in fits[number] if left[origin] > 0]
            size, total = int(rows.sizes[number]), sum(left[origin] for origin in open_groups)
            if len(open_groups) == 1 and total >= size:
                members[number] = {open_groups[0]: size}
            elif total == size:
                members[number] = {origin: left[origin] for origin in open_groups}
            else:
                continue
            for origin, count in members[number].items():
                left[origin] -= count
            changed = True
    return members, pairs.notes


def _credibility(
    members: dict[int, dict[int, int]],
    hits: Integers,
    rows: Classes,
    people: Classes,
    l: int,  # noqa: E741
    k: int,
) -> tuple[Floats, Integers]:
    """Return for each original group the probability of a value, and its class where that is highest."""
    inside = np.zeros(len(people.sizes))
    highest, likeliest = np.full(len(people.sizes), -1.0), np.zeros(len(people.sizes), dtype=np.int64)
    alone = np.zeros(len(people.sizes), dtype=np.int64)  # sensitive rows of a group in classes of its own
    mixed = np.zeros(len(people.sizes), dtype=np.int64)  # classes that it shares with other groups
    for number, parts in members.items():
        if len(parts) == 1:
            alone[next(iter(parts))] += hits[number]
        mixed[list(parts)] += len(parts) > 1
    for number, parts in members.items():
        origins, n = list(parts), int(hits[number])
        share = n / int(rows.sizes[number])
        probabilities = [share] * len(origins)
        # A group in two mixed classes has an unknown number of sensitive rows outside: no conclusion.
        if len(origins) > 1 and all(people.sizes[origin] >= k and mixed[origin] == 1 for origin in origins):
            groups = [_Part(parts[o], int(people.sizes[o]) - parts[o], int(alone[o])) for o in origins]
            probabilities = _posterior(groups, n, l) or probabilities
        for origin, probability in zip(origins, probabilities, strict=True):
            inside[origin] += probability * parts[origin]
            if probability > highest[origin]:
                highest[origin], likeliest[origin] = probability, number
    return inside / np.maximum(people.sizes, 1), likeliest


def _posterior(groups: Sequence[_Part], n: int, l: int) -> list[float] | None:  # noqa: E741
    """Return the probability of the value in each group, given that at least one group violates 1/l; None if none can.

    Polynomials in the number of sensitive rows: `allowed` has the worlds without a violation so far, `any` all worlds.
    Binomial weights with probability n/N instead of C(N_j, n_j) change all worlds by the same factor. Equal groups have
    equal probabilities, and worlds with more than n rows are not needed.
    """
    from scipy.special import gammaln, xlogy  # scipy.stats takes two seconds to import

    total = sum(part.people for part in groups)
    if not 0 < n <= total:
        return None
    weights, capped = [], []
    for part in groups:
        count = np.arange(part.people + 1)
        ways = gammaln(part.people + 1) - gammaln(count + 1) - gammaln(part.people - count + 1)
        weight = np.exp(ways + xlogy(count, n / total) + xlogy(part.people - count, 1 - n / total))
        size = part.people + part.outside
        weights.append(weight)
        capped.append(np.where((count + part.sensitive_outside) * l <= size, weight, 0.0))
    probabilities: dict[_Part, float] = {}
    for j, part in enumerate(groups):
        if part in probabilities:
            continue
        everything, lawful = np.ones(1), np.ones(1)
        broken = np.zeros(1)
        for i in range(len(groups)):
            if i != j:
                broken = (np.convolve(broken, weights[i]) + np.convolve(lawful, weights[i] - capped[i]))[: n + 1]
                lawful = np.convolve(lawful, capped[i])[: n + 1]
                everything = np.convolve(everything, weights[i])[: n + 1]
        count = np.arange(part.people + 1)
        others = n - count
        valid = (others >= 0) & (others < len(everything))
        places = np.clip(others, 0, len(everything) - 1)
        violating = capped[j] * broken[places] + (weights[j] - capped[j]) * everything[places]
        violating = np.where(valid, violating, 0.0)
        if violating.sum() <= 0:
            return None
        probabilities[part] = float(np.sum(violating * count) / violating.sum() / part.people)
    return [probabilities[part] for part in groups]
