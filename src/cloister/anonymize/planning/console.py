"""What `cloister anonymize` does between its options and the functions of this room."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from cloister.anonymize.checking.verifier import Checked, check
from cloister.anonymize.claims import as_released, check_claims, merged
from cloister.anonymize.hierarchy import value_text
from cloister.anonymize.models import DeltaPresence, KMap, Model, Requirement, TCloseness
from cloister.anonymize.planning.plan import ReleasePlan, plan_release
from cloister.anonymize.planning.request import models_of, parse_hierarchy, parse_named
from cloister.anonymize.planning.source import columns_of, read_facts, read_rows
from cloister.anonymize.report.page import risk_page
from cloister.anonymize.risks.attackers import RiskReport, risk
from cloister.anonymize.table import SIDE, AnonymizedTable, failures
from cloister.attack.tables.columns import classes
from cloister.attack.tables.generalised import Hierarchies
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SYSTEM

__all__ = ["Released", "diversity_of", "parse_groups", "parse_order", "parse_rule", "parse_values", "planned",
           "release_risks", "rules_text", "with_options"]  # fmt: skip

_FILES = (".csv", ".tsv", ".csv.gz", ".tsv.gz", ".parquet")
_MOST_RULES = 20
_MOST_PAIRS = 4_000_000_000  # pairs of a kind of people and a class that the report of `run` compares
_EXAMPLE = "zip=zip.csv"


def planned(
    source: str,
    *,
    table: str | None,
    schema: Path | None,
    hierarchies: Sequence[str],
    population: str | None,
    quasi: Sequence[str],
    sensitive: Sequence[str],
    identifier: Sequence[str],
    **options: Any,
) -> ReleasePlan:
    """Return the plan of a release that options describe. It reads the owner's rows."""
    facts = read_facts(schema, table)
    ladders = {
        name: parse_hierarchy(file, None if schema is None else schema.parent)
        for name, column in columns_of(facts).items()
        if (file := column.hierarchy) is not None
    }
    given = parse_named(hierarchies, "hierarchy", "zip=masking:5")
    ladders |= {name: parse_hierarchy(text) for name, text in given.items()}
    typed = [*quasi, *sensitive]
    return plan_release(
        read_rows(source, table=table, facts=facts, typed=typed),
        quasi=quasi,
        sensitive=sensitive,
        identifiers=identifier,
        schema=facts,
        hierarchies=ladders,
        population=None if population is None else read_rows(population, typed=typed),
        **options,
    )


