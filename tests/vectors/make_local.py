"""Writes local.json: reports and envelopes that every client of the wire format must make from the same random bytes.

    python tests/vectors/make_local.py

A case says which value was perturbed by which mechanism, which random bytes were read, and what came out, in hex. A
client that reads the same bytes in the same order makes the same report; one that must refuse a description or a value
finds such cases under `refused`.

Which bytes are read, and what for, is said where each mechanism is: `src/cloister/local/mechanisms/` in Python,
`src/cloister/local/client/` in JavaScript. A case is one person's; Laplace noise is drawn in the order of
`base/laplace_rows.py` (`laplace.mjs`).
"""

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

from cloister import local
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.local.survey import envelope
from cloister.privacy.noise import SeededSource
from cloister.privacy.noise.draws import exp_bounds

PLACE = Path(__file__).with_name("local.json")


class Recorder:
    """A source that remembers what was read: given bytes first, then those of a seed."""

    private = False

    def __init__(self, seed: str, first: bytes = b"") -> None:
        self.first, self.rest, self.read = first, SeededSource(seed), b""

    def bytes(self, count: int) -> bytes:
        taken, self.first = self.first[:count], self.first[count:]
        taken += self.rest.bytes(count - len(taken))
        self.read += taken
        return taken


def mechanisms() -> dict[str, tuple[Any, list[Any]]]:
    """Mechanisms by their labels, each with values to perturb."""
    loss = local.epsilon
    return {
        "yes or no": (local.RandomisedResponse.for_loss(loss(1)), [0, 1]),
        "yes or no, two coins": (local.RandomisedResponse.coins("0.6", "0.3"), [0, 1]),
        "direct encoding": (local.DirectEncoding.for_loss(14, loss("0.5")), [0, 6, 13]),
        "direct encoding, two bytes": (local.DirectEncoding.for_loss(1000, loss(4)), [0, 999]),
        "unary encoding, symmetric": (local.UnaryEncoding.symmetric(11, loss(2)), [0, 7, 8, 10]),
        "unary encoding, optimised": (local.UnaryEncoding.optimised(24, loss(1)), [0, 23]),
        "threshold encoding": (local.ThresholdEncoding.for_loss(9, loss(1)), [0, 8]),
        "local hashing": (local.LocalHashing.for_loss(1024, loss(1)), [0, 1, 1023]),
        "Hadamard response, one block": (local.HadamardResponse.for_loss(13, loss("0.5"), blocks=1), [0, 5, 12]),
        "Hadamard response, four blocks": (local.HadamardResponse.for_loss(13, loss(3), blocks=4), [0, 5, 12]),
        "subset selection": (local.SubsetSelection.for_loss(20, loss(1)), [0, 7, 19]),
        "subset selection, three of ten": (local.SubsetSelection.for_loss(10, loss(2), size=3), [0, 9]),
        "subset selection, two of three": (local.SubsetSelection.for_loss(3, loss(2), size=2), [0, 1, 2]),
        "piecewise": (local.Piecewise.for_loss((17, 90), loss(1), steps=7300, shift=4), [17, 40.4, 90, 1e9, -3]),
        "piecewise, coarse": (
            local.Piecewise.for_loss(("-5/2", 5), loss("0.5"), steps=10, shift=3),
            [-2.5, -2.125, 0.1, 4.99],
        ),
        "one of a set": (OneOfSet.for_loss(10, 3, loss(1)), [[], [4], [0, 9], [7, 1, 3]]),
        "bits of a set": (
            SetBits(11, 3, Fraction(1532416777483845365, 2**63), Fraction(11, 128), loss(1)),
            [[], [10], [0, 9], [7, 1, 3]],
        ),
        "padded sample": (PaddedSample.for_loss(30, 2, loss(2)), [[], [4], [0, 29]]),
        "memoised": (local.Memoised.direct(5, lifetime=loss(2), report=loss(1)), [0, 4]),
        "memoised bits": (local.Memoised.unary(9, lifetime=loss(2), report=loss(1)), [0, 8]),
        "square wave": (local.SquareWave.for_loss((0, 1), loss(1), steps=64, shift=8), [0, 0.33, 1]),
        "histogram encoding": (local.HistogramEncoding.for_loss(3, loss(1)), [0, 2]),
        "histogram encoding, twelve": (local.HistogramEncoding.for_loss(12, loss("0.7")), [0, 11]),
        "count-mean sketch": (local.CountMeanSketch.for_loss(1000, loss(1), 15, 4, "pets, é"), [0, 999]),
        "count-mean sketch, 2^32": (local.CountMeanSketch.for_loss(2**32, loss(2), 63, 512), [1, 2**32 - 1]),
        "heavy hitters": (local.HeavyHitters.for_loss(loss(1), 8, 2), [0, 147, 255]),
        "heavy hitters, 2^32": (local.HeavyHitters.for_loss(loss(2)), [0, 2**32 - 1]),
        "Duchi": (local.Duchi.for_loss((0, 10), loss(1), 20), [0, 3.3, 10]),
        "hybrid": (local.Hybrid.for_loss((0, 10), loss(1), 20), [0, 3.3, 10]),
        "Laplace": (local.LaplaceNumber.for_loss((17, 90), loss(1), 730), [17, 40.4, 90]),
        "Laplace, coarse": (local.LaplaceNumber.for_loss((0, 1), loss("0.5"), 3), [0, 0.5]),
    }


