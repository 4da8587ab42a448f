"""A release, or its risks, as one page: label, values, gauges, attacks, losses, lattice. It needs no network.

    page = release_page(release, title="visits-k5.csv")
    Path("visits-k5.html").write_text(page, encoding="utf-8")

The page is for the owner: it names the classes that are easiest to attack. Rows of the original table are shown only
if they are given. Every value and every name is escaped.
"""

from collections.abc import Iterator, Sequence
from html import escape
from typing import Any

import pyarrow as pa

from cloister.anonymize.checking.verifier import Checked
from cloister.anonymize.hierarchy import value_text
from cloister.anonymize.models import Requirement
from cloister.anonymize.report.charts import attacks_chart, gauge, lattice_chart, losses_chart, sizes_chart
from cloister.anonymize.risks.attackers import RiskReport, risk
from cloister.anonymize.table import AnonymizedTable, Roles, failures
from cloister.data.report_page import figure, page
from cloister.version import __version__

__all__ = ["release_page", "risk_page"]

_OWNERS_VIEW = (
    "OWNER'S VIEW: it names the classes that are easiest to attack. Publish the table and the file of facts beside it, "
    "not this page."
)
_MOST_ROWS = 8
_MOST_COLUMNS = 14
_STYLE = """
h1 { font-size: 1.1rem; margin: 1.2rem 0 .1rem; color: var(--soft); }
.label { font-size: 2rem; line-height: 1.2; font-weight: 700; margin: 0 0 .4rem; }
.next { border-left: 5px solid var(--made); background: var(--card); padding: .7rem 1rem; margin: 1rem 0; }
.word { min-width: 5.4rem; } table { border-collapse: collapse; background: var(--card); font-size: .95rem; }
caption { text-align: left; color: var(--soft); padding: .2rem 0; } thead { border-bottom: 2px solid var(--line); }
th, td { padding: .25rem .7rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
th { min-width: 5rem; } td { max-width: 24rem; } th small { display: block; font-weight: 400;
  color: var(--soft); } td.gone { color: var(--soft); font-style: italic; }
@media screen and (max-width: 40rem) { figure { overflow-x: auto; } figure > svg { max-width: none; width: 34rem; }
  figure > figcaption, figure > .key { position: sticky; left: 0; } }
"""


def release_page(
    release: AnonymizedTable,
    *,
    title: str = "Anonymised table",
    risks: RiskReport | None = None,
    originals: pa.Table | None = None,
) -> str:
    """Return the report of a release as a page.

    Args:
        release: the release; it is verified for the page.
        title: name of the release.
        risks: its risks; measured with the release alone unless given.
        originals: the original rows, to show some of them beside the release. For the owner only.

    Raises:
        MissingExtra: no chart library is installed.
    """
    measured = risks or risk(release.rows, quasi=release.roles.quasi, sensitive=release.roles.sensitive)
    problems = [problem for model in release.requirement.models for problem in failures(release.checked, model)]
    body = [
        *_head(title, release.label, not problems),
        *_next_step(measured, problems),
        f'<div class="tiles">{"".join(_tiles(release))}</div>',
        *_confirmed(release.checked, release.requirement),
        "<h2>The table</h2>",
        *_before_and_after(release, originals),
        *_risks(measured),
        '<h2>What was lost</h2><div class="charts">',
        figure(*losses_chart(release.utility.columns)),
        figure(*sizes_chart(release.rows, release.roles.quasi, release.requirement.smallest)),
        "</div>",
        *_lattice(release),
        *_facts(release),
        *_foot(),
    ]
    return page(f"{title}: release", body, style=_STYLE)


def risk_page(
    report: RiskReport,
    checked: Checked,
    rows: pa.Table,
    *,
    title: str,
    confirmed: str = "",
    claimed: str = "",
    problems: Sequence[str] = (),
) -> str:
    """Return the risks of a table that was released, whoever made it, as a page.

    Args:
        report: its risks.
        checked: the verifier's values.
        rows: the released rows.
        title: name of the table.
        confirmed: the label that the verifier confirms, if there is one.
        claimed: a label that is not confirmed.
        problems: what the verifier says against it; nothing if it could not judge.
    """
    verdict = None if not (confirmed or problems) else not problems
    body = [
        *_head(title, confirmed or f"k={checked.k}: not differentially private", verdict),
        *([f'<p class="bad"><b>Claimed, not verified:</b> {escape(claimed)}</p>'] if claimed else []),
        *_next_step(report, problems),
        *_values(checked),
        "<h2>The table</h2>",
        *_table(rows, Roles((), report.quasi, report.sensitive, ()), "First rows of the released table."),
        *_risks(report),
        '<h2>Classes</h2><div class="charts">',
        figure(*sizes_chart(rows, report.quasi, checked.k)),
        "</div>",
        *_foot(),
    ]
    return page(f"{title}: release", body, style=_STYLE)


