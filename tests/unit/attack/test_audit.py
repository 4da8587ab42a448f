"""Exact audits, intervals, events, pictures and refusals: everything about audits that needs no luck."""

import math
import subprocess
import sys
from fractions import Fraction
from xml.etree import ElementTree

import numpy as np
import pytest
from scipy import stats

from cloister.attack import Batched, audit, audit_exact
from cloister.attack.intervals import at_least, at_most, epsilon_at_least
from cloister.attack.mechanisms.events import lowest_bit
from cloister.attack.mechanisms.outputs import as_outputs
from cloister.privacy.errors import BadInput, BadLoss, BadNumber, BadProbability
from cloister.privacy.loss import epsilon, rho

COIN = {"yes": Fraction(3, 4), "no": Fraction(1, 4)}
OTHER = {"yes": Fraction(1, 4), "no": Fraction(3, 4)}


def still(data: int, n: int) -> np.ndarray:
    return np.full(n, data)


def test_the_fair_coin_costs_ln_three() -> None:
    found = audit_exact(COIN, OTHER, epsilon("1.0986123"))  # ln 3 = 1.098612288...
    assert found.verdict == "holds"
    assert found.lower_bound == pytest.approx(math.log(3), abs=1e-12)
    assert audit_exact(COIN, OTHER, epsilon("1.0986122")).verdict == "broken"


def test_a_tight_claim_is_not_called_broken_for_the_last_bit_of_a_float() -> None:
    keep = math.e / (1 + math.e)
    found = audit_exact({0: keep, 1: 1 - keep}, {0: 1 - keep, 1: keep}, epsilon(1))
    assert found.verdict == "holds"
    assert found.lower_bound == pytest.approx(1)


def test_an_exact_audit_sees_a_factor_of_two_in_the_exponent() -> None:
    def law(scores: list[int], rate: float) -> dict[int, float]:
        weights = [math.exp(rate * score) for score in scores]
        return {i: weight / sum(weights) for i, weight in enumerate(weights)}

    left, right = [1] + [0] * 9, [0] + [1] * 9
    assert audit_exact(law(left, 0.5), law(right, 0.5), epsilon(1)).verdict == "holds"
    assert audit_exact(law(left, 1), law(right, 1), epsilon(1)).lower_bound > 1.7


def test_delta_pays_for_the_worst_outputs_first() -> None:
    # P - e^epsilon Q at delta 1/4: only "yes" counts, so e^epsilon = (3/4 - 1/4) / (1/4).
    assert audit_exact(COIN, OTHER, epsilon(1, delta="1/4")).lower_bound == pytest.approx(math.log(2))


def test_the_exact_epsilon_agrees_with_a_search_over_all_sets() -> None:
    generator = np.random.default_rng(3)
    for _ in range(20):
        left, right = generator.dirichlet(np.ones(6), 2)
        inside = (np.arange(64)[:, None] >> np.arange(6)) & 1
        p, q = inside @ left, inside @ right
        for delta in (0.0, 0.02, 0.2):
            best = max(
                math.log((a - delta) / b)
                for a, b in [*zip(p, q, strict=True), *zip(q, p, strict=True)]
                if a - delta > 0
            )
            claim = epsilon(50, delta=delta) if delta else epsilon(50)
            found = audit_exact(dict(enumerate(left)), dict(enumerate(right)), claim)
            assert found.lower_bound == pytest.approx(max(best, 0), abs=1e-9)


def test_an_output_that_only_one_input_can_give_costs_everything() -> None:
    found = audit_exact({0: Fraction(1)}, {0: Fraction(99, 100), 1: Fraction(1, 100)}, epsilon(30))
    assert found.lower_bound == math.inf
    assert "likelier on the right" in found.event
    assert audit_exact({0: 1}, {0: Fraction(99, 100), 1: Fraction(1, 100)}, epsilon(1, delta="0.01")).verdict == "holds"


def test_a_tolerance_keeps_float_dust_from_breaking_a_claim() -> None:
    left, right = {0: 1.0, 1: 0.0}, {0: 1 - 1e-12, 1: 1e-12}
    assert audit_exact(left, right, epsilon(1)).verdict == "broken"
    assert audit_exact(left, right, epsilon(1), tolerance=1e-11).verdict == "holds"


def test_a_rho_is_compared_with_its_curve() -> None:
    assert audit_exact(COIN, OTHER, rho("0.6036")).verdict == "holds"  # ln(3)²/2
    assert audit_exact(COIN, OTHER, rho("0.02")).verdict == "broken"


