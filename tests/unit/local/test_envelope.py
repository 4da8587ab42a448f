"""The wire: one content, one spelling; whatever else arrives is refused, counted, and breaks nothing."""

import base64
import json
import random
from collections import Counter
from typing import Any

import numpy as np
import pytest

from cloister import local
from cloister.local.mechanisms.memoised import Memoised
from cloister.local.mechanisms.padded import PaddedSample
from cloister.local.mechanisms.sets import OneOfSet, SetBits
from cloister.local.survey import envelope as device
from cloister.local.survey import file
from cloister.local.survey.answers import envelopes, read_rows
from cloister.local.survey.collection import Collection
from cloister.local.survey.envelope import canonical, pack, unpack
from cloister.local.survey.question import read_questions, write_questions
from cloister.privacy.errors import BadInput, BadLoss, BadName, BadSource, CloisterError
from cloister.privacy.noise import SeededSource

LOSS = local.epsilon("1.5")
MECHANISMS = {
    "RR": local.RandomisedResponse.for_loss(LOSS),
    "coins": local.RandomisedResponse.coins("0.6", "0.3"),
    "DE": local.DirectEncoding.for_loss(13, LOSS),
    "SUE": local.UnaryEncoding.symmetric(13, LOSS),
    "OUE": local.UnaryEncoding.optimised(13, LOSS),
    "THE": local.ThresholdEncoding.for_loss(13, LOSS),
    "SHE": local.HistogramEncoding.for_loss(13, LOSS),
    "OLH": local.LocalHashing.for_loss(13, LOSS),
    "HR": local.HadamardResponse.for_loss(13, LOSS),
    "SS": local.SubsetSelection.for_loss(13, LOSS),
    "CMS": local.CountMeanSketch.for_loss(13, LOSS, buckets=11, rows=4, salt='a "quoted" ä \0 salt'),
    "HH": local.HeavyHitters.for_loss(LOSS, length=8, chunk=4),
}
# Those whose answers are no single whole number.
OTHERS = {
    "one of a set": OneOfSet.for_loss(10, 3, LOSS),
    "bits of a set": SetBits.for_loss(10, 3, LOSS),
    "padded sample": PaddedSample.for_loss(30, 3, LOSS),
    "piecewise": local.Piecewise.for_loss(("-1/3", 5), LOSS),
    "square wave": local.SquareWave.for_loss((0, 5), LOSS),
    "Duchi": local.Duchi.for_loss((0, 5), LOSS),
    "hybrid": local.Hybrid.for_loss((0, 5), LOSS),
    "Laplace": local.LaplaceNumber.for_loss((0, 5), LOSS),
    "memoised": Memoised.direct(5, lifetime=local.epsilon(2), report=local.epsilon(1)),
    "memoised bits": Memoised.unary(5, lifetime=local.epsilon(2), report=local.epsilon(1)),
}
every = pytest.mark.parametrize("mechanism", MECHANISMS.values(), ids=MECHANISMS)
LEVELS = [local.epsilon(amount) for amount in ("0.5", 1, 2)]
SMOKER = local.Question("smoker", [local.RandomisedResponse.for_loss(one) for one in LEVELS], ["no", "yes"])
JOB = local.Question("job", [local.DirectEncoding.for_loss(5, one) for one in LEVELS], list("abcde"))


def sent(question: Any, level: Any, values: Any, seed: Any = None) -> list[bytes]:
    source = None if seed is None else SeededSource(seed)
    return device.seal(question.id, question.at(level).perturb(values, source), source)


def changed(envelope: bytes, **fields: Any) -> bytes:
    return canonical({**json.loads(envelope), **fields})


# Descriptions.


@pytest.mark.parametrize("mechanism", (MECHANISMS | OTHERS).values(), ids=MECHANISMS | OTHERS)
def test_a_mechanism_is_rebuilt_from_its_description(mechanism: Any) -> None:
    told = json.loads(json.dumps(mechanism.describe()))
    assert local.from_description(told) == mechanism


