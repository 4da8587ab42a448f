"""Local privacy: noise on the respondent's own device, estimates with intervals at the collector.

    base/        shared by all mechanisms: facts, coins, wire, counts, estimates
    mechanisms/  one file each: public facts, the law of its reports, the device's half, the collector's half
    survey/      questions, forms, envelopes, collections, a respondent's memory
    analysis/    findings, combined levels, scales, ratios, naive Bayes; linked/: two answers of one person
    privacy/     certificates, advice, the shuffle model
    fraud/       made-up reports: bounds on their effect, and tests that detect them
    client/      the device's half in JavaScript

The contract of a mechanism:

1. **It is a frozen value of public facts**: `domain` (values are 0 … domain - 1), `loss` (an exact, pure epsilon,
   replace-one: what a person says, not that they were asked), probabilities `p`, `q` as Fractions whose denominators
   are powers of two, rounded such that the largest likelihood ratio is at most e^epsilon *exactly*. It states `bits`
   per answer and `width` (bytes on the wire), `variance(frequencies, people)` in closed form, `mse`,
   `largest_ratio()`, and, where reports can be listed, `law(value)`: the probability of every report, whose place in
   the tuple is the wire's bytes read as a little-endian integer. `describe()` is public and exact, for JSON.
2. **The device's half** registers with `base.perturb.perturbed` (single dispatch on the mechanism's type): an int64
   array of checked values and a `Source` in, one row of data per person out. Randomness is read in a stated order, as
   little-endian 8-byte words compared with integer thresholds and as bit-sliced coins (`base/coins.py`), so that a
   client in another language that is given the same bytes makes the same report. Every report is really made.
3. **The collector's half** registers with `base.counts`: `valid` (which rows are well formed), `tally` (rows to an
   additive table) and `frequencies` (table to unbiased shares). Malformed reports are refused and counted; nothing
   that arrives raises. Tables add, so `Counts` stream and merge. Floats are fine here: it is post-processing.
4. **The verbs**: `mechanism.perturb(values, source) -> Reports`, `.encode(reports) -> bytes`,
   `.decode(wire) -> Reports, refused`, `.aggregate(reports or wire) -> Counts`, `counts + counts`,
   `.estimate(counts, confidence) -> Estimate(frequencies, standard_error, interval, raw=True)`,
   `estimate.projected("norm-sub" | "simplex" | "em")`, marked `raw=False`.
5. `private` travels from the source through reports, counts and estimate: a `SeededSource` marks all of them.

Exported names: the mechanisms RandomisedResponse, DirectEncoding, UnaryEncoding (symmetric, optimised, or any p
and q), ThresholdEncoding, HistogramEncoding, LocalHashing, HadamardResponse, SubsetSelection, CountMeanSketch,
HeavyHitters; for numbers Duchi, Piecewise, Hybrid, LaplaceNumber, SquareWave (a whole distribution), and for several
at once DuchiVector, SampledNumbers; for sets ChooseUpTo with OneOfSet, SetBits and PaddedSample; for rankings Ranking
with PairOrder and ItemAtPlace; Attributes (several questions), Memoised and Wallet (repeated questions), `shuffled`;
LocalNaiveBayes (learning from reports) with LabelledNumber; `epsilon` (a replace-one loss); `advise`, `verify`,
`combine` (several levels), `poisoning`, and the values Reports, Counts, Estimate, Advice, Certificate.
Over the wire: `Question` (levels to choose from), `seal` (reports into envelopes), `Collection` (envelopes into a
`Finding`), `from_description`; browsers use `client/index.mjs`. Matched answers of one person: `cross` (a
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

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.local.analysis.combine import combine
    from cloister.local.analysis.finding import Finding
    from cloister.local.analysis.linked.cross_table import CrossTable, cross, cross_joint
    from cloister.local.analysis.linked.group_means import GroupMeans
    from cloister.local.analysis.linked.naive_bayes import MatchedNaiveBayes, bayes_from_matched
    from cloister.local.analysis.linked.pairs import matches
    from cloister.local.analysis.naive_bayes import LocalNaiveBayes
    from cloister.local.analysis.scale import ScaleMean, scale_mean
    from cloister.local.analysis.scores import scores
    from cloister.local.base.counts import Counts
    from cloister.local.base.estimate import Estimate
    from cloister.local.base.mean import MeanEstimate
    from cloister.local.base.number import NumberMechanism
    from cloister.local.base.oracle import Oracle, Reports, epsilon
    from cloister.local.fraud.poisoning import Poisoning, poisoning
    from cloister.local.fraud.report import Suspicion, suspicions
    from cloister.local.mechanisms.direct import DirectEncoding, RandomisedResponse
    from cloister.local.mechanisms.duchi import Duchi
    from cloister.local.mechanisms.duchi_vector import DuchiVector
    from cloister.local.mechanisms.hadamard import HadamardResponse
    from cloister.local.mechanisms.hashing import LocalHashing
    from cloister.local.mechanisms.heavy import HeavyHitters
    from cloister.local.mechanisms.histogram import HistogramEncoding
    from cloister.local.mechanisms.hybrid import Hybrid
    from cloister.local.mechanisms.labelled import LabelledNumber
    from cloister.local.mechanisms.laplace import LaplaceNumber
    from cloister.local.mechanisms.memoised import Memoised
    from cloister.local.mechanisms.padded import PaddedSample
    from cloister.local.mechanisms.piecewise import Piecewise
    from cloister.local.mechanisms.rankings import ItemAtPlace, PairOrder, RankingEstimate
    from cloister.local.mechanisms.sampled import SampledNumbers
    from cloister.local.mechanisms.sets import OneOfSet, SetBits
    from cloister.local.mechanisms.sketch import CountMeanSketch
    from cloister.local.mechanisms.square_wave import DistributionEstimate, SquareWave
    from cloister.local.mechanisms.subset import SubsetSelection
    from cloister.local.mechanisms.unary import ThresholdEncoding, UnaryEncoding
    from cloister.local.privacy.advice import Advice, advise, advise_number
    from cloister.local.privacy.certificate import Certificate, verify
    from cloister.local.privacy.shuffle import Shuffled, shuffled, shuffled_levels
    from cloister.local.survey.attributes import Attributes
    from cloister.local.survey.choose import ChooseUpTo, Ranking
    from cloister.local.survey.collection import CheckedEnvelope, Collection
    from cloister.local.survey.description import from_description
    from cloister.local.survey.envelope import seal
    from cloister.local.survey.memory import Wallet
    from cloister.local.survey.question import Question

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
    "CheckedEnvelope",
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

__getattr__, __dir__ = door(__name__, renamed={"Checked": "local.CheckedEnvelope"})