def near(*limits: int) -> list[bytes]:
    """Words at the ends, and on both sides of these limits."""
    edges = [0, 2**64 - 1, *(word for limit in limits for word in (limit - 1, limit) if word < 2**64)]
    return [word.to_bytes(8, "little") for word in edges]


def firsts(mechanism: Any, value: Any) -> list[bytes]:
    """First bytes at which something changes."""
    limits = list(getattr(mechanism, "thresholds", ()))[:2]
    half = (2**63).to_bytes(8, "little")
    if isinstance(mechanism, local.HistogramEncoding | local.LaplaceNumber):
        return noise_edges(mechanism.scale)
    if isinstance(mechanism, local.CountMeanSketch):
        return [half + true_bit for true_bit in near(int(mechanism.p * 2**64))]
    if isinstance(mechanism, local.HeavyHitters):
        level = near(int(mechanism.share(0) * 2**64)) if mechanism.levels > 1 else near()
        return level + [half + half + bucket for bucket in near(*limits)]
    if isinstance(mechanism, local.Hybrid):
        choices = near(int(mechanism.share * 2**64))
        seconds = {mechanism.piecewise: bytes(8), mechanism.duchi: b"\xff" * 8}
        return choices + [choice + word for inner, choice in seconds.items() for word in firsts(inner, value)]
    if isinstance(mechanism, local.Duchi):
        limits = [int(mechanism.q * 2**64) + int(mechanism.points(value)[0]) * mechanism.rise]
    elif hasattr(mechanism, "window"):
        p, q = int(mechanism.p * 2**64), int(mechanism.q * 2**64)
        first = int(mechanism.points(value)[0]) * mechanism.shift
        limits = [mechanism.window * p, mechanism.window * p + q * first]
    elif not limits and not hasattr(mechanism, "inner"):
        limits = [int(mechanism.q * 2**64), int(mechanism.p * 2**64)]
    return near(*limits)


def noise_edges(scale: Fraction) -> list[bytes]:
    """A draw's first bytes where it begins again, where a toss needs more bits, and where it ends far away."""
    p, bits = scale.numerator, (scale.numerator - 1).bit_length()
    count = (bits + 7) // 8

    def remainder(number: int) -> bytes:
        return (number << (8 * count - bits)).to_bytes(count, "little")

    def words(n: int, d: int) -> list[bytes]:
        """A toss that is surely below e^(-n/d), two that need more bits, one that is surely not."""
        low, high = exp_bounds(n, d, 64)
        return [word.to_bytes(8, "little") for word in (low - 1, low, high - 1, high)]

    coins = [remainder(r) + word for r in sorted({1, p - 1}) for word in words(r, p)]
    quotients = [remainder(0) + word for k in (1, 2, 20) for word in words(k, 1)]
    zero = remainder(0) + b"\xff" * 8
    return [
        *([b"\xff" * count] if p < 1 << bits else []),
        *coins,
        *quotients,
        remainder(0) + bytes(8) + b"\xff" * 8,
        *(zero + sign for sign in (b"\x00", b"\x7f", b"\x80", b"\xff")),
    ]


def cases(label: str, mechanism: Any, values: list[Any]) -> list[dict[str, Any]]:
    """Cases at the edges, and cases with a seed's bytes."""
    made = []
    for value in values:
        for number, first in enumerate([*firsts(mechanism, value), b"", b""]):
            source = Recorder(f"{label} {value} {number}", first)
            given = [value] if isinstance(value, list) else value  # a list of sets, with one set
            report = mechanism.encode(mechanism.perturb(given, source))[0].tobytes()
            made.append({"value": value, "random": source.read.hex(), "report": report.hex()})
    return made


