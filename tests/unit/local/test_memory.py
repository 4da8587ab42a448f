"""Asked again and again: memoised answers cost a lifetime once, a wallet keeps its cap, and averaging finds nothing."""

import json
import math
import multiprocessing
import stat
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.attack.queries.averaging import guess
from cloister.local.mechanisms.memoised import again
from cloister.local.privacy.certificate import verify
from cloister.privacy.errors import (
    AccountMismatch,
    BadCandidates,
    BadInput,
    BadLoss,
    BadName,
    BadNumber,
    LedgerBroken,
    NotPrivate,
    OverBudget,
    StoreFailed,
)
from cloister.privacy.noise import SeededSource
from cloister.privacy.number import ratio_within

LIFETIME, REPORT = local.epsilon(2), local.epsilon(1)
MECHANISMS = {
    "direct": local.Memoised.direct(5, lifetime=LIFETIME, report=REPORT),
    "unary": local.Memoised.unary(5, lifetime=LIFETIME, report=REPORT),
}
every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)


@pytest.mark.parametrize(("lifetime", "report"), [("0.1", "0.05"), ("2", "1"), ("2", "1.99"), ("5", "0.5"), ("8", "4")])
def test_one_report_and_a_lifetime_of_them_are_both_certified(lifetime: str, report: str) -> None:
    for maker in (local.Memoised.direct, local.Memoised.unary):
        for domain in (2, 5):
            mechanism = maker(domain, lifetime=local.epsilon(lifetime), report=local.epsilon(report))
            one, forever = verify(mechanism), verify(mechanism.permanent)
            assert (one.method, one.holds, one.claim) == ("listed", True, local.epsilon(report))
            assert (forever.method, forever.holds, forever.claim) == ("listed", True, local.epsilon(lifetime))
            assert one.ratio == mechanism.largest_ratio()
            assert one.epsilon is not None
            assert float(one.epsilon) > 0.95 * float(report)


def test_several_reports_of_one_permanent_report_cost_no_more_than_the_lifetime() -> None:
    # Exactly: the law of three reports on a value is a mixture over the permanent one.
    mechanism = MECHANISMS["direct"]
    keep = 1 - 4 * mechanism.flip
    kept = mechanism.permanent
    worst = Fraction(1)
    for said in np.ndindex(5, 5, 5):
        chances = []
        for value in (0, 1):
            joint = [
                chance * math.prod(keep if report == permanent else mechanism.flip for report in said)
                for permanent, chance in enumerate(kept.law(value))
            ]
            chances.append(sum(joint))
        worst = max(worst, chances[0] / chances[1], chances[1] / chances[0])
    assert ratio_within(worst, Fraction(2))
    assert not ratio_within(worst, Fraction(3, 2))  # and more than one report does cost more than one


@every
def test_estimates_go_back_through_both_layers(mechanism: Any) -> None:
    values = np.repeat(np.arange(5), [500, 1000, 1500, 3000, 14_000])
    reports = mechanism.perturb(values, SeededSource(1))
    wire = mechanism.encode(reports)
    back, refused = mechanism.decode(wire)
    assert refused == 0
    assert np.array_equal(back.data, reports.data)
    estimate = mechanism.estimate(mechanism.aggregate(wire))
    assert (np.abs(estimate.frequencies - np.bincount(values) / 20_000) < 4.5 * estimate.standard_error).all()
    assert estimate.projected("em").frequencies.sum() == pytest.approx(1)
    assert mechanism.aggregate([b"\xff"]).refused == 1


@every
def test_it_is_described_exactly(mechanism: Any) -> None:
    told = json.loads(json.dumps(mechanism.describe()))
    assert (told["loss"], told["lifetime"], told["encoding"]) == ("1", "2", mechanism.encoding)
    assert Fraction(told["flip"]) == mechanism.flip


