"""Risk of an anonymised release together with the others of the same table, for the dataset's owner.

    the owner's page ─► the other files: released, or held ─► a child process with limits compares them ─► lines,
                        still the same? the lines are kept    one by one, then all of them together        kept sealed

How many people have one possible sensitive value left when files are put together depends on the rows, so nobody but
the owner reads it. It is computed when the owner looks, so that it counts what others were given or wait for by then,
and never in a job: no job takes longer, or fails, because of other releases. What was not compared is listed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import sqlalchemy as sa
from sqlalchemy.orm import Session, undefer

from cloister.hub.core.models import Dataset, Job, Output, Person, Request, Version
from cloister.hub.core.settings import Settings
from cloister.hub.datasets.bounded import steps_bounded
from cloister.hub.datasets.datasets import newest, open_for_work
from cloister.hub.jobs import queue
from cloister.hub.jobs.dataset_pool import ClosedBook, DatasetPool, PersonReleases, dataset_for_person
from cloister.hub.jobs.job_types.anonymise import people_rows
from cloister.hub.jobs.sealed_output import facts_of, package_of, rows_of, seal_facts
from cloister.hub.policy.views import TableView
from cloister.privacy.errors import CloisterError, TooMany

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub

__all__ = ["EarlierRelease", "RiskOrder", "earlier_releases", "risk_order", "view_from_json"]

SECONDS = 30.0  # for all comparisons of one page
MOST_FILES = 50  # that one is compared with, the newest first
_TOGETHER = "together"  # in the facts of an output: the lines, and what they were computed from
Line = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EarlierRelease:
    """Anonymised release, for the owner of its dataset; `intersection` is what was computed when the owner looked."""

    job_id: int
    request_id: int | None
    person: str
    purpose: str
    released: float
    label: str
    rows: int
    intersection: tuple[Line, ...]


def earlier_releases(hub: "Hub", session: Session, dataset: Dataset) -> list[EarlierRelease]:
    """Return the anonymised releases of a dataset, newest first, for its owner; the caller has checked who asks."""
    wanted = sa.select(Output).where(
        Output.dataset_id == dataset.id, Output.released.is_not(None), Output.facts.is_not(None)
    )
    releases = []
    for output in session.scalars(wanted.order_by(Output.released.desc()).limit(100)):
        facts, job = facts_of(hub, dataset, output), output.job
        request = sa.select(Request.id).where(Request.job_id == job.id, Request.kind == "output")
        releases.append(
            EarlierRelease(
                job.id,
                session.scalar(request.order_by(Request.id.desc()).limit(1)),
                job.person.name,
                job.purpose,
                output.released or 0.0,
                str(facts["label"]),
                int(facts["rows"]),
                tuple(facts.get(_TOGETHER, {}).get("lines", ())),
            )
        )
    return releases


# What is compared


@dataclass(frozen=True, slots=True)
class RiskOrder:
    """Comparison that an owner may see.

    Attributes:
        owner: the owner's id.
        dataset: the dataset.
        job_id: the job of the output.
        others: the jobs of the files to compare it with, newest first.
        left: the jobs of older files, which are too many.
        own: the jobs of the owner's own files that others look at: they must not learn whether there is one.
        basis: what the lines follow from: the version of the tables, and all files.
        lines: the lines, if they were computed on this basis before.
    """

    owner: int
    dataset: Dataset
    job_id: int
    others: tuple[int, ...]
    left: tuple[int, ...]
    own: tuple[int, ...]
    basis: list[Any]
    lines: tuple[Line, ...] | None

    def compute(self, hub: "Hub") -> tuple[Line, ...]:
        """Return the lines, computed now unless they are known. It may take seconds: in no transaction."""
        if self.lines is not None:
            return self.lines
        lines, failed = _compared(hub.settings, self)
        if not failed:
            self._keep(hub, lines)
        return tuple(lines)

    def _keep(self, hub: "Hub", lines: list[Line]) -> None:
        with hub.database.writing() as session:
            output = session.get(Output, self.job_id)
            dataset = session.get_one(Dataset, self.dataset.id)
            if output is None or output.facts is None or dataset.wrapped_key is None:
                return  # erased meanwhile
            facts = {**facts_of(hub, dataset, output), _TOGETHER: {"basis": self.basis, "lines": lines}}
            sealed = seal_facts(hub, dataset, self.job_id, facts)
            kept = sa.update(Output).where(Output.job_id == self.job_id, Output.facts.is_not(None))
            session.execute(kept.values(facts=sealed), execution_options={"synchronize_session": False})


def risk_order(hub: "Hub", session: Session, person: Person, request: Request) -> RiskOrder | None:
    """Return the comparison of an output with all others of its dataset, released or held; None for all but the owner.

    It is nothing for the owner's own requests either: they would learn whether their table could be made.
    """
    dataset = request.dataset
    output = session.get(Output, request.job_id) if request.kind == "output" else None
    owner = person.id == dataset.owner_id and person.id != request.person_id
    if not owner or output is None or output.facts is None or dataset.wrapped_key is None:
        return None
    if request.state != "open" and output.released is None:
        return None
    facts = facts_of(hub, dataset, output)
    others, own = _others(session, output, person)
    if facts["failure"] or not (others or own):
        return None
    try:
        version = newest(hub, session, dataset)
    except CloisterError:  # the page says that the tables have changed
        return None
    basis = [version.id, version.signature, [list(row) for row in others], own]
    known = facts.get(_TOGETHER, {})
    lines = tuple(known["lines"]) if known.get("basis") == basis else None
    numbers = tuple(int(row[0]) for row in others)
    compared, left = numbers[:MOST_FILES], numbers[MOST_FILES:]
    return RiskOrder(person.id, dataset, output.job_id, compared, left, tuple(own), basis, lines)


def _others(session: Session, output: Output, owner: Person) -> tuple[list[tuple[int, str]], list[int]]:
    """Return the other files of a dataset that are here, newest first, with their digests; and the owner's held ones.

    Privacy: a comparison with a held file says whether it could be made, which its requester must not learn.
    """
    wanted = (
        sa.select(Output.job_id, Output.digest, Output.released, Job.person_id)
        .join(Job, Job.id == Output.job_id)
        .where(
            Output.dataset_id == output.dataset_id,
            Output.job_id != output.job_id,
            Output.sealed.is_not(None),
            sa.or_(Output.released.is_not(None), Job.state == queue.CHECKING),
        )
    )
    others, own = [], []
    for row in session.execute(wanted.order_by(Output.job_id.desc())):
        if row.released is None and row.person_id == owner.id:
            own.append(row.job_id)
        else:
            others.append((row.job_id, row.digest))
    return others, own


# The comparison, in a child process


def _compared(settings: Settings, order: RiskOrder) -> tuple[list[Line], bool]:
    """Return the lines, and True if they are not worth keeping: the machine was busy."""
    lines: list[Line] = []
    planned: list[tuple[list[int], str]] = []
    problem, busy = "", False
    arguments = (settings, order.job_id, list(order.others))
    try:
        steps = steps_bounded(settings, _compare, *arguments, seconds=SECONDS, caller=order.owner)
        for step in steps if order.others else ():
            if "planned" in step:
                planned = [(list(jobs), str(column)) for jobs, column in step["planned"]]
            else:
                lines.append(step)
    except CloisterError as error:
        problem, busy = _sentence(error), isinstance(error, TooMany)
    done = {(tuple(line["jobs"]), line["column"]) for line in lines}
    missing = [(jobs, column) for jobs, column in planned if (tuple(jobs), column) not in done]
    if problem and not planned:
        missing = [(list(order.others), "")]
    lines += [{"jobs": jobs, "column": column, "problem": f"not compared: {problem}"} for jobs, column in missing]
    if order.left:
        lines.append(
            {"jobs": list(order.left), "column": "", "problem": f"not compared: {MOST_FILES} files at most are"}
        )
    if order.own:
        lines.append(
            {"jobs": list(order.own), "column": "", "problem": "not compared: you asked for it, and others look"}
        )
    return lines, busy


def _compare(settings: Settings, job_id: int, others: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield what is planned, then a line for each comparison; runs in a process with limits."""
    from cloister.hub.core.hub import Hub

    with Hub(settings) as hub:
        with hub.database.reading() as session:
            job = session.get_one(Job, job_id)
            dataset, person = job.dataset, job.person
            version = newest(hub, session, dataset)
            mine = _file(hub, session, dataset, job_id)
            every = [_file(hub, session, dataset, number) for number in others]
        if isinstance(mine, str):
            return
        usable: list[_File] = []
        for number, other in zip(others, every, strict=True):
            problem = other if isinstance(other, str) else other.unlike(mine)
            if problem or isinstance(other, str):
                yield {"jobs": [number], "column": "", "problem": f"not compared: {problem}"}
            else:
                usable.append(other)
        plans = _plans(mine, usable)
        yield {"planned": [([other.number for other in group], column) for group, column in plans]}
        yield from (
            {"jobs": [other.number], "column": column, "problem": problem}
            for other in usable
            for column, problem in other.passed_over(mine)
        )
        people = {}
        for group, column in plans:
            names = mine.names_with(group)
            if names not in people:
                people[names] = _people(hub, dataset, version, person, mine.joined(group), mine.table, names)
            yield _line(mine, group, column, people[names])


