"""Result pages of a survey, for the researcher: live estimates with charts, cross-tables, downloads, receipts."""

from fractions import Fraction
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Request
from sqlalchemy.orm import Session
from starlette.responses import Response

from cloister.hub.core.models import Survey
from cloister.hub.surveys import export, results, sentences, survey
from cloister.hub.surveys.question_result import CONFIDENCE, DELTA, QuestionResult
from cloister.hub.surveys.results import Results
from cloister.hub.web import charts, survey_charts
from cloister.hub.web.context import Visitor, page, signed_in
from cloister.hub.web.spreadsheets import csv_of
from cloister.local import CrossTable
from cloister.privacy.errors import BadForm, NotHere, NotNow
from cloister.privacy.number import show

__all__ = ["alt_text", "found_for", "heat_cells", "picture_of", "router", "size_of", "svg", "theme_of"]

router = APIRouter()
Here = Annotated[Visitor, Depends(signed_in)]
Kind = Literal["csv", "json"]
_MOST_ALT = 12
_PATIENCE_S = 1.0  # for the guarantee of the shuffler; then the page is shown without it, and requests it again


def found_for(visitor: Visitor, session: Session, name: str, wave: int) -> tuple[Survey, Results]:
    """Return a user's own survey with the results of a wave; 0 is the newest."""
    own_survey = survey.find_own(session, name, visitor.who)
    return own_survey, results.read(visitor.hub, session, own_survey, wave or None)


@router.get("/surveys/{name}/results")
def shown(request: Request, name: str, visitor: Here, wave: int = 0, first: str = "", second: str = "") -> Response:
    """Show all results; with two questions named, their cross-table too."""
    with visitor.hub.database.reading() as session:
        own_survey, read = found_for(visitor, session, name, wave)
    table, problem = None, None
    if first and second:
        try:
            table = read.cross(first, second)
        except (BadForm, NotHere, NotNow) as error:
            problem = error
    published = read.published(_PATIENCE_S)
    return page(
        request,
        "survey_results.html",
        survey=own_survey,
        results=read,
        open=survey.is_open(own_survey) and read.wave == own_survey.wave,
        said_of={key: sentences.headline(about) for key, about in read.found.items()},
        cautions={key: sentences.cautions(about) for key, about in read.found.items()},
        alt={key: alt_text(about) for key, about in read.found.items()},
        taking_part=sentences.participation(read, visitor.hub.settings.survey_batch),
        suspicions=read.suspicions(),
        published=published,
        pending=published is None and any(result.finding for result in read.found.values()),
        delta=DELTA,
        lightest=show(
            sum((Fraction(result.asked.levels[-1].epsilon) for result in read.found.values()), start=Fraction(0))
        ),
        confidence=f"{100 * float(CONFIDENCE):g}",
        share=sentences.share,
        number=sentences.number,
        share_limits=sentences.share_limits,
        number_limits=sentences.number_limits,
        table=table,
        is_table=isinstance(table, CrossTable),
        first=first,
        second=second,
        problem=problem,
    )


@router.get("/surveys/{name}/results/{question}.svg")
def chart(name: str, question: str, visitor: Here, wave: int = 0, theme: str = "light", size: str = "wide") -> Response:
    """Return a chart of one result."""
    with visitor.hub.database.reading() as session:
        _, read = found_for(visitor, session, name, wave)
    return svg(picture_of(read.about(question), theme_of(theme), size_of(size)))


@router.get("/surveys/{name}/cross.svg")
def cross_chart(
    name: str, visitor: Here, first: str = "", second: str = "", wave: int = 0, theme: str = "light", size: str = "wide"
) -> Response:
    """Return a chart of a cross-table."""
    with visitor.hub.database.reading() as session:
        _, read = found_for(visitor, session, name, wave)
    table = read.cross(first, second)
    if isinstance(table, CrossTable):
        names = read.about(first).asked.id, read.about(second).asked.id
        return svg(survey_charts.heat(heat_cells(table), names, theme_of(theme), size_of(size)))
    rows = [{**row, "group": row["value"], "source": table.ids[1]} for row in table.rows() if row["raw"] is not None]
    points = [{**row, "value": row["raw"]} for row in rows]
    return svg(survey_charts.means(points, table.ids[1], theme_of(theme), size_of(size)))