@every
def test_a_description_that_was_touched_is_refused(mechanism: Any) -> None:
    told = mechanism.describe()
    wrong: list[Any] = [None, [], {}, {**told, "more": 1}, {**told, "bits": told["bits"] + 1}, {**told, "loss": "x"}]
    wrong += [{name: one for name, one in told.items() if name != left_out} for left_out in told]
    wrong += [{**told, name: other} for name in told if name != "salt" for other in (None, [], -1, "1/0", True, 2**70)]
    for one in wrong:
        with pytest.raises(CloisterError):
            local.from_description(one)


def test_a_description_that_costs_more_than_it_says_is_refused() -> None:
    told = MECHANISMS["DE"].describe()
    with pytest.raises(BadLoss):
        local.from_description({**told, "loss": "1"})


# One spelling.


def test_canonical_json_has_sorted_keys_no_spaces_and_ascii_only() -> None:
    assert canonical({"b": [1, True], "a": "é\n\x7f"}) == b'{"a":"\\u00e9\\n\\u007f","b":[1,true]}'


def test_packed_bytes_have_one_spelling() -> None:
    for length in range(40):
        data = random.Random(length).randbytes(length)
        assert unpack(pack(data)) == data
    for other in ("AB", "A", "AA==", "A A", "A+", "é", None, 3, "AAA\n"):
        assert unpack(other) is None


@every
def test_an_envelope_says_what_the_wire_promises_and_is_counted(mechanism: Any) -> None:
    question = local.Question("q", [mechanism])
    reports = mechanism.perturb(np.arange(30) % min(mechanism.domain, 5))
    envelopes = device.seal("q", reports)
    for envelope, row in zip(envelopes, mechanism.encode(reports), strict=True):
        told = json.loads(envelope)
        assert canonical(told) == envelope
        assert (told["version"], told["question"], told["private"]) == (1, "q", True)
        assert told["level"] == str(mechanism.epsilon)
        assert told["mechanism"] == mechanism.describe()
        assert told["mechanism"]["bits"] == mechanism.bits
        assert unpack(told["report"]) == row.tobytes()
        assert len(unpack(told["id"]) or b"") == 16
    assert len({json.loads(one)["id"] for one in envelopes}) == 30
    counts = Collection([question]).collect(envelopes).counts("q")[str(mechanism.epsilon)]
    assert counts.n == 30
    assert np.array_equal(counts.table, mechanism.aggregate(reports).table)


def test_a_question_without_a_proper_id_or_with_levels_that_do_not_fit_is_refused() -> None:
    for name in ("", "a b", "é", "-x", "x" * 65, None):
        with pytest.raises(BadName):
            local.Question(name, [MECHANISMS["DE"]])  # type: ignore[arg-type]
    for levels in ([], [MECHANISMS["DE"], MECHANISMS["OUE"]], [MECHANISMS["DE"], JOB.at(1)]):
        with pytest.raises(BadInput):
            local.Question("q", levels)
    for choices in (["a"], ["a"] * 5, ["", "b", "c", "d", "e"], "abcde", [1, 2, 3, 4, 5]):
        with pytest.raises(CloisterError):
            local.Question("q", [JOB.at(1)], choices)  # type: ignore[arg-type]
    with pytest.raises(BadInput):
        JOB.at("0.7")


def test_questions_survive_a_file(tmp_path: Any) -> None:
    write_questions([SMOKER, JOB], tmp_path / "q.json")
    assert read_questions(tmp_path / "q.json") == (SMOKER, JOB)
    for text in ("", "[]", "{}", '{"version": 2, "questions": []}', '{"version": 1, "questions": 3}'):
        (tmp_path / "q.json").write_text(text)
        with pytest.raises(BadSource):
            read_questions(tmp_path / "q.json")


# What arrives.


