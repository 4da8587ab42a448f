"""Plan a release before it is made: roles of columns, hierarchies, size of the lattice, what is dropped.

plan = plan_release(rows, require="k=5, l=3", quasi=["age", "zip"], sensitive=["disease"], identifiers=["name"])
print(plan)                 # nothing is written
release = plan.run()        # refused while a column without a role looks as if it needed one
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from importlib import import_module
from inspect import signature
from math import prod
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from cloister.anonymize.checking.verifier import Checked, check
from cloister.anonymize.coded import CodedTable
from cloister.anonymize.hierarchy import CodedHierarchy, Hierarchy, automatic
from cloister.anonymize.models import Model, Requirement
from cloister.anonymize.planning.odd_values import odd_values
from cloister.anonymize.planning.request import METHODS, parse_models
from cloister.anonymize.planning.source import columns_of, kind_of
from cloister.anonymize.table import AnonymizedTable, Roles
from cloister.data.roles import Proposal, role_of
from cloister.data.rows import to_arrow
from cloister.data.schema import Table
from cloister.lazy import homes
from cloister.privacy.errors import BadInput

__all__ = ["ReleasePlan", "method_of", "plan_release"]

_ASK = ("identifier", "quasi-identifier")


@dataclass(frozen=True)
class ReleasePlan:
    """A release that could be made. It reads rows, and is for their owner.

    Attributes:
        rows: the owner's rows.
        roles: of the columns.
        requirement: the models.
        method: a name of `METHODS`.
        hierarchies: of the quasi-identifiers, for methods that take them.
        proposed: quasi-identifiers whose hierarchy was made from type and public facts.
        suppression: share of the rows that may be removed.
        doubtful: columns without a stated role whose name suggests one, each with the proposal.
        options: what else the method is called with.
    """

    rows: pa.Table = field(repr=False)
    roles: Roles
    requirement: Requirement
    method: str
    hierarchies: Mapping[str, Hierarchy]
    proposed: tuple[str, ...]
    suppression: float
    doubtful: Mapping[str, Proposal]
    options: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @cached_property
    def coded(self) -> tuple[CodedHierarchy, ...]:
        """Return the hierarchies over the values of their columns."""
        table = CodedTable.of(self.rows, self.hierarchies)
        return tuple(hierarchy.over(table.columns[name]) for name, hierarchy in self.hierarchies.items())

    @property
    def nodes(self) -> int:
        """Return the number of nodes of the lattice; 0 for a method without hierarchies."""
        return prod(hierarchy.height + 1 for hierarchy in self.coded) if self.hierarchies else 0

    @cached_property
    def now(self) -> Checked:
        """Return the verifier's values for the rows as they are."""
        return check(self.rows, quasi=self.roles.quasi)

    def refuse_doubtful(self) -> None:
        """Refuse a release while a column without a role looks as if it needed one.

        Raises:
            BadInput: with the column and the options that settle it.
        """
        for name, proposal in self.doubtful.items():
            raise BadInput(
                f"the column {name:.60} has no role and would be released as it is. {_reason(proposal)} Say what it "
                f"is: identifier, quasi, sensitive or plain. Nothing was written."
            )

    def proposed_roles(self) -> dict[str, list[str]]:
        """Return the doubtful columns by the role that their names suggest."""
        return {
            role: names
            for role in _ASK
            if (names := [name for name, proposal in self.doubtful.items() if proposal.role == role])
        }

    def run(self, *, progress: Callable[[float, str], None] | None = None) -> AnonymizedTable:
        """Make the release. Nothing is written.

        Raises:
            BadInput: a column needs a role, or no release satisfies the models.
        """
        self.refuse_doubtful()
        call = method_of(self.method)
        given: dict[str, Any] = {"suppression": self.suppression, "hierarchies": self.hierarchies, "progress": progress}
        taken = {name: value for name, value in given.items() if name in signature(call).parameters}
        roles = {
            "quasi": self.roles.quasi,
            "sensitive": self.roles.sensitive,
            "identifiers": self.roles.identifiers,
            "plain": self.roles.plain,
        }
        release: AnonymizedTable = call(self.rows, require=self.requirement.models, **roles, **taken, **self.options)
        return replace(release, roles=replace(release.roles, unstated=self.roles.unstated))

    def __str__(self) -> str:
        roles, allowed = self.roles, int(self.rows.num_rows * self.suppression)
        lines = [
            ("table", f"{self.rows.num_rows:,} rows, {self.rows.num_columns} columns"),
            ("now", f"k={self.now.k}; {self.now.unique_rows:,} rows are the only ones with their quasi-identifiers"),
            ("must satisfy", self.requirement.label),
            ("method", f"{self.method}: {METHODS[self.method]}"),
            ("dropped", ", ".join(roles.identifiers) or "no column"),
            *_listed("generalised", list(self._ladders())),
            ("sensitive", _kept(roles.sensitive)),
            ("plain", _kept([name for name in roles.plain if name not in roles.unstated])),
            *_listed("no role", [_kept(unstated)] if (unstated := self._unstated()) else []),
            *([("lattice", f"{self.nodes:,} combinations of levels")] if self.nodes else []),
            ("rows removed", f"at most {allowed:,} ({self.suppression:.1%})" if allowed else "none"),
            *_listed("note", [*self._repeated(), *self.odd]),
            *_listed("role missing", [f"{name}: {_reason(proposal)}" for name, proposal in self.doubtful.items()]),
        ]
        return "\n".join(f"{word:<13} {text}" for word, text in lines)

    def _unstated(self) -> list[str]:
        """Return the columns without a role whose names suggest none."""
        return [name for name in self.roles.unstated if name not in self.doubtful]

    @cached_property
    def odd(self) -> tuple[str, ...]:
        """Return a sentence for each quasi-identifier for which few values leave a proposed hierarchy of one step."""
        flat = [coded.column for coded in self.coded if coded.height == 1 and coded.column.name in self.proposed]
        return tuple(sentence for column in flat if (sentence := odd_values(column.name, column.values)))

    def _repeated(self) -> Sequence[str]:
        """Return a sentence for each identifier with repeated values: several rows may belong to one person."""
        counts = {name: pc.count_distinct(self.rows.column(name)).as_py() for name in self.roles.identifiers}
        return [
            f"{name} has {count:,} different values in {self.rows.num_rows:,} rows. If they are people, keep one row "
            "of each: models count rows, not people."
            for name, count in counts.items()
            if count < self.rows.num_rows
        ]

    def _ladders(self) -> Sequence[str]:
        """Return a line for each quasi-identifier, with the number of labels at each level; no value is shown."""
        if not self.hierarchies:
            return [f"{', '.join(self.roles.quasi)}: to intervals and sets of values, class by class"]
        lines = []
        for hierarchy in self.coded:
            name = hierarchy.column.name
            counts = [f"{len(labels):,}" for labels in hierarchy.labels[:-1]]
            made = self.hierarchies[name].kind.replace("none", "one step")
            how = f"{made}, proposed" if name in self.proposed else made
            lines.append(f"{name} ({how}): {' -> '.join([f'{counts[0]} values', *counts[1:], '*'])}")
        return lines


