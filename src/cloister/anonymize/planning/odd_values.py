"""Find the few values for which a column of codes, numbers or dates is taken for free text.

A proposed hierarchy fits all values of a column. One `n/a` among postcodes leaves a single step, and the column is then
lost as soon as it must be generalised.
"""

import re
from collections import Counter
from collections.abc import Sequence

__all__ = ["odd_values"]

_MOST = 0.1  # share of the different values that may be odd
_FEWEST = 10  # different values from which a column has a rule
_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,2})?")
_DATE = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d.*)?")
_CODES = (4, 5, 6)


def odd_values(name: str, values: Sequence[object]) -> str:
    """Return a sentence about the values that break the rule of the others; empty if there is none. No value is shown.

    Args:
        name: of the column.
        values: its different values.

    >>> odd_values("zip", [*(f"{code:05d}" for code in range(2130, 2190)), "n/a"])
    "1 of the 61 values of zip is no code of 5 characters. Correct it, or give zip a hierarchy: 'masking:5'."
    """
    words = [word for word in values if isinstance(word, str)]
    if len(words) < max(_FEWEST, len([value for value in values if value is not None])):
        return ""
    plain = [word for word in words if word.isalnum() and any(letter.isdigit() for letter in word)]
    length, same = max(Counter(map(len, plain)).items(), key=lambda entry: entry[1], default=(0, 0))
    rules = [(sum(_DATE.fullmatch(word) is not None for word in words), "date", "")]
    if length in _CODES:
        rules.append((same, f"code of {length} characters", f"masking:{length}"))
    rules.append((sum(_NUMBER.fullmatch(word) is not None for word in words), "number", ""))
    fitting, kind, hierarchy = max(rules, key=lambda rule: rule[0])
    odd = len(words) - fitting
    if not 0 < odd <= _MOST * len(words):
        return ""
    verb, them = ("is", "it") if odd == 1 else ("are", "them")
    rest = f"give {name:.60} a hierarchy: '{hierarchy}'" if hierarchy else f"empty {them} in a copy of the table"
    return f"{odd:,} of the {len(words):,} values of {name:.60} {verb} no {kind}. Correct {them}, or {rest}."
