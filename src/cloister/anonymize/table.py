"""A table that was anonymised: its rows, its label, what it lost, and a file that is verified before it is written."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from cloister.anonymize.algorithms.lattice import Search
from cloister.anonymize.checking.columns import encode
from cloister.anonymize.checking.verifier import Checked
from cloister.anonymize.claims import check_claims, describe_models
from cloister.anonymize.models import (
    AlphaK,
    BetaLikeness,
    DeltaPresence,
    DistinctDiversity,
    EntropyDiversity,
    FrequencyDiversity,
    JointDiversity,
    KAnonymity,
    KMap,
    Model,
    RecursiveDiversity,
    Requirement,
    TCloseness,
)
from cloister.anonymize.release_file import SIDE, Claims, write_release
from cloister.anonymize.utility import Utility
from cloister.data.roles import role_of
from cloister.data.rows import to_arrow
from cloister.data.schema import Table
from cloister.privacy.errors import BadInput, NotPrivate
from cloister.version import __version__

__all__ = ["SIDE", "AnonymizedTable", "Roles", "failures"]


@dataclass(frozen=True)
class Roles:
    """What each column is.

    Attributes:
        identifiers: name a person directly; never released.
        quasi: may be known to others, and are generalised.
        sensitive: must not be learned about a person.
        plain: every other column; released as it is.
        unstated: the plain columns for which nobody stated a role.
    """

    identifiers: tuple[str, ...]
    quasi: tuple[str, ...]
    sensitive: tuple[str, ...]
    plain: tuple[str, ...]
    unstated: tuple[str, ...] = ()

    @staticmethod
    def of(
        rows: object,
        requirement: Requirement,
        *,
        quasi: Sequence[str] = (),
        sensitive: Sequence[str] = (),
        identifiers: Sequence[str] = (),
        plain: Sequence[str] = (),
        schema: Table | None = None,
    ) -> "Roles":
        """Return the roles of the columns, as they are given or as the schema states them.

        A column without a role is kept as it is, so a name that stands for people or for what others know about them
        is refused until its role is given.

        Raises:
            BadInput: a column is missing, has two roles or none and a telling name, or there is no quasi-identifier.
        """
        table = rows if isinstance(rows, pa.Table) else to_arrow(rows)
        names = table.column_names
        stated = {} if schema is None else {name: column.role for name, column in schema.listed.items()}
        roles = {"identifier": tuple(identifiers), "quasi-identifier": tuple(quasi), "sensitive": tuple(sensitive)}
        for role, listed in roles.items():
            if not listed:
                roles[role] = tuple(name for name in names if stated.get(name) == role)
        roles["sensitive"] = tuple(dict.fromkeys([*roles["sensitive"], *requirement.columns]))
        for model in requirement.models:
            if isinstance(model, JointDiversity) and set(model.among) != set(roles["sensitive"]):
                raise BadInput(
                    f"{model.label} must name all sensitive columns: {', '.join(roles['sensitive'])}. Who knows "
                    "some of them must not learn another."
                )
        every = [name for listed in roles.values() for name in listed]
        missing = [name for name in every if name not in names]
        if missing:
            raise BadInput(f"there is no column {missing[0]}. Columns are: {', '.join(names)}.")
        doubled = [name for name in every if every.count(name) > 1]
        if doubled:
            raise BadInput(f"{doubled[0]} has two roles. A column is an identifier, a quasi-identifier, or sensitive.")
        if not roles["quasi-identifier"]:
            raise BadInput("name the quasi-identifiers: quasi=['age', 'zip'], or role: quasi-identifier in the schema.")
        others = tuple(name for name in names if name not in every)
        for name in names:
            if name not in identifiers and not _is_supported(kind := table.schema.field(name).type):
                raise BadInput(
                    f"the column {name:.60} has the type {kind!s:.60}, which cannot be released. Convert it to text or "
                    "numbers, or name it among identifiers= to drop it."
                )
        accepted = {*plain, *(name for name, role in stated.items() if role == "plain")}
        for name in others:
            dated = pa.types.is_temporal(table.schema.field(name).type)
            proposal = role_of(name, "date" if dated else "text")
            if proposal.role in ("identifier", "quasi-identifier") and name not in accepted:
                raise BadInput(
                    f"{name} has no role and would be released as it is, but its name suggests "
                    f"{'an' if proposal.role == 'identifier' else 'a'} {proposal.role}. Say what it is: quasi, "
                    "identifier or sensitive; or plain, if nobody can know it about a person."
                )
        unstated = tuple(name for name in others if name not in accepted)
        return Roles(roles["identifier"], roles["quasi-identifier"], roles["sensitive"], others, unstated)

    def refuse_weights(self, weights: Mapping[str, float] | None) -> None:
        """Refuse weights of columns that mean nothing.

        Raises:
            BadInput: a column is no quasi-identifier, or a weight is negative or not finite, or all are 0.
        """
        unknown = [name for name in weights or {} if name not in self.quasi]
        if unknown:
            raise BadInput(f"there is a weight for {unknown[0]:.60}, which is no quasi-identifier. Remove it.")
        numbers = [(weights or {}).get(name, 1.0) for name in self.quasi]
        if any(not (math.isfinite(number) and number >= 0) for number in numbers) or not any(numbers):
            raise BadInput("weights of columns are finite, not negative, and not all 0.")


@dataclass(frozen=True)
class AnonymizedTable:
    """Rows that satisfy anonymity models. Not differentially private.

    Attributes:
        rows: the released rows, in the order of the original ones.
        roles: of the columns.
        requirement: the models that every class satisfies.
        method: how it was made.
        utility: what was lost.
        original_rows: number of rows before suppression.
        levels: of the hierarchies, for global recoding.
        search: how the levels were found.
        population: the population's quasi-identifiers, generalised in the same way, if a model compares with it.
        hierarchies: of quasi-identifiers, where labels can be read only with them: for each value its labels.
    """

    rows: pa.Table
    roles: Roles
    requirement: Requirement
    method: str
    utility: Utility
    original_rows: int
    levels: Mapping[str, int] = field(default_factory=dict)
    search: Search | None = field(default=None, repr=False)
    population: pa.Table | None = field(default=None, repr=False)
    hierarchies: Mapping[str, Mapping[str, tuple[str, ...]]] = field(default_factory=dict, repr=False)

    @property
    def label(self) -> str:
        """Return what the release satisfies, such as `k=5, l=3 (disease): not differentially private`."""
        return self.requirement.label

    @property
    def suppressed(self) -> int:
        """Return the number of rows that were removed."""
        return self.original_rows - int(self.rows.num_rows)

    @cached_property
    def checked(self) -> Checked:
        """Return what the independent verifier says of the released rows."""
        return check_claims(
            self.rows,
            self.requirement.models,
            quasi=self.roles.quasi,
            sensitive=self.roles.sensitive,
            population=self.population,
        )

    def verify(self) -> None:
        """Refuse a release that the independent verifier does not confirm.

        Raises:
            NotPrivate: with what fails. It is a defect of Cloister, and nothing is written.
        """
        problems = [problem for model in self.requirement.models for problem in failures(self.checked, model)]
        if problems:
            raise NotPrivate(
                f"the release was not confirmed by the verifier, and is not written: {'; '.join(problems)}."
            )

    def to_pandas(self) -> Any:
        """Return the released rows as a pandas frame, in the order of the original rows."""
        return self.rows.to_pandas()

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Verify the release and the written file, with a file of its facts beside it, or write nothing.

        Rows are sorted by value.

        Raises:
            NotPrivate: the rows, or the file as it is read, do not satisfy the models.
            BadInput: the rows cannot be written as CSV.
        """
        self.verify()
        self._write(Path(path), parquet=False)

    def to_parquet(self, path: str | os.PathLike[str]) -> None:
        """Verify the release and the written file, with a file of its facts beside it, or write nothing.

        Rows are sorted by value.

        Raises:
            NotPrivate: the rows, or the file as it is read, do not satisfy the models.
            BadInput: the rows cannot be written as Parquet.
        """
        self.verify()
        self._write(Path(path), parquet=True)

    def _write(self, path: Path, *, parquet: bool) -> None:
        roles = self.roles
        claims = Claims(self.rows, self.requirement.models, roles.quasi, roles.sensitive, self.population)
        write_release(claims, self.describe(), path, parquet=parquet)

    def describe(self) -> dict[str, Any]:
        """Return the facts of the release as plain values; they are public with it."""
        return {
            "label": self.label,
            "differentially_private": False,
            "models": describe_models(self.requirement, self.rows),
            "method": self.method,
            "quasi_identifiers": list(self.roles.quasi),
            "sensitive": list(self.roles.sensitive),
            "dropped": list(self.roles.identifiers),
            "kept_unchanged": list(self.roles.plain),
            "levels": dict(self.levels),
            "hierarchies": {name: dict(labels) for name, labels in self.hierarchies.items()},
            "rows": int(self.rows.num_rows),
            "suppressed_rows": self.suppressed,
            "utility": self.utility.as_dict(),
            "made_with": f"cloister {__version__}",
        }

    def _of(self, name: str) -> str:
        """Return the last level of a column's hierarchy, which is `*`; empty if it is not known."""
        if self.search is None or name not in self.roles.quasi:
            return ""
        return f" of {self.search.heights[self.roles.quasi.index(name)]}"

    def __str__(self) -> str:
        lines = [
            self.label,
            f"{self.rows.num_rows:,} rows by {self.method}; {self.suppressed:,} rows suppressed",
            *(
                [f"levels: {', '.join(f'{name} {level}{self._of(name)}' for name, level in self.levels.items())}"]
                if self.levels
                else []
            ),
            *([f"search: {self.search.describe()}"] if self.search is not None else []),
            str(self.utility),
            *([f"released as they are: {', '.join(self.roles.plain)}"] if self.roles.plain else []),
            *(
                [f"no role was given for {', '.join(self.roles.unstated)}: say it if others may know them of a person"]
                if self.roles.unstated
                else []
            ),
            "Next: release.to_csv('FILE') verifies and writes it; `cloister anonymize risk FILE` shows what is left.",
        ]
        return "\n".join(lines)