def questions() -> list[Any]:
    """Questions as a survey asks them."""
    levels = [local.epsilon(amount) for amount in ("0.5", 1, 2)]
    return [
        local.Question("smoker", [local.RandomisedResponse.for_loss(one) for one in levels], ["no", "yes"]),
        local.Question("job", [local.advise(5, one, 1000).best for one in levels], ["a", "b", "c", "d", "é"]),
        local.Question("pets", [OneOfSet.for_loss(4, 2, one) for one in levels], ["cat", "dog", "fish", "other"]),
        local.Question("age", [local.Piecewise.for_loss((17, 90), one, steps=7300, shift=4) for one in levels]),
        local.Question("weight", [local.LaplaceNumber.for_loss((0, 200), one) for one in levels]),
        local.Question("town", [local.CountMeanSketch.for_loss(2**20, one, 63, 16, "towns") for one in levels]),
    ]


def envelopes() -> list[dict[str, Any]]:
    """Whole envelopes: first the report's bytes are read, then 16 for the id."""
    made = []
    for question in questions():
        for level in question.offered:
            source = Recorder(f"{question.id} {level}")
            value: Any = [1, 3] if question.kind == "set" else 1
            reports = question.at(level).perturb([value] if question.kind == "set" else value, source)
            text = envelope.seal(question.id, reports, source)[0].decode()
            told = {"question": question.describe(), "level": level, "value": value}
            made.append({**told, "random": source.read.hex(), "envelope": text})
    return made


def set_bits(domain: int, most: int, p: Fraction, q: Fraction, loss: str) -> dict[str, Any]:
    """A description of bits of a set that Python itself refuses to make."""
    honest = SetBits.for_loss(domain, most, local.epsilon(1)).describe()
    return {**honest, "p": str(p), "q": str(q), "loss": loss}


