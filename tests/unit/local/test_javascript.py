"""The browser's client: same bytes, same report; it doubts what it is told; no estimator tells it from Python's."""

import importlib.util
import json
import math
import random
import re
import subprocess
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.mechanisms.memoised import again
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.local.survey.collection import Collection
from cloister.local.survey.envelope import canonical
from cloister.privacy.errors import CloisterError
from cloister.privacy.noise import SeededSource

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "tests" / "vectors"
VECTORS = json.loads((FOLDER / "local.json").read_text(encoding="utf-8"))
WORD = 1 << 64


def script(name: str) -> Any:
    """A file beside the vectors."""
    found = importlib.util.spec_from_file_location(f"vectors_{name}", FOLDER / f"{name}.py")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


served = script("node")
CLIENT, NODE, Node, node = served.CLIENT, served.NODE, served.Node, served.node
needs_node = pytest.mark.skipif(NODE is None, reason="no Node here: on Debian, apt-get install nodejs")


@pytest.fixture(scope="module", autouse=True)
def _node_ends() -> Iterator[None]:
    yield
    Node.end()


class Script:
    """A source that reads from given bytes."""

    private = False

    def __init__(self, text: bytes) -> None:
        self.text = text

    def bytes(self, count: int) -> bytes:
        taken, self.text = self.text[:count], self.text[count:]
        assert len(taken) == count
        return taken


def given(value: Any) -> Any:
    return [value] if isinstance(value, list) else value  # a list of sets, with one set


def in_python(mechanism: Any, value: Any, text: bytes) -> tuple[str, int]:
    source = Script(text)
    report = mechanism.encode(mechanism.perturb(given(value), source))[0].tobytes().hex()
    return report, len(text) - len(source.text)


# Vectors.


def test_the_vectors_are_what_their_script_writes() -> None:
    assert script("make_local").text() == (FOLDER / "local.json").read_text(encoding="utf-8"), (
        "run tests/vectors/make_local.py"
    )


@pytest.mark.parametrize("group", VECTORS["reports"], ids=lambda group: group["label"])
def test_python_makes_the_reports_of_the_vectors(group: dict[str, Any]) -> None:
    mechanism = local.from_description(group["mechanism"])
    for case in group["cases"]:
        text = bytes.fromhex(case["random"])
        assert in_python(mechanism, case["value"], text) == (case["report"], len(text))


@pytest.mark.parametrize("case", VECTORS["refused"], ids=lambda case: case["why"])
def test_python_refuses_what_the_vectors_refuse(case: dict[str, Any]) -> None:
    if case["value"] is True:
        return  # numpy counts True among the whole numbers, and JavaScript does not
    with pytest.raises(CloisterError):
        local.from_description(case["mechanism"]).perturb(given(case["value"]))


