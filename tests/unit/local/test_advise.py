"""Advice, levels and liars."""

from itertools import combinations
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.analysis.combine import combine, selection
from cloister.local.analysis.scores import scores
from cloister.privacy.errors import BadInput
from cloister.privacy.noise import SeededSource


@pytest.mark.parametrize("domain", [2, 3, 10, 100, 1024])
@pytest.mark.parametrize("amount", ["0.5", "1", "2", "4"])
def test_advice_is_within_two_percent_of_the_least_error(domain: int, amount: str) -> None:
    advice = local.advise(domain, local.epsilon(amount), 10_000)
    least = min(line.mse for line in advice.table)
    assert advice.best.mse(10_000) <= 1.02 * least
    assert [line.mse for line in advice.table] == sorted(line.mse for line in advice.table)
    assert "→" in str(advice)


def test_direct_encoding_beats_optimised_bits_exactly_where_the_theory_says() -> None:
    for amount, bound in ((0.5, 6.9), (1, 10.2), (2, 24.2), (5, 447)):
        loss = local.epsilon(amount)
        for domain in (int(bound) - 1, int(bound) + 2):
            direct = local.DirectEncoding.for_loss(domain, loss)
            oue = local.UnaryEncoding.optimised(domain, loss)
            rare = [float(mechanism.variance([0.0], 1)[0]) for mechanism in (direct, oue)]
            assert (rare[0] < rare[1]) == (domain < bound), (amount, domain)


def test_advice_keeps_to_the_bits_it_is_given() -> None:
    advice = local.advise(1 << 20, local.epsilon(1), 10**6, most_bits=100)
    assert advice.best.bits <= 100
    assert max(line.bits for line in advice.table) > 100
    with pytest.raises(BadInput):
        local.advise(1 << 20, local.epsilon(1), 10**6, most_bits=3)


def test_a_domain_beyond_listing_is_sent_to_the_sketch_or_kept_short() -> None:
    advice = local.advise(2**32, local.epsilon(1), 10**6)
    assert advice.best.name in ("count-mean-sketch", "local-hashing")


def groups(shares: list[np.ndarray], sizes: list[int], amounts: list[str], seed: int) -> list[local.Estimate]:
    found = []
    for number, (share, size, amount) in enumerate(zip(shares, sizes, amounts, strict=True)):
        values = np.repeat(np.arange(len(share)), np.round(share * size).astype(int))
        mechanism = local.DirectEncoding.for_loss(len(share), local.epsilon(amount))
        found.append(
            mechanism.estimate(mechanism.aggregate(mechanism.perturb(values, SeededSource(f"{seed}-{number}"))))
        )
    return found


def by_lot(share: np.ndarray, sizes: list[int], amounts: list[str], seed: int) -> list[local.Estimate]:
    values = np.repeat(np.arange(len(share)), np.round(share * sum(sizes)).astype(int))
    people = np.split(np.random.default_rng(seed).permutation(values), np.cumsum(sizes)[:-1])
    shares = [np.bincount(part, minlength=len(share)) / len(part) for part in people]
    return groups(shares, sizes, amounts, seed)


@pytest.mark.long
def test_levels_combined_err_less_than_each_alone_and_stay_unbiased() -> None:
    share, sizes, amounts = np.array([0.5, 0.3, 0.2]), [2000, 3000, 1000], ["0.5", "1", "3"]
    runs = [combine(by_lot(share, sizes, amounts, seed)) for seed in range(300)]
    found = np.stack([run.frequencies for run in runs])
    error = runs[0].standard_error
    for one in by_lot(share, sizes, amounts, 0):  # about all who answered a level alone errs by who was in it too
        assert (error**2 < one.standard_error**2 + share * (1 - share) * (1 / one.n - 1 / 6000)).all()
    assert (np.abs(found.mean(axis=0) - share) < 5 * error / np.sqrt(len(runs))).all()
    assert np.allclose(found.std(axis=0), error, rtol=0.2)


def test_weights_do_not_depend_on_the_answers() -> None:
    one, other = ([np.array([0.9, 0.1])] * 2, [np.array([0.2, 0.8])] * 2)
    sizes, amounts = [1000, 1000], ["1", "2"]

    def weight(shares: list[np.ndarray]) -> float:
        a, b = groups(shares, sizes, amounts, 4)
        return float(((combine([a, b]).frequencies - b.frequencies) / (a.frequencies - b.frequencies))[0])

    assert weight(one) == pytest.approx(weight(other))