def refused() -> list[dict[str, Any]]:
    """Descriptions that cost more than they say or say what cannot be, and values that are none."""
    direct = local.DirectEncoding.for_loss(14, local.epsilon(1)).describe()
    unary = local.UnaryEncoding.optimised(8, local.epsilon(1)).describe()
    chosen = SetBits.for_loss(10, 3, local.epsilon(1)).describe()
    padded = PaddedSample.for_loss(30, 2, local.epsilon(1)).describe()
    memoised = local.Memoised.unary(9, lifetime=local.epsilon(2), report=local.epsilon(1)).describe()
    number = local.Piecewise.for_loss((0, 1), local.epsilon(1), steps=1000, shift=2).describe()
    vector = local.HistogramEncoding.for_loss(5, local.epsilon(1)).describe()
    noisy = local.LaplaceNumber.for_loss((0, 1), local.epsilon(1), steps=10).describe()
    bit = local.Duchi.for_loss((0, 1), local.epsilon(1), steps=10).describe()
    either = local.Hybrid.for_loss((0, 1), local.epsilon(1), steps=10).describe()
    folded = local.CountMeanSketch.for_loss(1000, local.epsilon(1), 15, 4).describe()
    prefix = local.HeavyHitters.for_loss(local.epsilon(1), 8, 2).describe()
    cut = local.ThresholdEncoding.for_loss(5, local.epsilon(1)).describe()
    last = Fraction(1, 2**64)
    subset = local.SubsetSelection.for_loss(1 << 20, local.epsilon(1), size=(1 << 20) - 1).describe()
    wrong = [
        # Words are rounded down one by one: with a p that is hardly above q some end up below their coins.
        ("costs more than its level", set_bits(100, 90, Fraction(3, 8) + last, Fraction(3, 8), "1/1000")),
        (
            "an option that can never be the first to show",
            set_bits(1020, 100, Fraction(3, 8) + last, Fraction(3, 8), "1"),
        ),
        ("coins that are mended for minutes", {**subset, "start": "0"}),
        *(
            ("costs more than its level", {**one, "loss": "9/10"})
            for one in (vector, noisy, bit, either, folded, prefix, cut)
        ),
        ("costs more than its level", {**vector, "scale": "19/10", "limit": 87}),
        ("costs more than its level", {**noisy, "scale": "9", "limit": 406}),
        ("costs more than its level", {**bit, "q": "1/4", "p": "3/4", "steps": 8}),
        ("costs more than its level", {**either, "flip": str(Fraction(1, 2) - Fraction(10, 32))}),
        ("costs more than its level", {**folded, "q": "1/4"}),
        ("costs more than its level", {**prefix, "lie": "1/8"}),
        ("no noise", {**vector, "scale": "0", "limit": 1}),
        ("another limit than the scale's", {**vector, "limit": 5}),
        ("another limit than the scale's", {**noisy, "limit": 5}),
        ("a level too low to sample", {**vector, "loss": "1/20000", "scale": "40000", "limit": 1_800_001}),
        ("a level too low to sample", {**noisy, "loss": "1/2000", "scale": "20001", "limit": 900_046}),
        ("a p that is not 1 - q", {**bit, "p": bit["q"]}),
        ("steps that do not divide the way", {**bit, "steps": 7}),
        ("an even number of buckets", {**folded, "buckets": 14, "bits": 30}),
        ("rows that no bits draw", {**folded, "rows": 3}),
        ("a salt that is no text", {**folded, "salt": 7}),
        ("chunks that do not make up the length", {**prefix, "chunk": 3}),
        ("buckets that are not prime", {**prefix, "buckets": 4}),
        ("bits that do not follow from theta", {**cut, "theta": "7/10"}),
        ("a theta beyond 1", {**cut, "theta": "11/10"}),
        ("costs more than its level", {**direct, "loss": "99/100"}),
        ("costs more than its level", {**unary, "q": "1/4"}),
        ("costs more than its level", {**number, "loss": "1/2"}),
        ("costs more than its level", {**chosen, "loss": "9/10"}),
        ("costs more than its level", {**padded, "loss": "1/2", "inner.loss": "1/2"}),
        ("another level than inside", {**padded, "loss": "1/2"}),
        ("a lifetime costs more than it says", {**memoised, "lifetime": "19/10"}),
        ("a report costs more than it says", {**memoised, "loss": "9/10"}),
        ("a probability that no device can toss", {**unary, "q": "1/3"}),
        ("probabilities that do not add up", {**number, "window": 7}),
        ("another length", {**direct, "bits": 5}),
        ("another width", {**direct, "width": 2}),
        ("a field too many", {**direct, "note": "trust me"}),
        ("a field too few", {name: one for name, one in direct.items() if name != "q"}),
        ("no such mechanism", {**direct, "mechanism": "identity"}),
        ("no epsilon", {**direct, "loss": "0"}),
        ("an epsilon beyond all measure", {**direct, "loss": "31"}),
    ]
    made = [{"why": why, "mechanism": told, "value": [] if "most" in told else 0} for why, told in wrong]
    for value in (14, -1, 0.5, "3", None, {}, True):
        made.append({"why": "no value of the domain", "mechanism": direct, "value": value})
    for value in ([10], [1, 1], [0, 1, 2, 3], [-1], [0.5], ["1"], 3, None, "0"):
        made.append({"why": "no set of options", "mechanism": chosen, "value": value})
    for one in (number, noisy, bit, either):
        for value in ("3", None, {}, True):
            made.append({"why": "no number", "mechanism": one, "value": value})
    for one, most in ((vector, 5), (folded, 1000), (prefix, 256)):
        for value in (most, -1, 0.5, None):
            made.append({"why": "no value of the domain", "mechanism": one, "value": value})
    return made


def content() -> dict[str, Any]:
    """All of the file."""
    listed = mechanisms().items()
    reports = [
        {"label": label, "mechanism": made.describe(), "cases": cases(label, made, values)}
        for label, (made, values) in listed
    ]
    return {"version": 1, "reports": reports, "envelopes": envelopes(), "refused": refused()}


def text() -> str:
    """One case a line, so that a change is seen where it is."""
    told = content()
    reports = [
        json.dumps({"label": one["label"], "mechanism": one["mechanism"]})[:-1]
        + ', "cases": '
        + _list(one["cases"], 4)
        + "}"
        for one in told["reports"]
    ]
    parts = {"version": "1", "reports": "[\n  " + ",\n  ".join(reports) + "\n ]"}
    parts |= {name: _list(told[name], 2) for name in ("envelopes", "refused")}
    return "{\n" + ",\n".join(f' "{name}": {part}' for name, part in parts.items()) + "\n}\n"


def _list(rows: list[Any], indent: int) -> str:
    space = "\n" + " " * indent
    return "[" + space + f",{space}".join(json.dumps(row) for row in rows) + f"\n{' ' * (indent - 1)}]"


if __name__ == "__main__":
    PLACE.write_text(text(), encoding="utf-8")