def test_clopper_pearson_covers_at_every_probability() -> None:
    counts, level = np.arange(31), 0.05
    low, high = at_least(counts, 30, level), at_most(counts, 30, level)
    for p in np.linspace(0.001, 0.999, 97):
        chances = stats.binom.pmf(counts, 30, p)
        assert chances[low > p].sum() <= level
        assert chances[high < p].sum() <= level
    assert low[0] == 0
    assert high[-1] == 1


def test_clopper_pearson_agrees_with_scipy() -> None:
    found = stats.binomtest(7, 50).proportion_ci(0.9, method="exact")
    assert at_least(7, 50, 0.05) == pytest.approx(found.low)
    assert at_most(7, 50, 0.05) == pytest.approx(found.high)


@pytest.mark.parametrize(("n", "others"), [(12, 12), (20, 9)])
@pytest.mark.parametrize("strips", [4, 24])
def test_a_bound_on_epsilon_fails_no_more_often_than_its_level(n: int, others: int, strips: int) -> None:
    level, deltas = 0.2, np.array([0.0, 0.05])
    a, b = (grid.ravel() for grid in np.meshgrid(np.arange(n + 1), np.arange(others + 1), indexing="ij"))
    bounds = epsilon_at_least(a, b, n, level, deltas, others=others, strips=strips)
    worst = 0.0
    for p in np.linspace(0.02, 0.98, 25):
        for q in np.linspace(0.02, 0.98, 25):
            chance = stats.binom.pmf(a, n, p) * stats.binom.pmf(b, others, q)
            with np.errstate(divide="ignore"):
                true = np.log(np.maximum(p - deltas, 0) / q)
            # One confidence for all deltas together, since the region of probabilities does not depend on them.
            wrong = (bounds > np.maximum(true, 0) + 1e-12).any(axis=1)
            worst = max(worst, float(chance[wrong].sum()))
    assert 0 < worst <= level


def test_a_bound_on_epsilon_is_sharper_than_that_of_two_intervals() -> None:
    none = np.zeros(1)
    for often, seldom, n in ((75, 27, 500_000), (300, 100, 100_000), (200, 10, 1_000)):
        found = epsilon_at_least(often, seldom, n, 0.05, none)[0, 0]
        two = math.log(at_least(often, n, 0.025) / at_most(seldom, n, 0.025))
        assert two < found < math.log(often / seldom)
    assert epsilon_at_least(0, 0, 100, 0.05, none)[0, 0] == 0


def test_more_samples_prove_most_of_a_gaussian_epsilon_without_its_family() -> None:
    draw = np.random.default_rng(23)
    noisy = Batched(lambda shift, n: shift + np.rint(10_000 * draw.normal(size=n)))  # whole numbers hide no bits
    claim = epsilon(4, delta="1e-3")
    bounds = [audit(noisy, 0, 12_150, claim, n=200_000).lower_bound for _ in range(5)]
    assert 3.0 <= np.median(bounds) <= 4


def test_the_lowest_bit_of_integers_and_floats() -> None:
    assert lowest_bit(np.array([12, 1, -8, 0])).tolist() == [2, 0, 3, 9999]
    assert lowest_bit(np.array([3.5, 0.1, 2.0**-1074, -(2.0**60), 0.0, np.inf])).tolist() == [
        -1,
        -55,
        -1074,
        60,
        9999,
        9999,
    ]


def test_outputs_of_any_kind_become_rows_of_numbers() -> None:
    assert as_outputs([True, False], [1, 2])[0].tolist() == [[1], [0]]
    assert as_outputs([(1, 2.5)], [(3, 4)])[1].tolist() == [[3, 4]]
    assert as_outputs([2**70], [1])[0].dtype == np.float64
    left, right = as_outputs(["a", None], ["a", (1, 2)])
    assert left[0] == right[0]
    assert left[1] != right[1]
    assert as_outputs([[1, 2]], [[1, 2, 3]])[0].shape == (1, 1)


def test_a_mechanism_that_tells_everything_is_broken_and_says_how() -> None:
    found = audit(Batched(still), 3, 4, epsilon(1), n=1_000, confidence=0.99)
    assert found.verdict == "broken"
    assert found.seen in {(1.0, 0.0), (0.0, 1.0)}
    assert str(found).startswith("broken: claim epsilon 1: epsilon ≥ ")
    assert "1,000 samples a side, confidence 99 %" in str(found)