def test_weights_by_people_are_right_for_all_when_levels_follow_answers() -> None:
    hiding, open_ = np.array([0.9, 0.1]), np.array([0.1, 0.9])
    runs = [groups([hiding, open_], [4000, 4000], ["1", "4"], seed) for seed in range(60)]
    by_people = np.mean([combine(run, "people").frequencies[0] for run in runs])
    by_variance = np.mean([combine(run, "variance").frequencies[0] for run in runs])
    assert by_people == pytest.approx(0.5, abs=0.02)
    assert by_variance < 0.25
    assert selection(runs[0]) < 1e-6


def test_selection_is_quiet_when_levels_say_nothing() -> None:
    share = np.array([0.5, 0.3, 0.2])
    chances = [selection(groups([share, share], [3000, 3000], ["1", "2"], seed)) for seed in range(60)]
    assert min(chances) > 1e-4
    assert np.mean(np.array(chances) < 0.5) == pytest.approx(0.5, abs=0.25)


def test_what_does_not_belong_together_is_not_combined() -> None:
    two, three = (groups([np.ones(k) / k], [900], ["1"], 1)[0] for k in (2, 3))
    for wrong in ([], [two, three], [two.projected(), two]):
        with pytest.raises(BadInput):
            combine(wrong)
    with pytest.raises(BadInput):
        combine([two], "loudness")  # type: ignore[arg-type]


@pytest.mark.parametrize("amount", ["0.5", "2"])
def test_crafted_reports_reach_the_poisoning_bound_and_never_pass_it(amount: str) -> None:
    loss, n, fakes, domain = local.epsilon(amount), 4000, 400, 16
    honest = np.zeros(n - fakes, dtype=int)
    crafted = {
        local.DirectEncoding.for_loss(domain, loss): np.full(fakes, 9, dtype=np.uint64),
        local.UnaryEncoding.optimised(domain, loss): np.full((fakes, 2), [0, 2], dtype=np.uint8),
        local.HadamardResponse.for_loss(domain, loss, blocks=1): np.zeros(fakes, dtype=np.uint64),
    }
    for mechanism, data in crafted.items():
        clean = mechanism.aggregate(mechanism.perturb(honest, SeededSource(3)))
        dirty = clean + mechanism.aggregate(local.Reports(mechanism, data))
        bound = local.poisoning(mechanism, fakes, n)
        moved = mechanism.estimate(dirty).frequencies[9] - mechanism.estimate(clean).frequencies[9]
        noise = 6 * float(mechanism.estimate(clean).standard_error[9]) * fakes / n
        assert 0.9 * bound.up - noise < moved < bound.up + noise, mechanism
        assert bound.up > bound.honest


def few(amount: str) -> dict[str, Any]:
    """Mechanisms with so few reports that all can be listed."""
    loss, d = local.epsilon(amount), 5
    return {
        "RR": local.RandomisedResponse.for_loss(loss),
        "mostly yes": local.RandomisedResponse.coins("1/2", "9/10"),
        "mostly no": local.RandomisedResponse.coins("1/3", "1/10"),
        "DE": local.DirectEncoding.for_loss(d, loss),
        "SUE": local.UnaryEncoding.symmetric(d, loss),
        "OUE": local.UnaryEncoding.optimised(d, loss),
        "THE": local.ThresholdEncoding.for_loss(d, loss),
        "SS": local.SubsetSelection.for_loss(d, loss, size=2),
        "HR": local.HadamardResponse.for_loss(d, loss, blocks=1),
        "HR in blocks": local.HadamardResponse.for_loss(d, loss, blocks=2),
        "OLH": local.LocalHashing.for_loss(d, loss),
        "memoised": local.Memoised.direct(d, lifetime=local.epsilon(12), report=loss),
        "memoised bits": local.Memoised.unary(d, lifetime=local.epsilon(12), report=loss),
        "one of a set": local.OneOfSet.for_loss(d, 2, loss),
        "bits of a set": local.SetBits.for_loss(d, 2, loss),
        "padded": local.PaddedSample.for_loss(d, 2, loss),
    }


def every_score(mechanism: Any) -> Any:
    """Return the scores of all reports that a collector takes."""
    reports, _ = mechanism.decode([number.to_bytes(mechanism.width, "little") for number in range(1 << mechanism.bits)])
    return scores(mechanism, reports)


@pytest.mark.parametrize("amount", ["0.1", "1", "4"])
@pytest.mark.parametrize("name", few("1"))
def test_no_report_on_any_value_passes_the_poisoning_bound_and_some_report_reaches_it(name: str, amount: str) -> None:
    mechanism = few(amount)[name]
    each, alone = every_score(mechanism), local.poisoning(mechanism, 1, 1)
    assert (each.max(), 1 - each.min()) == (pytest.approx(alone.up), pytest.approx(alone.down))
    for targets in range(1, mechanism.domain + 1):
        sums = [each[:, list(chosen)].sum(axis=1).max() for chosen in combinations(range(mechanism.domain), targets)]
        assert max(sums) <= local.poisoning(mechanism, 1, 1, targets).together * (1 + 1e-9)


