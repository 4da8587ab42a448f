"""Attacks that once succeeded: on promises, wallets, intervals, and what a hostile server may describe."""

import json
import shutil
import subprocess
from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.analysis.combine import combine
from cloister.local.mechanisms import laplace
from cloister.local.privacy.shuffle import _cover
from cloister.privacy.errors import BadInput, BadLoss, CloisterError, LedgerBroken, OverBudget
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import log_above

WORD = 1 << 64
NODE = shutil.which("node")
CLIENT = Path(__file__).parents[3] / "src" / "cloister" / "local" / "client" / "index.mjs"


def hostile_bits(domain: int, q: Fraction) -> dict[str, Any]:
    """Bits of sets that may hold all options, with p so large that they nearly always show a 1."""
    p = Fraction(int(WORD * q / (1 - (1 - q) ** domain)) - domain - 1, WORD)
    told = {"mechanism": "set-bits", "bits": domain, "width": (domain + 7) // 8, "domain": domain, "most": domain}
    return {**told, "p": str(p), "q": str(q), "loss": "5"}


# A report whose likelihood ratio exceeds e^epsilon.


@pytest.mark.parametrize(("domain", "q"), [(2, Fraction(1, 4)), (3, Fraction(1, 64)), (20, Fraction(1, 64))])
def test_a_server_cannot_have_those_who_chose_everything_betrayed(domain: int, q: Fraction) -> None:
    told = hostile_bits(domain, q)
    with pytest.raises(BadLoss):
        local.from_description(told)


@pytest.mark.skipif(NODE is None, reason="no Node here")
@pytest.mark.parametrize(("domain", "q"), [(2, Fraction(1, 4)), (20, Fraction(1, 64))])
def test_nor_can_it_in_a_browser(domain: int, q: Fraction) -> None:
    code = (
        f"import {{ open }} from {json.dumps(CLIENT.as_uri())};\n"
        f"try {{ open({json.dumps(hostile_bits(domain, q))}); console.log('opened'); }}"
        "catch (refusal) { console.log(refusal.name, refusal.message); }"
    )
    assert NODE is not None
    done = subprocess.run([NODE, "--input-type=module", "-e", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Refusal these reports would tell more")


def test_the_closed_form_for_bits_of_sets_is_never_below_the_list() -> None:
    rng = np.random.default_rng(1)
    tried = 0
    while tried < 60:
        domain = int(rng.integers(2, 5))
        most = int(rng.integers(1, domain + 1))
        q = Fraction(int(rng.integers(1, 64)), 64)
        largest = q / (1 - (1 - q) ** most)  # beyond it a chosen option is sure to show
        near = rng.choice([1, WORD >> 8, WORD >> 2])
        p = Fraction(int(largest * WORD), WORD) - Fraction(int(near), WORD)
        if not q < p < 1:
            p = q + Fraction(int(rng.integers(1, 4)), WORD)
        try:
            made = local.SetBits(domain, most, p, q, local.epsilon(30))
        except CloisterError:
            tried += 1
            continue
        laws = [made.law(value) for value in made.inputs]
        listed = max(max(chances) / min(chances) for chances in zip(*laws, strict=True))
        assert listed <= made.largest_ratio()
        tried += 1


def test_the_cut_of_laplace_noise_does_not_say_where_it_began(monkeypatch: pytest.MonkeyPatch) -> None:
    number = local.LaplaceNumber.for_loss((0, 1), local.epsilon(1), steps=4)
    for noise in (-(10**9), 10**9):
        monkeypatch.setattr(laplace, "laplace_rows", lambda _scale, *size_source, n=noise: np.full(size_source[:2], n))
        assert len(set(number.perturb([0.0, 0.25, 1.0], SeededSource(1)).data.tolist())) == 1


def test_a_form_refuses_an_oracle_that_costs_more_than_the_form_says() -> None:
    model = local.LocalNaiveBayes(
        1,
        classes=[0, 1],
        categories=[[0, 1]],
        oracle=lambda domain, _loss: local.DirectEncoding.for_loss(domain, local.epsilon(10)),
    )
    with pytest.raises(BadLoss):
        model.form()


# Shuffling.


@pytest.mark.parametrize("amount", ["0.5", "2"])
@pytest.mark.parametrize("make", [local.UnaryEncoding.optimised, local.UnaryEncoding.symmetric])
def test_everybody_covers_a_report_of_bits_at_every_point(make: Any, amount: str) -> None:
    mechanism = make(3, local.epsilon(amount))
    cover = _cover(mechanism, mechanism.epsilon)
    zero, one, third = (np.array([float(chance) for chance in mechanism.law(value)]) for value in range(3))
    p, q = float(mechanism.p), float(mechanism.q)
    kinds = [(y & 1, y >> 1 & 1) for y in range(8)]
    # What is sent is an A (bits 10), a B (01) or an S (11 and 00) of the neighbours' own making.
    for other, (own, y) in product((zero, one, third), enumerate(kinds)):
        if y[0] != y[1]:
            part = cover.copy * (zero if y[0] else one)[own] / (p * (1 - q))
        else:
            part = cover.rest * zero[own] / (p * q + (1 - p) * (1 - q))
        assert part <= other[own] * (1 + 1e-12)


def test_a_delta_that_floats_cannot_hold_is_refused() -> None:
    for delta in ("1e-301", "1e-320", "1e-400"):
        with pytest.raises(BadLoss):
            local.shuffled(local.RandomisedResponse.coins(), 100, delta)


# Wallets.


def yes_or_no(amount: str = "1") -> local.RandomisedResponse:
    return local.RandomisedResponse.for_loss(local.epsilon(amount))


def test_a_second_name_of_a_wallet_is_no_second_wallet(tmp_path: Path) -> None:
    wallet = local.Wallet.open(tmp_path / "wallet.json", local.epsilon(1))
    (tmp_path / "link.json").symlink_to(tmp_path / "wallet.json")
    local.Wallet.open(tmp_path / "link.json").answer("one", yes_or_no(), 1)
    with pytest.raises(OverBudget):
        wallet.answer("two", yes_or_no(), 1)


def test_the_cap_is_the_files(tmp_path: Path) -> None:
    local.Wallet.open(tmp_path / "wallet.json", local.epsilon(1))
    with pytest.raises(OverBudget):
        local.Wallet(tmp_path / "wallet.json", local.epsilon(9)).answer("one", yes_or_no("2"), 1)


@pytest.mark.parametrize(
    "damage",
    [
        {"charges": [{"question": "one", "epsilon": "-5"}]},
        {"charges": [{"question": "one", "epsilon": "0"}]},
        {"charges": {}},
        {"charges": ""},
        {"memos": {"two": "x"}},
    ],
    ids=str,
)
def test_a_damaged_wallet_has_nothing_left(tmp_path: Path, damage: dict[str, Any]) -> None:
    path = tmp_path / "wallet.json"
    local.Wallet.open(path, local.epsilon(1)).answer("one", yes_or_no(), 1)
    path.write_text(json.dumps({**json.loads(path.read_text()), **damage}))
    with pytest.raises(LedgerBroken):
        local.Wallet.open(path)


def test_a_wallet_that_is_nested_too_deep_is_damaged(tmp_path: Path) -> None:
    path = tmp_path / "wallet.json"
    path.write_text("[" * 200_000)
    with pytest.raises(LedgerBroken):
        local.Wallet.open(path)


# Estimates.


def covered(mechanisms: list[Any], values: Any, where: Any, weights: Any) -> float:
    """How often the interval of a combination holds the truth among all who answered, by lot at each level."""
    hits, people = 0, 600
    for run in range(150):
        told = values(np.random.default_rng(run), people)
        halves = told[: people // 2], told[people // 2 :]
        groups = [
            mechanism.estimate(mechanism.aggregate(mechanism.perturb(half, SeededSource(10 * run + place))))
            for place, (mechanism, half) in enumerate(zip(mechanisms, halves, strict=True))
        ]
        low, high = where(combine(groups, weights))
        hits += low <= told.mean() <= high
    return hits / 150


@pytest.mark.parametrize("weights", ["variance", "people"])
def test_intervals_of_several_levels_hold_the_truth_of_all_who_answered(weights: str) -> None:
    # Levels that count for more than their people add the chance of who was in them: without it a third was covered.
    shares = [local.DirectEncoding.for_loss(2, local.epsilon(amount)) for amount in (5, "0.5")]
    numbers = [local.Piecewise.for_loss((0, 1), local.epsilon(amount)) for amount in (8, 1)]
    for mechanisms, where in (
        (shares, lambda one: (one.interval[0][1], one.interval[1][1])),
        (numbers, lambda one: one.interval),
    ):
        assert covered(mechanisms, lambda rng, people: rng.integers(0, 2, people), where, weights) > 0.89


def test_named_values_stay_named_when_levels_are_combined() -> None:
    groups = []
    for amount in (1, 2):
        mechanism = local.UnaryEncoding.optimised(10, local.epsilon(amount))
        counts = mechanism.aggregate(mechanism.perturb(np.arange(1000) % 10, SeededSource(amount)))
        groups.append(mechanism.estimate(counts, values=[2, 3]))
    both = combine(groups, confidence="19/20")
    assert both.values is not None
    assert both.values.tolist() == [2, 3]
    assert both.confidence == pytest.approx(0.95)
    with pytest.raises(BadInput):  # two shares of ten do not add up to 1
        both.projected()


def test_liars_about_labelled_numbers_are_bounded_too() -> None:
    hidden = local.LabelledNumber(2, 1, local.epsilon(1))
    honest = hidden.perturb((np.zeros(90, dtype=int), -np.ones((90, 1))), SeededSource(1))
    fake = local.Reports(hidden, np.full((10, 2), hidden.limit, dtype=np.int32), private=False)
    lying = hidden.perturb((np.zeros(10, dtype=int), -np.ones((10, 1))), SeededSource(2))
    counts = hidden.aggregate(honest)
    moved = (
        hidden.estimate(counts + hidden.aggregate(fake)).frequencies
        - hidden.estimate(counts + hidden.aggregate(lying)).frequencies
    )
    bound = local.poisoning(hidden, 10, 100)
    noise = 4 * float(hidden.variance([0.0], 10)[0]) ** 0.5 / 10
    assert moved.max() < bound.up + noise
    assert moved.max() > 0.8 * bound.up
    question = local.Question("q", [hidden])
    collection = local.Collection([question]).collect(local.seal("q", honest))
    assert collection.estimate("q").poisoning.fakes == 1


# Descriptions and tables.


def test_every_description_is_read_back_sampled_numbers_too() -> None:
    made = local.SampledNumbers.for_loss([(0, 1), (17, 90)], local.epsilon(5))
    assert local.from_description(json.loads(json.dumps(made.describe()))) == made


@pytest.mark.parametrize("told", [float("inf"), float("nan"), 3.7, 10**400])
def test_what_is_no_answer_is_none_and_raises_nothing(told: Any) -> None:
    assert local.Question("q", [local.DirectEncoding.for_loss(5, local.epsilon(1))]).value(told) is None


def test_a_number_too_long_for_a_double_is_no_answer() -> None:
    assert local.Question("q", [local.Duchi.for_loss((0, 1), local.epsilon(1))]).value(10**400) is None


def test_what_coins_cost_is_never_less_than_their_ratio() -> None:
    for truth, yes in product(("1/7", "0.999", "1/2"), ("1/3", "0.001", "0.9")):
        coins = local.RandomisedResponse.coins(truth, yes)
        assert coins.epsilon >= log_above(coins.largest_ratio())
