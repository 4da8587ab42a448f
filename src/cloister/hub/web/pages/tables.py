"""Files of a synthetic table: Parquet, CSV for spreadsheets, and the metadata file of both."""

import base64
import json
from typing import Annotated

from fastapi import APIRouter, Depends
from starlette.responses import Response

from cloister.hub.web.api.tables import download, made, table, table_name
from cloister.hub.web.context import Visitor, signed_in
from cloister.hub.web.spreadsheets import csv_of_parquet

__all__ = ["router"]

router = APIRouter()
SignedIn = Annotated[Visitor, Depends(signed_in)]


@router.get("/jobs/{number}/table.parquet")
def as_parquet(number: int, visitor: SignedIn) -> Response:
    """Return the rows, as they were signed."""
    return table(number, visitor)


@router.get("/jobs/{number}/table.csv")
def as_csv(number: int, visitor: SignedIn) -> Response:
    """Return the rows for a spreadsheet."""
    job, result = made(visitor, number)
    content = csv_of_parquet(visitor.hub.settings, base64.b64decode(result["file"]), visitor.who.id)
    return download(content, f"{table_name(job)}.csv", "text/csv; charset=utf-8")


@router.get("/jobs/{number}/table.side.json")
def side(number: int, visitor: SignedIn) -> Response:
    """Return the metadata file: measurements and their reasons, expected errors, loss and receipt."""
    job, result = made(visitor, number)
    text = json.dumps(result["side"], indent=1, ensure_ascii=False) + "\n"
    return download(text.encode(), f"{table_name(job)}.parquet.side.json", "application/json")