def _reason(proposal: Proposal) -> str:
    return f"{proposal.reason} That suggests: {proposal.role}."


def _kept(names: Sequence[str]) -> str:
    return f"{', '.join(names)} (released as they are)" if names else "none"


def _some(names: Sequence[str]) -> str:
    return f"{', '.join(names):.500}"


def _listed(word: str, lines: Sequence[str]) -> list[tuple[str, str]]:
    return [(word if not place else "", line) for place, line in enumerate(lines)]


def method_of(name: str) -> Callable[..., AnonymizedTable]:
    """Return the function that makes releases by a method."""
    if name not in METHODS:
        raise BadInput(f"there is no method {name!s:.40}. Methods are: {', '.join(METHODS)}.")
    # Not by the room's attribute: a module of the same name hides it once it is imported.
    method: Callable[..., AnonymizedTable] = getattr(import_module(homes("cloister.anonymize")[name]), name)
    return method


def plan_release(
    rows: object,
    *,
    require: str | Model | Sequence[Model] | Requirement,
    quasi: Sequence[str] = (),
    sensitive: Sequence[str] = (),
    identifiers: Sequence[str] = (),
    plain: Sequence[str] = (),
    schema: Table | None = None,
    hierarchies: Mapping[str, Hierarchy] | None = None,
    method: str = "recode",
    suppression: float = 0.0,
    **options: Any,
) -> ReleasePlan:
    """Plan a release: find every mistake of the request before the work.

    Args:
        rows: a pandas or polars frame, an Arrow table, or a dict of lists.
        require: models, or text in the form of a label (`parse_models`).
        quasi, sensitive, identifiers: the roles of columns; they go before what the schema states.
        plain: columns that are released as they are, so that nobody asks again.
        schema: roles, bounds and categories of the columns.
        hierarchies: of quasi-identifiers; of sensitive columns for the hierarchical distance.
        method: a name of `METHODS`.
        suppression: share of the rows that may be removed.
        options: further arguments of the method, such as weights, seconds, gap, population or relaxed.

    Raises:
        BadInput: a column, a hierarchy or an option does not fit.
    """
    table, given = to_arrow(rows), {name: value for name, value in options.items() if value is not None}
    stated = _stated(table, schema, quasi, sensitive, identifiers, plain)
    known = {role: [name for name in stated if stated[name] == role] for role in set(stated.values())}
    offered = dict(hierarchies or {})
    if not known.get("quasi-identifier"):
        proposals = _doubtful(table, table.column_names, stated)
        likely = [name for name, proposal in proposals.items() if proposal.role == "quasi-identifier"]
        raise BadInput(
            "name the quasi-identifiers, the columns that others may know of a person: quasi=[…], --quasi A,B, or "
            f"role: quasi-identifier in the schema.{f' By their names: {_some(likely)}.' if likely else ''}"
        )
    if isinstance(require, str):
        require = parse_models(require, known.get("sensitive", ()), offered)
    requirement = Requirement.of(require)
    roles = Roles.of(
        table,
        requirement,
        quasi=known.get("quasi-identifier", ()),
        sensitive=known.get("sensitive", ()),
        identifiers=known.get("identifier", ()),
        plain=table.column_names,  # a name that suggests another role is listed in the plan, and stops `run`
    )
    roles = replace(roles, unstated=tuple(name for name in roles.plain if name not in stated))
    roles.refuse_weights(given.get("weights"))
    call = method_of(method)
    _refuse_options(method, call, {**given, **({"suppression": suppression} if suppression else {})})
    chosen: dict[str, Hierarchy] = {}
    for name in [name for name in offered if name in roles.sensitive]:
        del offered[name]
    if "hierarchies" in signature(call).parameters:
        facts, coded = columns_of(schema), CodedTable.of(table, roles.quasi)
        unknown = [name for name in offered if name not in roles.quasi]
        if unknown:
            raise BadInput(f"there is a hierarchy for {unknown[0]}, which is no quasi-identifier. Remove it.")
        chosen = {name: offered.get(name) or automatic(coded.columns[name], facts.get(name)) for name in roles.quasi}
    elif offered:
        raise BadInput(f"{method} takes no hierarchies. Leave them out, or choose {_takers('hierarchies')}.")
    plan = ReleasePlan(
        rows=table,
        roles=roles,
        requirement=requirement,
        method=method,
        hierarchies=chosen,
        proposed=tuple(name for name in chosen if name not in offered),
        suppression=suppression,
        doubtful=_doubtful(table, roles.plain, stated),
        options=given,
    )
    _ = plan.coded  # a hierarchy that lacks a value is refused now
    return plan