@pytest.mark.parametrize("length", [4, 8])
def test_crafted_reports_move_heavy_hitters_up_and_down_within_the_bound(length: int) -> None:
    mechanism, n, fakes, value = local.HeavyHitters.for_loss(local.epsilon(1), length, 2), 2000, 40, 9
    bound, last = local.poisoning(mechanism, fakes, n), mechanism.levels - 1
    own = mechanism.hashed(last, 1, value)
    raised, lowered = [], []
    for turn in range(20):
        for moved, holds, bucket in ((raised, value ^ 6, own), (lowered, value, (own + 1) % mechanism.buckets)):
            honest = mechanism.aggregate(mechanism.perturb([holds] * (n - fakes), SeededSource(f"{turn} {holds}")))
            report = last + mechanism.levels * (mechanism.buckets + bucket)  # of the hash with number 1
            fooled = honest + mechanism.aggregate([report.to_bytes(mechanism.width, "little")] * fakes)
            pair = [mechanism.estimate(counts, values=[value]).frequencies[0] for counts in (honest, fooled)]
            moved.append(abs(pair[1] - pair[0]))
    for moved, most in ((raised, bound.up), (lowered, bound.down)):
        slip = 3 * np.std(moved) / len(moved) ** 0.5
        assert 0.9 * most - slip < np.mean(moved) < most + slip


@pytest.mark.parametrize("name", ["mostly yes", "mostly no", "RR"])
def test_made_up_noes_and_yeses_move_both_shares_within_the_bound(name: str) -> None:
    mechanism, n, fakes = few("1")[name], 10_000, 1000
    for honest, false in ((1, 0), (0, 1)):
        question = local.Question("smoker", [mechanism], ["no", "yes"])
        reports = local.seal("smoker", mechanism.perturb(np.full(n - fakes, honest)))
        crafted = local.seal("smoker", local.Reports(mechanism, np.full(fakes, false, dtype=np.uint64)))
        clean = local.Collection([question]).collect(reports).estimate("smoker", fakes=0)
        dirty = local.Collection([question]).collect(reports + crafted).estimate("smoker", fakes=fakes)
        moved = float(dirty.raw.frequencies[false] - clean.raw.frequencies[false])
        noise = 7 * float(clean.raw.standard_error[0]) * fakes / n
        assert 0 < moved < min(dirty.poisoning.up, dirty.poisoning.down) + noise


@pytest.mark.parametrize("name", [name for name in few("1") if "set" not in name and name != "padded"])
def test_the_stated_variance_of_every_share_is_that_of_the_law_of_reports(name: str) -> None:
    mechanism = few("1")[name]
    each = every_score(mechanism)
    for value in range(mechanism.domain):
        law = np.array([float(chance) for chance in mechanism.law(value) if chance])
        exact = law @ each**2 - (law @ each) ** 2
        assert mechanism.variance(np.eye(mechanism.domain)[value], 1) == pytest.approx(exact)


def test_one_liar_cannot_move_a_histogram_at_will() -> None:
    she = local.HistogramEncoding.for_loss(4, local.epsilon(1))
    assert she.aggregate(local.Reports(she, np.array([[10**6, 0, 0, 0]], dtype=np.int32))).refused == 1
    assert local.poisoning(she, 1, 1000).down <= (she.limit + 1) / 1000


def test_more_targets_can_be_pushed_by_bits_than_by_single_values() -> None:
    loss = local.epsilon(1)
    direct = local.poisoning(local.DirectEncoding.for_loss(64, loss), 10, 1000, targets=5)
    bits = local.poisoning(local.UnaryEncoding.optimised(64, loss), 10, 1000, targets=5)
    subsets = local.poisoning(local.SubsetSelection.for_loss(64, loss, size=3), 10, 1000, targets=5)
    assert bits.together == pytest.approx(5 * (1 - 0.2691) / (0.5 - 0.2691) / 100, rel=0.01)
    assert bits.together == pytest.approx(5 * bits.up)
    assert subsets.together < 5 * subsets.up
    assert direct.together < 5 * direct.up
    with pytest.raises(BadInput):
        local.poisoning(local.DirectEncoding.for_loss(4, loss), 10, 5)
    assert "fake" in str(bits)


def test_a_report_that_is_a_hundred_times_shorter_may_err_a_little_more() -> None:
    found = local.advise(100_000, local.epsilon(1), 10_000)
    least = found.table[0]
    assert least.bits >= 100 * found.best.bits
    assert found.best.mse(10_000) <= 1.05**2 * least.mse
