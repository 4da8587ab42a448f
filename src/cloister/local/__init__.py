"""Local privacy: noise on the respondent's own device, estimates a statistician trusts.

    public facts            on the device                          at the collector
    oracles/NAME.py   ──►   client/NAME.py                  ──►    collector/NAME.py
    domain, loss, p, q      perturb(value) ──► encode ──► bytes    decode ──► aggregate ──► estimate ──► projected

The contract, for whoever adds a mechanism:

1. **A mechanism is a frozen value of public facts** (`oracles/`): `domain` (values are 0 … domain - 1), `loss` (an
   exact, pure epsilon, replace-one: what a person says, not that they were asked), probabilities `p`, `q` as Fractions
   whose denominators are powers of two, rounded such that the largest likelihood ratio is at most e^epsilon *exactly*.
   It states `bits` per answer and `width` (bytes on the wire), `variance(frequencies, people)` in closed form, `mse`,
   `largest_ratio()`, and, where reports can be listed, `law(value)`: the probability of every report, whose place in
   the tuple is the wire's bytes read as a little-endian integer. `describe()` is public and exact, for JSON.
2. **The client half** registers with `client.perturbed` (single dispatch on the mechanism's type): an int64 array of
   checked values and a `Source` in, one row of data per person out. Randomness is read in a stated order, as
   little-endian 8-byte words compared with integer thresholds and as bit-sliced coins (`client/coins.py`), so that a
   client in another language that is given the same bytes makes the same report. Every report is really made.
3. **The collector half** registers with `collector.valid` (which rows are well formed), `collector.tally` (rows to an
   additive table) and `collector.frequencies` (table to unbiased shares). Malformed reports are refused and counted;
   nothing that arrives raises. Tables add, so `Counts` stream and merge. Floats are fine here: it is post-processing.
4. **The verbs** work from either side: `mechanism.perturb(values, source) -> Reports`, `.encode(reports) -> bytes`,
   `.decode(wire) -> Reports, refused`, `.aggregate(reports or wire) -> Counts`, `counts + counts`,
   `.estimate(counts, confidence) -> Estimate(frequencies, standard_error, interval, raw=True)`,
   `estimate.projected("norm-sub" | "simplex" | "em")`, marked `raw=False`. The client never imports the collector,
   nor the collector the client (tests/unit/test_local_halves.py), and this door loads nothing before it is asked for.
5. `private` travels from the source through reports, counts and estimate: a `SeededSource` marks all of them.

Names at this door: the mechanisms RandomisedResponse, DirectEncoding, UnaryEncoding (symmetric, optimised, or any p
and q), ThresholdEncoding, HistogramEncoding, LocalHashing, HadamardResponse, SubsetSelection, CountMeanSketch,
HeavyHitters; for numbers Duchi, Piecewise, Hybrid, LaplaceNumber, SquareWave (a whole distribution), and for several
at once DuchiVector, SampledNumbers; for sets ChooseUpTo with OneOfSet, SetBits and PaddedSample; for rankings Ranking
with PairOrder and ItemAtPlace; Attributes (several questions), Memoised and Wallet (asked again and again), `shuffled`;
LocalNaiveBayes (learning from reports) with LabelledNumber; `epsilon` (a replace-one loss); `advise`, `verify`,
`combine` (several levels), `poisoning`, and the values Reports, Counts, Estimate, Advice, Certificate.
Over the wire: `Question` (levels to choose from), `seal` (reports into envelopes), `Collection` (envelopes into a
`Finding`), `from_description`; browsers use `client/index.mjs`. Answers of one person that are matched: `cross` (a
`CrossTable`, or `GroupMeans` of a number), `cross_joint`, `scale_mean`, `MatchedNaiveBayes`, all from `scores`; and
`suspicions` of made-up reports.

>>> from cloister import local
>>> from cloister.privacy.noise import SeededSource
>>> jobs = local.DirectEncoding.for_loss(14, local.epsilon(5))
>>> reports = jobs.perturb([3] * 900 + [5] * 100, SeededSource(1))
>>> estimate = jobs.estimate(jobs.aggregate(reports))
>>> estimate.frequencies.argmax(), estimate.raw, estimate.private
(np.int64(3), True, False)
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cloister.local.advice import Advice, advise, advise_number
    from cloister.local.attributes import Attributes
    from cloister.local.by_group import GroupMeans
    from cloister.local.certificate import Certificate, verify
    from cloister.local.choose import ChooseUpTo, Ranking
    from cloister.local.client.envelope import seal
    from cloister.local.collector.collection import Checked, Collection
    from cloister.local.collector.counts import Counts
    from cloister.local.collector.estimate import Estimate
    from cloister.local.collector.mean import MeanEstimate
    from cloister.local.collector.rankings import RankingEstimate
    from cloister.local.collector.scores import scores
    from cloister.local.collector.square_wave import DistributionEstimate
    from cloister.local.cross_table import CrossTable, cross, cross_joint
    from cloister.local.description import from_description
    from cloister.local.finding import Finding
    from cloister.local.liars import Poisoning, poisoning
    from cloister.local.matched import matches
    from cloister.local.matched_bayes import MatchedNaiveBayes, bayes_from_matched
    from cloister.local.memory import Wallet
    from cloister.local.mixed import combine
    from cloister.local.naive_bayes import LocalNaiveBayes
    from cloister.local.number import NumberMechanism
    from cloister.local.oracle import Oracle, Reports, epsilon
    from cloister.local.oracles.direct import DirectEncoding
    from cloister.local.oracles.duchi import Duchi
    from cloister.local.oracles.duchi_vector import DuchiVector
    from cloister.local.oracles.hadamard import HadamardResponse
    from cloister.local.oracles.hashing import LocalHashing
    from cloister.local.oracles.heavy import HeavyHitters
    from cloister.local.oracles.histogram import HistogramEncoding
    from cloister.local.oracles.hybrid import Hybrid
    from cloister.local.oracles.labelled import LabelledNumber
    from cloister.local.oracles.laplace import LaplaceNumber
    from cloister.local.oracles.memoised import Memoised
    from cloister.local.oracles.padded import PaddedSample
    from cloister.local.oracles.piecewise import Piecewise
    from cloister.local.oracles.rankings import ItemAtPlace, PairOrder
    from cloister.local.oracles.response import RandomisedResponse
    from cloister.local.oracles.sampled import SampledNumbers
    from cloister.local.oracles.sets import OneOfSet, SetBits
    from cloister.local.oracles.sketch import CountMeanSketch
    from cloister.local.oracles.square_wave import SquareWave
    from cloister.local.oracles.subset import SubsetSelection
    from cloister.local.oracles.threshold import ThresholdEncoding
    from cloister.local.oracles.unary import UnaryEncoding
    from cloister.local.question import Question
    from cloister.local.scale import ScaleMean, scale_mean
    from cloister.local.shuffle import Shuffled, shuffled, shuffled_levels
    from cloister.local.suspicion import Suspicion, suspicions

__all__ = [
    "epsilon",
    "RandomisedResponse",
    "DirectEncoding",
    "UnaryEncoding",
    "ThresholdEncoding",
    "HistogramEncoding",
    "LocalHashing",
    "HadamardResponse",
    "SubsetSelection",
    "CountMeanSketch",
    "HeavyHitters",
    "LaplaceNumber",
    "Duchi",
    "Piecewise",
    "Hybrid",
    "SquareWave",
    "DuchiVector",
    "SampledNumbers",
    "ChooseUpTo",
    "OneOfSet",
    "SetBits",
    "PaddedSample",
    "Ranking",
    "PairOrder",
    "ItemAtPlace",
    "Attributes",
    "LabelledNumber",
    "LocalNaiveBayes",
    "Memoised",
    "Wallet",
    "shuffled",
    "shuffled_levels",
    "advise",
    "advise_number",
    "verify",
    "combine",
    "poisoning",
    "from_description",
    "Question",
    "seal",
    "Collection",
    "Checked",
    "Finding",
    "scores",
    "matches",
    "cross",
    "cross_joint",
    "scale_mean",
    "bayes_from_matched",
    "suspicions",
    "MatchedNaiveBayes",
    "CrossTable",
    "GroupMeans",
    "ScaleMean",
    "Suspicion",
    "Oracle",
    "Reports",
    "Counts",
    "Estimate",
    "NumberMechanism",
    "MeanEstimate",
    "DistributionEstimate",
    "RankingEstimate",
    "Shuffled",
    "Advice",
    "Certificate",
    "Poisoning",
]

_HOMES = {
    "epsilon": "oracle",
    "Oracle": "oracle",
    "Reports": "oracle",
    "RandomisedResponse": "oracles.response",
    "DirectEncoding": "oracles.direct",
    "UnaryEncoding": "oracles.unary",
    "ThresholdEncoding": "oracles.threshold",
    "HistogramEncoding": "oracles.histogram",
    "LocalHashing": "oracles.hashing",
    "HadamardResponse": "oracles.hadamard",
    "SubsetSelection": "oracles.subset",
    "CountMeanSketch": "oracles.sketch",
    "HeavyHitters": "oracles.heavy",
    "LaplaceNumber": "oracles.laplace",
    "Duchi": "oracles.duchi",
    "Piecewise": "oracles.piecewise",
    "Hybrid": "oracles.hybrid",
    "SquareWave": "oracles.square_wave",
    "DuchiVector": "oracles.duchi_vector",
    "SampledNumbers": "oracles.sampled",
    "ChooseUpTo": "choose",
    "OneOfSet": "oracles.sets",
    "SetBits": "oracles.sets",
    "PaddedSample": "oracles.padded",
    "Ranking": "choose",
    "PairOrder": "oracles.rankings",
    "ItemAtPlace": "oracles.rankings",
    "RankingEstimate": "collector.rankings",
    "Attributes": "attributes",
    "LabelledNumber": "oracles.labelled",
    "LocalNaiveBayes": "naive_bayes",
    "Memoised": "oracles.memoised",
    "Wallet": "memory",
    "shuffled": "shuffle",
    "shuffled_levels": "shuffle",
    "Shuffled": "shuffle",
    "Advice": "advice",
    "advise": "advice",
    "advise_number": "advice",
    "NumberMechanism": "number",
    "MeanEstimate": "collector.mean",
    "DistributionEstimate": "collector.square_wave",
    "Certificate": "certificate",
    "verify": "certificate",
    "combine": "mixed",
    "Poisoning": "liars",
    "poisoning": "liars",
    "Counts": "collector.counts",
    "Collection": "collector.collection",
    "Checked": "collector.reader",
    "scores": "collector.scores",
    "matches": "matched",
    "cross": "cross_table",
    "cross_joint": "cross_table",
    "CrossTable": "cross_table",
    "GroupMeans": "by_group",
    "scale_mean": "scale",
    "bayes_from_matched": "matched_bayes",
    "MatchedNaiveBayes": "matched_bayes",
    "ScaleMean": "scale",
    "suspicions": "suspicion",
    "Suspicion": "suspicion",
    "Finding": "finding",
    "Question": "question",
    "from_description": "description",
    "seal": "client.envelope",
    "Estimate": "collector.estimate",
}


def __getattr__(name: str) -> object:
    """Fetch a name from its home the first time it is asked for."""
    if name in _HOMES:
        value: object = getattr(import_module(f"cloister.local.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"cloister.local has no {name!r}. It offers: {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted(__all__)
