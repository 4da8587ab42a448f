"""What leaves with the researcher: reports to be counted again, tables that no spreadsheet runs, signed receipts."""

import csv
import io
import json

import pytest
from click.testing import CliRunner

from cloister import cli
from cloister.client import survey_wire
from cloister.client.survey_wire import REPORTS, collection_of, envelopes, results_from_json
from cloister.hub.surveys import export, results
from cloister.hub.web.spreadsheets import csv_of
from cloister.local.survey.envelope import unpack
from cloister.privacy.errors import BadForm, ReceiptRejected

ASKED = [
    {"id": "smoker", "type": "yes_no", "text": "Do you smoke?"},
    {"id": "rested", "type": "scale", "text": "=How rested?", "low": 1, "high": 5},
    {"id": "hours", "type": "number", "text": "How long?", "low": 0, "high": 24},
]
LEVELS = ("strong", "medium", "light")


def people(n):
    said = [{"smoker": "yes" if at % 3 else "no", "rested": str(1 + at % 5), "hours": "7"} for at in range(n)]
    return [{name: (one, LEVELS[at % 3]) for name, one in told.items()} for at, told in enumerate(said)]


@pytest.fixture
def made(answered, hospital_hub):
    survey = answered(ASKED, [*people(60), {"smoker": ("yes", "light")}])
    with hospital_hub.hub.database.reading() as session:
        return survey, results.read(hospital_hub.hub, session, survey)


def test_exported_reports_give_the_same_estimates_when_they_are_counted_again(made):
    told = json.loads(export.text_of(export.reports_json(*made)))
    assert told["form"] == REPORTS
    again = collection_of(told)
    assert not again.refused
    for name, found in made[1].found.items():
        both = [one["raw"] for one in again.estimate(f"sleep.{name}").rows()], [one["raw"] for one in found.rows()]
        assert both[0] == pytest.approx(both[1])
    assert len(list(envelopes(told))) == 60 * 3 + 1


def test_an_export_has_no_ids_no_times_and_the_order_of_a_hash(made):
    told = export.reports_json(*made)
    assert set(told) == {"form", "survey", "wave", "questions", "reports"}
    assert all(set(one) <= {"smoker", "rested", "hours"} for one in told["reports"])
    assert [dict(one) for one in made[1].people] == [
        {name: (level, unpack(report)) for name, (level, report) in one.items()} for one in told["reports"]
    ]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda told: told | {"form": "else"},
        lambda told: told | {"reports": [{"smoker": ["1/2", "!!"]}]},
        lambda told: told | {"reports": [{"unknown": ["1/2", "AQ"]}]},
        lambda told: told | {"reports": 5},
        lambda told: told | {"questions": 5},
        lambda told: {},
    ],
)
def test_a_spoiled_export_is_refused_with_a_sentence(made, spoil):
    with pytest.raises(BadForm, match="export"):
        list(envelopes(spoil(export.reports_json(*made))))


def test_a_spreadsheet_of_reports_has_one_row_a_person_and_spoils_nothing(made):
    rows = list(csv.DictReader(io.StringIO(csv_of(*export.reports_table(*made)).decode())))
    assert len(rows) == 61
    assert set(rows[0]) == {f"{name} {what}" for name in ("smoker", "rested", "hours") for what in ("level", "report")}
    for row, person in zip(rows, made[1].people, strict=True):
        for name in ("smoker", "rested", "hours"):
            if name in person:
                assert row[f"{name} level"] in LEVELS
                assert bytes.fromhex(row[f"{name} report"].removeprefix("0x")) == person[name][1]
            else:
                assert row[f"{name} level"] == row[f"{name} report"] == ""
    assert not any(cell.startswith(("=", "+", "-", "@")) for row in rows for cell in row.values())


def test_a_spreadsheet_of_estimates_has_every_value_and_the_mean_of_a_scale(made):
    text = csv_of(*export.estimates_table(made[1])).decode()
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["value"] for row in rows] == ["no", "yes", "1", "2", "3", "4", "5", "mean", "mean"]
    assert {row["text"] for row in rows} == {"Do you smoke?", "'=How rested?", "How long?"}
    assert all(float(row["low"]) < float(row["raw"]) < float(row["high"]) for row in rows)


def test_results_come_back_from_json_as_they_were(made):
    told = json.loads(json.dumps(made[1].to_json()))
    back = results_from_json(told)
    assert back["smoker"].estimates[1]["raw"] == made[1].found["smoker"].rows()[1]["raw"]
    assert back["rested"].chosen["skipped"] == 1
    assert back.to_table().num_rows == 8
    assert "smoker: Do you smoke? (61 reports)" in str(back)
    with pytest.raises(BadForm):
        back["unknown"]
    with pytest.raises(BadForm):
        results_from_json({**told, "questions": 3})


# Receipts


def test_a_receipt_of_an_analysis_says_what_was_computed_from_which_reports(made, hospital_hub):
    text = export.text_of(export.analysis(hospital_hub.hub, *made))
    body = survey_wire.verify_receipt(text, hospital_hub.hub.key.public)
    assert (body["people"], body["submissions"]) == (61, made[1].digest)
    assert body["form"] == survey_wire.ANALYSIS
    (yes,) = [row for row in body["estimates"][0]["values"] if row["value"] == "yes"]
    assert float(yes["raw"]) == made[1].found["smoker"].rows()[1]["raw"]
    assert body["published"]["shuffler"] == "the operator of this hub"
    assert body["private"] is True


def test_a_changed_receipt_is_rejected(made, hospital_hub):
    text = export.text_of(export.analysis(hospital_hub.hub, *made)).decode()
    with pytest.raises(ReceiptRejected):
        survey_wire.verify_receipt(text.replace('"people": 61', '"people": 62'), hospital_hub.hub.key.public)


def test_the_command_line_verifies_both_receipts_of_a_survey(made, hospital_hub, tmp_path):
    key = hospital_hub.hub.key
    taken = survey_wire.issue_receipt(
        survey_wire.TAKEN, {"survey": "sleep", "wave": 1, "reports": "ab", "levels": {"smoker": "1/2"}}, key
    )
    for name, told, words in (
        ("analysis", export.analysis(hospital_hub.hub, *made), ("people      61", "smoker: 61 reports", "  yes: ")),
        ("taken", taken, ("levels      smoker 1/2", "never saw answers")),
    ):
        file = tmp_path / name
        file.write_bytes(export.text_of(told))
        shown = CliRunner().invoke(cli.main, ["receipt", "show", str(file)])
        assert all(word in shown.output for word in words), shown.output
        assert "genuine" not in shown.output
        good = CliRunner().invoke(cli.main, ["receipt", "verify", str(file), "--key", str(key.public)])
        assert good.exit_code == 0
        assert "The receipt is genuine." in good.output
        file.write_bytes(export.text_of(told).replace(b"sleep", b"awake"))
        bad = CliRunner().invoke(cli.main, ["receipt", "verify", str(file), "--key", str(key.public)])
        assert bad.exit_code != 0
        assert "genuine" not in bad.output
