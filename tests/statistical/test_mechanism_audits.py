"""Every mechanism, run on neighbouring inputs: never above its claim in any measure, and near it where it is tight."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister.attack import Batched, audit, audit_exact
from cloister.lessons.noise import Staircase, Vector
from cloister.privacy import mechanisms as m
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, epsilon, rho
from cloister.privacy.measure import measure
from cloister.privacy.noise import SeededSource, Source
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.statistical

SURE = 1 - 1e-9
REPLACE = epsilon(1, relation="replace-one")
Draw = Callable[[Any, Any, int, Source], Any]


def many(mechanism: Any, statistic: Any, n: int, source: Source) -> Any:
    """n releases at once: the same statistic in every row."""
    return mechanism.release(np.tile(statistic, (n,) + (1,) * np.ndim(statistic)), source)


def one_by_one(mechanism: Any, statistic: Any, n: int, source: Source) -> Any:
    return [mechanism.release(statistic, source) for _ in range(n)]


def choices(mechanism: Any, scores: Any, n: int, source: Source) -> Any:
    return [mechanism.choose(scores, source) for _ in range(n)]


def transcripts(mechanism: Any, answers: Any, n: int, source: Source) -> Any:
    told = (mechanism.release(answers, source) for _ in range(n))
    return [[*signs, *[-1] * (len(answers) - len(signs))] for signs in told]


def to_one_decimal(draw: Draw) -> Draw:
    """Textbook mechanisms keep their promise on paper: look at their outputs without the last bits."""
    return lambda *given: np.round(np.asarray(draw(*given)), 1)


@dataclass(frozen=True)
class Case:
    """A mechanism, two neighbouring statistics, and the share of its stated loss that an audit must at least see."""

    mechanism: Any
    left: Any
    right: Any
    sees: float = 0.0
    draw: Draw = many
    n: int = 100_000

    @property
    def claims(self) -> list[Loss]:
        """The loss in every form it has."""
        forms = (self.mechanism.loss, self.mechanism.pure, self.mechanism.zcdp)
        return list({str(form): form for form in forms if form is not None}.values())

    def samples(self) -> Batched:
        """Drawn once for all claims."""
        source = SeededSource(f"{self.mechanism.name} {self.mechanism.parameters()}")
        left, right = (self.draw(self.mechanism, data, self.n, source) for data in (self.left, self.right))
        return Batched(lambda side, _: left if side == "left" else right)

    def __str__(self) -> str:
        return f"{self.mechanism.name} {self.left}"[:40]


def total(mechanism: Any, rows: list[float], lower: float, upper: float) -> int:
    return int(mechanism.grid.total(mechanism.grid.encode(rows, lower, upper)))


def bounded_sums() -> list[Case]:
    cases = []
    for mechanism, sees in (
        (m.Laplace.for_bounds(0, 5, epsilon(1)), 0.85),
        (m.Gaussian.for_bounds(0, 5, rho("0.5")), 0.5),
    ):
        without, with_row = total(mechanism, [1.5, 2.3], 0, 5), total(mechanism, [1.5, 2.3, 99.0], 0, 5)
        cases.append(Case(mechanism, without, with_row, sees))
    mechanism = m.Laplace.for_bounds(-3, 7, REPLACE)
    cases.append(Case(mechanism, total(mechanism, [0.1, -3], -3, 7), total(mechanism, [0.1, 7], -3, 7), 0.85))
    return cases


# One score down and the others up, or some up and none down: the neighbours that cost the most.
SCORES = {"left": [1] + [0] * 9, "right": [0] + [1] * 9, "draw": choices, "n": 3_000}
MORE = {"left": [1] + [0] * 9, "right": [1] * 10, "draw": choices, "n": 3_000}
REAL = m.Gaussian.for_loss(1, epsilon(2, delta="0.01"))
ASKED = {"left": [0, 2, 0, 2], "right": [1, 1, 1, 1], "draw": transcripts, "n": 3_000}

CASES = [
    Case(m.DiscreteLaplace(1, epsilon(1)), 6_460, 6_459, 0.85),
    Case(m.DiscreteLaplace(1, epsilon("0.1")), 6_460, 6_459, 0.25),
    Case(m.DiscreteLaplace(3, epsilon(1)), [4, 4, 4], [5, 5, 5], 0.6),
    Case(m.DiscreteLaplace(1, rho("0.125")), 0, 1, 0.4),
    Case(m.DiscreteGaussian.for_loss(10, rho("0.5")), 0, 10, 0.5),
    Case(m.DiscreteGaussian.for_loss(10, rho("0.5")), [0] * 4, [5] * 4, 0.5),
    Case(m.DiscreteGaussian.for_loss(10, epsilon(1, delta="0.05"), scalar=True), 0, 10, 0.4, one_by_one, 10_000),
    Case(REAL, 0, REAL.grid.point(1), 0.3, one_by_one, 10_000),
    *bounded_sums(),
    Case(m.RandomisedResponse.for_loss(REPLACE), True, False, 0.85),
    Case(m.RandomisedResponse.coin("1/2"), 1, 0, 0.85),
    Case(m.KaryResponse.for_loss(5, REPLACE), 0, 3, 0.85),
    Case(m.Exponential(1, epsilon(2)), sees=0.3, **SCORES),
    Case(m.Exponential(1, epsilon(2), monotone=True), sees=0.3, **MORE),
    Case(m.PermuteAndFlip(1, epsilon(2)), sees=0.35, **SCORES),
    Case(m.PermuteAndFlip(1, epsilon(2), monotone=True), sees=0.35, **MORE),
    Case(m.NoisyMax(1, epsilon(2)), sees=0.3, **SCORES),
    Case(m.NoisyMax(1, epsilon(2), monotone=True, noise="geometric"), sees=0.3, **MORE),
    Case(m.TopK(1, epsilon(6), k=2), [1, 0, 0, 0], [0, 1, 1, 1], 0.1, choices, 2_000),
    Case(m.AboveThreshold(1, 1, epsilon(4)), sees=0.1, **ASKED),
    Case(m.AboveThreshold(1, 1, epsilon(4), positives=2), sees=0.1, **ASKED),
    Case(Staircase(1, epsilon(1)), 0.0, 1.0, 0.85, to_one_decimal(many)),
    Case(Vector(1, epsilon(2), 3), [0.0, 0, 0], [0.6, 0.8, 0], 0.4, to_one_decimal(one_by_one), 10_000),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mechanism_costs_no_more_than_it_says_and_about_as_much(case: Case) -> None:
    drawn = case.samples()
    found = [audit(drawn, "left", "right", claim, n=case.n, confidence=SURE) for claim in case.claims]
    assert [one.verdict for one in found] == ["holds"] * len(found), "\n".join(map(str, found))
    assert found[0].lower_bound >= case.sees * found[0].allowed, str(found[0])


def test_every_registered_mechanism_is_audited() -> None:
    assert {case.mechanism.name for case in CASES} == set(m.REGISTRY)


@pytest.mark.parametrize("case", [case for case in CASES if case.mechanism.textbook], ids=str)
def test_a_textbook_mechanism_is_caught_by_the_last_bits_of_its_floats(case: Case) -> None:
    """Which is why a ledger refuses it."""
    source = SeededSource("last bits")
    draw = one_by_one if case.mechanism.name == "vector" else many
    mechanism = Batched(lambda data, n: draw(case.mechanism, data, n, source))
    found = audit(mechanism, case.left, case.right, case.mechanism.loss, n=20_000, confidence=SURE)
    assert found.broken, str(found)


def test_the_whole_way_from_the_charge_to_the_release_is_audited(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "ledger.db", key=SigningKey.create(), head=tmp_path / "head")
    account = ledger.open_account("wards", epsilon(10_000))
    source, count = SeededSource("the whole way"), m.DiscreteLaplace(1, epsilon(3))

    def ask(rows: list[str]) -> int:
        return measure(lambda: len(rows), count, account=account, request="COUNT(*)", source=source).value

    claims = (count.loss, epsilon("0.5"))  # what it costs, and what it cannot be had for
    found = [audit(ask, ["a", "b"], ["a", "b", "c"], claim, n=200, confidence=SURE) for claim in claims]
    assert [one.verdict for one in found] == ["holds", "broken"]
    assert account.spent == epsilon(3) * 800  # audits pay like everybody else when the mechanism has a ledger


def laws(mechanism: Any, inputs: Any) -> dict[Any, Any]:
    given = mechanism.probabilities(inputs)
    return dict(given) if isinstance(given, dict) else dict(enumerate(given))


@pytest.mark.parametrize("amount", ["0.1", "1", "5"])
@pytest.mark.parametrize("kind", [m.Exponential, m.PermuteAndFlip, m.NoisyMax, m.TopK])
def test_a_choice_enumerated_keeps_its_claim_for_all_small_neighbours(kind: Any, amount: str) -> None:
    worst = 0.0
    for monotone, moves in ((False, (-1, 0, 1)), (True, (0, 1))):
        mechanism = kind(1, epsilon(amount), monotone)
        for scores in ([0, 0, 0], [2, 1, 0], [5, 0, 5]):
            for step in np.array(np.meshgrid(*[moves] * 3)).reshape(3, -1).T:
                left, right = (
                    laws(mechanism, scores),
                    laws(mechanism, [a + int(b) for a, b in zip(scores, step, strict=True)]),
                )
                for claim in (mechanism.pure, mechanism.zcdp):
                    found = audit_exact(left, right, claim, tolerance=1e-11)
                    assert found.verdict == "holds", f"{scores} {step} {found}"
                worst = max(worst, audit_exact(left, right, mechanism.pure, tolerance=1e-11).lower_bound)
    assert worst > 0.5 * float(Fraction(amount))


@pytest.mark.parametrize("positives", [1, 2])
def test_above_threshold_enumerated_keeps_its_claim(positives: int) -> None:
    mechanism = m.AboveThreshold(1, 1, epsilon(2), positives)
    for left, right in (([0, 2, 0, 2], [1, 1, 1, 1]), ([0] * 5, [1] * 5), ([3, 0, 0], [2, 1, -1])):
        for claim in (mechanism.pure, mechanism.zcdp):
            assert audit_exact(laws(mechanism, left), laws(mechanism, right), claim, tolerance=1e-11).verdict == "holds"


@pytest.mark.parametrize(
    ("mechanism", "inputs"),
    [
        (m.RandomisedResponse.for_loss(REPLACE), (False, True)),
        (m.RandomisedResponse.coin("2/3"), (False, True)),
        (m.KaryResponse.for_loss(7, REPLACE), (2, 5)),
        (m.KaryResponse.with_truth(3, "0.9"), (0, 1)),
    ],
    ids=lambda given: getattr(given, "name", ""),
)
def test_randomised_answers_enumerated_cost_exactly_what_they_say(mechanism: Any, inputs: tuple[Any, Any]) -> None:
    left, right = (laws(mechanism, one) for one in inputs)
    found = audit_exact(left, right, mechanism.pure)
    assert found.verdict == "holds"
    assert found.lower_bound == pytest.approx(found.allowed, rel=1e-9)
    assert audit_exact(left, right, mechanism.zcdp).verdict == "holds"
