"""Output of `cloister local`: advice for a question, findings as tables or JSON."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from cloister.local.analysis.finding import Finding
from cloister.local.base.oracle import Floats, epsilon
from cloister.local.privacy.advice import Advice, advise, advise_number
from cloister.local.survey.answers import read_rows, truth
from cloister.local.survey.choose import ChooseUpTo
from cloister.local.survey.collection import Collection
from cloister.local.survey.question import Question
from cloister.privacy.errors import BadInput
from cloister.privacy.number import show

__all__ = ["advised", "findings", "same_questions", "true_shares", "written"]


def advised(
    name: str,
    levels: Sequence[str],
    people: int,
    yes_no: bool = False,
    choices: Sequence[str] | None = None,
    domain: int | None = None,
    between: tuple[str, str] | None = None,
    up_to: int | None = None,
    most_bits: int | None = None,
) -> tuple[Question, str]:
    """Return a question with the best mechanism at each level, and the tables behind the choice."""
    if [yes_no, choices is not None, domain is not None, between is not None].count(True) != 1:
        raise BadInput(
            "say what the answers are, in one way: --yes-no, --choices ONE,TWO, --domain 100 or --between 17:90."
        )
    losses = [epsilon(level) for level in levels]
    if between is not None:
        return _shown(
            name,
            _one_grid([advise_number(between, loss, people, most_bits) for loss in losses], most_bits),
            people,
            None,
        )
    names = ["no", "yes"] if yes_no else choices
    size = len(names) if names is not None else domain
    assert size is not None
    if up_to is None:
        advice = [advise(size, loss, people, most_bits) for loss in losses]
    else:
        advice = [ChooseUpTo(size, up_to).advise(loss, people, most_bits) for loss in losses]
    return _shown(name, advice, people, names)


def _one_grid(advice: Sequence[Advice], most_bits: int | None) -> list[Advice]:
    """Advise one mechanism for all levels of a number: the levels of a question take the same answers.

    It minimises the largest ratio, over the levels, of its error to the least error.
    """
    if len({type(entry.best) for entry in advice}) == 1:
        return list(advice)
    short = [[line for line in entry.table if most_bits is None or line.bits <= most_bits] for entry in advice]
    lines = [{line.label: line for line in table} for table in short]
    shared = [label for label in lines[0] if all(label in table for table in lines)]
    worst = {
        label: max(table[label].mse / entry.table[0].mse for table, entry in zip(lines, advice, strict=True))
        for label in shared
    }
    if not shared:
        raise BadInput(f"no mechanism answers at all of these levels in {most_bits} bits. Allow more.")
    chosen = min(shared, key=lambda label: worst[label])
    return [replace(entry, best=table[chosen].mechanism) for table, entry in zip(lines, advice, strict=True)]


def _shown(name: str, advice: Sequence[Any], people: int, names: Sequence[str] | None) -> tuple[Question, str]:
    """Return the question with the advised mechanisms, and the tables behind them."""
    tables = [f"epsilon {show(entry.best.epsilon)}, {people:,} people\n{entry}" for entry in advice]
    return Question(name, [entry.best for entry in advice], names), "\n".join(tables)


def same_questions(collection: Collection, asked: Sequence[Question]) -> Collection:
    """Return the collection, if its questions are these."""
    if collection.questions != {question.id: question for question in asked}:
        raise BadInput("the counts are of other questions. Give them a new file.")
    return collection


def findings(collection: Collection, only: str | None, **how: Any) -> list[Finding]:
    """Return the findings of one question, or of every question with answers."""
    names = [only] if only else [name for name in collection.questions if collection.counts(name)]
    if not names:
        raise BadInput("no report was counted, so there is nothing to estimate.")
    return [collection.estimate(name, **how) for name in names]


def true_shares(found: Sequence[Finding], path: Path) -> dict[str, Floats]:
    """Return the truth for each question of a table of true answers. For lessons."""
    rows = list(read_rows(path))
    return {finding.question.id: truth(finding.question, rows) for finding in found}


def written(found: Sequence[Finding], truths: Mapping[str, Floats], as_json: bool) -> str:
    """Return findings as tables, or as JSON."""
    if not as_json:
        parts = [f"{finding}{_beside(finding, truths.get(finding.question.id))}" for finding in found]
        return "\n\n".join(parts)
    entries = []
    for finding in found:
        facts: dict[str, Any] = {
            "question": finding.question.id,
            "n": finding.raw.n,
            "confidence": finding.raw.confidence,
            "private": finding.raw.private,
            "weights": dict(finding.weights),
            "selection": finding.selection,
            "poisoning": {"fakes": finding.poisoning.fakes, "up": finding.poisoning.up, "down": finding.poisoning.down},
            "shares": finding.rows(),
        }
        if finding.question.id in truths:
            facts["truth (a lesson, not private)"] = truths[finding.question.id].tolist()
        entries.append(facts)
    return json.dumps(entries, indent=2)


def _beside(finding: Finding, true_values: Floats | None) -> str:
    if true_values is None:
        return ""
    rows = finding.rows()
    inside = sum(row["low"] <= share <= row["high"] for row, share in zip(rows, true_values, strict=True))
    shares = ", ".join(f"{row['value']} {share:.4f}" for row, share in zip(rows, true_values, strict=True))
    return f"\n  truth (a lesson, not private): {shares}; {inside} of {len(true_values)} lie in their intervals."