@needs_node
def test_node_makes_the_reports_of_the_vectors_from_the_same_bytes() -> None:
    cases = [(group["mechanism"], case) for group in VECTORS["reports"] for case in group["cases"]]
    asked = [
        {"verb": "report", "mechanism": told, "value": case["value"], "bytes": case["random"]} for told, case in cases
    ]
    expected = [{"report": case["report"], "used": len(case["random"]) // 2} for _, case in cases]
    assert node(asked) == expected


@needs_node
def test_node_seals_the_envelopes_of_the_vectors_and_a_collection_counts_them() -> None:
    asked = [
        {"verb": "answer", "bytes": case["random"], **{name: case[name] for name in ("question", "level", "value")}}
        for case in VECTORS["envelopes"]
    ]
    answers = node(asked)
    for case, answer in zip(VECTORS["envelopes"], answers, strict=True):
        assert answer == {"envelope": case["envelope"]}
        collection = Collection([local.Question.read(case["question"])])
        assert collection.receive(answer["envelope"]) is None


@needs_node
def test_node_refuses_what_the_vectors_refuse_in_a_sentence_without_the_value() -> None:
    cases = VECTORS["refused"]
    asked = [{"verb": "report", "bytes": "00" * 999, **case} for case in cases]
    asked.append(
        {"verb": "report", "bytes": "00" * 999, "mechanism": cases[0]["mechanism"] | {"loss": "1"}, "value": 123456}
    )
    for answer in node(asked):
        assert answer["refused"].endswith(".")
        assert "123456" not in answer["refused"]


# Fresh cases.


def grid() -> dict[str, tuple[Any, Any]]:
    """Mechanisms over a grid of levels and domains, each with a way to draw a value."""
    made: dict[str, tuple[Any, Any]] = {}
    for amount in ("0.1", "1", "3", "10"):
        loss = local.epsilon(amount)
        made[f"RR {amount}"] = local.RandomisedResponse.for_loss(loss), lambda dice: dice.randrange(2)
        for domain in (2, 5, 16, 67, 1000):
            makers = {
                "DE": local.DirectEncoding.for_loss,
                "SUE": local.UnaryEncoding.symmetric,
                "OUE": local.UnaryEncoding.optimised,
                "THE": local.ThresholdEncoding.for_loss,
                "OLH": local.LocalHashing.for_loss,
                "HR": local.HadamardResponse.for_loss,
                "SS": local.SubsetSelection.for_loss,
                "SHE": local.HistogramEncoding.for_loss,
                "CMS": lambda d, loss: local.CountMeanSketch.for_loss(d, loss, 2 * d + 1, 8, f"salt {d}"),
            }
            for name, maker in makers.items():
                made[f"{name} {domain} {amount}"] = maker(domain, loss), lambda dice, d=domain: dice.randrange(d)
        for options, most in ((4, 4), (10, 3), (100, 1)):
            sets = {"one": OneOfSet, "bits": SetBits, "PS": PaddedSample}
            for name, kind in sets.items():
                made[f"{name} {options} {most} {amount}"] = (
                    kind.for_loss(options, most, loss),
                    lambda dice, d=options, m=most: dice.sample(range(d), dice.randint(0, m)),
                )
        half = local.epsilon(Fraction(amount) / 2)
        for name, memoised in (("MD", local.Memoised.direct), ("MU", local.Memoised.unary)):
            made[f"{name} {amount}"] = memoised(9, lifetime=loss, report=half), lambda dice: dice.randrange(9)
        for bounds in ((0, 1), (-40, 17), ("-1/3", "2.5")):
            numbers = {
                "PM": local.Piecewise,
                "SW": local.SquareWave,
                "DU": local.Duchi,
                "HM": local.Hybrid,
                "LN": local.LaplaceNumber,
            }
            for name, number in numbers.items():
                made[f"{name} {bounds} {amount}"] = number.for_loss(bounds, loss), lambda dice: dice.uniform(-50, 50)
        for length, chunk in ((32, None), (6, 2), (3, 1)):
            made[f"HH {length} {amount}"] = (
                local.HeavyHitters.for_loss(loss, length, chunk),
                lambda dice, bits=length: dice.randrange(1 << bits),
            )
    return made


@needs_node
def test_thousands_of_fresh_cases_give_identical_reports_in_both_languages() -> None:
    dice, source = random.Random(11), SeededSource("fresh cases")
    cases, expected = [], []
    for mechanism, draw in grid().values():
        told = mechanism.describe()
        for _ in range(24 if mechanism.width < 1_000 else 1):
            value, text = draw(dice), source.bytes(24 * 8 + 8 * mechanism.width * 8)
            report, used = in_python(mechanism, value, text)
            cases.append({"verb": "report", "mechanism": told, "value": value, "bytes": text[: used + 8].hex()})
            expected.append({"report": report, "used": used})
    assert len(cases) > 4_000
    assert node(cases) == expected


@needs_node
def test_the_thresholds_that_javascript_uses_are_those_of_python() -> None:
    mechanisms = [mechanism for mechanism, _ in grid().values()]
    for mechanism, answer in zip(
        mechanisms, node([{"verb": "thresholds", "mechanism": one.describe()} for one in mechanisms]), strict=True
    ):
        used = {name: int(number) for name, number in answer["thresholds"].items()}
        outer = getattr(mechanism, "inner", mechanism)
        if isinstance(outer, local.Memoised):
            facts = outer.permanent_p, outer.permanent_q, outer.flip
            assert tuple(used.values()) == tuple(int(fact * WORD) for fact in facts)
        elif isinstance(outer, local.HistogramEncoding | local.LaplaceNumber):
            assert tuple(used.values()) == outer.scale.as_integer_ratio()
        elif hasattr(outer, "thresholds"):
            assert tuple(used.values()) == tuple(outer.thresholds)
        else:
            assert used == {name: int(getattr(outer, name) * WORD) for name in used}
            assert used


@needs_node
def test_a_permanent_report_is_made_once_and_freshly_repeated_as_in_python() -> None:
    for mechanism in (
        local.Memoised.direct(7, lifetime=local.epsilon(2), report=local.epsilon(1)),
        local.Memoised.unary(7, lifetime=local.epsilon(2), report=local.epsilon(1)),
    ):
        text = SeededSource(mechanism.encoding).bytes(200)
        (answer,) = node([{"verb": "memory", "mechanism": mechanism.describe(), "value": 3, "bytes": text.hex()}])
        source = Script(text)
        kept = mechanism.permanent.perturb(3, source)
        assert answer["kept"] == mechanism.permanent.encode(kept)[0].tobytes().hex()
        fresh = local.Reports(mechanism, again(mechanism, kept.data, source))
        assert answer["again"] == mechanism.encode(fresh)[0].tobytes().hex()


@needs_node
def test_javascript_knows_what_it_says_it_knows() -> None:
    (answer,) = node([{"verb": "known"}])
    assert set(answer["mechanisms"]) == {mechanism.name for mechanism, _ in grid().values()}


# The wallet.


def steps_of(cap: str, steps: list[dict[str, Any]], **more: Any) -> tuple[list[dict[str, Any]], Any]:
    (answer,) = node([{"verb": "wallet", "cap": cap, "steps": steps, **more}])
    return answer["told"], answer["held"]


LEVELS = [local.epsilon(amount) for amount in ("0.5", 1, 2)]
SMOKER = local.Question("smoker", [local.RandomisedResponse.for_loss(one) for one in LEVELS], ["no", "yes"])
PETS = local.Question("pets", [OneOfSet.for_loss(4, 2, one) for one in LEVELS])
WAVES = local.Question("waves", [local.Memoised.direct(5, lifetime=local.epsilon(2), report=local.epsilon(1))])


def asked(question: local.Question, level: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"question": question.describe(), "level": level, "value": value, **more}


@needs_node
def test_a_wallet_charges_the_first_answer_repeats_it_for_nothing_and_keeps_its_cap() -> None:
    steps = [asked(SMOKER, "1", 1), asked(SMOKER, "1", 1), asked(PETS, "1/2", [3, 0]), asked(PETS, "1/2", [0, 3])]
    steps += [
        asked(SMOKER, "1", 0),
        asked(WAVES, "1", 2),
        asked(SMOKER, "1/2", 1, anew=True),
        asked(SMOKER, "2", 1, anew=True),
    ]
    told, held = steps_of("2", steps)
    assert [one.get("spent") for one in told] == ["1", "1", "3/2", "3/2", None, None, "2", None]
    assert told[6]["left"] == "0"
    reports = [json.loads(one["envelope"]) for one in told if "envelope" in one]
    assert reports[0]["report"] == reports[1]["report"]
    assert reports[2]["report"] == reports[3]["report"]
    assert len({report["id"] for report in reports}) == len(reports)
    assert "answered before" in told[4]["refused"]
    assert "needs epsilon 2, and 1/2 is left of 2" in told[5]["refused"]
    assert "0 is left" in told[7]["refused"]
    collection = Collection([SMOKER, PETS, WAVES]).collect(one["envelope"] for one in told if "envelope" in one)
    assert (collection.n, collection.refused.total()) == (5, 0)
    assert [charge["epsilon"] for charge in json.loads(held)["charges"]] == ["1", "1/2", "1/2"]


@needs_node
@pytest.mark.parametrize("name", ["a b", "__proto__", "", "é", "q" * 65, 7])
def test_a_wallet_checks_the_questions_id_before_it_charges(name: Any) -> None:
    told, held = steps_of("2", [{**asked(SMOKER, "1", 1), "question": {**SMOKER.describe(), "id": name}}] * 3)
    assert [one["refused"].partition(" has ")[0] for one in told] == ["a question's id"] * 3
    assert json.loads(held)["charges"] == []
    told, held = steps_of("2", [{**asked(SMOKER, "1", 1), "question": {**SMOKER.describe(), "id": "constructor"}}] * 3)
    assert [one["spent"] for one in told] == ["1"] * 3  # a name that every object has is a name like others


@needs_node
def test_what_a_page_gave_every_object_is_not_taken_for_the_mechanisms_or_the_sources_own() -> None:
    steps = [asked(SMOKER, "1", 1, bytes="00" * 24), asked(PETS, "1/2", [3, 0]), asked(SMOKER, "1", 1)]
    plain, _ = steps_of("2", steps)
    names = ["accept", "more", "logs", "inner", "lifetime", "remember", "again", "smoker", "pets", "memos"]
    told, held = steps_of("2", steps, polluted=names)
    assert [one["spent"] for one in told] == [one["spent"] for one in plain] == ["1", "3/2", "3/2"]
    assert set(json.loads(held)["memos"]) == {"smoker", "pets"}
    assert not json.loads(told[0]["envelope"])["private"]


@needs_node
def test_a_wallet_keeps_the_permanent_report_and_sends_fresh_ones_of_it() -> None:
    told, held = steps_of("2", [asked(WAVES, "1", 2)] * 40)
    assert {one["spent"] for one in told} == {"2"}  # the lifetime, once
    assert len({json.loads(one["envelope"])["report"] for one in told}) > 1
    assert len(json.loads(held)["memos"]["waves"]) == 1


@needs_node
def test_a_wallet_that_is_damaged_overdrawn_or_cannot_be_written_sends_nothing() -> None:
    _, held = steps_of("2", [asked(SMOKER, "1", 1)])
    state = json.loads(held)
    overdrawn = {**state, "charges": [{"question": "x", "epsilon": "2"}, {"question": "y", "epsilon": "1"}]}
    memos = [None, {"smoker": 1}, {"smoker": [None]}, {"smoker": [{"facts": "", "report": "zz", "private": True}]}, []]
    memos += [{"smoker": [state["memos"]["smoker"][0] | {"report": report}]} for report in ("", "0000")]
    spoiled = [json.dumps({**state, "memos": one}) for one in memos]
    for wrong in ("", "{", "[]", "null", json.dumps({**state, "version": 2}), json.dumps(overdrawn), *spoiled):
        told, kept = steps_of("2", [asked(SMOKER, "1", 1)], held=wrong)
        assert all("nothing is sent" in one["refused"] for one in told)
        assert kept == wrong
    told, _ = steps_of("3", [asked(SMOKER, "1", 1)], held=held)
    assert "a cap is for life" in told[0]["refused"]
    told, kept = steps_of("2", [asked(PETS, "1", [1])], held=held, full=True)
    assert "could not be written" in told[-1]["refused"]
    assert kept == held


@needs_node
def test_a_seeded_answer_stays_marked_when_a_wallet_repeats_it() -> None:
    told, _ = steps_of("2", [asked(SMOKER, "1", 1, bytes="00" * 24), asked(SMOKER, "1", 1)])
    assert [json.loads(one["envelope"])["private"] for one in told] == [False, False]


# What it doubts.


@needs_node
def test_a_description_one_step_beyond_its_epsilon_is_refused_and_one_step_within_is_not() -> None:
    for amount in ("1/100", "1/2", "1", "5", "29"):
        mechanism = local.DirectEncoding.for_loss(6, local.epsilon(amount))
        told = mechanism.describe()
        lower = Fraction(mechanism.thresholds[1] - 1, WORD)  # for_loss takes the least q that holds
        answers = node(
            [
                {"verb": "thresholds", "mechanism": told},
                {"verb": "thresholds", "mechanism": {**told, "q": str(lower)}},
                {"verb": "thresholds", "mechanism": {**told, "q": str(lower + Fraction(2, WORD))}},
            ]
        )
        assert "thresholds" in answers[0]
        assert "tell more than the level says" in answers[1]["refused"]
        assert "thresholds" in answers[2]


def narrower() -> list[tuple[Any, dict[str, Any]]]:
    """Mechanisms as private as they must be, and what makes each of them the least bit less so."""
    made: list[tuple[Any, dict[str, Any]]] = []
    for amount in ("1/100", "1/2", "1", "5", "29"):
        loss = local.epsilon(amount)
        bit = local.Duchi.for_loss((0, 1), loss, steps=10)
        steeper = Fraction(WORD - 10 * (bit.rise + 2), 2 * WORD)
        near = local.Piecewise.for_loss((0, 1), loss, steps=10, shift=1)
        either = local.Hybrid(0, 1, 10, 1, near.window, near.q, bit.q, Fraction(1, 2), loss)
        prefix = local.HeavyHitters(4, 2, 3, local.LocalHashing.for_loss(4, loss, buckets=3).lie, loss)
        vector = local.HistogramEncoding.for_loss(3, loss)
        noisy = local.LaplaceNumber.for_loss((0, 1), loss, steps=10)
        made += [
            (bit, {"q": str(steeper), "p": str(1 - steeper)}),
            (either, {"flip": str(steeper)}),
            (prefix, {"lie": str(prefix.lie - Fraction(1, WORD))}),
            (vector, _scaled(vector.scale * (1 - Fraction(1, 10**9)))),
            (noisy, _scaled(10 / loss.amount * (1 - Fraction(1, 10**9)))),
        ]
    return made


def _scaled(scale: Fraction) -> dict[str, Any]:
    return {"scale": str(scale), "limit": math.ceil(45 * scale) + 1}


@needs_node
def test_the_device_computes_what_a_report_tells_and_refuses_the_least_bit_more() -> None:
    for mechanism, changed in narrower():
        told = mechanism.describe()
        fits, refused = node(
            [{"verb": "thresholds", "mechanism": told}, {"verb": "thresholds", "mechanism": {**told, **changed}}]
        )
        assert "thresholds" in fits, mechanism
        assert "tell more than the level says" in refused["refused"], mechanism


@needs_node
def test_a_sketch_draws_its_table_from_the_same_public_hash() -> None:
    for rows, salt in ((1, ""), (4, "x" * 300), (256, "é \U0001f600")):
        mechanism = local.CountMeanSketch.for_loss(2**32, local.epsilon(20), buckets=65535, rows=rows, salt=salt)
        dice = random.Random(salt)
        values = [dice.randrange(2**32) for _ in range(4)]
        for value in values:
            row = dice.randrange(rows)
            text = row.to_bytes(8, "little") + bytes(8) + bytes(65536 // 8 * (mechanism.q.denominator.bit_length() - 1))
            (answer,) = node(
                [{"verb": "report", "mechanism": mechanism.describe(), "value": value, "bytes": text.hex()}]
            )
            report = int.from_bytes(bytes.fromhex(answer["report"])[2:], "little")
            assert report == 1 << int(mechanism.hashed(row, value))


@needs_node
def test_both_languages_spell_canonical_json_alike() -> None:
    contents = [
        {"b": 1, "a": "é\n\x7f\x00\u2028"},
        {"z": [True, False, {"y": "\U0001f600"}], "Z": -3},
        "\ud800",
        [],
        {},
    ]
    answers = node([{"verb": "canonical", "content": content} for content in contents])
    assert [answer["text"] for answer in answers] == [canonical(content).decode() for content in contents]


# Its own randomness.


@needs_node
@pytest.mark.statistical
def test_the_devices_own_randomness_gives_estimates_that_fit_the_truth() -> None:
    question = local.Question("job", [local.DirectEncoding.for_loss(3, local.epsilon(3))])
    values = [0] * 3_000 + [1] * 1_000
    (answer,) = node([{"verb": "answers", "question": question.describe(), "level": "3", "values": values}])
    collection = Collection([question]).collect(answer["envelopes"])
    assert collection.n == 4_000
    found = collection.estimate("job").raw
    assert found.private
    assert (abs(found.frequencies - np.array([0.75, 0.25, 0])) < 7 * found.standard_error).all()


# What the files may do.


def test_the_client_draws_only_from_the_browsers_generator_and_calls_nobody() -> None:
    files = sorted(CLIENT.glob("*.mjs"))
    assert {"index.mjs", "mechanism.mjs", "envelope.mjs"} <= {file.name for file in files}
    for file in files:
        text = file.read_text(encoding="utf-8")
        code = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL)
        assert not re.search(r"Math\.random|fetch|XMLHttpRequest|sendBeacon|eval|document|console", code), file
        assert all(name.startswith("./") for name in re.findall(r'from "([^"]+)"', code)), file
        assert text.count("\n") <= 250
    drawing = [file.name for file in files if "getRandomValues" in file.read_text(encoding="utf-8")]
    assert drawing == ["index.mjs", "random.mjs"]  # the first in a comment


@needs_node
def test_the_guides_lines_of_javascript_run_as_written(tmp_path: Path) -> None:
    guide = (ROOT / "docs" / "guides" / "collect-private-answers.md").read_text(encoding="utf-8")
    (lines,) = re.findall(r"```text\n(import .*?)```", guide, re.DOTALL)
    question = local.Question("smoker", [local.RandomisedResponse.for_loss(local.epsilon(1))], ["no", "yes"])
    before = f"const question = {json.dumps(question.describe())};\n"
    before += "globalThis.fetch = async (address, told) => console.log(address, told.method, told.body);\n"
    (tmp_path / "guide.mjs").write_text(before + lines.replace("./index.mjs", (CLIENT / "index.mjs").as_uri()))
    done = subprocess.run(
        [str(NODE), "guide.mjs"], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True
    )
    address, method, envelope = done.stdout.strip().split(" ")
    assert (address, method) == ("/reports", "POST")
    assert Collection([question]).receive(envelope) is None


def test_the_wheel_carries_the_client() -> None:
    builder = pytest.importorskip("hatchling.builders.wheel", reason="install the build tool: pip install hatchling")
    wheel = builder.WheelBuilder(str(ROOT))
    carried = {Path(one.distribution_path).as_posix() for one in wheel.recurse_included_files()}
    for file in CLIENT.glob("*.mjs"):
        assert f"cloister/local/client/{file.name}" in carried