class Released:
    """A table that was released, with the roles and models that the file beside it states.

    Args:
        source: the released file, or a database.
        quasi, sensitive: the roles; those of the file beside it unless given.
        hierarchies: COLUMN=HOW entries; they go before what the file beside it records.

    Raises:
        BadInput: the quasi-identifiers are not known.
    """

    def __init__(
        self, source: str, quasi: Sequence[str] = (), sensitive: Sequence[str] = (), hierarchies: Sequence[str] = ()
    ) -> None:
        self.source = source
        self.facts = _side(Path(source + SIDE))
        self.quasi = [*(quasi or self.facts.get("quasi_identifiers", ()))]
        self.sensitive = [*(sensitive or self.facts.get("sensitive", ()))]
        if not self.quasi:
            raise BadInput("no file beside the table states the quasi-identifiers. Name them: --quasi age,zip.")
        given = {name: parse_hierarchy(text) for name, text in parse_named(hierarchies, "hierarchy", _EXAMPLE).items()}
        unknown = [name for name in given if name not in self.quasi]
        if unknown:
            raise BadInput(f"there is a hierarchy for {unknown[0]:.60}, which is no quasi-identifier. Remove it.")
        self.hierarchies = {**self.facts.get("hierarchies", {}), **{name: h.ancestors for name, h in given.items()}}

    @property
    def claimed(self) -> tuple[Model, ...]:
        """Return the models that the file beside the table claims, of the columns that are checked."""
        models = models_of(self.facts.get("models", ()))
        return tuple(model for model in models if model.column is None or model.column in self.sensitive)

    @property
    def diversity(self) -> int | None:
        """Return l of the l-diversity that is claimed; None without one."""
        return diversity_of(self.claimed)

    @cached_property
    def rows(self) -> pa.Table:
        """Return the rows."""
        return read_rows(self.source, typed=self.sensitive)

    def values(
        self,
        models: Sequence[Model],
        table: str | None = None,
        population: str | None = None,
        order: Mapping[str, Sequence[str] | str] | None = None,
    ) -> Checked:
        """Return the verifier's values. Rows of a file are read, rows of a database are counted there.

        Args:
            models: that are to be judged.
            table: of a database.
            population: a table with exact values, or generalised as the release is.
            order: of sensitive columns of text, for the ordered distance.
        """
        compared = [model for model in models if isinstance(model, KMap | DeltaPresence)]
        if compared and population is None:
            raise BadInput(f"{compared[0].label} needs --population, the table that the release was drawn from.")
        if self.source.lower().endswith(_FILES):
            return check_claims(
                self.rows,
                models,
                quasi=self.quasi,
                sensitive=self.sensitive,
                order=order,
                population=None if population is None else self._population(population),
            )
        trees = {
            model.column: model.hierarchy.to_root
            for model in models
            if isinstance(model, TCloseness) and model.hierarchy is not None
        }
        return check(
            self.source,
            quasi=self.quasi,
            sensitive=self.sensitive,
            table=table,
            hierarchies=trees,
            order=order,
            population=None if population is None else read_rows(population),
        )

    def _population(self, source: str) -> pa.Table:
        return as_released(read_rows(source, typed=self.quasi), self.rows, self.quasi, self.hierarchies)

    def earlier(self, sources: Sequence[str]) -> tuple[list[pa.Table], Hierarchies]:
        """Return earlier releases, and hierarchies that read their labels and those of this one."""
        before = [_side(Path(name + SIDE)).get("hierarchies", {}) for name in sources]
        return [read_rows(name, typed=self.sensitive) for name in sources], merged([self.hierarchies, *before])

    def risk_page(self, report: RiskReport, rows: pa.Table, population: str | None = None) -> str:
        """Return the risks of the table as a page. Its headline is what the verifier confirms."""
        claimed = self.claimed
        try:
            checked = self.values(claimed, population=population)
        except BadInput:  # without a population, say: the claim stays one
            checked = check(rows, quasi=self.quasi, sensitive=self.sensitive)
            return risk_page(report, checked, rows, title=Path(self.source).name, claimed=Requirement(claimed).label)
        problems = [problem for model in claimed for problem in failures(checked, model)]
        return risk_page(
            report,
            checked,
            rows,
            title=Path(self.source).name,
            confirmed=Requirement(claimed).label if claimed and not problems else "",
            claimed=Requirement(claimed).label if problems else "",
            problems=problems,
        )


def diversity_of(models: Sequence[Model]) -> int | None:
    """Return the largest l that models of l-diversity ask for; None without one."""
    wanted = [int(model.l) for model in models if hasattr(model, "l") and model.l >= 2]
    return max(wanted, default=None)


def release_risks(
    plan: ReleasePlan, release: AnonymizedTable, *, earlier: Sequence[str] = (), harmful: Sequence[str] = ()
) -> RiskReport:
    """Return the risks of a new release, in the worst case: an attacker who knows all original quasi-identifiers.

    A table with very many classes is attacked by a random part of the original rows, which the report then says.
    """
    roles = release.roles
    original, people = plan.rows, classes(plan.rows, roles.quasi)
    sample = _MOST_PAIRS // max(len(classes(release.rows, roles.quasi).sizes), 1)
    drawn = len(people.sizes) > sample
    if drawn:
        places = np.random.default_rng(int.from_bytes(SYSTEM.bytes(16), "little")).permutation(original.num_rows)
        original = original.take(np.sort(places[: max(sample, 1)]))
    report = risk(
        release.rows,
        quasi=roles.quasi,
        sensitive=roles.sensitive,
        auxiliary=original,
        population=plan.options.get("population"),
        earlier=[read_rows(name, typed=roles.sensitive) for name in earlier],
        harmful=None if drawn else parse_values(harmful, roles.sensitive, release.rows),
        diversity=diversity_of(release.requirement.models),
        hierarchies=merged(
            [release.hierarchies, *(_side(Path(name + SIDE)).get("hierarchies", {}) for name in earlier)]
        ),
    )
    report = with_options(report)
    if not drawn:
        return report
    reason = f"Attacked were {original.num_rows:,} of {plan.rows.num_rows:,} people, drawn at random."
    return replace(report, skipped={**report.skipped, "attacks of all people": reason})