@dataclass(frozen=True, slots=True)
class _File:
    """One file, with the roles of its columns, and the view that it was made through."""

    number: int
    table: str
    rows: pa.Table
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    plain: tuple[str, ...]
    view: Mapping[str, TableView] | None
    hierarchies: Mapping[str, Any]  # of the facts: the labels of trees and files

    @property
    def exact(self) -> tuple[str, ...]:
        """Return the columns that it holds as they are."""
        return (*self.sensitive, *self.plain)

    @property
    def table_view(self) -> TableView:
        """Return the view of its table."""
        views = {} if self.view is None else self.view
        return next((view for name, view in views.items() if name.lower() == self.table.lower()), TableView())

    def unlike(self, mine: "_File") -> str:
        """Return why it cannot be compared; empty if it can."""
        if self.table != mine.table:
            return "it was made from another table"
        mine_changed, other_changed = mine.table_view.transforms, self.table_view.transforms
        shared = {*mine.rows.column_names} & {*self.rows.column_names}
        changed = [name for name in sorted(shared) if mine_changed.get(name) != other_changed.get(name)]
        return f"its view changes {changed[0]} in another way" if changed else ""

    def columns_with(self, mine: "_File") -> list[str]:
        """Return the columns that both hold as they are, and that are sensitive in one of them."""
        sensitive = {*mine.sensitive, *self.sensitive}
        return [name for name in mine.exact if name in self.exact and name in sensitive]

    def passed_over(self, mine: "_File") -> list[tuple[str, str]]:
        """Return the sensitive columns that one of the two files generalises, and why they are not compared."""
        mixed = [name for name in mine.sensitive if name in self.quasi]
        mixed += [name for name in self.sensitive if name in mine.quasi]
        return [(name, "not compared: it is sensitive in one file and generalised in the other") for name in mixed]

    def names_with(self, group: Sequence["_File"]) -> tuple[str, ...]:
        """Return the columns of this file, then the quasi-identifiers that only others have."""
        own = (*self.quasi, *self.sensitive, *self.plain)
        return tuple(dict.fromkeys([*own, *(name for other in group for name in other.quasi)]))

    def joined(self, group: Sequence["_File"]) -> Mapping[str, TableView] | None:
        """Return the view through which the people of this file are read, with the columns of the others."""
        if self.view is None:
            return None
        view, columns = self.table_view, self.table_view.columns
        transforms = dict(view.transforms)
        for other in group:
            transforms = {**other.table_view.transforms, **transforms}
            theirs = other.table_view.columns
            columns = None if columns is None or theirs is None else tuple(dict.fromkeys([*columns, *theirs]))
        joined = replace(view, columns=columns, transforms=transforms)
        return {name: joined if name.lower() == self.table.lower() else kept for name, kept in self.view.items()}


