"""Synthetic table for its page and for storage. Everything here follows from released data."""

import base64
import io
import math
from collections.abc import Mapping
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from cloister.data.schema import Table
from cloister.hub.jobs.job_types.synthesise.form import SynthesisRequest
from cloister.privacy.signing import SigningKey
from cloister.synth.domain.axis import Axis, read_axis
from cloister.synth.output.shared_table import sign_side
from cloister.synth.planning import METHODS

if TYPE_CHECKING:
    from cloister.synth.output.table import SyntheticTable
    from cloister.synth.scoring.publishable import PublishableScore

__all__ = ["pictures_of_rows", "shown", "signed", "told_of"]

_MOST_BARS = 40
_BINS = 32
_FIRST_ROWS = 12
_SURE = 1.96


def shown(
    made: "SyntheticTable", score: "PublishableScore | str", asked: SynthesisRequest, key: SigningKey
) -> dict[str, Any]:
    """Return what a page shows and a client fetches; plain JSON.

    `columns` are charts, `first` some rows, `side` the metadata file, signed for the bytes in `file`.
    """
    rows = made.to_arrow()
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    side = {**made.side, "score": None if isinstance(score, str) else score.to_json()}
    signed_side = sign_side(side, sink.getvalue(), key)
    return {
        **told_of(signed_side, rows),
        "columns": _pictures(made),
        "making": asked.making.to_json(),
        "scoring": asked.scoring.to_json() if asked.share else None,
        "unscored": score if isinstance(score, str) else "",
        **signed(signed_side, sink.getvalue(), key),
    }


def signed(side: Mapping[str, Any], content: bytes, key: SigningKey) -> dict[str, Any]:
    """Return the released files: the metadata file, the file that it was signed for, and the key."""
    return {"key": str(key.public), "side": side, "file": base64.b64encode(content).decode("ascii")}


def told_of(side: Mapping[str, Any], rows: pa.Table) -> dict[str, Any]:
    """Return the page's facts on a table, from its metadata file and its rows."""
    errors, score = side["expected error"], side.get("score")
    return {
        "method": str(side["method"]),
        "about": METHODS.get(str(side["method"]), "a method of its own"),
        "table": str(side["table"]),
        "rows": len(rows),
        "real": float(side["estimated rows of the real table"]),
        "unit": str(side["unit"]),
        "names": list(rows.column_names),
        "first": [[_word(value) for value in row.values()] for row in rows.slice(0, _FIRST_ROWS).to_pylist()],
        "measured": [
            {
                "columns": _names(marginal),
                "cells": int(marginal["cells"]),
                "noise": float(marginal["standard error"]),
                "why": str(marginal["why"]),
            }
            for marginal in side["measured"]
        ],
        "ways": _ways(errors),
        "errors": [
            {"columns": _names(marginal), "value": float(marginal["error"]), "from": str(marginal["known from"])}
            for marginal in errors["marginals"]
            if marginal["error"] is not None
        ],
        "score": None if score is None else _score(score),
    }


def pictures_of_rows(rows: pa.Table, table: Table, real: float) -> list[dict[str, Any]]:
    """Estimate the number of real rows of each value from synthetic rows, where there is no model."""
    pictures = []
    for name in rows.column_names:
        axis = read_axis(table.columns[name], _BINS)
        if not axis.pseudonym:
            counts = np.bincount(axis.place(rows.column(name)), minlength=axis.size) * (real / len(rows))
            pictures.append(_picture(axis, counts, None))
    return pictures


def _names(marginal: Mapping[str, Any]) -> list[str]:
    return [str(name) for name in marginal["columns"]]


def _score(score: Mapping[str, Any]) -> dict[str, Any]:
    """Return a score for its page, with its numbers."""
    ways = {kind: score[kind] for kind in ("one-way error", "two-way error")}
    columns = [{"column": str(column["column"]), **_three(column)} for column in score["columns"]]
    errors = {kind: None if error is None else _three(error) for kind, error in ways.items()}
    return {**score, **errors, "pairs": int(score["pairs"]), "columns": columns}


def _three(estimate: Mapping[str, Any]) -> dict[str, float]:
    return {end: float(estimate[end]) for end in ("value", "low", "high")}


def _ways(errors: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the model's mean errors, which were part of the charge."""
    margin = float(errors.get("margin of these means (95 %)", 0.0))
    means = errors.get("mean over marginals of so many columns", {})
    return [
        {"columns": int(size), "value": value, "low": max(0.0, value - margin), "high": min(1.0, value + margin)}
        for size, value in ((key, float(mean)) for key, mean in means.items())
    ]


def _pictures(table: "SyntheticTable") -> list[dict[str, Any]]:
    """Estimate the number of real rows of each value from the released model."""
    noise = {
        marginal.positions: float(np.max(marginal.sigma))
        for marginal in table.made.measured
        if len(marginal.positions) == 1
    }
    pictures = []
    for axis in table.domain.modelled:
        index = table.domain.positions[axis.name]
        counts = table.made.model.marginal((index,)).ravel()
        sigma = noise.get((index,))
        pictures.append(_picture(axis, counts, sigma))
    return pictures


def _picture(axis: Axis, counts: NDArray[Any], sigma: float | None) -> dict[str, Any]:
    bars = [
        {"label": label, **_figure(float(count), sigma)} for label, count in zip(_labels(axis), counts, strict=True)
    ]
    note = "" if len(bars) <= _MOST_BARS else f"the first {_MOST_BARS} of {len(bars)} values"
    return {"name": axis.name, "type": axis.type, "note": note, "bars": bars[:_MOST_BARS]}


def _labels(axis: Axis) -> list[str]:
    """Return the label of each cell; bins of whole numbers by the numbers in them."""
    if axis.ends is None or axis.type in ("date", "timestamp"):
        return axis.labels()
    if axis.type == "integer":
        ends = [axis.value(end) for end in axis.ends[:-1]] + [axis.value(math.floor(axis.ends[-1])) + 1]
        labels = [f"{low:,} to {high - 1:,}" if high - low > 1 else f"{low:,}" for low, high in pairwise(ends)]
    else:
        labels = [f"{low:,.4g} to {high:,.4g}" for low, high in pairwise(axis.ends)]
    return [*labels, "missing"] if axis.nullable else labels


def _figure(value: float, sigma: float | None) -> dict[str, float | None]:
    if sigma is None or not math.isfinite(sigma):
        return {"value": value, "low": None, "high": None}
    return {"value": value, "low": max(0.0, value - _SURE * sigma), "high": value + _SURE * sigma}


def _word(value: Any) -> str:
    if value is None:
        return "missing"
    if isinstance(value, float):
        return f"{value:,.6g}"
    return value.isoformat() if isinstance(value, date | datetime) else str(value)
