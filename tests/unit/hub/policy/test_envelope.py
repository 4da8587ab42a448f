"""Signed policies, and labels that stick."""

import json
from datetime import UTC, datetime

import pytest

from cloister.hub.policy.policy import Budget, Policy
from cloister.hub.policy.signature import Label, import_check, label, sign, verify
from cloister.privacy.errors import BadPolicy, UploadRefused
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.signing import SigningKey, canonical

KEY = SigningKey.create()
TEXT = "dataset: visits\n"
NOW = datetime(2026, 3, 2, tzinfo=UTC).timestamp()
DAY = 86400
POLICY = Policy("visits", ("health-research",), Budget(epsilon(1)), (), residency=("DE", "AT"), retention_days=10)
RESULT = b'{"count": 17}'


def test_a_policy_is_what_was_signed():
    verify(KEY.public, "visits", 2, TEXT, sign(KEY, "visits", 2, TEXT))


@pytest.mark.parametrize(
    ("dataset", "number", "text"), [("wards", 2, TEXT), ("visits", 3, TEXT), ("visits", 2, TEXT + " ")]
)
def test_no_other_dataset_number_or_text_fits_its_signature(dataset, number, text):
    with pytest.raises(BadPolicy, match="not what was published"):
        verify(KEY.public, dataset, number, text, sign(KEY, "visits", 2, TEXT))


def test_another_key_does_not_sign_for_us():
    with pytest.raises(BadPolicy):
        verify(KEY.public, "visits", 2, TEXT, sign(SigningKey.create(), "visits", 2, TEXT))


def made(**changes):
    return label(KEY, POLICY, 4, TEXT, changes.get("result", RESULT), NOW, job=7)


def check(text, result=RESULT, country="AT", purpose="epidemiology", time=NOW + DAY, key=None):
    return import_check(text, result, (key or KEY).public, country=country, purpose=purpose, time=time)


def test_a_label_says_under_which_policy_a_result_was_made():
    body = check(made().text()).body
    assert (body["dataset"], body["policy"]) == ("visits", 4)
    assert (body["made"], body["keep_until"]) == ("2026-03-02", "2026-03-12")
    assert Label.parse(made().text()) == made()


@pytest.mark.parametrize("text", [None, "", b"", "{}", "not json", '{"label": 1, "signature": 2}', "[" * 9999])
def test_what_carries_no_whole_label_is_refused(text):
    with pytest.raises(UploadRefused):
        check(text)


@pytest.mark.parametrize("field", ["purposes", "residency", "keep_until", "hash", "dataset"])
def test_a_stripped_label_is_refused(field):
    record = json.loads(made().text())
    del record["label"][field]
    with pytest.raises(UploadRefused, match="not whole"):
        check(canonical(record))


@pytest.mark.parametrize(
    ("field", "value"),
    [("residency", []), ("purposes", ["marketing"]), ("keep_until", ""), ("policy", 1), ("form", "cloister-label/0")],
)
def test_a_changed_label_is_refused(field, value):
    record = json.loads(made().text())
    record["label"][field] = value
    with pytest.raises(UploadRefused, match="were changed"):
        check(canonical(record))


def test_a_label_of_another_result_is_refused():
    with pytest.raises(UploadRefused, match="belong to another result"):
        check(made(result=b"other").text())


def test_a_label_of_another_hub_is_refused():
    with pytest.raises(UploadRefused, match="another hub made them"):
        check(made().text(), key=SigningKey.create())


def test_a_policys_signature_is_no_labels_signature():
    forged = Label(made().body, sign(KEY, "visits", 4, TEXT))
    with pytest.raises(UploadRefused):
        check(forged.text())


def test_a_result_stays_where_it_may_be_kept():
    for country in ("US", ""):
        with pytest.raises(UploadRefused, match="may be kept in DE, AT"):
            check(made().text(), country=country)


def test_a_result_keeps_its_purposes():
    with pytest.raises(UploadRefused, match="may be used for health-research"):
        check(made().text(), purpose="marketing")


def test_a_result_is_not_kept_for_longer_than_promised():
    check(made().text(), time=NOW + 10 * DAY)
    with pytest.raises(UploadRefused, match="kept until 2026-03-12"):
        check(made().text(), time=NOW + 11 * DAY)


def test_a_label_states_the_question_and_the_cost_and_older_ones_are_still_read():
    body = label(KEY, POLICY, 4, TEXT, RESULT, NOW, job=7, question="abc", loss=rho("0.01")).body
    assert (body["question"], body["loss"]) == ("abc", rho("0.01").to_json())
    missing = set()
    for form, names in ((3, {"job"}), (2, {"receipts"}), (1, {"question", "loss"})):
        missing |= names
        old = {name: value for name, value in body.items() if name not in missing} | {"form": f"cloister-label/{form}"}
        assert check(Label(old, KEY.sign(b"cloister label\n" + canonical(old))).text()).body == old


def test_a_label_holds_the_purposes_it_is_given():
    one = label(KEY, POLICY, 4, TEXT, RESULT, NOW, job=7, purposes=("epidemiology",))
    assert one.body["purposes"] == ["epidemiology"]
    with pytest.raises(UploadRefused, match="may be used for epidemiology"):
        check(one.text(), purpose="health-research")