def test_each_refusal_is_counted_under_its_reason() -> None:
    good = sent(SMOKER, 1, [1, 0])
    told = SMOKER.at(1).describe()
    other = local.RandomisedResponse.coins("0.3", "0.5").describe()
    arrived = {
        "oversized": [good[0] + b" " * 500, changed(good[0], report="A" * 10_000)],
        "malformed": [
            *(None, 7, {}, b"", b"\xff", "text", b"[]", b"{}", b"[" * 90, "\ud800"),
            good[0].replace(b",", b", ", 1),
            changed(good[0], more=1),
            changed(good[0], id="short"),
            changed(good[0], id="!" * 22),
            changed(good[0], report="A"),
            changed(good[0], private="yes"),
            changed(good[0], version=True),
            good[0].replace(b'"version":1', b'"version":1.0'),
        ],
        "wrong version": [changed(good[0], version=2)],
        "wrong question": [changed(good[0], question="job")],
        "unknown level": [changed(good[0], level="3"), changed(good[0], level=None)],
        "wrong mechanism": [
            changed(good[0], mechanism={**other, "loss": "1"}),
            changed(good[0], mechanism={**told, "x": 1}),
        ],
        "out of domain": [changed(good[0], report=pack(b"\x02")), changed(good[0], report="")],
        "replayed": [good[0], changed(good[0], report=pack(b"\x00")), changed(good[0], report=pack(b"\x01"))],
    }
    collection = Collection([SMOKER])
    assert [collection.receive(one) for one in good] == [None, None]
    for reason, wrong in arrived.items():
        assert [collection.receive(one) for one in wrong] == [reason] * len(wrong)
    assert dict(collection.refused) == {reason: len(wrong) for reason, wrong in arrived.items()}
    assert collection.n == collection.counts("smoker")["1"].n == 2
    in_one_go = Collection([SMOKER]).collect(good + [one for wrong in arrived.values() for one in wrong if one != b""])
    assert in_one_go.refused == collection.refused - Counter({"malformed": 1})
    assert np.array_equal(in_one_go.counts("smoker")["1"].table, collection.counts("smoker")["1"].table)


def test_ten_thousand_mutilated_envelopes_raise_nothing_and_change_no_count_unless_they_are_well_formed() -> None:
    dice = random.Random(5)
    good = sent(SMOKER, 1, [1] * 20) + sent(JOB, "0.5", [2] * 20)
    collection = Collection([SMOKER, JOB])
    for _ in range(10_000):
        text = bytearray(dice.choice(good))
        for _ in range(dice.randint(1, 3)):
            place = dice.randrange(len(text))
            if dice.random() < 0.5:
                text[place] = dice.randrange(256)
            else:
                del text[place : place + dice.randint(1, 9)]
        collection.receive(bytes(text))
    assert collection.n + collection.refused.total() == 10_000
    assert collection.refused["malformed"] > 5_000
    counted = sum(one.n for name in ("smoker", "job") for one in collection.counts(name).values())
    assert counted == collection.n


def test_a_report_refused_once_does_not_use_up_its_id() -> None:
    good = sent(SMOKER, 1, 1)[0]
    collection = Collection([SMOKER])
    assert collection.receive(changed(good, report=pack(b"\x07"))) == "out of domain"
    assert collection.receive(good + b"\n") is None


def test_streams_pieces_and_sums_give_the_same_counts() -> None:
    arrived = sent(SMOKER, 1, np.arange(9_000) % 2, 1) + sent(JOB, 2, np.arange(300) % 5, 2) + [b"\n", b"nonsense"]
    whole = Collection([SMOKER, JOB]).collect(arrived)
    parts = [Collection([SMOKER, JOB]).collect(iter(arrived[start::3])) for start in range(3)]
    merged = parts[0] + parts[1] + parts[2]
    for one in (whole, merged):
        assert (one.n, dict(one.refused)) == (9_300, {"malformed": 1})
    for name in ("smoker", "job"):
        for level, counts in whole.counts(name).items():
            assert np.array_equal(counts.table, merged.counts(name)[level].table)
            assert not counts.private  # the envelopes say that their randomness was seeded
    with pytest.raises(BadInput, match="same 9,300 reports"):
        whole + merged
    with pytest.raises(BadInput):
        whole + Collection([SMOKER])
    with pytest.raises(BadInput):
        Collection([SMOKER, SMOKER])