def _head(title: str, label: str, confirmed: bool | None) -> Iterator[str]:
    yield f'<header><p class="owner" role="note">{escape(_OWNERS_VIEW)}</p><h1>{escape(title)}</h1>'
    yield f'<p class="label">{escape(label)}</p>'
    if confirmed is not None:
        word, kind = ("Confirmed by the independent verifier.", "good") if confirmed else ("NOT confirmed.", "bad")
        yield f'<p class="{kind}"><b>{word}</b></p>'
    yield "</header><main>"


def _next_step(report: RiskReport, problems: Sequence[str]) -> Iterator[str]:
    """Yield one sentence: what to do next."""
    worst = report.worst
    if problems:
        step = f"Do not publish it: {problems[0]}."
    elif worst is not None and worst.at_risk:
        remedy = worst.remedies[0] if worst.remedies else "Ask for a stronger model."
        step = f"{worst.name} puts {worst.at_risk:,} of {worst.attacked:,} {worst.subject} at risk. {remedy}"
    elif "linkage" in report.skipped:
        step = "Attack it with people whom others know: cloister anonymize risk FILE --auxiliary ORIGINAL."
    else:
        step = "No attack that was run succeeds. Let a second person look at the file before it is published."
    yield f'<p class="next"><b>Next:</b> {escape(step)}</p>'


def _tiles(release: AnonymizedTable) -> Iterator[str]:
    tiles = [
        (f"{release.rows.num_rows:,}", f"rows; {release.suppressed:,} removed ({release.utility.suppressed:.1%})"),
        (f"{release.checked.k:,}", "rows in the smallest class"),
        (f"{release.utility.certainty_penalty:.3f}", "certainty penalty: 0 keeps everything, 1 nothing"),
        (f"{release.utility.entropy_loss:.1%}", "of the information of the quasi-identifiers is gone"),
    ]
    yield from (f'<div class="tile"><b>{escape(number)}</b>{escape(words)}</div>' for number, words in tiles)


def _confirmed(checked: Checked, requirement: Requirement) -> Iterator[str]:
    yield '<h2>What the verifier says</h2><ul class="checks">'
    for model in requirement.models:
        problems = failures(checked, model)
        kind, word = ("bad", "fails") if problems else ("good", "confirmed")
        reason = f": {'; '.join(problems)}" if problems else ""
        yield f'<li><span class="word {kind}">{word}</span> {escape(model.label + reason)}</li>'
    yield "</ul>"
    yield from _values(checked, heading=False)


def _values(checked: Checked, *, heading: bool = True) -> Iterator[str]:
    """Yield the value of every model, by the verifier."""
    if heading:
        yield "<h2>What the verifier says</h2>"
    lines = [("k", "", f"{checked.k:,}", str(checked.deciding["k"]))]
    names = {
        "distinct_l": "distinct l", "frequency_l": "frequency l", "entropy_l": "entropy l", "t_equal": "t, equal",
        "t_ordered": "t, ordered", "t_hierarchical": "t, hierarchical", "kl": "Kullback-Leibler", "alpha": "alpha",
        "beta": "basic beta", "beta_enhanced": "beta",
    }  # fmt: skip
    for column, values in checked.diversity.items():
        for name, word in names.items():
            value = getattr(values, name)
            if value is not None:
                lines.append((word, column, f"{value:.4g}", str(values.deciding[name])))
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Values of all models"><table>'
    yield "<caption>The value of every model, and the class that decides it.</caption>"
    yield "<thead><tr>" + "".join(f'<th scope="col">{word}</th>' for word in ("model", "column", "value", "decided by"))
    yield "</tr></thead><tbody>"
    for word, column, number, group in lines:
        yield f'<tr><th scope="row">{word}</th><td>{escape(column)}</td><td>{number}</td><td>{escape(group)}</td></tr>'
    yield "</tbody></table></div>"


def _before_and_after(release: AnonymizedTable, originals: pa.Table | None) -> Iterator[str]:
    if originals is not None:
        yield '<div class="charts">'
        yield from _table(originals, release.roles, "Before: first rows of the original table. Identifiers are hidden.")
    keys = [(name, "ascending") for name in release.roles.quasi]
    yield from _table(
        release.rows.sort_by(keys), release.roles, "After: first rows of the release, sorted by quasi-identifier."
    )
    if originals is not None:
        yield "</div>"


