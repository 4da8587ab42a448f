"""Roles and tags are proposed from whole words of names, in several languages, and from no value."""

import pytest

from cloister.data.roles import RULES, propose, role_of, words_of
from cloister.data.schema import ROLES, TAGS, Column, Table


def split(text):
    return text.split()


IDENTIFIERS = split("""
name first_name lastName surname FULLNAME patient_name Vorname Nachname prénom apellidos cognome achternaam
email e-mail eMailAddress courriel correo_electronico phone mobileNumber Telefon téléfono fax ssn SocialSecurityNumber
iban account_number bank_account address home_address street Straße Anschrift calle indirizzo passport passport_no
patient_id PatientID patientid patient mrn medical_record_number ip ipAddress IPaddress device device_id imei
mac_address licence_plate LicensePlate Kennzeichen driver_license vin url photo fingerprint username card_number
creditCard cvv student_id Matrikelnummer codice_fiscale dni cpf bsn id customerNo insurance_number employer_address
""")
QUASI = split("""
birth_date dateOfBirth DOB age patient_age Alter edad leeftijd Geburtsdatum date_de_naissance sex Gender Geschlecht sexe
zip zipcode zip_code postcode postal_code PLZ code_postal city city_name Wohnort ville region country pays nationality
Staatsangehörigkeit race ethnicity marital_status MaritalStatus marital-status estado_civil education education_num
occupation profession employer workclass native_country relationship admission_date Aufnahmedatum date_d_admission
latitude State age_at_diagnosis
""")
SENSITIVE = split("""
diagnosis Diagnosen disease icd icd10 ICD_code medication drug_name salary Gehalt salaire income annual_income religion
political_opinion sexual_orientation trade_union crime_count debt account_balance balance hiv hiv_status genetic_marker
gpa diagnosis_date maladie enfermedad malattia ziekte credit_score
""")
PLAIN = split("""
message passengers stage page carriage sextant hours_per_week capital_gain product_name file_name order_state hotel
email_verified phoneType name_length device_type emailSentDate birth_weight nombre_de_visites product_id ward stay_days
cost island zipper raced colour text note shipment reunion manage average package village gmail x17
""")


@pytest.mark.parametrize(
    ("role", "names"),
    [("identifier", IDENTIFIERS), ("quasi-identifier", QUASI), ("sensitive", SENSITIVE), ("plain", PLAIN)],
)
def test_names_of_several_languages_and_spellings_have_their_role(role, names):
    assert {name: role_of(name, "text").role for name in names} == dict.fromkeys(names, role)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("first_name", ("first", "name")),
        ("homeZIPCode2", ("home", "zip", "code", "2")),
        ("Größe in cm", ("grosse", "in", "cm")),
        ("NOM.DE.FAMILLE", ("nom", "de", "famille")),
        ("patient's name", ("patient", "name")),
        ("姓名", ("姓名",)),
        ("__", ()),
        ("", ()),
    ],
)
def test_a_name_is_split_into_plain_words(name, words):
    assert words_of(name) == words


def test_safe_harbors_identifiers_have_the_tag_hipaa():
    eighteen = split("""name street zip birth_date phone fax email ssn mrn health_plan_number account_number
        certificate_number license_plate device_id url ip fingerprint photo patient_id""")
    assert not [name for name in eighteen if "hipaa" not in role_of(name, "text").tags]
    assert "hipaa" not in role_of("country", "text").tags  # Safe Harbor keeps states and countries


@pytest.mark.parametrize(
    ("tag", "names"),
    [
        (
            "gdpr",
            "race ethnicity religion political_party trade_union genetic biometric diagnosis sexual_orientation crime",
        ),
        ("pci-dss", "card_number cardholder_name cvv card_expiry"),
        ("ferpa", "gpa grade student_id"),
        ("glba", "balance account_number iban credit_score"),
        ("ccpa", "ssn passport latitude"),
    ],
)
def test_columns_have_the_tag_of_their_regulation(tag, names):
    assert not [name for name in names.split() if tag not in role_of(name, "text").tags]


@pytest.mark.parametrize("kind", ["boolean", "real", "date", "timestamp"])
def test_a_truth_value_a_measurement_or_a_date_is_no_identifier(kind):
    assert role_of("email", kind).role != "identifier"
    assert role_of("email", "text").role == role_of("phone", "integer").role == "identifier"


def test_a_date_is_a_quasi_identifier_by_its_type():
    assert role_of("shipped", "date").role == role_of("shipped", "timestamp").role == "quasi-identifier"
    assert role_of("shipped", "text").role == "plain"
    assert role_of("shipped", "date").reason == "Its type is date: a date, which others may know."


def test_every_column_of_a_table_has_a_proposal_with_a_sentence():
    columns = {name: Column(name, "text") for name in ("email", "zip", "colour")}
    columns["ssn"] = Column("ssn", "text", role="identifier")
    proposals = propose(Table("t", columns))
    assert list(proposals) == ["email", "zip", "colour", "ssn"]
    assert proposals["zip"].reason == "'zip' in its name stands for a place below a state."
    assert all(proposal.reason.endswith(".") for proposal in proposals.values())
    assert proposals["colour"].rule is None


def test_the_rules_use_known_words_and_every_phrase_is_reachable():
    for rule in RULES:
        assert rule.role in ROLES
        assert set(rule.tags) <= set(TAGS)
        for phrase in filter(None, f"{rule.words}, {rule.alone}".split(", ")):
            assert "".join(words_of(phrase)) == phrase.replace(" ", ""), phrase
            assert role_of(phrase, "text").rule is not None, phrase


def test_proposals_depend_on_names_and_types_alone():
    facts = [Column("zip", "text"), Column("zip", "text", categories=("12345",)), Column("zip", "text", nullable=False)]
    assert len({repr(propose(Table("t", {"zip": column}))) for column in facts}) == 1