def test_wrong_layers_are_refused() -> None:
    with pytest.raises(BadLoss):
        local.Memoised.direct(5, lifetime=REPORT, report=LIFETIME)
    with pytest.raises(BadLoss):
        local.Memoised.unary(5, lifetime=REPORT, report=REPORT)
    direct = MECHANISMS["direct"]
    with pytest.raises(BadLoss):
        local.Memoised(
            5, "direct", direct.permanent_p, direct.permanent_q, direct.flip - Fraction(1, 2**20), LIFETIME, REPORT
        )
    with pytest.raises(BadInput):
        local.Memoised(5, "hashed", direct.permanent_p, direct.permanent_q, direct.flip, LIFETIME, REPORT)  # type: ignore[arg-type]


# The wallet.


@pytest.fixture
def wallet(tmp_path: Path) -> local.Wallet:
    return local.Wallet.open(tmp_path / "wallet.json", local.epsilon(4))


@every
def test_the_same_answer_again_costs_nothing_and_comes_from_the_same_permanent_report(
    mechanism: Any, wallet: local.Wallet
) -> None:
    source = SeededSource(3)
    first = wallet.answer("browser", mechanism, 2, source)
    assert wallet.spent == 2
    kept = json.loads(wallet.path.read_text())["memos"]["browser"][0]["report"]
    many = [first] + [local.Wallet.open(wallet.path).answer("browser", mechanism, 2, source) for _ in range(60)]
    assert wallet.spent == 2
    assert json.loads(wallet.path.read_text())["memos"]["browser"][0]["report"] == kept
    assert len({report.data.tobytes() for report in many}) > 1  # fresh each time
    counts = mechanism.aggregate(np.concatenate([mechanism.encode(report) for report in many]))
    permanent = np.frombuffer(bytes.fromhex(kept), dtype=np.uint8)
    bits = np.unpackbits(permanent, bitorder="little")[:5] if mechanism.encoding == "unary" else np.eye(5)[permanent[0]]
    assert np.array_equal(counts.table > 61 / 2, bits == 1)  # what shines through is the permanent report