def _stated(
    table: pa.Table,
    schema: Table | None,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    identifiers: Sequence[str],
    plain: Sequence[str],
) -> dict[str, str]:
    """Return the roles that are stated: by the request, or else by the schema."""
    requested = {"quasi-identifier": quasi, "sensitive": sensitive, "identifier": identifiers, "plain": plain}
    stated: dict[str, str] = {
        name: given
        for name, column in columns_of(schema).items()
        if name in table.column_names and (given := column.role) is not None
    }
    named: dict[str, str] = {}
    for role, names in requested.items():
        for name in names:
            if name not in table.column_names:
                raise BadInput(f"there is no column {name:.60}. Columns are: {', '.join(table.column_names):.500}.")
            if named.setdefault(name, role) != role:
                raise BadInput(f"{name:.60} has two roles, {named[name]} and {role}. Name it once.")
    return {**stated, **named}


def _doubtful(table: pa.Table, columns: Sequence[str], stated: Mapping[str, str]) -> dict[str, Proposal]:
    """Return the columns without a stated role whose name suggests that they need one."""
    proposals = {name: role_of(name, kind_of(table.column(name))) for name in columns if name not in stated}
    return {name: proposal for name, proposal in proposals.items() if proposal.role in _ASK}


def _refuse_options(method: str, call: Callable[..., Any], given: Mapping[str, Any]) -> None:
    for name in given:
        if name not in signature(call).parameters:
            raise BadInput(f"{method} takes no {name}. Leave it out, or choose {_takers(name)}.")


def _takers(option: str) -> str:
    takers = [name for name in METHODS if option in signature(method_of(name)).parameters]
    return f"a method that does: {', '.join(takers)}" if takers else "another option"
