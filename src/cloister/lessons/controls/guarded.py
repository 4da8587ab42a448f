"""A dataset behind controls, which judge each query and process each answer."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any, Protocol

from cloister.data.schema import Schema
from cloister.lessons.controls.answers import MinimumSize, RangeAnswers, Rounded, SmallCells
from cloister.lessons.controls.control import Control, History
from cloister.lessons.controls.requests import Audit, OnlyAggregates, Overlap, RandomSample
from cloister.privacy.errors import BadName, QueryRefused
from cloister.privacy.loss import Loss
from cloister.privacy.noise import Source
from cloister.privacy.number import Number
from cloister.query.answer import Answer
from cloister.query.plan import Plan

__all__ = ["Controls", "Guarded"]

_RULES: Mapping[str, type[Any]] = {
    "only_aggregates": OnlyAggregates, "overlap": Overlap, "audit": Audit, "random_sample": RandomSample,
    "minimum_size": MinimumSize, "small_cells": SmallCells, "rounded": Rounded, "range_answers": RangeAnswers,
}  # fmt: skip


class Askable(Protocol):
    """The interface that controls wrap: a dataset."""

    @property
    def schema(self) -> Schema:
        """The public facts."""
        ...

    def plan(self, sql: str, *, spend: Loss, confidence: Number) -> Plan:
        """Plan a query."""
        ...

    def run(self, plan: Plan, *, source: Source | None) -> Answer:
        """Run a plan."""
        ...


@dataclass(frozen=True, slots=True)
class Controls:
    """Rules in the order in which they apply, and the analysts who may combine their answers.

    Attributes:
        rules: the controls.
        pools: analysts who are judged as one, by name; others are judged alone.
    """

    rules: Sequence[Control]
    pools: Sequence[Collection[str]] = ()

    @classmethod
    def from_policy(cls, policy: Mapping[str, Mapping[str, Any]], pools: Sequence[Collection[str]] = ()) -> "Controls":
        """Build rules by name, as in a policy file: `{"minimum_size": {"least": 20}, "rounded": {"base": 5}}`."""
        rules = []
        for name, settings in policy.items():
            kind = _RULES.get(name)
            if kind is None:
                raise BadName(f"there is no control {name!r:.40}. There are: {', '.join(_RULES)}.")
            try:
                rules.append(
                    kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in settings.items()})
                )
            except TypeError:
                takes = ", ".join(field.name for field in fields(kind))
                raise BadName(f"{name} takes {takes}, got {', '.join(settings) or 'nothing'}.") from None
        return cls(rules, pools)

    def wrap(self, dataset: Askable) -> "Guarded":
        """Wrap a dataset in these rules. Their history lives as long as the wrapped dataset."""
        return Guarded(dataset, self)


class Guarded:
    """A dataset behind controls.

    Privacy: that of the dataset. A refusal depends on requests only; changes to an answer are post-processing.
    """

    def __init__(self, dataset: Askable, controls: Controls) -> None:
        self._dataset = dataset
        # Withholding reads noisy numbers, so it precedes rounding.
        self._rules = sorted(controls.rules, key=lambda rule: isinstance(rule, Rounded | RangeAnswers))
        self._pools = controls.pools
        self._histories: dict[str, History] = {}
        self._lock = Lock()

    def sql(
        self,
        text: str,
        *,
        spend: Loss,
        confidence: Number = "0.95",
        source: Source | None = None,
        analyst: str = "anyone",
    ) -> Answer:
        """Run a query. An accepted query is added to the history of the analyst and of the analyst's pool."""
        plan = self._dataset.plan(text, spend=spend, confidence=confidence)
        question = plan.question
        with self._lock:  # one atomic step: of two queries that must not both be answered, the second is refused
            for rule in self._rules:
                reason = rule.before(question, self._history(analyst))
                if reason is not None:
                    raise QueryRefused(f"refused by {type(rule).__name__}: {reason}")
            for name in self._circle(analyst):
                self._history(name).add(question)
        for rule in self._rules:
            question = rule.reads(question)
        answer = self._dataset.run(replace(plan, question=question), source=source)
        for rule in self._rules:
            answer = rule.after(question, answer)
        return answer

    def _circle(self, analyst: str) -> set[str]:
        return {analyst}.union(*(pool for pool in self._pools if analyst in pool))

    def _history(self, analyst: str) -> History:
        return self._histories.setdefault(analyst, History(self._dataset.schema))