def _is_supported(kind: pa.DataType) -> bool:
    """Return True for the types that are printed, compared and sorted alike everywhere."""
    if pa.types.is_dictionary(kind):
        return _is_supported(kind.value_type)
    checks = (
        *(pa.types.is_boolean, pa.types.is_integer, pa.types.is_float32, pa.types.is_float64, pa.types.is_decimal),
        *(pa.types.is_string, pa.types.is_large_string, pa.types.is_date, pa.types.is_time, pa.types.is_timestamp),
        *(pa.types.is_duration, pa.types.is_null),
    )
    return any(check(kind) for check in checks) or kind == pa.string_view()


def failures(checked: Checked, model: Model) -> list[str]:
    """Return what the verifier says against one model; empty if it confirms it."""
    meets = checked.meets
    match model:
        case KAnonymity(k):
            return meets(k=k)
        case DistinctDiversity(l, column):
            return meets(l={column: l})
        case FrequencyDiversity(l, column):
            return meets(frequency_l={column: l})
        case EntropyDiversity(l, column):
            return meets(entropy_l={column: l})
        case RecursiveDiversity(c, l, column):
            bound = checked.diversity[column].recursive_c(l)
            return [] if bound < c else [f"c of recursive {l}-diversity of {column} must exceed {bound:g}"]
        case TCloseness(t, column, "kl"):
            return meets(kl={column: t})
        case TCloseness(t, column, "ordered" | "hierarchical" as distance):
            return meets(t={column: t}, distance=distance)
        case TCloseness(t, column):
            return meets(t={column: t}, distance="equal")
        case AlphaK(alpha, k, column, values):
            shares = checked.diversity[column].alphas
            named = shares if values is None else {value: _share(shares, value) for value in values}
            high = [value for value, share in named.items() if share > alpha + 1e-9]
            return [*meets(k=k), *(f"{value} of {column} is in more than {alpha:g} of a class" for value in high)]
        case BetaLikeness(beta, column, enhanced):
            return meets(beta_enhanced={column: beta}) if enhanced else meets(beta={column: beta})
        case JointDiversity(l, among):
            if set(among) != set(checked.joint):
                return [f"{model.label} is checked with exactly these sensitive columns: {', '.join(among)}"]
            least = {name: checked.joint[name].distinct_l for name in among}
            return [
                f"joint l of {name} is {found} and must be at least {l}" for name, found in least.items() if found < l
            ]
        case KMap(k):
            return meets(k_map=k)
        case DeltaPresence(low, high):
            return meets(delta=(low, high))
    return [f"the verifier does not know the model {model.label}"]


def _share(shares: Mapping[str | None, float], value: Any) -> float:
    """Return the largest share of a value in a class, from the verifier's shares of values as it prints them.

    A value that is not in the release is in none of its classes. Numbers are compared as numbers, so that no way of
    writing one hides it: the column that was released had the value, in its own type.
    """
    text = encode("value", pa.chunked_array([pa.array([value])])).text(0)
    if text in shares:
        return shares[text]
    number = _number(text)
    return max((share for other, share in shares.items() if number is not None and _number(other) == number), default=0)


def _number(text: str | None) -> Decimal | None:
    try:
        return None if text is None else Decimal(text)
    except InvalidOperation:
        return None
