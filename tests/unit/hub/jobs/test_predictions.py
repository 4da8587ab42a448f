"""A trained model on a hub answers public rows: for its requester, under a policy, within a limit, with a log."""

import base64
import re
import threading

import numpy as np
import pandas as pd
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from cloister import learn
from cloister.client.jobs import _as_csv
from cloister.hub.core.models import AuditEntry
from cloister.hub.jobs import predictions
from cloister.hub.jobs.predictions import predict, read_columns
from cloister.hub.users import sessions, tokens
from cloister.hub.web.app import create_app
from cloister.learn.persistence import unpack
from cloister.privacy.errors import BadForm, BadInput, NotHere, OutputRefused, TooMany

TRAINED = {"estimator": "MixedNB", "target": "readmitted", "features": "age, ward, stay_days"}
ROWS = {"age": ["20", "80", "55"], "ward": ["surgery", "maternity", "nowhere"], "stay_days": ["3", "40", ""]}
CSV = "age,ward,stay_days\n20,surgery,3\n80,maternity,40\n55,nowhere,\n"


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(
        change=[
            ("University]}\n    may: [see schema, query, profile]", "University]}\n    may: [see schema, query, train]")
        ]
    )
    return hospital_hub


@pytest.fixture
def trained(world):
    job = world.submit("ada", kind="train", spend="rho 0.02", **TRAINED)
    assert world.work() == ["done"]
    return world.job(job.id)


def asked(world):
    with world.hub.database.reading() as session:
        entries = session.scalars(sa.select(AuditEntry).where(AuditEntry.action == "model.asked"))
        return [(entry.object, entry.detail) for entry in entries]


def test_the_answers_are_those_of_the_model_that_is_downloaded(world, trained):
    ada = world.people["ada"]
    model = unpack(base64.b64decode(trained.result["model"]), trained.result["key"])
    rows = learn.prepare(model, ROWS)
    label = predict(world.hub, ada, trained.id, CSV, "", world.here)
    assert label.policy == "label"
    assert label.answers == model.predict(rows).tolist()
    whole = predict(world.hub, ada, trained.id, CSV, "full", world.here)
    np.testing.assert_allclose(whole.answers, model.predict_proba(rows))
    coarse = predict(world.hub, ada, trained.id, CSV, "rounded 1", world.here)
    np.testing.assert_array_equal(coarse.answers, np.round(model.predict_proba(rows), 1))
    assert coarse.classes == [False, True]
    best = predict(world.hub, ada, trained.id, CSV, "top 1", world.here)
    assert best.answers == [[answer] for answer in label.answers]
    assert asked(world) == [
        (f"job/{trained.id}", {"rows": 3, "policy": policy}) for policy in ("label", "full", "rounded 1", "top 1")
    ]
    assert world.spent() == world.spent("ada")  # what training cost, and nothing more


def test_nobody_else_gets_an_answer_and_other_jobs_have_no_model(world, trained):
    counted = world.submit("ada")
    world.work()
    for who, number in (("ben", trained.id), ("owner", trained.id), ("ada", counted.id), ("ada", 10**6), ("ada", 0)):
        with pytest.raises(NotHere):
            predict(world.hub, world.people[who], number, CSV, "", world.here)
    assert asked(world) == []


def test_rows_beyond_the_days_limit_are_refused_also_when_many_ask_at_once(world, trained, monkeypatch):
    object.__setattr__(world.hub.settings, "predictions_per_day", 10)
    ada, answered, refused = world.people["ada"], [], []

    def ask():
        try:
            answered.extend(predict(world.hub, ada, trained.id, CSV, "", world.here).answers)
        except TooMany as error:
            refused.append(str(error))

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(answered) == 9
    assert len(refused) == 3
    assert "answers 10 rows a day, 9 were asked about" in refused[0]
    later = predictions.now() + 86_401
    monkeypatch.setattr(predictions, "now", lambda: later)
    assert len(predict(world.hub, ada, trained.id, CSV, "", world.here).answers) == 3


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age\n",
        "age,age\n1,2\n",
        "age,\n1,2\n",
        "age,ward\n1\n",
        'age,ward\n"1,2\n',
        "age\n" + "x" * 1001 + "\n",
        "age\n" + "1\n" * 10_001,
        ",".join(f"c{place}" for place in range(1001)) + "\n",
        "age\n\x00\n" + '"a"b\n',
    ],
    ids=["nothing", "no rows", "twice", "unnamed", "short", "open quote", "long cell", "many", "wide", "quotes"],
)
def test_a_text_that_is_no_small_table_is_refused(text):
    with pytest.raises(BadForm):
        read_columns(text)