# Downloads


@router.get("/surveys/{name}/reports")
def reports(name: str, visitor: Here, wave: int = 0, kind: Kind = "csv") -> Response:
    """Return every report, without names."""
    with visitor.hub.database.reading() as session:
        own_survey, read = found_for(visitor, session, name, wave)
    return _file(visitor, own_survey, read, "reports", kind, lambda: export.reports_json(own_survey, read),
                 lambda: export.reports_table(own_survey, read))  # fmt: skip


@router.get("/surveys/{name}/estimates")
def estimates(name: str, visitor: Here, wave: int = 0, kind: Kind = "csv") -> Response:
    """Return every estimate, with its error."""
    with visitor.hub.database.reading() as session:
        own_survey, read = found_for(visitor, session, name, wave)
    return _file(visitor, own_survey, read, "estimates", kind, read.to_json, lambda: export.estimates_table(read))


@router.get("/surveys/{name}/receipt")
def receipt(name: str, visitor: Here, wave: int = 0) -> Response:
    """Return the analysis, signed."""
    with visitor.hub.database.reading() as session:
        own_survey, read = found_for(visitor, session, name, wave)
    signed = export.analysis(visitor.hub, own_survey, read)
    visitor.hub.audit.record(visitor.who.id, "survey.receipt", f"survey/{name}", wave=read.wave, people=read.n)
    return _download(export.text_of(signed), f"{name}-wave-{read.wave}.receipt.json", "application/json")


def _file(
    visitor: Visitor, own_survey: Survey, read: Results, part: str, kind: str, as_json: Any, as_table: Any
) -> Response:
    visitor.hub.audit.record(
        visitor.who.id, f"survey.{part}.exported", f"survey/{own_survey.name}", wave=read.wave, people=read.n, kind=kind
    )
    name = f"{own_survey.name}-wave-{read.wave}-{part}.{kind}"
    if kind == "json":
        return _download(export.text_of(as_json()), name, "application/json")
    return _download(csv_of(*as_table()), name, "text/csv; charset=utf-8")


def _download(content: bytes, name: str, kind: str) -> Response:
    return Response(content, media_type=kind, headers={"Content-Disposition": f'attachment; filename="{name}"'})


# Charts


def picture_of(found: QuestionResult, theme: charts.Theme, size: charts.Size) -> str:
    """Draw a result."""
    rows = found.rows()
    if not rows:
        raise NotHere("nobody has answered this question yet.")
    if found.asked.type == "number":
        low, high = (float(end) for end in found.asked.bounds)
        return survey_charts.mean(rows[0], (low, high), found.asked.unit, theme, size)
    return survey_charts.shares(rows, found.asked.type in ("scale", "date"), theme, size)


def heat_cells(table: CrossTable) -> list[dict[str, Any]]:
    """Return the cells of a cross-table for its chart: projected shares, not raw noisy ones."""
    return [
        {"first": cell["first"], "second": cell["second"], "share": cell["projected"]}
        for cell in table.to_json()["cells"]  # not rows(): a question may have the name of one of their columns
    ]


def alt_text(found: QuestionResult) -> str:
    """Return the alternative text of a chart."""
    rows = found.rows()
    if not rows or found.asked.type == "number":
        return sentences.headline(found)
    parts = [
        f"{row['value']}: {sentences.share(row['raw'], row['high'] - row['low'])} "
        f"[{', '.join(sentences.share_limits(row['low'], row['high']))}]"
        for row in rows[:_MOST_ALT]
    ]
    more = f"; and {len(rows) - _MOST_ALT} more, in the table" if len(rows) > _MOST_ALT else ""
    return f"Estimated shares with intervals. {'; '.join(parts)}{more}."


def theme_of(text: str) -> charts.Theme:
    """Return light unless dark is requested."""
    return "dark" if text == "dark" else "light"


def size_of(text: str) -> charts.Size:
    """Return wide unless a smaller size is requested."""
    return "narrow" if text == "narrow" else "half" if text == "half" else "wide"


def svg(text: str) -> Response:
    """Return an SVG response."""
    return Response(text, media_type="image/svg+xml")