def test_one_seeded_report_marks_the_estimate() -> None:
    collection = Collection([SMOKER]).collect(sent(SMOKER, 1, [1] * 50))
    assert collection.estimate("smoker").raw.private
    collection.collect(sent(SMOKER, 1, [1], seed=3))
    assert not collection.estimate("smoker").raw.private
    assert "not private" in str(collection.estimate("smoker"))


# On disk.


def test_a_collection_survives_its_file_and_still_refuses_replays(tmp_path: Any) -> None:
    arrived = sent(SMOKER, 1, np.arange(500) % 2, 1) + sent(JOB, 2, np.arange(300) % 5)
    collection = Collection([SMOKER, JOB]).collect([*arrived, b"nonsense"])
    file.save(collection, tmp_path / "counts.json")
    again = file.load(tmp_path / "counts.json")
    assert (again.n, again.refused, again.questions) == (800, collection.refused, collection.questions)
    for name in ("smoker", "job"):
        for level, counts in collection.counts(name).items():
            kept = again.counts(name)[level]
            assert (kept.n, kept.private) == (counts.n, counts.private)
            assert np.array_equal(kept.table, counts.table)
    assert again.receive(arrived[3]) == "replayed"
    assert [one.name for one in tmp_path.iterdir()] == ["counts.json"]


def test_the_file_does_not_keep_the_order_of_arrival(tmp_path: Any) -> None:
    arrived = sent(SMOKER, 1, [0, 1] * 40)
    file.save(Collection([SMOKER]).collect(arrived), tmp_path / "one")
    file.save(Collection([SMOKER]).collect(arrived[::-1]), tmp_path / "two")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


@every
def test_counts_of_every_mechanism_survive_a_file(mechanism: Any, tmp_path: Any) -> None:
    question = local.Question("q", [mechanism])
    collection = Collection([question]).collect(device.seal("q", mechanism.perturb([1] * 40)))
    file.save(collection, tmp_path / "counts.json")
    again = file.load(tmp_path / "counts.json")
    level = str(mechanism.epsilon)
    assert np.array_equal(again.counts("q")[level].table, collection.counts("q")[level].table)


def test_a_file_that_is_none_is_refused(tmp_path: Any) -> None:
    place = tmp_path / "counts.json"
    file.save(Collection([SMOKER]).collect(sent(SMOKER, 1, [1] * 9)), place)
    told = json.loads(place.read_text())
    wrong: list[Any] = [{}, [], {**told, "version": 2}, {**told, "ids": "!"}, {**told, "counts": {"job": {"1": {}}}}]
    for kind in ("|O", "<c16"):
        level = {**told["counts"]["smoker"]["1"], "kind": kind}
        wrong.append({**told, "counts": {"smoker": {"1": level}}})
    wrong.append({**told, "counts": {"smoker": {"1": {**told["counts"]["smoker"]["1"], "shape": [1, 2]}}}})
    for one in wrong:
        place.write_text(json.dumps(one))
        with pytest.raises(BadSource):
            file.load(place)
    with pytest.raises(BadSource):
        file.load(tmp_path / "missing.json")


def test_a_file_of_counts_that_is_not_as_it_was_written_is_refused(tmp_path: Any) -> None:
    kept = tmp_path / "counts.json"
    file.save(Collection([SMOKER, JOB]).collect([*sent(SMOKER, 1, [1] * 3), b"nonsense"]), kept)
    content = json.loads(kept.read_text())
    level = content["counts"]["smoker"]["1"]
    ids = base64.b64decode(content["ids"])
    changed: list[Any] = [
        {**content, "ids": base64.b64encode(part).decode()} for part in (ids[:-3], ids[3:], ids[:-16])
    ]
    changed += [{**content, "refused": {"malformed": count}} for count in (-1, 1.5, True, "1", 1e999)]
    changed += [{**content, "refused": {"out of mind": 1}}, {**content, "stored": -1}, {**content, "more": 1}]
    wrong = [{"n": 1e999}, {"n": 3.5}, {"n": "3"}, {"refused": -1}, {"refused": 1e999}, {"private": 1}, {"kind": "<f8"}]
    changed += [{**content, "counts": {"smoker": {"1": {**level, **facts}}}} for facts in wrong]
    emptied = {**level, "n": -3}
    changed.append({**content, "ids": "", "counts": {"smoker": {"1": level, "2": emptied}}})
    for damaged in changed:
        kept.write_text(json.dumps(damaged))
        with pytest.raises(BadSource):
            file.load(kept)
    kept.write_text(json.dumps(content))
    assert file.load(kept).n == 3


