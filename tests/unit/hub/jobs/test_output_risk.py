"""What an anonymised release adds to the others: computed when the owner looks, never in a job."""

import json

import pyarrow as pa
import pytest
import sqlalchemy as sa

from cloister.hub.core.models import Output, Person, Request
from cloister.hub.jobs import gateway, output_check, output_risk

FORM = {"quasi": "age, ward", "sensitive": "stay_days", "models": "k=5, l=2 (stay_days)", "suppression": "10%"}
MAY = "may: [see schema, query, profile]"
BLOCK = 'anonymised: {at_least: "k=5", suppression_at_most: 10%}\nroles:'


@pytest.fixture
def world(hospital_hub):
    hospital_hub.publish(change=[(MAY, MAY.replace("profile", "profile, anonymise")), ("roles:", BLOCK)])
    return hospital_hub


def checking(world, who="ada", **form):
    order = gateway.JobOrder("visits", "anonymise", {**FORM, **form}, "health-research", world.here)
    job = gateway.submit(world.hub, world.people[who], order).id
    assert world.work() == ["checking"]
    return job, world.rows(sa.select(Request.id).where(Request.job_id == job))[0]


def added(world, number, who="owner"):
    with world.hub.database.reading() as session:
        return output_check.added_risk(world.hub, session, world.people[who], session.get_one(Request, number))


def vote(world, number, *people, agreed=True):
    for who in people:
        with world.hub.database.writing() as session:
            person, request = session.get_one(Person, world.people[who].id), session.get_one(Request, number)
            digest = session.scalar(sa.select(Output.digest).where(Output.job_id == request.job_id))
            output_check.decide(world.hub, session, person, request, agreed, "Fine.", digest)


def test_files_that_wait_are_put_together_before_any_of_them_is_released(world):
    first, request = checking(world)
    assert added(world, request) == ()
    second, other = checking(world, quasi="age", method="mondrian")
    (line,) = added(world, request)
    assert (line["jobs"], line["column"]) == ([second], "stay_days")
    assert 0 <= line["alone"] <= line["people"]
    assert [one["jobs"] for one in added(world, other)] == [[first]]
    _, last = checking(world, "ben", quasi="ward, age", models="k=7, l=2 (stay_days)")
    assert [one["jobs"] for one in added(world, last)] == [[second], [first], [second, first]]
    vote(world, request, "owner", agreed=False)
    assert [one["jobs"] for one in added(world, last)] == [[second]]


def test_only_the_owner_reads_it(world):
    checking(world)
    _, request = checking(world, models="k=6, l=2 (stay_days)")
    assert [added(world, request, who) for who in ("reviewer", "ada", "ben")] == [(), (), ()]


def test_a_column_that_is_sensitive_in_one_file_counts_where_it_is_plain_in_the_other(world):
    checking(world)
    _, request = checking(world, quasi="age", sensitive="", plain="stay_days", models="k=5", method="mondrian")
    assert [line["column"] for line in added(world, request)] == ["stay_days"]


def test_a_column_that_one_file_generalises_is_listed_as_not_compared(world):
    other, _ = checking(world, quasi="age, stay_days", sensitive="ward", models="k=5, l=2 (ward)", method="mondrian")
    _, request = checking(world)
    lines = {line["column"]: line for line in added(world, request)}
    assert lines["stay_days"]["jobs"] == [other]
    assert "generalised in the other" in lines["stay_days"]["problem"]


def test_the_lines_are_computed_once_for_the_same_files(world, monkeypatch):
    checking(world)
    _, request = checking(world, models="k=6, l=2 (stay_days)")
    lines = added(world, request)
    monkeypatch.setattr(output_risk, "steps_bounded", None)
    assert added(world, request) == lines
    assert json.loads(json.dumps(lines)) == list(lines)


def test_what_the_limits_leave_out_is_listed(world, monkeypatch):
    first, _ = checking(world)
    second, _ = checking(world, models="k=6, l=2 (stay_days)")
    _, request = checking(world, models="k=7, l=2 (stay_days)")
    monkeypatch.setattr(output_risk, "SECONDS", 0.0)
    (line,) = added(world, request)
    assert line["jobs"] == [second, first]
    assert "not compared: the 0 seconds" in line["problem"]