def _file(hub: "Hub", session: Session, dataset: Dataset, number: int) -> "_File | str":
    """Return one file, or why there is none."""
    output = session.get(Output, number, options=[undefer(Output.sealed)])
    if output is None or output.sealed is None:
        return "the file was erased"
    try:
        package = package_of(hub, dataset, output)
    except CloisterError:  # one that was changed in the database must not stop the others
        return "the file is not the one that was sealed: it was changed in the database"
    result, asked = package["result"], package["protection"]
    if result is None:
        return "no table could be made there"
    quasi, sensitive, plain = (tuple(asked[name]) for name in ("quasi", "sensitive", "plain"))
    ladders = result["side"].get("hierarchies", {})
    return _File(
        number, str(result["table"]), rows_of(result), quasi, sensitive, plain, view_from_json(package["view"]), ladders
    )


def view_from_json(record: Mapping[str, Any] | None) -> Mapping[str, TableView] | None:
    """Return the view that an output was made through, as its package holds it."""
    if record is None:
        return None
    return {
        name: TableView(
            None if view["columns"] is None else tuple(view["columns"]), view["rows"], dict(view["transforms"])
        )
        for name, view in record.items()
    }


def _plans(mine: _File, others: Sequence[_File]) -> list[tuple[list[_File], str]]:
    """Return the comparisons: with each file alone, then with all that hold the same sensitive column."""
    plans = [([other], column) for other in others for column in other.columns_with(mine)]
    for column in mine.exact:
        group = [other for other in others if column in other.columns_with(mine)]
        if len(group) > 1:
            plans.append((group, column))
    return plans