def test_missing_columns_and_unknown_policies_are_refused_and_count_nothing(world, trained):
    ada = world.people["ada"]
    for text, show in (("age\n1\n", ""), (CSV, "everything"), (CSV, "top 0")):
        with pytest.raises(BadInput):
            predict(world.hub, ada, trained.id, text, show, world.here)
    assert asked(world) == []


def test_a_model_that_predicts_numbers_has_no_labels(world):
    job = world.submit(
        "ada", kind="train", spend="rho 0.02", estimator="LinearRegression", target="cost", features="age, stay_days"
    )
    world.work()
    told = predict(world.hub, world.people["ada"], job.id, CSV, "", world.here)
    assert told.policy == "full"
    assert told.classes == []
    assert all(isinstance(answer, float) for answer in told.answers)
    with pytest.raises((BadInput, OutputRefused)):
        predict(world.hub, world.people["ada"], job.id, CSV, "label", world.here)


def test_it_is_asked_over_http_with_the_right_to_work(world, trained):
    app = create_app(world.hub)
    with TestClient(app) as client:
        for scopes, status in ((["read", "work"], 200), (["read"], 403)):
            with world.hub.database.writing() as session:
                secret = tokens.make(session, session.merge(world.people["ada"]), "test", scopes, 1)
            answer = client.post(
                f"/api/jobs/{trained.id}/predictions",
                json={"rows": CSV, "show": "rounded 2"},
                headers={"Authorization": f"Bearer {secret}"},
            )
            assert answer.status_code == status
            if status == 200:
                assert answer.json()["policy"] == "rounded 2"
                assert len(answer.json()["answers"]) == 3


def test_the_page_shows_answers_and_gives_a_refused_form_back(world, trained):
    with world.hub.database.writing() as session:
        person = session.merge(world.people["ada"])
        secret = sessions.begin(session, world.hub.settings, person, complete=True)[0]
    web, seen = TestClient(create_app(world.hub)), {"cookie": f"cloister-session={secret}"}
    page = f"/jobs/{trained.id}/predictions"
    assert f'href="{page}"' in web.get(f"/jobs/{trained.id}", headers=seen).text
    form = web.get(page, headers=seen)
    assert form.status_code == 200
    sent = {"csrf": re.search(r'name="csrf" value="([^"]+)"', form.text)[1], "rows": CSV, "show": "rounded 2"}
    told = web.post(page, data=sent, headers=seen)
    assert told.status_code == 200
    assert "Probability of 1" in told.text
    assert told.text.count('<td class="number">') == 3
    wrong = web.post(page, data={**sent, "rows": "age\n1\n"}, headers=seen)
    assert wrong.status_code == 422
    assert "there is no column" in wrong.text.lower()
    assert "age\n1\n</textarea>" in wrong.text
    assert web.post(page, data={**sent, "csrf": "x"}, headers=seen).status_code == 403


def test_the_client_sends_dicts_and_frames_as_csv():
    table = {"age": [1, 2], "ward": ["a, b", 'c "d"']}
    expected = {"age": ["1", "2"], "ward": ["a, b", 'c "d"']}
    for rows in (table, pd.DataFrame(table), _as_csv(table)):
        assert read_columns(_as_csv(rows)) == expected
    for rows in ({"a": [1], "b": [1, 2]}, 5, {}):
        with pytest.raises(BadForm):
            _as_csv(rows)
