"""Re-identification risk of a released table, and a report of all attacks that apply to it.

    report = risk(release, quasi=["zip", "age"], sensitive=["diagnosis"], population=register)
    print(report)

Three attackers, for n rows in classes of f rows that F people of the population fit:

    prosecutor   knows that the person is in the release: 1/f
    journalist   wants to re-identify anyone, from a population of which the release is a part: 1/F
    marketer     wants to re-identify as many as possible: on average the share sum f/F over the classes, divided by n

Rows with equal released values are a class; NULL is a value of its own. None of these figures is a bound for every
attacker, and none is differential privacy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow.types as pt

from cloister.anonymize.risks.population import PopulationUniqueness, population_uniqueness
from cloister.attack import tables
from cloister.attack.tables.columns import Classes, Floats, Integers, classes, require
from cloister.attack.tables.generalised import Hierarchies
from cloister.attack.tables.matching import compatible
from cloister.attack.tables.result import TableAttack
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput

__all__ = ["Risk", "RiskReport", "journalist", "marketer", "prosecutor", "risk"]

_MEMBER = "knows that the person is in the release"
_REGISTER = "has a register of the population, and does not know who is in the release"
_ALL = "links every record, and is content if some links are right"
_SETS = 500  # sets of columns that the report's search for unique rows counts


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class Risk:
    """Risk that an attacker re-identifies records.

    Attributes:
        name: prosecutor, journalist or marketer.
        attacker: what the attacker knows.
        records: number of records.
        highest: the highest risk of a record.
        average: the average risk, which is also the expected share of records that are re-identified.
        threshold: a risk that is too high.
        above: number of records with a risk above the threshold.
        smallest: number of people in the smallest class: k of k-anonymity for the prosecutor, of k-map for the others.
        per_record: the risk of each record. As sensitive as the rows.
        worst: the values of a class with the highest risk.
    """

    name: str
    attacker: str
    records: int
    highest: float
    average: float
    threshold: float
    above: int
    smallest: int
    worst: Mapping[str, str]
    per_record: Floats = field(repr=False)

    @property
    def share(self) -> float:
        """Share of the records above the threshold."""
        return self.above / self.records if self.records else 0.0

    @property
    def judged(self) -> float:
        """The figure that counts for this attacker: the average for a marketer, who wants many; else the highest."""
        return self.average if self.name == "marketer" else self.highest

    def to_json(self) -> dict[str, Any]:
        """Return the figures, without the risk of each record."""
        names = ("name", "attacker", "records", "highest", "average", "threshold", "above", "share", "smallest")
        return {**{name: getattr(self, name) for name in names}, "worst": dict(self.worst)}

    def __str__(self) -> str:
        if self.name == "marketer":
            figures = f"{self.average:.2%} of {self.records:,} records re-identified on average"
        else:
            figures = (
                f"highest {self.highest:.1%}, average {self.average:.2%}, {self.above:,} of {self.records:,} records "
                f"above {self.threshold:.0%}; smallest class {self.smallest:,}"
            )
        return f"{self.name}: {figures}\n  attacker  {self.attacker}"


def prosecutor(rows: object, *, quasi: Sequence[str], threshold: float = 0.2) -> Risk:
    """Measure the risk from an attacker who knows that the person is in the release: 1 / (rows of the class).

    >>> print(prosecutor({"age": ["<30", "<30", ">=30"]}, quasi=["age"]))
    prosecutor: highest 100.0%, average 66.67%, 3 of 3 records above 20%; smallest class 1
      attacker  knows that the person is in the release
    """
    group = _classes(rows, quasi)
    return _measure("prosecutor", _MEMBER, group, group.sizes, threshold)


def journalist(
    rows: object,
    *,
    quasi: Sequence[str],
    population: object,
    threshold: float = 0.2,
    hierarchies: Hierarchies | None = None,
) -> Risk:
    """Measure the risk from an attacker with a register of the population: 1 / (people who fit the class).

    Args:
        rows: the release; its values may be generalised.
        quasi: the quasi-identifiers.
        population: a table of the population with exact values, the people in the release included.
        threshold: a risk that is too high.
        hierarchies: for a column, the ancestors of each value.
    """
    group = _classes(rows, quasi)
    return _measure("journalist", _REGISTER, group, _people(group, population, hierarchies), threshold)


def marketer(
    rows: object,
    *,
    quasi: Sequence[str],
    population: object | None = None,
    threshold: float = 0.2,
    hierarchies: Hierarchies | None = None,
) -> Risk:
    """Measure the expected share of records that an attacker re-identifies who links all of them.

    Without a population the register is the release itself, and the share is classes / rows. Arguments as in
    `journalist`.
    """
    group = _classes(rows, quasi)
    people = group.sizes if population is None else _people(group, population, hierarchies)
    return _measure("marketer", _ALL, group, people, threshold)


def _classes(rows: object, quasi: Sequence[str]) -> Classes:
    table = to_arrow(rows)
    columns = require(table, quasi, "a quasi-identifier")
    if not table.num_rows:
        raise BadInput("the release has no rows. Give a table with at least one.")
    return classes(table, columns)


def _people(group: Classes, population: object, hierarchies: Hierarchies | None) -> Integers:
    """Return the number of people who fit each class; at least its rows, as the release is part of the population."""
    table = to_arrow(population)
    people = classes(table, require(table, group.names, "a quasi-identifier of the population"))
    return np.maximum(compatible(group, people, hierarchies).owners(people, group), group.sizes)


def _measure(name: str, attacker: str, group: Classes, people: Integers, threshold: float) -> Risk:
    if not 0 < threshold <= 1:
        raise BadInput(f"a threshold of risk is above 0 and at most 1, got {threshold}.")
    per_class = 1 / people
    per_record = per_class[group.of]
    smallest = int(np.argmin(people))
    return Risk(
        name=name,
        attacker=attacker,
        records=len(group.of),
        highest=float(per_class.max()),
        average=float(per_record.mean()),
        threshold=threshold,
        above=int(np.sum(per_record > threshold)),
        smallest=int(people[smallest]),
        worst=group.describe(smallest),
        per_record=per_record,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class RiskReport:
    """All risks of a release.

    Attributes:
        quasi: the quasi-identifiers.
        sensitive: the sensitive columns.
        measures: prosecutor, marketer, and journalist if there is a population.
        uniqueness: estimated uniqueness in the population, if the sampling fraction is known.
        attacks: the attacks that were run.
        skipped: the attacks that were not, each with the input that it needs.
    """

    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    measures: tuple[Risk, ...]
    uniqueness: PopulationUniqueness | None
    attacks: tuple[TableAttack, ...]
    skipped: Mapping[str, str]

    def __getitem__(self, name: str) -> Risk | TableAttack:
        """Return a measure or an attack by its name, or by the beginning of its name."""
        entries: list[Risk | TableAttack] = [*self.measures, *self.attacks]
        for entry in entries:
            if entry.name == name or entry.name.startswith(f"{name} "):
                return entry
        raise BadInput(f"the report has no {name!r}. It has: {', '.join(entry.name for entry in entries)}.")

    @property
    def worst(self) -> TableAttack | None:
        """The attack that puts the largest share of records at risk."""
        return max(self.attacks, key=lambda attack: attack.share, default=None)

    def table(self) -> list[dict[str, str]]:
        """Return a line for each risk: name, attacker, number and share at risk, worst example, remedy."""
        lines = [
            _line(
                m.name,
                m.attacker,
                round(m.average * m.records) if m.name == "marketer" else m.above,
                m.records,
                "records expected" if m.name == "marketer" else "records",
                m.worst,
                "Enlarge the smallest classes (larger k).",
            )
            for m in self.measures
        ]
        return lines + [
            _line(a.name, a.attacker, a.at_risk, a.attacked, a.subject, a.worst, " ".join(a.remedies))
            for a in self.attacks
        ]

    def to_json(self) -> dict[str, Any]:
        """Return everything except the risk of each record."""
        return {
            "quasi": list(self.quasi),
            "sensitive": list(self.sensitive),
            "measures": [measure.to_json() for measure in self.measures],
            "uniqueness": None if self.uniqueness is None else self.uniqueness.to_json(),
            "attacks": [attack.to_json() for attack in self.attacks],
            "skipped": dict(self.skipped),
            "differentially_private": False,
        }

    def __str__(self) -> str:
        blocks = ["\n".join(str(measure) for measure in self.measures)]
        if self.uniqueness is not None:
            blocks.append(f"uniqueness in the population: {self.uniqueness}")
        blocks += [str(attack) for attack in self.attacks]
        if self.skipped:
            blocks.append("\n".join(f"not run: {name}. {reason}" for name, reason in self.skipped.items()))
        return "\n\n".join([*blocks, "These figures hold for these attackers only: not differentially private."])


def _line(
    name: str, attacker: str, at_risk: int, of: int, subject: str, worst: Mapping[str, str], remedy: str
) -> dict[str, str]:
    return {
        "name": name,
        "attacker": attacker,
        "at risk": f"{at_risk:,} of {of:,} {subject} ({at_risk / of if of else 0:.1%})",
        "worst example": ", ".join(f"{key} = {value}" for key, value in worst.items()),
        "what helps": remedy,
    }


def risk(
    rows: object,
    *,
    quasi: Sequence[str],
    sensitive: Sequence[str] = (),
    population: object | None = None,
    sampling_fraction: float | None = None,
    auxiliary: object | None = None,
    earlier: Sequence[object] = (),
    harmful: Mapping[str, Sequence[Any]] | None = None,
    diversity: int | None = None,
    groups: Mapping[str, Mapping[Any, Any]] | None = None,
    hierarchies: Hierarchies | None = None,
    threshold: float = 0.2,
    truth: str | None = None,
    sample: int | None = None,
    random_state: int | None = None,
) -> RiskReport:
    """Measure the risks of a release, and run all attacks that the inputs allow.

    Args:
        rows: the release; its values may be generalised.
        quasi: the quasi-identifiers.
        sensitive: the sensitive columns.
        population: a table of the population with exact quasi-identifiers, for journalist and marketer.
        sampling_fraction: share of the population that is in the release, for estimates of uniqueness.
        auxiliary: people whom an attacker knows, with exact quasi-identifiers. The owner may give the original table.
        earlier: earlier releases of the same people.
        harmful: for a sensitive column, the values whose disclosure harms; needed by the minimality attack.
        diversity: l, if the release claims l-diversity; needed by the minimality attack.
        groups: for a sensitive column, the group of each value (or its ancestors, the nearest first).
        hierarchies: for a quasi-identifier, the ancestors of each value.
        threshold: a risk of re-identification that is too high.
        truth: a column of `rows` and `auxiliary` with the same id for the same person, by which links are judged.
        sample: number of people of `auxiliary` to link, drawn at random; all unless given.
        random_state: seed of that draw.

    Raises:
        BadInput: a column is missing, or the release has no rows.

    Privacy: none. It reads all tables without noise; the report is for the owner.
    """
    table = to_arrow(rows)
    secret = () if not sensitive else require(table, sensitive, "a sensitive column")
    group = _classes(table, quasi)
    people = group.sizes if population is None else _people(group, population, hierarchies)
    measures = [
        _measure("prosecutor", _MEMBER, group, group.sizes, threshold),
        _measure("marketer", _ALL, group, people, threshold),
    ]
    skipped = {}
    if population is None:
        skipped["journalist"] = "Give `population`, a table of all people the attacker may think of."
    else:
        measures.insert(1, _measure("journalist", _REGISTER, group, people, threshold))
    if sampling_fraction is None:
        skipped["uniqueness in the population"] = "Give `sampling_fraction`."
    attacks: list[TableAttack] = [tables.uniqueness(table, columns=group.names, up_to=_depth(len(group.names)))]
    for column in secret:
        attacks += _disclosures(table, group.names, column, (groups or {}).get(column), population,
                                (harmful or {}).get(column), skipped)  # fmt: skip
    if auxiliary is None:
        reason = "Give `auxiliary`, people with exact quasi-identifiers; the original table for the worst case."
        skipped.update({"linkage": reason, **({"identification": reason} if secret else {})})
    else:
        attacks.append(tables.linkage(table, auxiliary, on=group.names, truth=truth, hierarchies=hierarchies,
                                      sample=sample, random_state=random_state))  # fmt: skip
    for column in secret if auxiliary is not None else ():
        attacks.append(
            tables.identification(table, auxiliary, on=group.names, sensitive=column, hierarchies=hierarchies)
        )
        if earlier:
            attacks.append(tables.intersection([table, *earlier], auxiliary, on=group.names, sensitive=column,
                                               hierarchies=hierarchies))  # fmt: skip
        if diversity is not None and (harmful or {}).get(column):
            attacks.append(tables.minimality(table, auxiliary, on=group.names, sensitive=column, l=diversity,
                                             values=(harmful or {})[column], hierarchies=hierarchies))  # fmt: skip
    _explain(skipped, attacks, secret)
    estimates = None if sampling_fraction is None else population_uniqueness(group.sizes, sampling_fraction)
    return RiskReport(
        quasi=group.names, sensitive=secret, measures=tuple(measures), uniqueness=estimates, attacks=tuple(attacks),
        skipped=skipped,
    )  # fmt: skip


def _depth(columns: int) -> int:
    """Return the largest number of columns per set for which the search for unique rows stays short."""
    from math import comb

    depth = 1
    while depth < min(3, columns) and sum(comb(columns, size) for size in range(1, depth + 2)) <= _SETS:
        depth += 1
    return depth


def _disclosures(
    table: Any, quasi: Sequence[str], column: str, groups: Mapping[Any, Any] | None, population: object | None,
    harmful: Sequence[Any] | None, skipped: dict[str, str],
) -> list[TableAttack]:  # fmt: skip
    """Run the attacks on a sensitive column that need the release only."""
    kind = table.column(column).type
    outside = None
    if population is not None:
        register = to_arrow(population)
        outside = register if column in register.column_names else None
    attacks = [
        tables.homogeneity(table, quasi=quasi, sensitive=column),
        tables.background_knowledge(table, quasi=quasi, sensitive=column),
        tables.skewness(table, quasi=quasi, sensitive=column, population=outside, values=harmful),
    ]
    if groups is not None or pt.is_integer(kind) or pt.is_floating(kind) or pt.is_decimal(kind):
        attacks.append(tables.similarity(table, quasi=quasi, sensitive=column, groups=groups))
    else:
        skipped[f"similarity of {column}"] = "Give `groups`: for each of its values a group."
    return attacks


def _explain(skipped: dict[str, str], attacks: Sequence[TableAttack], secret: Sequence[str]) -> None:
    """Add the attacks that were not run for lack of earlier releases or of a claim."""
    names = {attack.name.partition(" ")[0] for attack in attacks}
    if secret and "intersection" not in names:
        skipped["intersection"] = "Give `earlier`, the earlier releases of the same people, and `auxiliary`."
    if secret and "minimality" not in names:
        skipped["minimality"] = "Give `auxiliary` (all people of the release), `harmful` and `diversity`."
