"""The law of reports is driven out of both clients, the browser's and Python's, byte by byte, and certified."""

import importlib.util
import math
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from cloister import local
from cloister.local.mechanisms.unary import bits_law

FOLDER = Path(__file__).parents[3] / "tests" / "vectors"
WORD = 1 << 64


def script(name: str) -> Any:
    """A file beside the vectors."""
    found = importlib.util.spec_from_file_location(f"vectors_{name}", FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


served, driven, bits = script("node"), script("driven"), script("driven_bits")
subsets, noise = script("driven_subsets"), script("driven_noise")
needs_node = pytest.mark.skipif(served.NODE is None, reason="no Node here: on Debian, apt-get install nodejs")


@pytest.fixture(scope="module", autouse=True)
def _node_ends() -> Iterator[None]:
    yield
    served.Node.end()


def languages(*cases: tuple[Any, ...], slow: int) -> list[Any]:
    """Every case for both clients; for Python's, which is slower at single reports, the first `slow` of them."""
    both = [("JavaScript", served.spare, case) for case in cases] + [
        ("Python", driven.in_python, c) for c in cases[:slow]
    ]
    return [
        pytest.param(
            client, *case, marks=needs_node if name == "JavaScript" else (), id="-".join([name, *map(str, case)])
        )
        for name, client, case in both
    ]


AMOUNTS = languages(("1",), ("0.1",), ("4",), slow=1)


def certified(mechanism: Any, found: Any) -> None:
    """The law that was found is Python's, to the last digit, and holds."""
    for answer in found.inputs:
        assert tuple(found.law(answer)) == tuple(mechanism.law(answer)), (mechanism, answer)
    certificate = local.verify(found)
    assert (certificate.holds, certificate.method) == (True, "listed"), (mechanism, str(certificate))
    assert certificate.ratio == local.verify(mechanism).ratio


def options(number: int) -> list[int]:
    """A set as a list, from its bits."""
    return [place for place in range(number.bit_length()) if number >> place & 1]


def choices(amount: str) -> list[Any]:
    loss = local.epsilon(amount)
    half = local.epsilon(Fraction(amount) / 2)
    return [
        local.RandomisedResponse.for_loss(loss),
        local.DirectEncoding.for_loss(2, loss),
        local.DirectEncoding.for_loss(9, loss),
        local.LocalHashing.for_loss(9, loss, buckets=3),
        local.LocalHashing.for_loss(4, loss, buckets=5),
        local.HadamardResponse.for_loss(7, loss, blocks=1),
        local.HadamardResponse.for_loss(7, loss, blocks=2),
        local.HeavyHitters(4, 2, 2, local.LocalHashing.for_loss(4, loss, buckets=2).lie, loss),
        local.HeavyHitters(2, 1, 3, local.LocalHashing.for_loss(4, loss, buckets=3).lie, loss),
        local.Memoised.direct(4, lifetime=loss, report=half),
    ]


@pytest.mark.parametrize(("client", "amount"), AMOUNTS)
def test_the_law_of_a_single_choice_by_words_is_the_stated_one_and_holds(client: Any, amount: str) -> None:
    drive = driven.to_the_end(client)
    for mechanism in choices(amount):
        certified(mechanism, driven.listed(mechanism, lambda value: value, drive))


def hybrid(loss: Any) -> local.Hybrid:
    """On a coarse grid: for_loss() takes one whose reports are too many to list."""
    near, bit = local.Piecewise.for_loss((0, 6), loss, 6, 2), local.Duchi.for_loss((0, 6), loss, 6)
    share = Fraction(2**63 + 12345, WORD)
    return local.Hybrid(near.low, near.high, 6, near.shift, near.window, near.q, bit.q, share, loss)


def numbers(amount: str) -> list[Any]:
    loss = local.epsilon(amount)
    return [
        local.Piecewise.for_loss((0, 6), loss, steps=6, shift=2),
        local.SquareWave.for_loss((0, 6), loss, shift=2),
        local.Duchi.for_loss((0, 6), loss, steps=6),
        hybrid(loss),
    ]


@pytest.mark.parametrize(("client", "amount"), AMOUNTS)
def test_the_law_of_a_number_by_words_is_the_stated_one_and_holds(client: Any, amount: str) -> None:
    drive = driven.to_the_end(client)
    for mechanism in numbers(amount):
        ratio = mechanism.steps / 6
        certified(mechanism, driven.listed(mechanism, lambda point, ratio=ratio: point / ratio, drive))


def sets(amount: str) -> list[Any]:
    loss = local.epsilon(amount)
    return [
        local.OneOfSet.for_loss(5, 2, loss),
        local.OneOfSet.for_loss(3, 3, loss),
        local.PaddedSample(4, 3, local.DirectEncoding.for_loss(5, loss)),
        local.PaddedSample(4, 2, local.LocalHashing.for_loss(5, loss, buckets=3)),
    ]


@pytest.mark.parametrize(("client", "amount"), AMOUNTS)
def test_the_law_of_a_set_by_words_is_the_stated_one_and_holds(client: Any, amount: str) -> None:
    drive = driven.to_the_end(client)
    for mechanism in sets(amount):
        certified(mechanism, driven.listed(mechanism, options, drive))


@pytest.mark.parametrize("client", languages((), slow=1))
def test_a_word_of_the_last_incomplete_run_is_drawn_again(client: Any) -> None:
    drive = driven.to_the_end(client)
    last = (WORD - 1).to_bytes(8, "little")
    for mechanism, value in (
        (local.LocalHashing.for_loss(9, local.epsilon(1), buckets=3), 7),
        (local.PaddedSample(4, 3, local.DirectEncoding.for_loss(5, local.epsilon(1))), [0, 3]),
    ):
        for rest in range(3):
            text = rest.to_bytes(8, "little") + bytes(8)
            once, twice = drive(mechanism.describe(), [(value, text), (value, last + last + text)])
            assert once == twice
            assert once is not None


def bit_reports(amount: str) -> dict[str, Any]:
    loss, between = local.epsilon(amount), driven.between

    def widened(mechanism: Any, **changed: int) -> Any:
        told = mechanism.describe() | changed
        return local.from_description(told | {"bits": changed["domain"], "width": (changed["domain"] + 7) // 8})

    def unary(small: Any) -> Any:
        size = 1 << bits.rounds_of(small.q)
        return bits.Bits(small, widened(small, domain=size), between(int(small.p * WORD)), [small.q], (3, size))

    sketch = local.CountMeanSketch.for_loss(4, loss, buckets=3, rows=2, salt="x")
    many = (1 << bits.rounds_of(sketch.q)) - 1
    chosen = local.SetBits.for_loss(3, 2, loss)
    size = 1 << bits.rounds_of(chosen.q)
    twice = local.Memoised.unary(3, lifetime=loss, report=local.epsilon(Fraction(amount) / 2))
    coins = [twice.permanent_q, twice.flip]
    largest = 1 << max(map(bits.rounds_of, coins))
    return {
        "SUE": unary(local.UnaryEncoding.symmetric(3, loss)),
        "OUE": unary(local.UnaryEncoding.optimised(3, loss)),
        "THE": unary(local.ThresholdEncoding.for_loss(3, loss)),
        "CMS": bits.Bits(
            sketch,
            local.CountMeanSketch(4, many, 2, "x", sketch.p, sketch.q, loss),
            driven.then(driven.alike(2), between(int(sketch.p * WORD))),
            [sketch.q],
            (3, many),
            2,
        ),
        "set": bits.Bits(chosen, widened(chosen, domain=size), between(*chosen.thresholds), [chosen.q], (3, size)),
        "memoised": bits.Bits(
            twice, widened(twice, domain=largest), between(int(twice.permanent_p * WORD)), coins, (3, largest)
        ),
    }


@pytest.mark.parametrize(("client", "amount"), languages(("0.5",), ("2",), slow=2))
@pytest.mark.parametrize("name", ["SUE", "OUE", "THE", "CMS", "set", "memoised"])
def test_the_law_of_bits_is_the_stated_one_and_holds(client: Any, name: str, amount: str) -> None:
    drive = driven.to_the_end(client)
    kind = bit_reports(amount)[name]
    mechanism = kind.small
    told = options if name == "set" else int
    coins = bits.tables(kind, told(1), drive)
    assert [Fraction(sum(coin), len(coin)) for coin in coins] == kind.coins
    answers = getattr(mechanism, "inputs", None) or range(mechanism.domain)
    heads = {answer: bits.law(kind, told(answer), coins, drive) for answer in answers}
    laws = {answer: [chance for head in sorted(found) for chance in found[head]] for answer, found in heads.items()}
    found = driven.Measured(mechanism.loss, laws)
    if name == "CMS":  # its list has room for rows that do not exist
        assert all(sorted(one) == [b"\0\0", b"\1\0"] for one in heads.values())
        for answer, law in laws.items():
            rows = [bits_law(int(mechanism.hashed(row, answer)), 3, mechanism.p, mechanism.q) for row in range(2)]
            assert law == [chance / 2 for row in rows for chance in row]
        assert local.verify(found).holds
        assert local.verify(found).ratio == mechanism.largest_ratio()
    else:
        certified(mechanism, found)


@pytest.mark.parametrize(
    ("client", "domain", "size", "amount"),
    languages((2, 1, "4"), (3, 2, "4"), (3, 1, "0.1"), (4, 2, "1"), (5, 1, "1"), slow=2),
)
def test_the_law_of_mended_subsets_is_the_stated_one_and_holds(
    client: Any, domain: int, size: int, amount: str
) -> None:
    mechanism = local.SubsetSelection.for_loss(domain, local.epsilon(amount), size=size)
    runs = driven.between(int(mechanism.p * WORD))
    laws = {value: subsets.law(mechanism, value, runs, client) for value in range(domain)}
    certified(mechanism, driven.Measured(mechanism.loss, laws))


# Laplace noise: its probabilities are no fractions, so a hair is left on both sides.
HAIR = Fraction(1, 10**9)


def nearly_certified(loss: Any, laws: dict[int, list[Fraction]]) -> None:
    """The law costs its epsilon, and neither a hair more nor a hair less."""
    for hair, holds in ((HAIR, True), (-HAIR, False)):
        certificate = local.verify(driven.Measured(local.epsilon(loss.amount + hair), laws))
        assert (certificate.holds, certificate.method) == (holds, "listed")


def close_to_laplace(law: dict[int, Fraction], scale: Fraction, most: int) -> None:
    """Proportional to e^(-|k|/scale), wherever it is not the rest beyond."""
    ratio = math.exp(-1 / float(scale))
    for size in range(-most, most + 1):
        assert float(law[size]) == pytest.approx((1 - ratio) / (1 + ratio) * ratio ** abs(size), rel=1e-9)


@pytest.mark.parametrize(("client", "scale", "steps"), languages(("7/2", 2), ("1/5", 2), ("3", 3), ("1", 4), slow=2))
def test_the_law_of_a_number_with_laplace_noise_costs_its_epsilon_and_no_less(
    client: Any, scale: str, steps: int
) -> None:
    drive = driven.to_the_end(client)
    exact = Fraction(scale)
    limit, loss = math.ceil(45 * exact) + 1, local.epsilon(steps / exact + HAIR / 1000)
    outputs = steps + 2 * limit + 1
    told: dict[str, Any] = {"mechanism": "laplace-number", "low": "0", "high": str(steps), "steps": steps}
    told |= {"scale": scale, "limit": limit, "loss": str(loss.amount)}
    told |= {"bits": (outputs - 1).bit_length(), "width": ((outputs - 1).bit_length() + 7) // 8}

    def shown(point: int, size: int) -> int:
        return min(max(point + size + limit, 0), outputs - 1)

    def read(report: bytes) -> int:
        return int.from_bytes(report, "little")

    laws = {}
    for point in range(steps + 1):
        one = noise.Noise(told, point, exact, partial(shown, point), read, bytes, limit + steps, drive)
        law = one.law()
        close_to_laplace(law, exact, limit)
        laws[point] = [Fraction(0)] * outputs
        for size, chance in law.items():
            laws[point][shown(point, size)] += chance
    nearly_certified(loss, laws)


@pytest.mark.parametrize(("client", "scale"), languages(("2/3",), ("1/5",), ("4/5",), slow=2))
def test_the_law_of_a_histogram_with_laplace_noise_costs_its_epsilon_and_no_less(client: Any, scale: str) -> None:
    drive = driven.to_the_end(client)
    exact = Fraction(scale)
    mechanism = local.HistogramEncoding.for_loss(2, local.epsilon(2 / exact))
    assert mechanism.scale == exact
    told, limit = mechanism.describe(), mechanism.limit

    def shown(own: int, size: int) -> int:
        return min(max(own + size, -limit), limit)

    def component(value: int, place: int) -> list[Fraction]:
        """The law of one component, while the other has no noise."""
        own = int(place == value)

        def around(text: bytes) -> bytes:
            still = one.draw(0, 0)
            return still + text if place else text + still

        def read(report: bytes) -> int:
            other = int.from_bytes(report[4 - 4 * place :][:4], "little", signed=True)
            assert other == 1 - own
            return int.from_bytes(report[4 * place :][:4], "little", signed=True)

        one = noise.Noise(told, value, exact, partial(shown, own), read, around, limit + 1, drive)
        law, chances = one.law(), [Fraction(0)] * (2 * limit + 1)
        close_to_laplace(law, exact, limit)
        for size, chance in law.items():
            chances[shown(own, size) + limit] += chance
        return chances

    laws = {}
    for value in range(2):
        first, second = (component(value, place) for place in range(2))
        laws[value] = [one * other for one in first for other in second]
    nearly_certified(mechanism.loss, laws)


@needs_node
def test_no_mechanism_of_the_client_is_left_out() -> None:
    (answer,) = served.node([{"verb": "known"}])
    words = {mechanism.name for listed in (choices, numbers, sets) for mechanism in listed("1")}
    others = {kind.small.name for kind in bit_reports("1").values()}
    others |= {kind.name for kind in (local.SubsetSelection, local.LaplaceNumber, local.HistogramEncoding)}
    assert set(answer["mechanisms"]) == words | others
