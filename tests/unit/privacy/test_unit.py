"""Whom we protect."""

import pytest

from cloister.privacy.errors import BadBounds, BadName
from cloister.privacy.loss import ROW, Unit


def test_a_unit_says_whom_it_protects():
    assert str(ROW) == "one row"
    assert str(Unit("patient")) == "one patient (at most 1 row)"
    assert str(Unit("patient", max_rows=8)) == "one patient (at most 8 rows)"
    assert Unit("row") == ROW


@pytest.mark.parametrize("name", ["", "  ", None, 7, "a\nb", "x" * 201])
def test_a_unit_needs_a_short_printable_name(name):
    with pytest.raises(BadName, match="CLO-109"):
        Unit(name)


@pytest.mark.parametrize("rows", [0, -1, 1.5, True, "8", None])
def test_a_unit_contributes_a_whole_number_of_rows(rows):
    with pytest.raises(BadBounds, match="max_rows"):
        Unit("patient", max_rows=rows)
