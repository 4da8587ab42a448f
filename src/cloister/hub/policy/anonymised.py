"""Rule of a policy for anonymised releases: the weakest models, the largest suppression, the number of checkers.

    anonymised: {at_least: "k=5, l=3", suppression_at_most: 10%, reviewers: 2}

An anonymised release has no epsilon, so no budget limits it. The policy decides who may ask and which models a release
must satisfy at least; people look at every file before it leaves (`jobs/output_check.py`).

A requested model satisfies a required one if every table that meets the first meets the second. A model of the rule
that names no column is required for every sensitive column. A column that the rule names is sensitive wherever it is
released.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from cloister.privacy.errors import BadInput

if TYPE_CHECKING:
    from cloister.anonymize.models import Model

__all__ = [
    "ANONYMISE",
    "Anonymised",
    "Protection",
    "named_columns",
    "parse_share",
    "percent_text",
    "problem_of",
    "share_text",
    "unmet",
]

ANONYMISE = "anonymise"
_NUMBER = r"[\d.]+(?:[eE][+-]?\d+)?"
_COLUMN = re.compile(r"\(\s*([^()]*?)\s*\)")
_DISTANCES = (", equal", ", ordered", ", hierarchical", ", total variation", ", kl")
_ANY = "every sensitive column"


@dataclass(frozen=True, slots=True)
class Anonymised:
    """What the policy requires of an anonymised release.

    Attributes:
        at_least: the models, in the form of a label.
        suppression_at_most: the largest share of rows that may be left out.
        reviewers: the number of people who must agree to the file. None of them is the requester.
    """

    at_least: str = "k=5"
    suppression_at_most: Fraction = Fraction(1, 10)
    reviewers: int = 2

    @property
    def models(self) -> str:
        """Return the models without the columns that they name: a reader may not see them."""
        return re.sub(rf"\s*\((?!\s*{_NUMBER}\s*,)[^()]*\)", "", self.at_least)

    @property
    def sentence(self) -> str:
        """Describe the rule without the columns that it names: a reader may not see them."""
        share = percent_text(self.suppression_at_most)
        return (
            f"a release satisfies at least {self.models}, leaves out at most {share} of the rows, and leaves after "
            f"{self.reviewers} people have looked at it"
        )


@dataclass(frozen=True, slots=True)
class Protection:
    """Protection of a requested release, with the columns as the schema spells them.

    Attributes:
        models: the requested models.
        quasi, sensitive, plain: the released columns, by role.
        suppression: the share of rows that may be left out.
    """

    models: tuple["Model", ...]
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    plain: tuple[str, ...]
    suppression: Fraction

    @property
    def label(self) -> str:
        """Return the requested models as a label."""
        return ", ".join(model.label for model in self.models)

    def to_json(self) -> dict[str, Any]:
        """Return JSON, to be sealed with the file."""
        columns = {"quasi": list(self.quasi), "sensitive": list(self.sensitive), "plain": list(self.plain)}
        return {"models": self.label, **columns, "suppression": str(self.suppression)}

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> "Protection":
        """Return the protection in a sealed record."""
        from cloister.anonymize.planning.request import parse_models

        quasi, sensitive, plain = (tuple(record[name]) for name in ("quasi", "sensitive", "plain"))
        models = parse_models(record["models"], sensitive)
        return cls(models, quasi, sensitive, plain, Fraction(record["suppression"]))


def parse_share(text: str) -> Fraction:
    """Read a share of rows, such as 10% or 0.1, exactly.

    >>> parse_share("10 %"), parse_share("0.05")
    (Fraction(1, 10), Fraction(1, 20))
    """
    match = re.fullmatch(r"(\d{1,3}(?:\.\d{1,16})?)\s*(%?)", text.strip(), re.ASCII)
    share = None if match is None else Fraction(match[1]) / (100 if match[2] else 1)
    if share is None or not share < 1:
        raise BadInput(f"{text!r:.40} is no share of the rows: at least 0 and below 1. Write 5% or 0.05.")
    return share


def share_text(share: Fraction) -> str:
    """Return a share as decimal text that `parse_share` reads back.

    >>> share_text(Fraction(1, 10)), share_text(Fraction(0))
    ('0.1', '0')
    """
    return f"{Decimal(share.numerator) / Decimal(share.denominator):f}"


def percent_text(share: Fraction) -> str:
    """Return a share as a percentage, exactly.

    >>> percent_text(Fraction(1, 10)), percent_text(Fraction(1, 8)), percent_text(Fraction(0))
    ('10%', '12.5%', '0%')
    """
    return f"{share_text(100 * share)}%"


def problem_of(text: str) -> str:
    """Return what is wrong with the models of a rule; empty if they can be read."""
    try:
        models = _required(text, ())
    except BadInput as error:
        return str(error).removeprefix(f"{error.code}: ").rstrip(".")
    if any(type(model).__name__ in ("KMap", "DeltaPresence") for model in models):
        return "k-map and delta-presence need a table of the population, which the hub does not have. Write k=5"
    return ""


def unmet(rule: Anonymised, protection: Protection) -> tuple[str, ...]:
    """Return what a request lacks, one clause each; none if it is strict enough.

    Clauses name only columns that the request releases.
    """
    lacks = []
    released = {*protection.quasi, *protection.sensitive, *protection.plain}
    for name in named_columns(rule.at_least):
        if name in released and name not in protection.sensitive:
            lacks.append(f"{name} is sensitive by the policy; list it under sensitive")
    missing = dict.fromkeys(
        required.label
        for required in _required(rule.at_least, protection.sensitive)
        if (required.column in (None, _ANY) or required.column in released)
        and not any(_implies(model, required) for model in protection.models)
    )
    if missing:
        lacks.append(f"at least {', '.join(missing)} is required, and this asks for {protection.label}")
    if protection.suppression > rule.suppression_at_most:
        allowed, wanted = percent_text(rule.suppression_at_most), percent_text(protection.suppression)
        lacks.append(f"at most {allowed} of the rows may be left out, and this asks for {wanted}")
    return tuple(lacks)


def named_columns(text: str) -> tuple[str, ...]:
    """Return the columns that models name: what is in parentheses and is no pair of numbers.

    >>> named_columns("k=5, recursive (2, 3) (ward), t=0.2 (disease, ordered)")
    ('ward', 'disease')
    """
    names = []
    for inner in _COLUMN.findall(text):
        name = next((inner.removesuffix(distance) for distance in _DISTANCES if inner.endswith(distance)), inner)
        if name and not re.fullmatch(rf"{_NUMBER}\s*,\s*\d+", name):
            names.append(name)
    return tuple(dict.fromkeys(names))


def _required(text: str, sensitive: Sequence[str]) -> tuple["Model", ...]:
    from cloister.anonymize.planning.request import parse_models

    columns = tuple(dict.fromkeys([*sensitive, *named_columns(text)]))
    return parse_models(text, columns if sensitive else (*columns, _ANY))


def _implies(model: "Model", required: "Model") -> bool:
    """Return True if every table that satisfies `model` satisfies `required`."""
    from cloister.anonymize import models as m

    if model.column != required.column and required.column is not None:
        return False
    match required:
        case m.KAnonymity(k):
            return isinstance(model, m.KAnonymity | m.AlphaK) and model.k >= k
        case m.DistinctDiversity(l):
            # A share of at most 1/l, an entropy of at least log l, and r1 < c (r_l + …) all need l different values;
            # a missing value is one of them there, and is not counted here.
            several = m.FrequencyDiversity | m.EntropyDiversity | m.RecursiveDiversity
            return (isinstance(model, m.DistinctDiversity) and model.l >= l) or (
                isinstance(model, several) and model.l >= l + 1
            )
        case m.FrequencyDiversity(l):
            alike = isinstance(model, m.AlphaK) and model.values is None and model.alpha * l <= 1
            return alike or (isinstance(model, m.FrequencyDiversity) and model.l >= l)
        case m.EntropyDiversity(l):
            return isinstance(model, m.EntropyDiversity) and model.l >= l
        case m.RecursiveDiversity(c, l):
            return isinstance(model, m.RecursiveDiversity) and model.c <= c and model.l >= l
        case m.TCloseness(t, _, distance):
            same = {"equal", "total variation"}
            return (
                isinstance(model, m.TCloseness)
                and model.t <= t
                and (model.distance == distance or {model.distance, distance} <= same)
            )
        case m.AlphaK(alpha, k):
            return isinstance(model, m.AlphaK) and model.values is None and model.alpha <= alpha and model.k >= k
        case m.BetaLikeness(beta, _, enhanced):
            return isinstance(model, m.BetaLikeness) and model.beta <= beta and (model.enhanced or not enhanced)
    return False