DEEP = "[" * 10**5 + "]" * 10**5


def nested(depth: int) -> Any:
    """Lists within lists."""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize("reader", [file.load, read_questions, lambda path: list(read_rows(path))])
def test_a_text_that_is_nested_too_deeply_is_refused_as_any_other(reader: Any, tmp_path: Any) -> None:
    source = tmp_path / "deep.json"
    for text in (DEEP, f'{{"version": 1, "questions": {DEEP}}}', '{"a":' * 10**5 + "1" + "}" * 10**5):
        source.write_text(text)
        with pytest.raises(BadSource):
            reader(source)


def test_an_answer_or_a_level_that_is_a_list_or_an_object_is_refused() -> None:
    tags = local.Question("tags", [SetBits.for_loss(3, 2, local.epsilon(1))], list("abc"))
    for cell in ({"a": 1}, {"a": nested(5000)}, nested(5000), [["a"]], [{"a": 1}]):
        assert [question.value(cell) for question in (SMOKER, JOB, tags)] == [None] * 3
    for level in ([1], {"level": 1}, nested(5000)):
        with pytest.raises(CloisterError, match="level"):
            list(envelopes([SMOKER], [{"smoker": "yes", "smoker.level": level}]))


# Findings.


def test_mixed_levels_are_combined_without_bias_and_with_less_error_than_any_level_alone() -> None:
    answers = np.array([1] * 6_000 + [0] * 14_000)
    collection = Collection([SMOKER])
    for place, level in enumerate(SMOKER.offered):
        collection.collect(sent(SMOKER, level, answers[place::3], seed=place))
    found = collection.estimate("smoker")
    assert found.raw.raw
    assert abs(found.raw.frequencies[1] - 0.3) < 4 * found.raw.standard_error[1]
    # A level alone tells about its own people; about all who answered it errs by who was in it too.
    for one in found.levels.values():
        alone = one.standard_error[1] ** 2 + 0.3 * 0.7 * (1 / one.n - 1 / found.raw.n)
        assert found.raw.standard_error[1] ** 2 < alone
    assert sum(found.weights.values()) == pytest.approx(1)
    assert found.weights["2"] > found.weights["1"] > found.weights["1/2"]
    assert found.selection is not None
    assert found.selection > 0.001
    assert not found.projected().raw
    assert 20_000 / 3 < found.effective < 10_000  # the loudest third, and a little from the others
    people = collection.estimate("smoker", weights="people")
    assert people.effective < found.effective
    assert people.raw.standard_error[1] > found.raw.standard_error[1]
    assert people.weights["1"] == pytest.approx(1 / 3, abs=1e-3)


def test_a_choice_of_level_that_follows_the_answer_is_noticed() -> None:
    collection = Collection([SMOKER])
    collection.collect(sent(SMOKER, "0.5", [1] * 4_000 + [0] * 1_000, seed=1))  # who smokes hides it more
    collection.collect(sent(SMOKER, 2, [1] * 1_000 + [0] * 4_000, seed=2))
    found = collection.estimate("smoker")
    assert found.selection is not None
    assert found.selection < 1e-6
    assert "may be linked" in str(found)
    by_people = collection.estimate("smoker", weights="people").raw
    assert abs(by_people.frequencies[1] - 0.5) < 4 * by_people.standard_error[1]
    assert found.raw.frequencies[1] < 0.4  # weights by variance hear mostly those who had nothing to hide


