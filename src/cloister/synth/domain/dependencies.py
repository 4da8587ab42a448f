"""Columns determined by others: learnt once from a noisy marginal, then exact in every synthetic row.

The schema says `ward -> building`; it does not say which building. A small part of the spend measures the joint counts
of both, and each value of the left side gets its most frequent value of the right side. The right side is then not
part of the model: it follows from the left side in all rows, also in later samples.
"""

from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import TYPE_CHECKING

import numpy as np

from cloister.privacy.filter import BudgetShare, noise_for
from cloister.synth.domain.axis import Axis, Cells

if TYPE_CHECKING:
    import pyarrow as pa

    from cloister.synth.measure.marginals import Measurer

__all__ = ["DependentColumn", "learn_decided"]

# Share of the spend for each dependency; and for all of them together.
_EACH, _ALL = Fraction(1, 50), Fraction(1, 5)


@dataclass(frozen=True)
class DependentColumn:
    """A column determined by others.

    Attributes:
        axis: the column.
        positions: indices of the determining columns among the modelled columns.
        cells: its cell for each combination of theirs.
        values: its value for each combination; None until they are sampled.
    """

    axis: Axis
    positions: tuple[int, ...]
    cells: Cells
    values: "pa.Array | None" = field(default=None, compare=False)

    def settled(self, generator: np.random.Generator) -> "DependentColumn":
        """Fix one value for each combination, also within a bin, so that all samples have the same."""
        if self.values is not None:
            return self
        return replace(self, values=self.axis.draw(self.cells.ravel(), generator))

    def fill(self, modelled: Cells) -> "pa.Array":
        """Return the column's value in each row."""
        import pyarrow as pa

        assert self.values is not None
        where = np.ravel_multi_index(tuple(modelled[:, column] for column in self.positions), self.cells.shape)
        return self.values.take(pa.array(where))


def learn_decided(survey: "Measurer") -> tuple["Measurer", tuple[DependentColumn, ...]]:
    """Learn the dependencies, and return a survey with the rest of the spend.

    Privacy: a fiftieth of the spend for each dependency, a fifth at most, through the survey's meter.
    """
    domain = survey.domain
    if not domain.determines:
        return survey, ()
    share = min(_EACH, _ALL / len(domain.determines))
    decided = []
    for left, right in domain.determines:
        names = sorted(left, key=lambda name: domain.positions[name])
        axes = [*(domain.axis(name) for name in names), domain.axis(right)]
        keys, shape = [axis.key() for axis in axes], [axis.size for axis in axes]
        noise = noise_for(survey.most, survey.most, survey.budget.part(share))
        relation = survey.relation
        noisy = survey.meter.release(lambda: relation.sums(keys).run(relation.engine)[0], noise)  # noqa: B023
        cells = np.asarray(noisy, dtype=np.float64).reshape(shape).argmax(axis=-1)
        decided.append(DependentColumn(axes[-1], tuple(domain.positions[name] for name in names), cells))
    rest = 1 - share * len(decided)
    return replace(survey, budget=BudgetShare(survey.budget.part(rest))), tuple(decided)
