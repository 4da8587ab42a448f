"""Texts of the respondent's page, in four languages: messages/*.json, one key per sentence.

A text may hold placeholders, `{left}`, and have two forms for one and for several, `rounds.one` and `rounds.other`.
Keys that begin with `device.` are also used by the page's scripts, which fill them in the same way.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from importlib.resources import files
from typing import Final

from cloister.hub.surveys.survey import LANGUAGES
from cloister.privacy.errors import BadInput

__all__ = ["NAMES", "PLACE", "Words", "choose", "words_in"]

NAMES: Final[Mapping[str, str]] = {"en": "English", "de": "Deutsch", "es": "Español", "fr": "Français"}
PLACE: Final = re.compile(r"\{([a-z_]+)\}")
_MARKS: Final[Mapping[str, tuple[str, str]]] = {  # between thousands, before decimals
    "en": (",", "."),
    "de": (".", ","),
    "es": ("\N{NO-BREAK SPACE}", ","),
    "fr": ("\N{NARROW NO-BREAK SPACE}", ","),
}


@dataclass(frozen=True, slots=True)
class Words:
    """Texts of one language.

    Attributes:
        language: en, de, es or fr.
        texts: every sentence by its key.

    >>> words_in("de").number(1234.5)
    '1.234,5'
    """

    language: str
    texts: Mapping[str, str]

    def say(self, key: str, **values: object) -> str:
        """Return a sentence with its placeholders filled. A missing value is a mistake, and fails."""
        return PLACE.sub(lambda match: str(values[match[1]]), self.texts[key])

    def count(self, key: str, n: int, **values: object) -> str:
        """Return a sentence in the language's form for this number; `{n}` is the number."""
        singular = n in (0, 1) if self.language == "fr" else n == 1
        return self.say(f"{key}.{'one' if singular else 'other'}", n=self.number(n), **values)

    def number(self, value: float, places: int = 2) -> str:
        """Format a number in this language, with at most this many decimals."""
        text = f"{value:,.{places}f}"
        text = text.rstrip("0").rstrip(".") if "." in text else text
        thousands, decimals = _MARKS[self.language]
        return text.translate({ord(","): thousands, ord("."): decimals})

    def moment(self, seconds: float) -> str:
        """Format a day and an hour: 1 March 2026, 23:59 UTC."""
        when = datetime.fromtimestamp(seconds, UTC)
        day = self.texts["date.first"] if when.day == 1 else str(when.day)
        return self.say("date", day=day, month=self.texts[f"month.{when.month}"], year=when.year, time=f"{when:%H:%M}")

    def level(self, name: str) -> str:
        """Return a level's name: translated if it is one of ours, else as the survey has it."""
        return self.texts.get(f"level.{name}", name)

    def for_device(self) -> dict[str, str]:
        """Return the texts of the page's scripts."""
        return {key: text for key, text in self.texts.items() if key.startswith("device.")}


@cache
def words_in(language: str) -> Words:
    """Return the texts of a language.

    Raises:
        BadInput: there are none.
    """
    if language not in LANGUAGES:
        raise BadInput(f"the page speaks {', '.join(LANGUAGES)}.")
    text = (files("cloister.hub.surveys") / "messages" / f"{language}.json").read_text(encoding="utf-8")
    return Words(language, json.loads(text))


def choose(asked: str, accepted: str, otherwise: str) -> str:
    """Choose a language.

    Args:
        asked: the language in the address, or nothing.
        accepted: the browser's Accept-Language.
        otherwise: the survey's own language.

    >>> choose("", "it, fr-CH;q=0.8, en;q=0.3", "de")
    'fr'
    """
    if asked in LANGUAGES:
        return asked
    wanted = []
    for position, part in enumerate(accepted[:500].split(",")):
        name, _, weight = part.strip().partition(";")
        weighed = re.fullmatch(r"\s*q=([01](?:\.\d{1,3})?)\s*", weight) if weight else None
        worth = float(weighed[1]) if weighed else float(not weight)
        if worth and (language := name.strip().lower()[:2]) in LANGUAGES and name.strip()[2:3] in ("", "-"):
            wanted.append((-worth, position, language))
    return min(wanted)[2] if wanted else otherwise
