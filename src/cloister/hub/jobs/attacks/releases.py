"""Attacks on an anonymised release: who can be found in it, and what can be learned of them.

The attacker has the file, and a list of people with exact quasi-identifiers: here the people that the file was made
from, which is the worst case. Other releases put together with it are compared on the page of its request.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sqlalchemy.orm import undefer

from cloister.anonymize.claims import merged
from cloister.anonymize.risks.attackers import Risk, risk
from cloister.attack.finding import Finding
from cloister.hub.core.models import Job, Output
from cloister.hub.datasets.datasets import newest
from cloister.hub.jobs.attacks.sources import opened, replaced
from cloister.hub.jobs.dataset_pool import DatasetPool
from cloister.hub.jobs.job_types.anonymise import people_rows
from cloister.hub.jobs.output_risk import view_from_json
from cloister.hub.jobs.sealed_output import package_of, rows_of
from cloister.privacy.errors import NotNow

if TYPE_CHECKING:
    from cloister.hub.core.hub import Hub
    from cloister.hub.jobs.job_types.job_type import Progress

__all__ = ["attack_release"]

_MOST_PEOPLE = 20_000  # that are looked up, one by one
_REMEDIES = (
    "A larger k: enlarge the smallest classes, or leave their rows out.",
    "Fewer or coarser quasi-identifiers.",
)


def attack_release(
    hub: "Hub", pool: DatasetPool, job: Job, title: str, progress: "Progress"
) -> tuple[list[Finding], dict[str, str]]:
    """Return the findings of all attacks on a release, and those that were not run, each with the reason.

    Raises:
        NotNow: the file is no longer kept, no table could be made, or the tables were replaced since.
    """
    with hub.database.reading() as session:
        output = session.get(Output, job.id, options=[undefer(Output.sealed)])
        version = newest(hub, session, job.dataset)
    if output is None or output.sealed is None:
        raise NotNow(f"the file of {title} is no longer kept. Attack one that is.")
    package = package_of(hub, job.dataset, output)
    result, asked = package["result"], package["protection"]
    if result is None:
        raise NotNow(f"no table could be made for {title}, so there is nothing to attack. Deny the request.")
    if [version.id, version.signature] != package["version"]:
        raise replaced(title)
    rows, table = rows_of(result), str(result["table"])
    quasi, sensitive = list(asked["quasi"]), list(asked["sensitive"])
    progress(0.1, "reading the people that it was made from")
    with opened(hub, pool, job, version, view_from_json(package["view"])) as data:
        people = people_rows(data, table, (*quasi, *sensitive))
    progress(0.3, "looking people up in the release")
    sample = _MOST_PEOPLE if people.num_rows > _MOST_PEOPLE else None
    report = risk(
        rows,
        quasi=quasi,
        sensitive=sensitive,
        population=people,
        auxiliary=people,
        hierarchies=merged([result["side"].get("hierarchies", {})]),
        sample=sample,
    )
    progress(0.9, "drawing the findings")
    known = [_of_measure(measure, title) for measure in report.measures if measure.name != "marketer"]
    every = [*known, *(attack.finding(title) for attack in report.attacks)]
    return every, {name: reason for name, reason in _NOT_RUN.items() if name in report.skipped}


_NOT_RUN: Mapping[str, str] = {
    "intersection": "put together with other releases on the page of its request.",
    "minimality": "it needs the values whose disclosure harms, which no form asks for. See attack.tables.minimality.",
}


def _of_measure(measure: Risk, target: str) -> Finding:
    """Return a measure of re-identification as a finding."""
    worst: dict[str, Any] = {f"worst: {name}": value for name, value in measure.worst.items()}
    return Finding(
        attack=f"re-identification by a {measure.name}",
        target=target,
        access="release",
        knowledge=f"the attacker {measure.attacker}",
        measure="rows that are linked to the right person",
        success=measure.average,
        interval=(measure.average, measure.average),  # known for these rows: they are no sample
        baseline=1 / measure.records,
        attempts=measure.records,
        risk=measure.per_record,
        figures={
            "highest risk of a row": f"{measure.highest:.1%}",
            f"rows with a risk above {measure.threshold:.0%}": f"{measure.above:,} of {measure.records:,}",
            "people in the smallest class": measure.smallest,
            **worst,
        },
        remedies=_REMEDIES,
        notes=("the success is that of this attacker on these rows, so it has no error",),
    )
