"""The tables of the synthesis benchmark, from the shared folder where they are, with schemas that are taken as public.

Numbers are cut into 32 equal bins between public bounds (targets of the field: Adult's ages 17 to 91, and so on); a
column's categories are those of its code book, read here from train and test file together and said to be public.
"""

import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

__all__ = ["TABLES", "Real", "encoded", "schema_of"]

SHARED = Path(__file__).parents[3] / "shared" / "data"
BINS = 32


@dataclass(frozen=True)
class Real:
    """A real table.

    Attributes:
        name: as people know it.
        rows: that tables are made from.
        numbers: public bounds of whole numbers; the other columns are categories.
        listed: their public values.
        test: rows that nothing is made from, if there are any.
    """

    name: str
    rows: pd.DataFrame
    numbers: dict[str, tuple[int, int]]
    listed: dict[str, list[str]]
    test: pd.DataFrame | None = None


_ADULT = (
    "age workclass fnlwgt education education-num marital-status occupation relationship race sex capital-gain "
    "capital-loss hours native income"
)
_KDD = (
    "age class_of_worker industry_code occupation_code education wage_per_hour enrolled_in_edu marital_status "
    "major_industry_code major_occupation_code race hispanic_origin sex member_of_labor_union reason_for_unemployment "
    "full_or_part_time capital_gains capital_losses dividends_from_stocks tax_filer_status region_of_prev_residence "
    "state_of_prev_residence household_family_stat household_summary instance_weight migration_msa migration_reg "
    "migration_within_reg lived_here_1yr_ago migration_prev_sunbelt num_persons_worked_for_employer "
    "family_members_under_18 father_birth_country mother_birth_country self_birth_country citizenship own_business "
    "veterans_admin_questionnaire veterans_benefits weeks_worked_in_year year income"
)
ADULT, KDD = _ADULT.split(), _KDD.split()


def adult() -> Real:
    """Adult's standard files."""
    train, test = (_plain(SHARED / "adult" / f"adult.{part}.gz", ADULT) for part in ("data", "test"))
    train, test = (one.assign(income=one.income.str.rstrip(".")) for one in (train, test))
    numbers = {"age": (17, 90), "fnlwgt": (0, 1_499_999), "education-num": (1, 16), "capital-gain": (0, 99_999)}
    return _real("Adult", train, numbers | {"capital-loss": (0, 4_399), "hours": (1, 99)}, test)


def census() -> Real:
    """KDD's census income, without the sampling weight."""
    train, test = (_plain(SHARED / "kdd-census-income" / f"census-income.{part}.gz", KDD) for part in ("data", "test"))
    numbers = {"age": (0, 90), "wage_per_hour": (0, 9_999), "capital_gains": (0, 99_999), "capital_losses": (0, 4_608)}
    numbers |= {"dividends_from_stocks": (0, 99_999), "weeks_worked_in_year": (0, 52)}
    train, test = (one.drop(columns="instance_weight") for one in (train, test))
    return _real("KDD census", train, numbers, test)


def mushroom() -> Real:
    """Mushrooms: 23 columns of categories."""
    names = [f"c{i}" for i in range(23)]
    return _real("mushroom", pd.read_csv(SHARED / "mushroom" / "agaricus-lepiota.data", names=names, dtype=str), {})


def credit() -> Real:
    """Credit card clients of Taiwan."""
    rows = pd.read_csv(SHARED / "credit-default" / "UCI_Credit_Card.csv.gz").drop(columns="ID").astype(np.int64)
    numbers = {"LIMIT_BAL": (0, 1_000_000), "AGE": (18, 81)}
    numbers |= {name: (-400_000, 1_999_999) for name in rows if name.startswith("BILL")}
    numbers |= {name: (0, 1_999_999) for name in rows if name.startswith("PAY_AMT")}
    others = {name: str for name in rows if name not in numbers}
    return _real("credit-default", rows.astype(others), numbers)


TABLES: dict[str, Callable[[], Real]] = {"adult": adult, "census": census, "mushroom": mushroom, "credit": credit}


def _plain(path: Path, names: list[str]) -> pd.DataFrame:
    with gzip.open(path, "rt") as file:
        return pd.read_csv(file, names=names, sep=", ", engine="python", comment="|", dtype=str, keep_default_na=False)


def _real(name: str, rows: pd.DataFrame, numbers: dict[str, tuple[int, int]], test: Any = None) -> Real:
    whole = dict.fromkeys(numbers, np.int64)
    known = rows if test is None else pd.concat([rows, test])
    listed = {one: sorted(known[one].unique()) for one in rows if one not in numbers}
    return Real(name, rows.astype(whole), numbers, listed, None if test is None else test.astype(whole))


def schema_of(real: Real) -> dict[str, Any]:
    """As a Cloister schema: the unit is the row, nothing is missing, rows are not public."""
    columns: dict[str, Any] = {}
    for name in real.rows:
        if name in real.numbers:
            columns[name] = {"type": "integer", "bounds": list(real.numbers[name]), "nullable": False}
        else:
            columns[name] = {"type": "text", "categories": real.listed[name], "nullable": False}
    return {"unit": "row", "tables": {"rows": {"columns": columns}}}


def encoded(real: Real, rows: pd.DataFrame) -> tuple[np.ndarray[Any, Any], list[int]]:
    """The cell of every value, and how many cells each column has: what every method is scored in."""
    cells, sizes = [], []
    for name in real.rows:
        if name in real.numbers:
            low, high = real.numbers[name]
            size = min(BINS, high - low + 1)
            ends = np.linspace(low, high + 1, size + 1)[1:-1]
            cells.append(np.searchsorted(ends, rows[name].to_numpy(float), side="right"))
        else:
            size = len(real.listed[name])
            places = {value: i for i, value in enumerate(real.listed[name])}
            cells.append(rows[name].map(places).to_numpy(np.int64))
        sizes.append(size)
    return np.column_stack(cells).astype(np.int64), sizes
