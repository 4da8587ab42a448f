"""Question as a researcher composes it, and its mechanism at each level.

type      a person answers with          becomes
yes_no    yes or no                      a choice of two
choice    one of the options             a choice
choices   up to `most` of the options    a set
scale     a whole number, low to high    a choice, whose mean is shown too
date      a day between two days         a choice of periods: days, weeks, months, quarters or years
number    a number between bounds        a mean
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, timedelta
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal, get_args

from cloister import local
from cloister.local import Question
from cloister.local.base.oracle import Oracle
from cloister.local.privacy.advice import Advice, Candidate
from cloister.privacy.errors import BadForm, BadInput
from cloister.privacy.number import rational

__all__ = ["LEVELS", "MECHANISMS", "PERIODS", "TYPES", "SurveyQuestion", "ExpectedError", "PrivacyLevel"]

Type = Literal["yes_no", "choice", "choices", "scale", "date", "number"]
TYPES: tuple[Type, ...] = get_args(Type)
PERIODS = ("day", "week", "month", "quarter", "year")
MOST_OPTIONS = 400
_LEAST_EPSILON, _MOST_EPSILON = Fraction(1, 1000), 50  # beyond this, floats cannot distinguish the probabilities
_MOST_LEVELS = 6
_MOST_DIGITS = 40  # of an epsilon as exact text: devices refuse what is much longer
_EXACT = 2**53 - 1  # the largest whole number that a browser represents exactly
_ID = re.compile(r"[a-z][a-z0-9_]{0,22}")
# In a repeated survey, one report may cost this part of a level's cost for life.
_OF_A_LIFETIME = Fraction(3, 4)
_NUMBERS: Mapping[str, Callable[..., Any]] = {"hybrid": local.Hybrid.for_loss, "piecewise": local.Piecewise.for_loss}
MECHANISMS = ("direct-encoding", "unary-encoding", "local-hashing", "hadamard-response", "subset-selection", "hybrid",
              "piecewise", "one-of-set", "set-bits")  # fmt: skip


@dataclass(frozen=True, slots=True)
class PrivacyLevel:
    """A level of privacy that a respondent may choose: a name, and an epsilon for life as exact text."""

    name: str
    epsilon: str


LEVELS = (PrivacyLevel("strong", "1/2"), PrivacyLevel("medium", "1"), PrivacyLevel("light", "2"))


@dataclass(frozen=True, slots=True)
class ExpectedError:
    """Expected error of one level.

    Attributes:
        level: the level.
        mechanism: its name.
        error: the expected standard error of a share (or of the mean, in its own unit) if all n choose this level.
        bits: the size of one report.
        table: every candidate with its standard error and bits, best first.
    """

    level: PrivacyLevel
    mechanism: str
    error: float
    bits: int
    table: tuple[tuple[str, float, int], ...]


@dataclass(frozen=True, slots=True)
class SurveyQuestion:
    """Question: its text, its public domain, its levels.

    Attributes:
        id: small letters, digits and underscores; unique in its survey.
        type: one of TYPES.
        text: the text of the question.
        help: a sentence below it.
        options: the options of choice and choices; for a scale the meaning of its two ends, or nothing.
        most: the number of options that may be chosen, for choices.
        low, high: bounds of a number or scale; days as 2026-01-31 for a date.
        step: the period of a date.
        unit: the unit of a number, such as hours.
        levels: the levels that a respondent may choose, besides skipping the question.
        mechanism: its name; empty for the one of least error at each level.

    >>> smoker = SurveyQuestion.read({"id": "smoker", "type": "yes_no", "text": "Do you smoke?"})
    >>> smoker.choices, smoker.question("health", 500).offered
    (('no', 'yes'), ('1/2', '1', '2'))
    """

    id: str
    type: Type
    text: str
    help: str = ""
    options: tuple[str, ...] = ()
    most: int = 0
    low: str = ""
    high: str = ""
    step: str = ""
    unit: str = ""
    levels: tuple[PrivacyLevel, ...] = LEVELS
    mechanism: str = ""

    @classmethod
    def read(cls, told: Mapping[str, Any], certify: bool = True) -> "SurveyQuestion":
        """Read JSON or a form, and check it.

        Args:
            told: the fields.
            certify: choose and certify its mechanisms too. That takes up to a second, and is not needed for what was
                stored: it was certified before.

        Raises:
            BadForm: what is wrong with it, in one sentence.
        """
        fields = {name: told[name] for name in cls.__dataclass_fields__ if told.get(name) not in (None, "")}
        if set(told) - set(cls.__dataclass_fields__):
            raise BadForm(f"a question has no field {min(set(told) - set(cls.__dataclass_fields__))!r:.40}.")
        if fields.get("type") not in TYPES:
            raise BadForm(f"a question's type is one of {', '.join(TYPES)}.")
        fields["id"] = _text(fields, "id", 23)
        if not _ID.fullmatch(fields["id"]):
            raise BadForm("a question's name has up to 23 small letters, digits and underscores, such as 'smoker'.")
        for name, most in (("text", 500), ("help", 1000), ("low", 40), ("high", 40), ("step", 10), ("unit", 40)):
            fields[name] = _text(fields, name, most, needed=name == "text")
        fields["mechanism"] = _text(fields, "mechanism", 40, needed=False)
        fields["options"] = _options(fields.get("options", ()))
        fields["most"] = _whole(fields.get("most", 0), "most")
        fields["levels"] = _levels(fields.get("levels", LEVELS))
        question = cls(**fields)
        question._check()
        if certify:
            question.certify()
        return question

    def certify(self) -> None:
        """Choose and certify a mechanism for each level; raise BadForm if one is unsuitable."""
        _certified(self)

    def to_json(self) -> dict[str, Any]:
        """Return JSON as `read` takes it."""
        record = asdict(self)
        record["options"] = list(self.options)
        record["levels"] = [asdict(level) for level in self.levels]
        return {name: value for name, value in record.items() if value not in ("", 0, [])}

    def _check(self) -> None:
        if self.type in ("choice", "choices") and not 2 <= len(self.options) <= MOST_OPTIONS:
            raise BadForm(f"a question with options has 2 to {MOST_OPTIONS} of them.")
        if self.type == "choices" and not 1 <= self.most <= len(self.options):
            raise BadForm("say how many options a person may choose: at least 1, at most all.")
        if self.type == "scale" and self.options and len(self.options) != 2:
            raise BadForm("a scale has words for its two ends, or none.")
        if self.type == "scale" and not 2 <= len(self.choices) <= 21:
            raise BadForm("a scale goes from a whole number to one at most 20 above it.")
        if self.type == "date" and not 2 <= len(self.choices) <= MOST_OPTIONS:
            raise BadForm(f"these days make {len(self.choices):,} periods; 2 to {MOST_OPTIONS} can be asked for.")
        if self.type == "number" and self.bounds[0] >= self.bounds[1]:
            raise BadForm("a number is between two bounds, the lower one first.")
        if self.type == "number" and any(max(abs(end.numerator), end.denominator) > _EXACT for end in self.bounds):
            raise BadForm("a number's bounds have at most 15 digits: browsers read no more of them exactly.")

    @property
    def bounds(self) -> tuple[Fraction, Fraction]:
        """Return the public bounds of a number."""
        try:
            return rational(self.low, "low"), rational(self.high, "high")
        except BadInput:
            raise BadForm("a number needs a lowest and a highest value, such as 0 and 24.") from None

    @property
    def choices(self) -> tuple[str, ...]:
        """Return the values of a choice, by name; none for a number."""
        if self.type == "yes_no":
            return ("no", "yes")
        if self.type == "scale":
            low, high = _whole(self.low, "low"), _whole(self.high, "high")
            return tuple(str(value) for value in range(low, min(high, low + 100) + 1))
        if self.type == "date":
            return _periods(_day(self.low), _day(self.high), self.step)
        return self.options

    def question(self, survey: str, n: int, lasting: bool = False) -> Question:
        """Return a mechanism for each level, the same for device and collector.

        Args:
            survey: the survey's name, with which the question's id begins: a wallet identifies a question by its id.
            n: the expected number of respondents.
            lasting: True if the same respondents will be asked again: single choices are then memoised.
        """
        try:
            mechanisms = [self._mechanism(level, n, lasting) for level in self.levels]
            return Question(f"{survey}.{self.id}", mechanisms, self.choices or None)
        except BadInput as error:
            raise BadForm(f"{self.id}: {str(error).partition(': ')[2] or error}") from None

    def expected(self, n: int, lasting: bool = False) -> tuple[ExpectedError, ...]:
        """Return for each level the mechanism and the expected error if all n choose it."""
        errors = []
        for level in self.levels:
            mechanism = self._mechanism(level, n, lasting)
            table = tuple(
                (candidate.label, candidate.mse**0.5, candidate.bits) for candidate in self._candidates(level, n).table
            )
            errors.append(ExpectedError(level, mechanism.name, mechanism.mse(n) ** 0.5, mechanism.bits, table))
        return tuple(errors)

    def _candidates(self, level: PrivacyLevel, n: int) -> Advice:
        loss = local.epsilon(level.epsilon)
        if self.type == "number":
            pairs = [(name, maker(self.bounds, loss)) for name, maker in _NUMBERS.items()]
            table = [
                Candidate(label, mechanism, mechanism.mse(n), mechanism.bits, mechanism.formula)
                for label, mechanism in pairs
            ]
            table.sort(key=lambda candidate: candidate.mse)
            return Advice(table[0].mechanism, tuple(table), n)
        if self.type == "choices":
            return local.ChooseUpTo(len(self.options), self.most).advise(loss, n)
        return local.advise(len(self.choices), loss, n)

    def _mechanism(self, level: PrivacyLevel, n: int, lasting: bool) -> Oracle:
        loss = local.epsilon(level.epsilon)
        if lasting and self.type not in ("number", "choices"):
            report = local.epsilon(loss.amount * _OF_A_LIFETIME)
            size = len(self.choices)
            both = [local.Memoised.direct(size, lifetime=loss, report=report)]
            both.append(local.Memoised.unary(size, lifetime=loss, report=report))
            return min(both, key=lambda mechanism: mechanism.mse(n))
        if self.type == "number":  # one mechanism for all levels, so that their reports can be weighted together
            return _NUMBERS[self.mechanism or "hybrid"](self.bounds, loss) if self._named(_NUMBERS) else _none(self)
        advice = self._candidates(level, n)
        if not self.mechanism:
            return advice.best
        named = [candidate.mechanism for candidate in advice.table if candidate.mechanism.name == self.mechanism]
        return named[0] if named else _none(self)

    def _named(self, mechanisms: Mapping[str, Any]) -> bool:
        return not self.mechanism or self.mechanism in mechanisms

    def at_place(self, place: int) -> "SurveyQuestion":
        """Return the question, named by its position if it has no name yet."""
        return self if self.id else replace(self, id=f"q{place}")


def _none(question: SurveyQuestion) -> Oracle:
    raise BadForm(
        f"{question.id}: {question.mechanism!r:.40} does not serve this question. Leave the mechanism to Cloister."
    )


def _text(fields: Mapping[str, Any], name: str, most: int, needed: bool = True) -> str:
    value = fields.get(name, "")
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise BadForm(f"a question's {name} is text.")
    text = str(value).strip()
    if (needed and not text) or len(text) > most or not text.replace("\n", " ").isprintable():
        raise BadForm(f"a question's {name} has 1 to {most:,} characters." if needed else f"{name} is too long.")
    return text


def _whole(value: Any, name: str) -> int:
    try:
        number = int(str(value))
    except ValueError:
        raise BadForm(f"{name} must be a whole number.") from None
    if not -(10**6) <= number <= 10**6:
        raise BadForm(f"{name} must be a whole number of at most a million.")
    return number


def _options(value: Any) -> tuple[str, ...]:
    listed = value.splitlines() if isinstance(value, str) else value
    if not isinstance(listed, Sequence) or not all(isinstance(option, str) for option in listed):
        raise BadForm("options are texts, one a line.")
    options = tuple(option.strip() for option in listed if option.strip())
    if any(len(option) > 120 or not option.isprintable() or ";" in option for option in options):
        raise BadForm("an option has up to 120 characters, and no semicolon.")
    if len(set(options)) < len(options):
        raise BadForm("two options are the same.")
    return options


def _levels(value: Any) -> tuple[PrivacyLevel, ...]:
    """Read levels from a list of names and epsilons, or from lines like `strong 0.5`."""
    listed = [line.split() for line in value.splitlines() if line.strip()] if isinstance(value, str) else value
    levels = [_level(entry) for entry in listed] if isinstance(listed, Sequence) else []
    if any(len(level.epsilon) > _MOST_DIGITS for level in levels):
        raise BadForm("an epsilon has few digits, such as 0.5.")
    if any(not _LEAST_EPSILON <= Fraction(level.epsilon) <= _MOST_EPSILON for level in levels):
        raise BadForm("the epsilon of a level is between 0.001 and 50, such as 0.5.")
    if not 1 <= len(levels) <= _MOST_LEVELS:
        raise BadForm(f"a question has 1 to {_MOST_LEVELS} levels, such as `strong 0.5`.")
    if "skipped" in {level.name for level in levels}:
        raise BadForm("a level cannot be called skipped: anyone who leaves a question out is counted under that word.")
    if len({level.name for level in levels}) < len(levels) or len({level.epsilon for level in levels}) < len(levels):
        raise BadForm("levels differ in name and in epsilon.")
    return tuple(sorted(levels, key=lambda item: Fraction(item.epsilon)))


def _level(value: Any) -> PrivacyLevel:
    parts = (value.name, value.epsilon) if isinstance(value, PrivacyLevel) else value
    if isinstance(parts, Mapping):
        parts = parts.get("name"), parts.get("epsilon")
    if (
        not isinstance(parts, list | tuple)
        or len(parts) != 2
        or not isinstance(parts[0], str)
        or not re.fullmatch(r"[\w-]{1,20}", parts[0])
    ):
        raise BadForm("a level is a word and an epsilon, such as `strong 0.5`.")
    try:
        return PrivacyLevel(parts[0], str(local.epsilon(str(parts[1])).amount))
    except BadInput:
        raise BadForm(f"the epsilon of the level {parts[0]} is a number above 0, such as 0.5.") from None


# Dates


def _day(text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise BadForm("a date is between two days, written like 2026-01-31.") from None


def period(day: date, step: str) -> str:
    """Return the name of the period of a day; a device computes the same."""
    if step == "week":
        return (day - timedelta(days=day.weekday())).isoformat()  # its Monday
    if step == "quarter":
        return f"{day.year}-Q{(day.month + 2) // 3}"
    return day.isoformat()[: {"year": 4, "month": 7, "day": 10}[step]]


@lru_cache(maxsize=256)  # many thousands of days, and asked for many times
def _periods(first: date, last: date, step: str) -> tuple[str, ...]:
    if step not in PERIODS:
        raise BadForm(f"the period of a date is one of {', '.join(PERIODS)}.")
    if not first < last or (last - first).days > 366 * 200:
        raise BadForm("a date is between two days, the earlier one first, at most 200 years apart.")
    days = range((last - first).days + 1)
    return tuple(dict.fromkeys(period(first + timedelta(days=offset), step) for offset in days))


@lru_cache(maxsize=1024)  # choosing and certifying mechanisms takes up to seconds: once for each question
def _certified(question: SurveyQuestion) -> None:
    question.question("x", 100)