@pytest.mark.parametrize(
    ("mechanism", "value"),
    [
        (local.DirectEncoding.for_loss(5, REPORT), 3),
        (local.UnaryEncoding.optimised(9, REPORT), 3),
        (local.HistogramEncoding.for_loss(3, REPORT), 1),
        (local.SetBits.for_loss(9, 2, REPORT), {1, 8}),
        (local.PairOrder.for_loss(3, REPORT), [2, 0, 1]),
        (local.Duchi.for_loss((0, 10), REPORT), 2.5),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_any_mechanism_is_repeated_word_for_word(mechanism: Any, value: Any, wallet: local.Wallet) -> None:
    reports = [wallet.answer("q", mechanism, value) for _ in range(20)]
    assert wallet.spent == 1
    assert all(np.array_equal(report.data, reports[0].data) and report.private for report in reports)
    assert mechanism.aggregate(mechanism.encode(reports[0])).n == 1


def test_a_wallet_refuses_beyond_its_cap_and_adds_exactly(tmp_path: Path) -> None:
    wallet = local.Wallet.open(tmp_path / "w.json", local.epsilon(1))
    tenth = local.DirectEncoding.for_loss(3, local.epsilon("0.1"))
    for number in range(10):
        wallet.answer(f"question-{number}", tenth, 1)
    assert (wallet.spent, wallet.left) == (1, 0)
    before = wallet.path.read_bytes()
    with pytest.raises(OverBudget, match=r"0\.1, 0 is left"):
        wallet.answer("one-more", tenth, 1)
    assert wallet.path.read_bytes() == before
    assert len(wallet.answer("question-4", tenth, 1)) == 1  # what was answered can be answered again


def test_a_changed_answer_is_refused_unless_asked_for_and_then_paid(wallet: local.Wallet) -> None:
    mechanism = MECHANISMS["direct"]
    wallet.answer("mood", mechanism, 2)
    with pytest.raises(NotPrivate, match="answer_anew"):
        wallet.answer("mood", mechanism, 3)
    with pytest.raises(NotPrivate):
        wallet.answer("mood", local.DirectEncoding.for_loss(5, REPORT), 2)
    assert wallet.spent == 2
    wallet.answer_anew("mood", mechanism, 3)
    assert wallet.spent == 4
    wallet.answer_anew("mood", mechanism, 2)  # back to what was kept
    assert wallet.spent == 4
    with pytest.raises(OverBudget):
        wallet.answer_anew("mood", mechanism, 1)


def test_the_charge_is_on_disk_before_anything_is_drawn(wallet: local.Wallet) -> None:
    seen: list[Fraction] = []

    class Watching(SeededSource):
        def bytes(self, count: int) -> bytes:
            seen.append(wallet.spent)
            raise KeyboardInterrupt  # the device dies here

    with pytest.raises(KeyboardInterrupt):
        wallet.answer("q", MECHANISMS["direct"], 2, Watching(1))
    assert seen == [2]
    assert wallet.spent == 2  # the charge stands, though nothing was sent
    wallet.answer("q", MECHANISMS["direct"], 2)
    assert wallet.spent == 4


def test_a_refused_answer_charges_nothing(wallet: local.Wallet) -> None:
    for wrong in (7, "text", None):
        with pytest.raises(BadCandidates):
            wallet.answer("q", MECHANISMS["direct"], wrong)
    with pytest.raises(BadInput):
        wallet.answer("q", MECHANISMS["direct"], [1, 2])
    for name in ("", "Do you smoke?", "__proto__", "q" * 65, 7):
        with pytest.raises(BadName):  # an envelope could not be sealed with it
            wallet.answer(name, MECHANISMS["direct"], 1)
    assert wallet.spent == 0


def test_a_seeded_answer_stays_marked_when_it_is_repeated(wallet: local.Wallet) -> None:
    assert not wallet.answer("q", MECHANISMS["direct"], 2, SeededSource(1)).private
    assert not wallet.answer("q", MECHANISMS["direct"], 2).private
    assert wallet.answer("r", MECHANISMS["unary"], 2).private


def test_a_wallet_is_for_life_and_for_its_owners_eyes(wallet: local.Wallet) -> None:
    assert stat.S_IMODE(wallet.path.stat().st_mode) == 0o600
    assert local.Wallet.open(wallet.path) == local.Wallet.open(wallet.path, local.epsilon(4)) == wallet
    with pytest.raises(AccountMismatch):
        local.Wallet.open(wallet.path, local.epsilon(5))
    with pytest.raises(BadInput):
        local.Wallet.open(wallet.path.with_name("other.json"))


@pytest.mark.parametrize(
    "text", ["", "{}", "[]", '{"version": 1, "cap": "1", "charges": [{"epsilon": "2"}], "memos": {}}']
)
def test_a_spoiled_wallet_is_refused_and_not_begun_again(text: str, wallet: local.Wallet) -> None:
    wallet.path.write_text(text)
    with pytest.raises(LedgerBroken):
        wallet.answer("q", MECHANISMS["direct"], 2)
    with pytest.raises(LedgerBroken):
        local.Wallet.open(wallet.path)


CHANGES: dict[str, dict[str, Any]] = {
    "no such bytes": {"report": "zz"},
    "half a byte": {"report": "0"},
    "a number": {"report": 1},
    "no report": {"report": ""},
    "too long": {"report": "00" * 9},
    "none of the mechanism": {"report": "ff"},
    "private in words": {"private": "no"},
}


@pytest.mark.parametrize("change", CHANGES)
@every
def test_a_kept_report_that_was_changed_is_not_sent(mechanism: Any, change: str, wallet: local.Wallet) -> None:
    wallet.answer("q", mechanism, 2)
    state = json.loads(wallet.path.read_text())
    state["memos"]["q"][0].update(CHANGES[change])
    wallet.path.write_text(json.dumps(state))
    with pytest.raises(LedgerBroken):
        wallet.answer("q", mechanism, 2)


@pytest.mark.parametrize("memo", [{}, [], "x", None, {"report": "00", "private": True}])
def test_a_wallet_that_keeps_something_else_is_refused(memo: Any, wallet: local.Wallet) -> None:
    state = json.loads(wallet.path.read_text())
    wallet.path.write_text(json.dumps({**state, "memos": {"q": [memo]}}))
    with pytest.raises(LedgerBroken):
        wallet.answer("q", MECHANISMS["direct"], 2)


def test_a_lost_wallet_or_a_folder_that_cannot_be_written_makes_no_report(wallet: local.Wallet) -> None:
    wallet.path.unlink()
    with pytest.raises(StoreFailed):
        wallet.answer("q", MECHANISMS["direct"], 2)
    with pytest.raises(StoreFailed):
        local.Wallet.open(wallet.path.parent / "nowhere" / "w.json", local.epsilon(1))


def spend(path: str, name: str) -> int:
    try:
        local.Wallet.open(path).answer(name, local.DirectEncoding.for_loss(3, local.epsilon("0.5")), 1)
    except OverBudget:
        return 0
    return 1


def test_processes_that_race_for_the_last_epsilon_never_overspend(wallet: local.Wallet) -> None:
    with multiprocessing.get_context("fork").Pool(4) as pool:
        paid = pool.starmap(spend, [(str(wallet.path), f"q{number}") for number in range(20)])
    assert sum(paid) == 8
    assert wallet.left == 0


# The averaging attack.


def recovered(reports: Any, mechanism: Any, people: int, rounds: int, truth: Any) -> float:
    """The share of people whose answer is guessed from all their reports."""
    hits = 0
    for person in range(people):
        counts = mechanism.aggregate(reports[person])
        hits += guess(counts.table, rounds).value == truth[person]
    return hits / people


def test_averaging_recovers_every_answer_from_fresh_reports_and_not_from_memoised_ones() -> None:
    people, rounds, domain = 300, 200, 5
    truth = np.arange(people) % domain
    source = SeededSource("averaging")
    fresh = local.DirectEncoding.for_loss(domain, REPORT)
    reports = [fresh.encode(fresh.perturb(np.full(rounds, value), source)) for value in truth]
    assert recovered(reports, fresh, people, rounds, truth) > 0.99

    for mechanism in MECHANISMS.values():
        permanent = mechanism.permanent.perturb(truth, source).data
        again_and_again = [
            mechanism.encode(local.Reports(mechanism, again(mechanism, np.repeat(kept[None], rounds, axis=0), source)))
            for kept in permanent
        ]
        found = recovered(again_and_again, mechanism, people, rounds, truth)
        # No guess from a report of this lifetime epsilon is right more often than e^eps / (e^eps + domain - 1).
        most = np.exp(2) / (np.exp(2) + domain - 1)
        assert found < most + 4 * np.sqrt(most * (1 - most) / people)


def test_a_wallet_gives_an_averager_one_report_to_average(wallet: local.Wallet) -> None:
    mechanism = local.DirectEncoding.for_loss(5, REPORT)
    reports = np.concatenate([mechanism.encode(wallet.answer("q", mechanism, 2)) for _ in range(50)])
    found = guess(mechanism.aggregate(reports).table, 50)
    assert found.support == found.count == 50  # always the same report, true or not


def test_a_guess_names_the_leader_and_its_lead() -> None:
    found = guess([10, 90, 10], 110)
    assert (found.value, found.support, found.count) == (1, 90, 110)
    assert found.lead == pytest.approx(8)
    for wrong in (([1], 1), ([1, -2], 1), ([0.5, 1], 1), ([1, 2], 0), ([1, 2], True)):
        with pytest.raises(BadNumber):
            guess(*wrong)  # type: ignore[arg-type]