def test_levels_that_people_choose_by_chance_raise_no_alarm() -> None:
    dice, alarms = np.random.default_rng(8), []
    for seed in range(100):
        answers = (dice.random(600) < 0.4).astype(int)
        collection = Collection([SMOKER]).collect(sent(SMOKER, 1, answers[:300], seed=f"{seed} a"))
        found = collection.collect(sent(SMOKER, 2, answers[300:], seed=f"{seed} b")).estimate("smoker")
        assert found.selection is not None
        alarms.append(found.selection < 0.01)
    assert sum(alarms) <= 5


def test_a_number_is_estimated_as_a_mean_from_all_levels() -> None:
    age = local.Question("age", [local.Piecewise.for_loss((17, 90), one) for one in LEVELS])
    ages = np.random.default_rng(2).uniform(20, 60, 9_000)
    collection = Collection([age])
    for place, level in enumerate(age.offered):
        collection.collect(sent(age, level, ages[place::3], seed=place))
    found = collection.estimate("age")
    assert abs(found.raw.mean - ages.mean()) < 4 * found.raw.standard_error
    (row,) = found.rows()
    assert row["value"] == "mean"
    assert row["low"] < row["raw"] < row["high"]
    assert 17 <= found.projected().mean <= 90
    assert found.poisoning.up > found.poisoning.honest
    assert "mean" in str(found)


def test_several_choices_are_estimated_as_shares_that_need_not_add_up_to_one() -> None:
    pets = local.Question("pets", [OneOfSet.for_loss(4, 2, one) for one in LEVELS], ["cat", "dog", "fish", "other"])
    people = [{0, 1}, {0}, set(), {1, 0}] * 2_000
    collection = Collection([pets]).collect(sent(pets, 1, people, seed=1)).collect(sent(pets, 2, people, seed=2))
    found = collection.estimate("pets")
    truth = np.array([0.75, 0.5, 0, 0])
    assert (abs(found.raw.frequencies - truth) < 5 * found.raw.standard_error).all()
    assert found.projected().frequencies.sum() > 1.1
    assert found.projected().frequencies.min() >= 0


def test_a_ranking_is_left_to_its_own_mechanism() -> None:
    order = local.Question("order", [local.PairOrder.for_loss(3, LEVELS[1])])
    with pytest.raises(BadInput, match="asks for an order"):
        Collection([order]).collect(sent(order, 1, [[2, 0, 1]] * 50)).estimate("order")


def test_the_poisoning_bound_of_mixed_levels_is_reached_by_the_worst_liars_and_never_passed() -> None:
    losses = [local.epsilon(amount) for amount in ("0.5", "0.6", "0.7")]  # the smaller, the longer the lever
    shy = local.Question("smoker", [local.RandomisedResponse.for_loss(one) for one in losses])
    fakes, moved = 1_500, []
    for level in shy.offered:
        liars = Collection([shy])
        for other in shy.offered:
            honest = 2_000 - (fakes if other == level else 0)
            liars.collect(sent(shy, other, [0] * honest, seed=f"{level} {other}"))
        made = device.seal("smoker", shy.at(level).perturb([0] * fakes))
        liars.collect(changed(one, report=pack(b"\x01")) for one in made)
        found = liars.estimate("smoker", fakes=fakes)
        moved.append(float(found.raw.frequencies[1]))
    bound, error = found.poisoning, found.raw.standard_error[1]
    assert max(moved) == pytest.approx(bound.up, abs=4 * error)
    assert max(moved) < bound.up + 4 * error
    assert bound.up > bound.honest + 8 * error  # so the test can tell the two apart
    with pytest.raises(BadInput):
        liars.estimate("smoker", fakes=6_001)


def test_a_question_that_nobody_answered_or_asked_is_refused_in_a_sentence() -> None:
    with pytest.raises(BadInput, match="nothing to estimate"):
        Collection([SMOKER]).estimate("smoker")
    with pytest.raises(BadInput, match="no such question"):
        Collection([SMOKER]).estimate("job")
