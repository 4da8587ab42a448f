"""Shapes: the contribution of one feature to an additive model, as numbers and as a chart."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.data.charts import altair, chart_of
from cloister.learn.base.bins import BinnedFeature
from cloister.learn.trees.additive import Additive
from cloister.privacy.errors import BadInput

__all__ = ["Shape", "chart", "read_shapes"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Contribution of a feature to the margin, cell by cell.

    Attributes:
        axis: the public cells.
        values: contribution of each cell; one column per class if there are more than two.
        errors: standard errors, from noise and sampling.
        counts: noisy number of rows in each cell.
    """

    axis: BinnedFeature
    values: NDArray[np.float64]
    errors: NDArray[np.float64]
    counts: NDArray[np.float64]

    @property
    def importance(self) -> float:
        """Return the mean absolute value over rows (and classes)."""
        sizes = np.abs(self.values).reshape(len(self.values), -1).mean(axis=1)
        return float(np.average(sizes, weights=self.counts))

    def table(self) -> list[dict[str, Any]]:
        """Return one record per cell (and class)."""
        columns = self.values.reshape(len(self.values), -1)
        return [
            {"cell": label, "place": i, "output": k, "value": float(value), "low": float(value - 2 * self.errors[i]),
             "high": float(value + 2 * self.errors[i]), "rows": float(self.counts[i])}
            for i, label in enumerate(self.axis.labels())
            for k, value in enumerate(columns[i])
        ]  # fmt: skip


def read_shapes(model: Additive) -> dict[str | int, Shape]:
    """Return the shapes of a released model, by feature."""
    shapes, start = {}, 0
    for axis in model.axes:
        cells = slice(start, start + axis.size)
        values = model.values[cells, 0] if model.values.shape[1] == 1 else model.values[cells]
        shapes[axis.name] = Shape(axis, values, model.errors[cells], model.counts[cells])
        start += axis.size
    return shapes


def chart(shapes: dict[str | int, Shape], feature: Any, outputs: list[str], title: str) -> Any:
    """Return an Altair chart of one shape: steps for an ordered feature, bars for categories, with two standard errors.

    Args:
        shapes: the shapes of all features.
        feature: the name or number of one.
        outputs: label of each column of values.
        title: title of the vertical axis.
    """
    names = list(shapes)
    numbered = isinstance(feature, int) and feature not in shapes and -len(names) <= feature < len(names)
    name = names[feature] if numbered else feature
    if name not in shapes:
        raise BadInput(f"there is no feature {name!r:.60}. There are: {', '.join(map(str, names))[:400]}.")
    alt = altair()
    shape = shapes[name]
    records = [{**row, "output": outputs[row["output"]]} for row in shape.table()]
    order = [*dict.fromkeys(record["cell"] for record in records)]
    base = chart_of(records).encode(x=alt.X("cell:N", sort=order, title=str(name)))
    colour = alt.Color("output:N", title="class") if len(outputs) > 1 else alt.value("#1f6f8b")
    value = alt.Y("value:Q", title=title)
    tips = [alt.Tooltip(f"{field}:{kind}") for field, kind in (("cell", "N"), ("value", "Q"), ("rows", "Q"))]
    if shape.axis.ordered:
        main = base.mark_line(interpolate="step", point=True).encode(y=value, color=colour, tooltip=tips)
    else:
        main = base.mark_bar(opacity=0.7).encode(y=value, color=colour, tooltip=tips)
    doubt = base.mark_rule(opacity=0.5).encode(y="low:Q", y2="high:Q", color=colour)
    return (main + doubt).properties(title=f"{name}: what it adds")