def test_a_mechanism_that_tells_nothing_holds_with_a_bound_of_zero() -> None:
    found = audit(Batched(lambda _, n: np.zeros((n, 3))), 3, 4, epsilon("0.001"), n=1_000)
    assert (found.verdict, found.lower_bound) == ("holds", 0)
    assert audit(lambda _: "silence", 3, 4, epsilon("0.001"), n=200).verdict == "holds"


@pytest.mark.parametrize("outputs", [still, lambda data, n: np.random.default_rng(data).normal(data, 1, n)])
def test_the_picture_is_one_self_contained_drawing_for_light_and_dark(outputs: object) -> None:
    drawn = audit(Batched(outputs), 3, 4, epsilon(1), n=1_000).picture()  # type: ignore[arg-type]
    ElementTree.fromstring(drawn)  # well formed
    assert drawn.startswith("<svg ")
    assert "prefers-color-scheme:dark" in drawn
    assert 'class="event"' in drawn
    assert "href" not in drawn
    assert "url(" not in drawn


def test_a_picture_escapes_what_outputs_are_called() -> None:
    law = {"<b>&": Fraction(1, 2), "x": Fraction(1, 2)}
    drawn = audit_exact(law, law, epsilon(1)).picture()
    ElementTree.fromstring(drawn)
    assert "<b>" not in drawn


def test_a_notebook_shows_the_picture() -> None:
    found = audit_exact(COIN, OTHER, epsilon(1))
    assert found._repr_svg_() == found.picture()


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"mechanism": 3}, BadInput),
        ({"claim": 1.0}, BadLoss),
        ({"n": 10}, BadNumber),
        ({"n": 1e6}, BadNumber),
        ({"confidence": 1.0}, BadProbability),
        ({"confidence": "high"}, BadProbability),
        ({"mechanism": Batched(lambda data, n: np.zeros(n - 1))}, BadNumber),
    ],
)
def test_a_malformed_audit_is_refused_in_a_sentence(wrong: dict[str, object], error: type[Exception]) -> None:
    call = {
        "mechanism": Batched(still),
        "left": 0,
        "right": 1,
        "claim": epsilon(1),
        "n": 1_000,
        "confidence": 0.9,
        **wrong,
    }
    with pytest.raises(error, match=r"\."):
        audit(**call)  # type: ignore[arg-type]


@pytest.mark.parametrize("law", [{0: 0.5}, {0: 1.5, 1: -0.5}, {}])
def test_a_law_that_does_not_add_up_is_refused(law: dict[int, float]) -> None:
    with pytest.raises(BadProbability, match="add up to 1"):
        audit_exact(law, COIN, epsilon(1))


def test_importing_attacks_does_not_import_scipy() -> None:
    code = "import sys, cloister.attack; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_an_exact_audit_doubts_a_tiny_claim_as_closely_as_a_large_one() -> None:
    yes = Fraction(1, 2) + Fraction(1, 10**9)
    laws = {0: yes, 1: 1 - yes}, {0: 1 - yes, 1: yes}  # epsilon 4e-9
    assert audit_exact(*laws, epsilon("4.01e-9")).verdict == "holds"
    assert audit_exact(*laws, epsilon("3.5e-9")).verdict == "broken"


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("count", [1, 200])
def test_a_gaussian_family_is_refused_for_outputs_that_are_not_finite(wrong: float, width: int, count: int) -> None:
    def noisy(data: int, n: int) -> np.ndarray:
        outputs = np.random.default_rng(data).normal(size=(n, width))
        outputs[:count, -1] = wrong
        return outputs

    with pytest.raises(BadInput, match="finite"):
        audit(Batched(noisy), 0, 1, epsilon(1, delta="1e-5"), n=200, family="gaussian")
    assert audit(Batched(noisy), 0, 0, epsilon(1), n=200).verdict == "holds"


def test_a_mechanism_that_fails_or_returns_nothing_is_refused_in_a_sentence():
    def failing(data):
        return 1 / data

    with pytest.raises(BadInput, match=r"failing failed on an input .ZeroDivisionError"):
        audit(failing, 0, 1, epsilon(1), n=100)
    with pytest.raises(BadInput, match=r"the mechanism returns None"):
        audit(lambda data: None, 0, 1, epsilon(1), n=100)
