"""One synthesis: read the public facts, charge, measure in steps, sample rows.

    def steps(survey: Survey, progress: Progress) -> GeneratorResult: ...
    table = synthesise(ds, steps, method="aim", spend=…, rows=…)

Every generator is such a function. It accesses rows through the survey only, and each measurement is paid from the
loss reserved before the first one (privacy/filter.py); whatever it selects, it never costs more than the spend.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from cloister.data.private_data import PrivateData
from cloister.privacy.filter import PrivacyFilter, budget_share, release_steps
from cloister.privacy.loss import Loss
from cloister.privacy.noise import SYSTEM, SeededSource, Source
from cloister.privacy.release import Release
from cloister.synth.domain.cuts import FINE, PrivateCuts, with_cuts
from cloister.synth.domain.dependencies import DependentColumn, learn_decided
from cloister.synth.domain.domain import Domain, Positions, check_rows, read_domain
from cloister.synth.measure.error_estimate import ErrorEstimate
from cloister.synth.measure.marginals import Measurer, NoisyMarginal, check_noise
from cloister.synth.model.inference import AnyModel
from cloister.synth.options import check_progress
from cloister.synth.output.expected_errors import MarginalQuery
from cloister.synth.output.request import settings_digest, table_request

if TYPE_CHECKING:
    from cloister.synth.output.table import SyntheticTable

__all__ = ["GeneratorResult", "Progress", "synthesise"]

Progress = Callable[[float, str], None]


@dataclass(slots=True)
class GeneratorResult:
    """Model and measurements of a generator, from released values.

    Attributes:
        model: model of the modelled columns.
        measured: every released marginal, in order.
        chosen: descriptions of what was selected privately.
        review: measurements of the model's own errors.
        workload: columns whose marginals matter to the caller.
        queries: counts that matter to the caller.
    """

    model: AnyModel
    measured: list[NoisyMarginal]
    chosen: list[str] = field(default_factory=list)
    review: ErrorEstimate | None = None
    workload: list[Positions] = field(default_factory=list)
    queries: list[MarginalQuery] = field(default_factory=list)


Steps = Callable[[Measurer, Progress], GeneratorResult]


def synthesise(
    data: PrivateData,
    steps: Steps,
    *,
    method: str,
    spend: Loss | None,
    rows: int | None = None,
    columns: Sequence[str] | None = None,
    table: str | None = None,
    bins: Any = 32,
    progress: Progress | None = None,
    random_state: Any = None,
    told: dict[str, Any] | None = None,
) -> "SyntheticTable":
    """Run a generator under one charge.

    Args:
        data: a Cloister dataset; its account pays (and its reader's, if there is one).
        steps: the generator.
        method: its name.
        spend: maximum cost; all of it is charged.
        rows: number of rows to sample: a public number; if None, estimated from the noisy totals within the spend.
        columns, table, bins: see `domain.read_domain`.
        progress: called with a share from 0 to 1 and a word about it.
        random_state: a seed, for teaching and tests: noise and rows repeat, and the release is marked `not private`.
        told: further public options, for the ledger's request.

    Privacy: the spend, for the dataset's unit, add/remove neighbours. Domains, bins and options are public; the number
        of rows is not read. A refused spend reads nothing and samples nothing.
    """
    from cloister.synth.output.table import SyntheticTable

    check_progress(progress)
    budget = budget_share(spend, "the synthetic table", "generators")
    domain, relation = read_domain(data, table=table, columns=columns, bins=bins)
    check_noise(relation, budget.loss)
    check_rows(domain, rows)
    tell = progress or (lambda share, word: None)
    source: Source = SYSTEM if random_state is None else SeededSource(str(random_state))
    reader = getattr(data, "reader", None)
    settings = {"columns": list(domain.names), "bins": [axis.size for axis in domain.axes], **(told or {})}

    if isinstance(bins, PrivateCuts):
        settings["cuts"] = f"bought with {bins.share}"

    binned = [axis.name for axis in domain.axes if axis.ends is not None]
    fine = domain
    if isinstance(bins, PrivateCuts):  # before the charge: refuse here whatever can be refused
        fine, _ = read_domain(data, table=table, columns=columns, bins=dict.fromkeys(binned, FINE), rules=False)

    def whole(meter: PrivacyFilter) -> tuple[GeneratorResult, tuple[DependentColumn, ...], Domain]:
        tell(0.0, "counting")
        survey, words = Measurer(domain, relation, meter, budget), []
        if isinstance(bins, PrivateCuts):

            def read(cuts: Mapping[str, Any]) -> Domain:
                return read_domain(
                    data, table=table, columns=columns, bins={**dict.fromkeys(binned, bins.bins), **cuts}
                )[0]

            survey, word = with_cuts(survey, bins, fine, read)
            words.append(word)
        inside, decided = learn_decided(survey)
        result = steps(inside, tell)
        result.chosen = [*words, *result.chosen]
        return result, decided, inside.domain

    digest = settings_digest(settings, reader)
    (fitted, decided, cells), receipt = release_steps(
        whole,
        accounts=[data.account, *([] if reader is None else [reader.account])],
        spend=budget.loss,
        request=table_request(domain.table, method, domain.names, digest),
        unit=data.tables.schema.unit,
        data_version=data.version,
        source=source,
    )
    release = Release(
        value=fitted.model,
        loss=budget.loss,
        unit=data.tables.schema.unit,
        mechanism=receipt.body["mechanism"],
        parameters={"method": method, "settings": digest},
        private=source.private,
        receipt=receipt,
    )
    tell(0.95, "drawing rows")
    generator = np.random.default_rng(int.from_bytes(source.bytes(32), "little"))
    drawn = SyntheticTable.draw_from(cells, fitted, decided, release, rows, generator)
    tell(1.0, "done")
    return replace(drawn, asked=spend)
