"""What the sources say about their toy tables, by the hierarchies and the attacks of this room."""

import datetime as dt

from cloister.anonymize.hierarchy import Hierarchy
from cloister.attack.tables import identification, intersection, linkage

from . import toy_tables


def test_salaries_occupations_birth_dates_and_postcodes_become_what_the_sources_print():
    salary = Hierarchy.intervals(0, 200_000, [50_000]).levels[0]
    assert {value: salary(value) for value in toy_tables.FIGURE_7_5_SALARY} == toy_tables.FIGURE_7_5_SALARY
    occupation = Hierarchy.tree(toy_tables.FIGURE_7_5_OCCUPATIONS).levels[0]
    assert [occupation(word) for word in ("lawyer", "none")] == ["employed", "unemployed"]
    decade, masked = Hierarchy.dates("decade").levels[0], Hierarchy.masking(5).levels[1]
    assert {day: decade(dt.date.fromisoformat(day)) if "-" in day else masked(day) for day in toy_tables.AN_02} == (
        toy_tables.AN_02
    )


def test_bob_is_in_a_class_in_which_everybody_has_cancer():
    found = identification(toy_tables.FIGURE_7_16, toy_tables.BOB, on=["zip", "age"], sensitive="disease")
    assert found.learned == ("Cancer",)


def test_two_releases_of_twelve_people_leave_aids_cancer_and_cancer_or_viral():
    people = {"zip": ["13053"] * 3, "age": [28, 38, 45]}
    found = intersection([toy_tables.AN_06_FIRST, toy_tables.AN_06_SECOND], people, on=["zip", "age"],
                         sensitive="disease")  # fmt: skip
    assert found.possible == (("AIDS",), ("Cancer",), ("Cancer", "Viral"))
    assert found.contradictions == 0


def test_the_published_figure_7_14_fits_only_some_of_its_patients():
    exact = {**toy_tables.FIGURE_7_13, "gender": [{"M": "Male", "F": "Female"}[g] for g in
                                                 toy_tables.FIGURE_7_13["gender"]]}  # fmt: skip
    found = linkage(toy_tables.FIGURE_7_14_CLAIMED, exact, on=["zip", "age", "gender"], names="name")
    assert found.notes == ()
    alone = {name for name, row in zip(found.names, found.matched, strict=True) if row >= 0}
    assert alone  # the singletons that the claim of 2-anonymity hides
    assert found.candidates[found.names.index("Emily")] == 1  # a class that is Samantha's: Emily's zip is a false one


def test_the_classes_of_the_sources_runs_merge_as_their_counts_say():
    (first, second, _), (merged, *_) = toy_tables.ANON_33_COUNTS.values(), toy_tables.ANON_34_COUNTS.values()
    assert merged == {"<=50k": first["<=50k"] + second["<=50k"], ">50k": second[">50k"]}
    printed = [*toy_tables.ANON_35_COUNTS.values(), *toy_tables.ANON_35_CUT.values()]
    assert sum(sum(counts.values()) for counts in printed) < 48_842  # the rows of Adult, all classes together
