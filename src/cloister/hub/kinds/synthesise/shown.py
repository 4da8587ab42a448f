"""A synthetic table as its page shows it, and as it is kept. Everything here follows from what was released."""

import base64
import io
import math
from collections.abc import Mapping
from datetime import date, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow.parquet as pq

from cloister.hub.kinds.synthesise.making import Asked
from cloister.privacy.signing import SigningKey
from cloister.synth.handed import sign_side
from cloister.synth.planning import METHODS

if TYPE_CHECKING:
    from cloister.synth.axes import Axis
    from cloister.synth.scoring.publishable import PublishableScore
    from cloister.synth.table import SyntheticTable

__all__ = ["shown"]

_MOST_BARS = 40
_FIRST_ROWS = 12
_SURE = 1.96


def shown(made: "SyntheticTable", score: "PublishableScore | str", asked: Asked, key: SigningKey) -> dict[str, Any]:
    """What a page shows and a client fetches; plain JSON.

    `columns` are pictures, `first` some rows, `side` the side file, signed for the bytes in `file`.
    """
    rows = made.to_arrow()
    sink = io.BytesIO()
    pq.write_table(rows, sink, compression="zstd")
    side = {**made.side, "score": None if isinstance(score, str) else score.to_json()}
    told = sign_side(side, sink.getvalue(), key)
    errors = told["expected error"]
    return {
        "method": asked.method,
        "about": METHODS[asked.method],
        "table": asked.table,
        "rows": len(made),
        "real": told["estimated rows of the real table"],
        "unit": told["unit"],
        "names": list(rows.column_names),
        "first": [[_word(one) for one in row.values()] for row in rows.slice(0, _FIRST_ROWS).to_pylist()],
        "measured": [
            {"columns": one["columns"], "cells": one["cells"], "noise": one["standard error"], "why": one["why"]}
            for one in told["measured"]
        ],
        "ways": _ways(errors),
        "errors": [
            {"columns": one["columns"], "value": one["error"], "from": one["known from"]}
            for one in errors["marginals"]
            if one["error"] is not None
        ],
        "columns": _pictures(made),
        "making": asked.making.to_json(),
        "scoring": asked.scoring.to_json() if asked.share else None,
        "score": told["score"],
        "unscored": score if isinstance(score, str) else "",
        "key": str(key.public),
        "side": told,
        "file": base64.b64encode(sink.getvalue()).decode("ascii"),
    }


def _ways(errors: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The model's mean errors, which were bought inside the spend."""
    margin = errors.get("margin of these means (95 %)", 0.0)
    means = errors.get("mean over marginals of so many columns", {})
    return [
        {"columns": int(way), "value": value, "low": max(0.0, value - margin), "high": min(1.0, value + margin)}
        for way, value in means.items()
    ]


def _pictures(made: "SyntheticTable") -> list[dict[str, Any]]:
    """About how many real rows each value has, as the released model says."""
    noise = {one.places: float(np.max(one.sigma)) for one in made.made.measured if len(one.places) == 1}
    found = []
    for axis in made.domain.modelled:
        place = made.domain.places[axis.name]
        counts = made.made.model.marginal((place,)).ravel()
        sigma = noise.get((place,))
        bars = [
            {"label": label, **_figure(float(count), sigma)} for label, count in zip(_labels(axis), counts, strict=True)
        ]
        note = "" if len(bars) <= _MOST_BARS else f"the first {_MOST_BARS} of {len(bars)} values"
        found.append({"name": axis.name, "type": axis.type, "note": note, "bars": bars[:_MOST_BARS]})
    return found


def _labels(axis: "Axis") -> list[str]:
    """What each cell holds; bins of whole numbers by the numbers in them."""
    if axis.ends is None or axis.type in ("date", "timestamp"):
        return axis.labels()
    if axis.type == "integer":
        ends = [math.ceil(one) for one in axis.ends[:-1]] + [math.floor(axis.ends[-1]) + 1]
        told = [f"{low:,} to {high - 1:,}" if high - low > 1 else f"{low:,}" for low, high in pairwise(ends)]
    else:
        told = [f"{low:,.4g} to {high:,.4g}" for low, high in pairwise(axis.ends)]
    return [*told, "missing"] if axis.nullable else told


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
