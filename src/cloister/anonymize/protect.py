"""A small facade for a textbook walk-through: name the roles of columns, set k, protect.

    prot = Protect(frame)
    prot.itypes.age = "quasi"
    prot.itypes["marital-status"] = "quasi"
    prot.privacy_model.k = 5
    prot.privacy_model              # <KAnonymity: {'k': 5}>
    prot.protect()                  # a frame of the same kind, columns and rows

It calls `recode`, so the levels are the proven optimum: bands of ages instead of a column of stars. The result is
verified before it is returned. It is not differentially private.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from cloister.anonymize.hierarchy import ALL, Hierarchy
from cloister.anonymize.models import DistinctDiversity, KAnonymity, Model, Requirement, TCloseness
from cloister.anonymize.release import recode
from cloister.anonymize.table import AnonymizedTable
from cloister.data.rows import to_arrow
from cloister.privacy.errors import BadInput

__all__ = ["ColumnSettings", "PrivacyModel", "Protect"]

_ROLES = {
    "identifying": "identifier",
    "identifier": "identifier",
    "quasi": "quasi",
    "quasi-identifier": "quasi",
    "sensitive": "sensitive",
    "insensitive": "insensitive",
    "plain": "insensitive",
}


class ColumnSettings:
    """A setting for each column, by attribute or by name: `itypes.age = "quasi"`, `itypes["marital-status"] = "quasi"`.

    >>> itypes = ColumnSettings(["age", "sex"], "insensitive", _role)
    >>> itypes.age = "quasi"
    >>> itypes
    age: quasi
    sex: insensitive
    """

    _columns: tuple[str, ...]
    _values: dict[str, Any]

    def __init__(self, columns: Any, default: Any, read: Any) -> None:
        object.__setattr__(self, "_columns", tuple(columns))
        object.__setattr__(self, "_default", default)
        object.__setattr__(self, "_read", read)
        object.__setattr__(self, "_values", {})

    def __setitem__(self, name: str, value: Any) -> None:
        self._values[self._known(name)] = self._read(value)

    def __getitem__(self, name: str) -> Any:
        return self._values.get(self._known(name), self._default)

    def __setattr__(self, name: str, value: Any) -> None:
        self[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked by copy and by notebooks, never a column
            raise AttributeError(name)
        return self[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __dir__(self) -> list[str]:
        return list(self._columns)

    def __repr__(self) -> str:
        return "\n".join(f"{name}: {self[name]}" for name in self._columns)

    def stated(self, name: str) -> bool:
        """Return True if the setting of a column was made, and is not the default."""
        return self._known(name) in self._values

    def _known(self, name: str) -> str:
        if name not in self._columns:
            raise BadInput(f"there is no column {name!s:.60}. Columns are: {', '.join(self._columns):.500}.")
        return name


def _role(value: Any) -> str:
    if value not in _ROLES:
        raise BadInput(f"a column is {', '.join(sorted(set(_ROLES.values())))}; got {value!r:.40}.")
    return _ROLES[value]


def _hierarchy(value: Any) -> Hierarchy:
    if not isinstance(value, Hierarchy):
        raise BadInput("a hierarchy is made by Hierarchy.intervals, dates, masking, tree, table or read_csv.")
    return value


class PrivacyModel:
    """What the protected table must satisfy; each number can be set.

    Attributes:
        k: rows of a class, at least.
        l: different values of each sensitive column in a class, at least; None if it does not matter.
        t: distance of each sensitive column in a class from the table, at most; None if it does not matter.

    >>> model = PrivacyModel()
    >>> model.k = 5
    >>> model
    <KAnonymity: {'k': 5}>
    >>> model.l = 2
    >>> model
    <KAnonymity, DistinctDiversity: {'k': 5, 'l': 2}>
    """

    __slots__ = ("k", "l", "t")

    def __init__(self, k: int = 2, l: int | None = None, t: float | None = None) -> None:  # noqa: E741
        self.k, self.l, self.t = k, l, t

    def models(self, sensitive: list[str]) -> list[Model]:
        """Return the models for the sensitive columns."""
        if (self.l is not None or self.t is not None) and not sensitive:
            raise BadInput("l and t are about sensitive columns: prot.itypes.disease = 'sensitive'.")
        models: list[Model] = [KAnonymity(self.k)]
        models += [DistinctDiversity(self.l, name) for name in sensitive if self.l is not None]
        return models + [TCloseness(self.t, name) for name in sensitive if self.t is not None]

    def __repr__(self) -> str:
        names = {"k": "KAnonymity", "l": "DistinctDiversity", "t": "TCloseness"}
        given = {name: getattr(self, name) for name in names if getattr(self, name) is not None}
        return f"<{', '.join(names[name] for name in given)}: {given}>"


class Protect:
    """Protect the rows of a frame.

    Args:
        frame: a pandas or polars frame, an Arrow table, or a dict of lists. It is not changed.

    Attributes:
        itypes: the role of each column: quasi, sensitive, identifying or insensitive. A column whose role is not set is
            insensitive, unless its name suggests that it identifies people: then its role must be set.
        privacy_model: what the result must satisfy: `k`, `l`, `t`, or any model of this room.
        hierarchies: of quasi-identifiers; made from type and values unless set.
        suppression: share of the rows that may be removed; 0 keeps all rows.
        release: the last result, with its label, loss and levels.

    >>> prot = Protect({"age": [31, 33, 34, 31, 57, 58, 55, 59], "sex": list("ffmmffmm")})
    >>> prot.itypes.age = prot.itypes.sex = "quasi"
    >>> prot.privacy_model.k = 2
    >>> prot.protect()
    {'age': ['30-34', '30-34', '30-34', '30-34', '55-59', '55-59', '55-59', '55-59'],
     'sex': ['f', 'f', 'm', 'm', 'f', 'f', 'm', 'm']}
    """

    def __init__(self, frame: Any) -> None:
        self._frame = frame
        self._table = to_arrow(frame)
        self.itypes = ColumnSettings(self._table.column_names, "insensitive", _role)
        self.hierarchies = ColumnSettings(self._table.column_names, None, _hierarchy)
        self.privacy_model: PrivacyModel | Model | Requirement = PrivacyModel()
        self.suppression = 0.0
        self.release: AnonymizedTable | None = None

    def __repr__(self) -> str:
        shape = f"{self._table.num_rows:,} rows, {self._table.num_columns} columns"
        unstated = [name for name in self.itypes if not self.itypes.stated(name)]
        rest = f"; no role is set for {', '.join(unstated):.200}" if unstated else ""
        return f"<Protect: {shape}; {self.privacy_model!r}{rest}>"

    def protect(self) -> Any:
        """Return the protected rows, as a frame of the same kind with the same columns.

        Without suppression it has the same rows in the same order. Identifying columns are filled with `*`.

        Raises:
            BadInput: no column is quasi, a column such as `name` has no role, or nothing satisfies the privacy model.
            NotPrivate: the verifier does not confirm the result.
        """
        by_role: dict[str, list[str]] = {role: [] for role in _ROLES.values()}
        for name in self.itypes:
            by_role[self.itypes[name]].append(name)
        if not by_role["quasi"]:
            raise BadInput("name the quasi-identifiers first: prot.itypes.age = 'quasi'.")
        model = self.privacy_model
        models = model.models(by_role["sensitive"]) if isinstance(model, PrivacyModel) else Requirement.of(model).models
        ladders = {name: self.hierarchies[name] for name in by_role["quasi"] if self.hierarchies[name] is not None}
        self.release = recode(
            self._table,
            require=models,
            quasi=by_role["quasi"],
            sensitive=by_role["sensitive"],
            identifiers=by_role["identifier"],
            plain=[name for name in by_role["insensitive"] if self.itypes.stated(name)],
            hierarchies=ladders,
            suppression=self.suppression,
        )
        self.release.verify()
        return self._same_kind(self.release.rows)

    def _same_kind(self, rows: pa.Table) -> Any:
        stars = pa.array([ALL], pa.string()).take(pa.array([0] * rows.num_rows, pa.int8()))
        table = pa.table(
            {name: rows.column(name) if name in rows.column_names else stars for name in self._table.column_names}
        )
        if isinstance(self._frame, pa.Table):
            return table
        if isinstance(self._frame, Mapping):
            return table.to_pydict()
        if type(self._frame).__module__.partition(".")[0] == "polars":
            import polars

            return polars.from_arrow(table)
        if type(self._frame).__module__.partition(".")[0] == "pandas":
            return self._pandas(table)
        return table

    def _pandas(self, table: pa.Table) -> Any:
        """Return a pandas frame; columns that were not generalised keep their type, and all rows keep their index."""
        frame = table.to_pandas()
        if len(frame) != len(self._frame):
            return frame
        frame.index = self._frame.index
        for place, name in enumerate(frame.columns):
            if self.itypes[name] in ("sensitive", "insensitive"):
                frame[name] = self._frame.iloc[:, place]
        frame.columns = self._frame.columns
        return frame