def _table(rows: pa.Table, roles: Roles, caption: str) -> Iterator[str]:
    """Yield the first rows as a table; identifiers are shown as dropped."""
    words = {
        **dict.fromkeys(roles.identifiers, "identifier"),
        **dict.fromkeys(roles.quasi, "quasi-identifier"),
        **dict.fromkeys(roles.sensitive, "sensitive"),
    }
    ordered = sorted(rows.column_names, key=lambda name: list(words).index(name) if name in words else len(words))
    names, left_out = ordered[:_MOST_COLUMNS], len(ordered) - _MOST_COLUMNS
    more = f" {left_out} further columns are not shown." if left_out > 0 else ""
    yield f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption, quote=True)}"><table>'
    yield f"<caption>{escape(caption)}{more}</caption><thead><tr>"
    for name in names:
        yield f'<th scope="col">{escape(name)}<small>{words.get(name, "plain")}</small></th>'
    yield "</tr></thead><tbody>"
    for row in rows.select(names).slice(0, _MOST_ROWS).to_pylist():
        yield "<tr>" + "".join(_cell(row[name], name in roles.identifiers) for name in names) + "</tr>"
    yield "</tbody></table></div>"


def _cell(value: Any, hidden: bool) -> str:
    if hidden:
        return '<td class="gone">dropped</td>'
    return '<td class="gone">missing</td>' if value is None else f"<td>{escape(value_text(value)[:200])}</td>"


def _risks(report: RiskReport) -> Iterator[str]:
    yield "<h2>Who could be found</h2>"
    yield '<p class="soft">The chance that a record is re-identified, for each attacker: the highest for those who '
    yield "look for one person, the average for a marketer, who links all records.</p>"
    yield '<div class="tiles">'
    for measure in report.measures:
        kind = "bad" if measure.judged > measure.threshold else "good"
        rest = f"{measure.above:,} of {measure.records:,} records are above {measure.threshold:.0%}"
        if measure.name == "marketer":
            rest = f"{measure.records:,} records are linked"
        words = f"{measure.attacker}. On average {measure.average:.2%}; {rest}."
        yield f'<div class="tile">{escape(measure.name)}<b class="{kind}">{measure.judged:.1%}</b>{gauge(measure)}'
        yield f"{escape(words)}</div>"
    yield "</div>"
    if report.uniqueness is not None:
        yield f"<p>Uniqueness in the population: {escape(str(report.uniqueness))}.</p>"
    yield "<h2>Attacks that remain</h2>"
    yield '<p class="soft">Models of this kind stop some attackers; no model stops all. Nothing here is a bound.</p>'
    if report.attacks:
        yield f'<div class="charts">{figure(*attacks_chart(report))}</div>'
    yield '<div class="scroll" tabindex="0" role="region" aria-label="Attacks"><table><caption>Each attack, with its '
    yield "worst example.</caption><thead><tr>"
    heads = ("attack", "attacker", "at risk", "worst example", "what helps")
    yield "".join(f'<th scope="col">{word}</th>' for word in heads) + "</tr></thead><tbody>"
    for line in report.table()[len(report.measures) :]:
        cells = "".join(f"<td>{escape(line[word])}</td>" for word in heads[1:])
        yield f'<tr><th scope="row">{escape(line["name"])}</th>{cells}</tr>'
    yield "</tbody></table></div>"
    if report.skipped:
        yield '<h2>Attacks that were not run</h2><ul class="checks">'
        yield from (f"<li><b>{escape(name)}</b>: {escape(why)}</li>" for name, why in report.skipped.items())
        yield "</ul>"


def _lattice(release: AnonymizedTable) -> Iterator[str]:
    if release.search is None or release.search.best is None or not release.search.heights:
        return
    yield "<h2>How the levels were chosen</h2>"
    yield figure(*lattice_chart(release.search, release.roles.quasi))


def _facts(release: AnonymizedTable) -> Iterator[str]:
    roles = release.roles
    facts = [
        ("Method", release.method),
        ("Dropped", ", ".join(roles.identifiers) or "no column"),
        ("Generalised", ", ".join(roles.quasi)),
        ("Released as they are", ", ".join([*roles.sensitive, *roles.plain]) or "no column"),
    ]
    yield '<h2>How it was made</h2><ul class="checks">'
    yield from (f"<li><b>{word}</b>: {escape(text)}</li>" for word, text in facts)
    yield "</ul>"


def _foot() -> Iterator[str]:
    text = (
        "Anonymity models are conditions on the table. They are not differential privacy, no epsilon follows from "
        "them, and a later release of the same people can break them."
    )
    yield f'</main><footer class="soft"><p>{escape(text)} Made with Cloister {escape(__version__)}.</p></footer>'