def _people(
    hub: "Hub",
    dataset: Dataset,
    version: Version,
    person: Person,
    view: Mapping[str, TableView] | None,
    table: str,
    names: Sequence[str],
) -> pa.Table:
    """Return the people of a file, with the columns that the files generalise."""
    pool = DatasetPool(hub, lambda *what: open_for_work(hub, *what))
    try:
        opened = pool.get(dataset, version, person)
        book, received = ClosedBook(hub.ledger), PersonReleases(hub, dataset.id, person.id)
        data = dataset_for_person(opened, pool.account(dataset, person), view, book, received)
        return people_rows(data, table, names)
    finally:
        pool.close()


def _line(mine: _File, group: Sequence[_File], column: str, people: pa.Table) -> dict[str, Any]:
    from cloister.anonymize.claims import merged
    from cloister.attack.tables import intersection

    line: dict[str, Any] = {"jobs": [other.number for other in group], "column": column}
    every = [mine, *group]
    secret = {column, *(name for file in every for name in file.sensitive)}
    known = [name for name in dict.fromkeys(name for file in every for name in file.quasi) if name not in secret]
    ladders = merged(file.hierarchies for file in every)
    try:
        attack = intersection([file.rows for file in every], people, on=known, sensitive=column, hierarchies=ladders)
    except CloisterError as error:
        return {**line, "problem": f"not compared: {_sentence(error)}"}
    figures = {"people": attack.attacked, "at_risk": attack.at_risk, "alone": attack.single}
    return {**line, **figures, "contradictions": attack.contradictions, "notes": list(attack.notes[1:])}


def _sentence(error: CloisterError) -> str:
    return str(error).removeprefix(f"{error.code}: ")