def with_options(report: RiskReport) -> RiskReport:
    """Return the report with the options of `cloister anonymize risk` where it names arguments of `risk`."""
    named = {"groups": "group"}
    skipped = {
        name: re.sub(r"`(\w+)`", lambda match: f"--{named.get(match[1], match[1]).replace('_', '-')}", reason)
        for name, reason in report.skipped.items()
    }
    return replace(report, skipped=skipped)


def parse_values(texts: Sequence[str], sensitive: Sequence[str], rows: pa.Table) -> dict[str, list[object]] | None:
    """Read values of sensitive columns, as they occur in the rows.

    Raises:
        BadInput: a column is not sensitive, or a value does not occur.
    """
    named: dict[str, list[object]] = {}
    for column, text in parse_named(texts, "value", "disease=HIV,TB").items():
        if column not in sensitive:
            raise BadInput(f"{column:.60} is no sensitive column. Name one with --sensitive.")
        known = {value_text(value): value for value in rows.column(column).unique().to_pylist()}
        for word in [text] if text in known else [part.strip() for part in text.split(",")]:
            if word not in known:
                raise BadInput(f"{word!r:.60} is no value of {column:.60}. Write it as the release prints it.")
            named.setdefault(column, []).append(known[word])
    return named or None


def parse_groups(texts: Sequence[str], sensitive: Sequence[str]) -> dict[str, dict[str, str]] | None:
    """Read for sensitive columns the group of each value: the first label of a hierarchy."""
    groups = {}
    for column, text in parse_named(texts, "group", "disease=diseases.csv").items():
        if column not in sensitive:
            raise BadInput(f"{column:.60} is no sensitive column. Name one with --sensitive.")
        ladder = parse_hierarchy(text).ancestors
        if not ladder:
            raise BadInput(f"the groups of {column:.60} are a file: value;group on every line.")
        groups[column] = {value: labels[0] if labels else value for value, labels in ladder.items()}
    return groups or None


def parse_order(texts: Sequence[str], sensitive: Sequence[str]) -> dict[str, list[str] | str] | None:
    """Read the order of sensitive columns: `number`, or all values from the lowest to the highest.

    >>> parse_order(["stage=I,II,III"], ["stage"])
    {'stage': ['I', 'II', 'III']}
    """
    orders: dict[str, list[str] | str] = {}
    for column, text in parse_named(texts, "order", "stage=I,II,III").items():
        if column not in sensitive:
            raise BadInput(f"{column:.60} is no sensitive column. Name one with --sensitive.")
        orders[column] = "number" if text == "number" else [part.strip() for part in text.split(",")]
    return orders or None


def _side(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        facts = None
    if not isinstance(facts, dict) or not _readable(facts):
        raise BadInput(f"{path} is no file of facts. Move it away, and give --quasi and --sensitive.")
    return facts


def _readable(facts: Mapping[str, Any]) -> bool:
    """Return True if the parts of a file of facts that are used have their form."""
    ladders = facts.get("hierarchies", {})
    if not isinstance(ladders, dict) or not all(isinstance(labels, dict) for labels in ladders.values()):
        return False
    listed = [above for labels in ladders.values() for above in labels.values()]
    listed += [facts.get(name, []) for name in ("quasi_identifiers", "sensitive", "models")]
    return all(isinstance(entries, list) for entries in listed)


def parse_rule(text: str) -> tuple[list[str], list[str]]:
    """Read an association rule.

    >>> parse_rule("beer, wine -> crisps")
    (['beer', 'wine'], ['crisps'])
    """
    sides = [[word.strip() for word in side.split(",") if word.strip()] for side in text.split("->")]
    if len(sides) != 2 or not all(sides):
        raise BadInput(f"{text!r:.60} is no rule. Write 'beer, wine -> crisps'.")
    return sides[0], sides[1]


def rules_text(rules: Any, support: float, confidence: float) -> str:
    """Return the first rules as lines, the most confident one first."""
    lines = [
        f"{len(rules):,} rules of support {support:g} and confidence {confidence:g}, of {rules.baskets:,} baskets with "
        f"{len(rules.items):,} items"
    ]
    if not len(rules):
        lines.append("  A table with one item in each row needs --basket and --item; else lower --support.")
    for place, rule in zip(range(_MOST_RULES), rules, strict=False):
        measures = f"support {rules.support[place]:.4f}, confidence {rules.confidence[place]:.3f}"
        lines.append(f"  {rule}  {measures}, lift {rules.lift[place]:.2f}")
    if len(rules) > _MOST_RULES:
        lines.append(f"  and {len(rules) - _MOST_RULES:,} more")
    return "\n".join(lines)
