"""Results in sentences: never more than the intervals allow."""

from collections.abc import Mapping
from typing import Any

from cloister.hub.surveys.question_result import QuestionResult
from cloister.hub.surveys.results import Results
from cloister.privacy.number import limits_text, number_text, percent_limits

__all__ = ["FEW", "cautions", "headline", "leading", "number", "participation", "share"]

FEW = 30  # fewer reports than this are not put into words: normal intervals do not hold for them


def headline(found: QuestionResult) -> str:
    """Return the result of one question, in a sentence or two."""
    rows = found.rows()
    if not rows:
        return "There are no answers to this question to show yet."
    if found.n < FEW:
        reports = "report is" if found.n == 1 else "reports are"
        return f"{found.n} {reports} too few to say anything: the noise is larger than any answer could be."
    if found.asked.type == "number":
        return f"The mean is about {_mean(rows[0], found.asked.unit)}."
    if found.asked.type == "yes_no":
        return f"About {_share(rows[1])} would say yes."
    first = leading(rows)
    verb = "was chosen by" if found.asked.type == "choices" else "is the answer of"
    text = f"“{first['value']}” {verb} about {_share(first)}."
    if found.mean is not None:
        mean = found.mean.to_json()
        text = f"The mean is about {_mean(mean, found.asked.unit)}. {text}"
    rest = [row for row in rows if row is not first]
    next_best = max(rest, key=lambda row: float(row["raw"]))
    if next_best["high"] >= first["low"]:
        text += f" Whether it is ahead of “{next_best['value']}” cannot be told from the noise yet."
    return text


def leading(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the row with the largest raw share."""
    return max(rows, key=lambda row: float(row["raw"]))


def cautions(found: QuestionResult) -> list[str]:
    """Return the cautions for a reader."""
    notes: list[str] = []
    finding = found.finding
    if finding is None:
        return notes
    if found.linked:
        notes.append(
            "Levels and answers may be linked: people who chose different levels answered differently, by more than "
            f"chance explains (p = {finding.selection:.2g}). The column “by people” weights every person alike."
        )
    if not finding.raw.private:
        notes.append("Some of these reports were drawn with seeded randomness, which protects nobody.")
    widest = max(row["high"] - row["low"] for row in finding.rows())
    if found.asked.type != "number" and widest > 0.5:
        notes.append(f"The widest interval spans {100 * widest:.0f} percentage points. Wait for more reports.")
    return notes


def participation(results: Results, batch: int = 1) -> str:
    """Return how many answers are shown, of how many expected; and that new ones come in batches."""
    people = "person has" if results.n == 1 else "people have"
    if not results.n and batch > 1:
        return (
            f"Fewer than {batch:,} people have answered so far, of {results.target:,} hoped for. Answers are shown "
            f"{batch:,} or more at a time, so that nobody can tell whose they are."
        )
    text = f"{results.n:,} {people} answered, of {results.target:,} hoped for."
    if batch <= 1:
        return text
    return f"{text} New answers are added {batch:,} or more at a time, so that nobody can tell whose they are."


def share(value: float, width: float = 0.1) -> str:
    """Format a share, with a decimal only where the interval is narrow."""
    return f"{number_text(100 * value, _share_places(width))}\N{NO-BREAK SPACE}%"


def share_limits(low: float, high: float, width: float = 0.1) -> tuple[str, str]:
    """Format the limits of a share like `share`, rounded outwards."""
    lower, upper = percent_limits(low, high, _share_places(width))
    return f"{lower}\N{NO-BREAK SPACE}%", f"{upper}\N{NO-BREAK SPACE}%"


def number(value: float, width: float) -> str:
    """Format a number with the decimals that its interval justifies."""
    return number_text(value, _places(width))


def number_limits(low: float, high: float) -> tuple[str, str]:
    """Format the limits of a number like `number`, rounded outwards."""
    return limits_text(low, high, _places(high - low))


def _share_places(width: float) -> int:
    return 1 if width < 0.04 else 0


def _places(width: float) -> int:
    places = 0
    while width and width * 10**places < 10 and places < 6:
        places += 1
    return places


def _share(row: Mapping[str, Any]) -> str:
    width = row["high"] - row["low"]
    low, likely, high = (min(1.0, max(0.0, row[key])) for key in ("low", "raw", "high"))
    ends = " and ".join(share_limits(low, high, width))
    return f"{share(likely, width)} of those who answered (between {ends})"


def _mean(row: Mapping[str, Any], unit: str) -> str:
    width = row["high"] - row["low"]
    ends = " and ".join(number_limits(row["low"], row["high"]))
    return f"{number(row['raw'], width)}{' ' + unit if unit else ''} (between {ends})"