def test_older_files_than_are_compared_are_listed(world, monkeypatch):
    monkeypatch.setattr(output_risk, "MOST_FILES", 1)
    first, _ = checking(world)
    second, _ = checking(world, models="k=6, l=2 (stay_days)")
    _, request = checking(world, models="k=7, l=2 (stay_days)")
    compared, left = added(world, request)
    assert (compared["jobs"], left["jobs"]) == ([second], [first])
    assert "not compared" in left["problem"]


def test_a_request_that_gave_no_table_and_a_file_that_was_changed_are_told_apart(world):
    none, _ = checking(world, models="k=1000000, l=2 (stay_days)")
    changed, _ = checking(world, models="k=7, l=2 (stay_days)")
    _, request = checking(world, models="k=6, l=2 (stay_days)")
    with world.hub.database.writing() as session:
        session.execute(sa.update(Output).where(Output.job_id == changed).values(sealed=b"other"))
    problems = {tuple(line["jobs"]): line["problem"] for line in added(world, request)}
    assert problems[(none,)] == "not compared: no table could be made there"
    assert problems[(changed,)].startswith("not compared: the file is not the one that was sealed")


def test_no_job_does_work_for_other_releases(world, monkeypatch):
    from cloister.attack import tables

    _, request = checking(world)
    vote(world, request, "owner", "reviewer")
    monkeypatch.setattr(tables, "intersection", None)
    checking(world, models="k=6, l=2 (stay_days)")


def test_a_released_file_is_compared_again_with_those_that_came_later(world, visits_of):
    first, request = checking(world)
    vote(world, request, "owner", "reviewer")
    second, _ = checking(world, models="k=6, l=2 (stay_days)")
    page = visits_of(world)("owner").get(f"/requests/{request}").text
    assert f"with job {second}" in page
    (release,) = world_releases(world)
    assert (release.job_id, release.request_id) == (first, request)
    assert [line["jobs"] for line in release.intersection] == [[second]]


def world_releases(world):
    with world.hub.database.reading() as session:
        return output_check.earlier_releases(world.hub, session, world.dataset())


def test_contradictions_between_files_are_told_to_the_owner():
    rows = pa.table({"age": ["50-59"], "ward": ["x"], "stay_days": [1]})
    file = output_risk._File(7, "visits", rows, ("age", "ward"), ("stay_days",), (), None, {})
    line = output_risk._line(file, [file], "stay_days", pa.table({"age": [1], "ward": ["x"]}))
    assert (line["at_risk"], line["contradictions"]) == (0, 1)
    assert "no value is possible" in line["notes"][0]


def test_an_owner_learns_nothing_of_their_own_file_from_the_page_of_anothers(hospital_hub):
    """Whether it could be made depends on the rows, and others look at it first."""
    named = "reviewers: [reviewer@hospital.example, ben@university.example]"
    staff = f"roles:\n  staff:\n    who: {{organisations: [Hospital]}}\n    {MAY.replace('profile', 'anonymise')}"
    hospital_hub.publish(
        change=[
            ("reviewers: [reviewer@hospital.example]", named),
            (MAY, MAY.replace("profile", "profile, anonymise")),
            ("roles:", staff),
            ("roles:", BLOCK),
        ]
    )
    _, request = checking(hospital_hub)
    impossible = {"models": "k=100000, l=2 (stay_days)", "quasi": "ward"}
    seen = []
    for form in (impossible, {"quasi": "ward"}):
        mine, asked = checking(hospital_hub, "owner", **form)
        made = hospital_hub.rows(sa.select(Output.facts).where(Output.job_id == mine))
        assert made
        (line,) = added(hospital_hub, request)
        assert line["jobs"] == [mine]
        seen.append({**line, "jobs": []})
        with hospital_hub.hub.database.reading() as session:
            look = output_check.look(hospital_hub.hub, session, hospital_hub.ben, session.get_one(Request, asked))
        assert bool(look.failure) == (form is impossible)
        vote(hospital_hub, asked, "ben", agreed=False)
    assert seen[0] == seen[1]
    _, asked = checking(hospital_hub, "owner", quasi="ward")
    vote(hospital_hub, asked, "ben", "reviewer")
    assert "people" in added(hospital_hub, request)[0]
