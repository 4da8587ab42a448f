"""Random tables with NULLs and ties, requirements, and what must be true of any release of them."""

import datetime as dt

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from cloister.anonymize.coded import CodedColumn
from cloister.anonymize.models import (
    AlphaK,
    BetaLikeness,
    DistinctDiversity,
    EntropyDiversity,
    EquivalenceClasses,
    FrequencyDiversity,
    KAnonymity,
    RecursiveDiversity,
    Requirement,
    TCloseness,
)
from cloister.privacy.errors import BadInput

QUASI = ["age", "zip", "day", "member"]
_CELLS = {
    "age": st.one_of(st.none(), st.integers(0, 6), st.integers(20, 90)),
    "zip": st.one_of(st.none(), st.sampled_from(["33617", "33620", "19352", "*", "a, b"])),
    "day": st.one_of(st.none(), st.dates(dt.date(2020, 1, 1), dt.date(2020, 3, 1))),
    "member": st.one_of(st.none(), st.booleans()),
    "ill": st.one_of(st.none(), st.sampled_from(["flu", "flu", "cold", "ulcer"])),
}


@st.composite
def tables(draw, least=1, most=24):
    rows = draw(st.integers(least, most))
    return {name: draw(st.lists(cells, min_size=rows, max_size=rows)) for name, cells in _CELLS.items()}


def requirements():
    k = st.integers(1, 5).map(KAnonymity)
    about_values = st.sampled_from(
        [
            DistinctDiversity(2, "ill"),
            FrequencyDiversity(1.5, "ill"),
            EntropyDiversity(1.5, "ill"),
            RecursiveDiversity(3, 2, "ill"),
            TCloseness(0.3, "ill"),
            TCloseness(0.5, "ill", "kl"),
            AlphaK(0.7, 2, "ill"),
            BetaLikeness(2.0, "ill"),
        ]
    )
    return st.one_of(k.map(lambda model: [model]), st.tuples(k, about_values).map(list))


def released_or_refused(algorithm, table, require, **options):
    """The release; None if it is refused, which must be so exactly if the table as one class fails."""
    refusal = release = None
    try:
        release = algorithm(table, require=require, quasi=QUASI, sensitive=["ill"], **options)
    except BadInput as error:
        refusal = str(error)
    codes = CodedColumn.of("ill", pa.array(table["ill"], pa.string()))
    whole = EquivalenceClasses(np.zeros(len(table["ill"]), np.int64), 1, {"ill": codes})
    assert (refusal is None) == bool(Requirement.of(require).holds(whole).all())
    assert refusal is None or "Nothing was written" in refusal
    return release


def covers(label, value):
    """True if a released label is the value, or stands for a set of values that contains it."""
    text = {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)
    if label == "*" or (label is None and value is None):
        return True
    if label is None or value is None:
        return label is not None and label.startswith("{") and "missing" in label
    if str(label) == text or (isinstance(label, bool) and label is value):
        return True
    if label.startswith("{"):
        return text.lower() in label.lower()
    low, _, high = label.strip("[]").partition(", " if label.startswith("[") else "-")
    return type(value)(low) <= value <= type(value)(high) if isinstance(value, int) else low <= text <= high


def assert_sound(table, release, quasi=QUASI):
    """No row is lost or moved, no sensitive value is changed, every label covers its value, and the verifier agrees."""
    released = release.rows.to_pydict()
    assert released["ill"] == table["ill"]
    for name in quasi:
        assert all(covers(*pair) for pair in zip(released[name], table[name], strict=True)), name
    release.verify()
    assert 0 <= release.utility.certainty_penalty <= 1
