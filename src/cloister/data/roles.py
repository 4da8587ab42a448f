"""Propose roles and regulation tags of columns from their names and types.

>>> from cloister.data.schema import Column, Table
>>> names = ("patientId", "zip code", "icd10", "message")
>>> for name, proposal in propose(Table("visits", {name: Column(name, "text") for name in names})).items():
...     print(name, proposal.role, *proposal.tags)
patientId identifier hipaa
zip code quasi-identifier hipaa
icd10 sensitive gdpr
message plain

Names are split into words at `_`, spaces, digits and changes of case, and accents are removed. Whole words are looked
up in a table of English, German, French, Spanish, Italian, Portuguese and Dutch words. No value is read.

Tags: `hipaa` marks the 18 identifiers of HIPAA's Safe Harbor (45 CFR 164.514(b)(2)), `gdpr` the special categories of
GDPR Art. 9 and the convictions of Art. 10, `pci-dss` card data, `ferpa` education records, `glba` data on accounts and
credit, `ccpa` government identifiers and precise location (Cal. Civ. Code 1798.140(ae)). A column without a tag
can fall under a regulation all the same: nearly every column about a person is personal data under the GDPR.
"""

import re
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass

from cloister.data.schema import Role, Table, Type

__all__ = ["RULES", "Proposal", "Rule", "propose", "role_of", "words_of"]


@dataclass(frozen=True, slots=True)
class Rule:
    """Words that stand for one kind of information.

    Attributes:
        what: the kind, in words.
        role, tags: what is proposed.
        words: words or phrases that a name contains, separated by commas.
        alone: words or phrases that must be the whole name: `state` is a region, `order_state` is not.
    """

    what: str
    role: Role
    tags: tuple[str, ...]
    words: str = ""
    alone: str = ""


@dataclass(frozen=True, slots=True)
class Proposal:
    """Proposed role and tags of a column, for its owner to confirm or correct.

    Attributes:
        role: `plain` if no rule applies, which does not show that the column is harmless.
        tags: the regulations that the rule names.
        reason: why, in a sentence.
        rule: the rule that applies; None if there is none.
    """

    role: Role
    tags: tuple[str, ...]
    reason: str
    rule: Rule | None = None


_PERSON = (
    "patient, person, customer, client, user, member, subscriber, employee, worker, staff, student, pupil, "
    "participant, subject, respondent, contact, guest, passenger, driver, borrower, applicant, tenant, owner, holder, "
    "beneficiary, insured, donor, voter, citizen, resident, doctor, physician, nurse, teacher, spouse, kunde, kunden, "
    "patienten, mitarbeiter, versicherten, mitglieds, usuario, cliente, paciente, utente, klant"
)
_NAME = "name, nom, nombre, nome, naam, names"
_NUMBER = "id, ids, identifier, number, no, nr, num, nummer, numero, uuid, guid, key, ref, code"


def _pairs(firsts: str, seconds: str) -> str:
    return ", ".join(f"{first} {second}" for first in firsts.split(", ") for second in seconds.split(", "))


# The first rule with a phrase in the name decides: identifiers come first, then sensitive columns. A phrase inside a
# longer one does not count: `birth name` is a name, and `account balance` is no account.
RULES: tuple[Rule, ...] = (
    Rule(
        "a person's name", "identifier", ("hipaa",),
        "first name, last name, full name, given name, family name, middle name, maiden name, birth name, forename, "
        "surname, nickname, initials, vorname, nachname, familienname, geburtsname, prenom, nom de famille, apellido, "
        "apellidos, mother name, father name, parent name, child name, nombre completo, cognome, sobrenome, nome "
        "completo, voornaam, achternaam, "
        + _pairs(_PERSON, _NAME),
        _NAME,
    ),
    Rule(
        "a cardholder or card number", "identifier", ("pci-dss", "glba"),
        "card number, card no, card nr, credit card, debit card, cardholder, card holder, card holder name, cvv, cvc, "
        "cvv2, card expiry, card expiration, kreditkarte, kartennummer, carte bancaire, numero de carte, tarjeta de "
        "credito, numero de tarjeta, carta di credito, cartao de credito, creditcard",
        "pan, card",
    ),
    Rule(
        "an e-mail address", "identifier", ("hipaa",),
        "email, mail address, mail, email address, courriel, correo, correo electronico, posta elettronica",
    ),
    Rule(
        "a telephone or fax number", "identifier", ("hipaa",),
        "phone, telephone, tel, mobile number, mobile phone, cell phone, cellphone, fax, fax number, msisdn, telefon, "
        "handy, handynummer, mobilnummer, telefonnummer, telephone portable, telefono, movil, cellulare, telefone, "
        "celular, telefoon, telefoonnummer",
        "mobile, cell, portable",
    ),
    Rule(
        "a government number", "identifier", ("hipaa", "ccpa"),
        "ssn, social security, social security number, national id, national insurance number, nino, passport, "
        "passport number, identity card, id card, tax id, tax number, taxpayer id, driver license, driving licence, "
        "drivers license, driver licence, reisepass, personalausweis, ausweisnummer, steuernummer, steuer id, "
        "sozialversicherungsnummer, fuhrerschein, securite sociale, nir, passeport, permis de conduire, dni, nif, "
        "pasaporte, codice fiscale, passaporto, patente di guida, cpf, passaporte, bsn, burgerservicenummer, paspoort",
        "tin, nie, sin",
    ),
    Rule(
        "a medical record or insurance number", "identifier", ("hipaa",),
        "mrn, medical record, medical record number, record number, chart number, nhs number, medicare number, "
        "medicaid number, health plan number, insurance number, insurance id, policy number, beneficiary number, "
        "versichertennummer, krankenversicherungsnummer, fallnummer, numero de dossier, historia clinica, tessera "
        "sanitaria, dossiernummer",
    ),
    Rule(
        "a student number", "identifier", ("hipaa", "ferpa"),
        "matriculation number, matrikelnummer, numero etudiant, numero de matricula, "
        + _pairs("student, pupil", _NUMBER),
    ),
    Rule(
        "a bank account", "identifier", ("hipaa", "glba"),
        "iban, account number, account no, account nr, account id, bank account, routing number, kontonummer, numero "
        "de compte, numero de cuenta, numero di conto, numero da conta, rekeningnummer",
    ),
    Rule(
        "a licence, certificate or vehicle number", "identifier", ("hipaa",),
        "licence plate, license plate, number plate, plate number, licence number, license number, certificate "
        "number, vin, vehicle id, vehicle identification number, kennzeichen, nummernschild, plaque immatriculation, "
        "immatriculation, placa, targa, kenteken",
    ),
    Rule(
        "a device or online identifier", "identifier", ("hipaa",),
        "ip, ip address, ipv4, ipv6, mac address, device id, device identifier, device serial, serial number, imei, "
        "imsi, idfa, advertising id, cookie, cookie id, session id, username, user name, login, screen name, twitter "
        "handle, url, homepage, website, benutzername, nutzername, seriennummer, identifiant, gebruikersnaam",
        "device, handle",
    ),
    Rule(
        "a street address", "identifier", ("hipaa",),
        "address, street, house number, home address, anschrift, adresse, strasse, hausnummer, rue, direccion, calle, "
        "domicilio, indirizzo, endereco, morada, rua, adres, straat, huisnummer",
        "via",
    ),
    Rule(
        "a biometric or a photograph", "identifier", ("hipaa", "gdpr"),
        "fingerprint, fingerprints, voiceprint, voice print, biometric, biometrics, retina scan, iris scan, face "
        "image, face photo, photo, photograph, portrait, fingerabdruck, lichtbild, empreinte digitale, huella "
        "dactilar, impronta digitale, impressao digital, vingerafdruk",
    ),
    Rule(
        "a number of a person", "identifier", ("hipaa",),
        "personalnummer, kundennummer, patientennummer, mitgliedsnummer, numero de client, numero de cliente, "
        "klantnummer, "
        + _pairs(_PERSON, _NUMBER),
        f"id, uuid, guid, {_PERSON}",
    ),
    Rule(
        "health", "sensitive", ("gdpr",),
        "diagnosis, diagnoses, diagnostic, disease, illness, icd, icd10, icd9, icd code, medication, medications, "
        "drug, prescription, symptom, treatment, therapy, surgery, hiv, hiv status, disability, allergy, pregnancy, "
        "pregnant, mental health, lab result, test result, blood pressure, blood type, blood group, bmi, cholesterol, "
        "glucose, smoker, smoking, cancer, diabetes, comorbidity, diagnose, diagnosen, krankheit, befund, medikament, "
        "medikation, behandlung, behinderung, schwanger, maladie, medicament, traitement, handicap, enceinte, "
        "enfermedad, diagnostico, medicamento, tratamiento, discapacidad, embarazo, malattia, diagnosi, farmaco, "
        "terapia, disabilita, doenca, tratamento, ziekte, aandoening, medicatie, behandeling, condition code, medical "
        "condition",
    ),
    Rule(
        "genetic data", "sensitive", ("gdpr",),
        "genetic, genetics, genome, genotype, dna, snp, allele, genetik, genetique, genetico, genetica",
    ),
    Rule(
        "religion or belief", "sensitive", ("gdpr",),
        "religion, religious, faith, belief, denomination, konfession, glaube, croyance, religione, religiao, geloof, "
        "confession religieuse",
    ),
    Rule(
        "political opinion", "sensitive", ("gdpr",),
        "political, politics, political party, party affiliation, vote, voted, partei, politisch, politique, parti "
        "politique, politico, politica, partido politico, partito, politiek",
    ),
    Rule(
        "sex life or orientation", "sensitive", ("gdpr",),
        "sexual, sexuality, sexual orientation, orientation sexuelle, sexuelle orientierung, sexualitat, orientacion "
        "sexual, orientamento sessuale, orientacao sexual, seksuele geaardheid",
    ),
    Rule(
        "trade union membership", "sensitive", ("gdpr",),
        "trade union, labor union, labour union, union member, union membership, gewerkschaft, syndicat, sindicato, "
        "sindacato, vakbond",
        "union",
    ),
    Rule(
        "crime or convictions", "sensitive", ("gdpr",),
        "crime, criminal, conviction, convicted, offence, offense, arrest, felony, recidivism, straftat, vorstrafe, "
        "casier judiciaire, condamnation, delito, antecedentes penales, reato, condanna, crimes, strafblad, misdrijf",
    ),
    Rule(
        "accounts, debts or credit", "sensitive", ("glba",),
        "balance, account balance, debt, loan, mortgage, credit score, credit limit, credit rating, overdraft, "
        "bankruptcy, kontostand, saldo, schulden, kredit, dette, solde, pret, deuda, prestamo, debito, prestito, "
        "divida, emprestimo, schuld, lening",
    ),
    Rule(
        "income", "sensitive", (),
        "salary, income, wage, wages, earnings, pay grade, bonus, net worth, gehalt, lohn, einkommen, vermogen, "
        "salaire, revenu, salario, sueldo, ingresos, stipendio, reddito, renda, salaris, loon, inkomen, payroll",
        "pay",
    ),
    Rule(
        "school results", "sensitive", ("ferpa",),
        "gpa, exam grade, final grade, course grade, exam score, transcript, schulnote, zeugnis, bulletin scolaire, "
        "calificacion, calificaciones, voto di laurea, cijferlijst",
        "grade, grades, noten",
    ),
    Rule(
        "a birth date or age", "quasi-identifier", ("hipaa",),
        "birth date, date of birth, dob, birthday, birth day, birth year, year of birth, birth month, age, alter, "
        "geburtsdatum, geburtstag, geburtsjahr, date de naissance, date naissance, annee de naissance, edad, fecha de "
        "nacimiento, fecha nacimiento, data di nascita, data nascita, idade, data de nascimento, data nascimento, "
        "leeftijd, geboortedatum, geboortejaar",
        "eta, naissance, born",
    ),
    Rule(
        "sex or gender", "quasi-identifier", (),
        "sex, gender, geschlecht, sexe, sexo, genero, sesso, geslacht",
        "genre, genere, male, female",
    ),
    Rule(
        "a place below a state", "quasi-identifier", ("hipaa",),
        "zip, zip code, postcode, post code, postal code, city, town, municipality, county, district, precinct, "
        "census tract, neighborhood, neighbourhood, plz, postleitzahl, stadt, wohnort, gemeinde, landkreis, code "
        "postal, ville, commune, codigo postal, ciudad, municipio, citta, comune, cep, cidade, woonplaats, stad, "
        "gemeente",
        "ort, cap, departement, location",
    ),
    Rule(
        "a precise location", "quasi-identifier", ("hipaa", "ccpa"),
        "latitude, longitude, geolocation, gps, coordinates, lat lon, lat lng, koordinaten, coordonnees, coordenadas",
        "lat, lon, lng, long",
    ),
    Rule(
        "a region or country", "quasi-identifier", (),
        "region, province, country, home state, state of residence, state code, country code, bundesland, staat, "
        "pays, pais, provincia, paese, comunidad autonoma",
        "state, land, kanton, canton",
    ),
    Rule(
        "origin", "quasi-identifier", ("gdpr",),
        "race, ethnicity, ethnic, ethnic group, ethnie, herkunft, hautfarbe, origine ethnique, etnia, raza, razza, "
        "raca, etniciteit",
    ),
    Rule(
        "nationality or birthplace", "quasi-identifier", (),
        "nationality, citizenship, native country, birthplace, birth place, place of birth, country of birth, mother "
        "tongue, native language, nationalitat, nationalitaet, staatsangehorigkeit, staatsangehoerigkeit, geburtsort, "
        "geburtsland, nationalite, lieu de naissance, nacionalidad, lugar de nacimiento, nazionalita, cittadinanza, "
        "luogo di nascita, nacionalidade, nationaliteit, geboorteplaats",
    ),
    Rule(
        "marital status or family", "quasi-identifier", (),
        "marital, marital status, civil status, household size, family size, number of children, relationship status, "
        "familienstand, kinderzahl, situation familiale, etat civil, estado civil, stato civile, burgerlijke staat",
        "relationship, children",
    ),
    Rule(
        "education, work or employer", "quasi-identifier", (),
        "education, education num, degree, occupation, profession, job, job title, employer, company, department, "
        "workclass, school, bildung, bildungsabschluss, abschluss, beruf, arbeitgeber, niveau etudes, metier, "
        "employeur, profesion, ocupacion, empleador, istruzione, professione, datore di lavoro, profissao, beroep, "
        "werkgever, opleiding",
        "title",
    ),
    Rule(
        "a date of care or death", "quasi-identifier", ("hipaa",),
        "admission date, date of admission, admitted, admission time, discharge date, discharged, date of death, "
        "death date, service date, visit date, appointment date, dod, aufnahmedatum, entlassungsdatum, todesdatum, "
        "sterbedatum, date d admission, date de sortie, date de deces, fecha de ingreso, fecha de alta, data di "
        "ricovero, data de internacao, opnamedatum, ontslagdatum",
        "admission, discharge",
    ),
)  # fmt: skip
_DATE = Rule("a date, which others may know", "quasi-identifier", ("hipaa",))
# Such a name describes an identifier and is none: `phone_type`, `email_verified`, `name_length`.
_ABOUT = frozenset(
    {
        "category", "confirmed", "count", "counts", "date", "day", "domain", "expiration", "expires", "expiry", "flag",
        "format", "has", "is", "kind", "length", "month", "opened", "provider", "rate", "sent", "share", "size", "time",
        "total", "type", "valid", "verified", "version", "year",
    }
)  # fmt: skip
_MOST_WORDS = 5
_WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+|[^\W\d_]+")


def _joined(text: str) -> Iterator[str]:
    return (phrase.replace(" ", "") for phrase in text.split(", ") if phrase)


def _table(texts: Iterator[tuple[Rule, str]]) -> dict[str, Rule]:
    rules: dict[str, Rule] = {}
    for rule, text in texts:
        for phrase in _joined(text):
            rules.setdefault(phrase, rule)
    return rules


_PHRASES = _table((rule, rule.words) for rule in RULES)
_ALONE = _table((rule, rule.alone) for rule in RULES)
_RANK = {rule: rank for rank, rule in enumerate(RULES)}


def propose(table: Table) -> dict[str, Proposal]:
    """Propose a role and tags for every column of a table, from names and types alone.

    Roles that the schema states already are not looked at.

    Privacy: reads no value, so the result is as public as the schema.
    """
    return {name: role_of(name, column.type) for name, column in table.listed.items()}


def role_of(name: str, kind: Type) -> Proposal:
    """Propose a role and tags for one column.

    >>> role_of("Geburtsdatum", "date").reason
    "'geburtsdatum' in its name stands for a birth date or age."
    >>> role_of("email_verified", "boolean").role
    'plain'
    """
    words = words_of(name)
    if "at" in words[1:]:  # age_at_diagnosis is an age
        words = words[: words.index("at", 1)]
    found = [match for match in _matches(words) if match.rule.role != "identifier" or match.names_people(words, kind)]
    largest = [match for match in found if not any(match.is_inside(other) for other in found)]
    if largest:
        match = min(largest, key=lambda match: _RANK[match.rule])
        phrase, rule = " ".join(words[match.start : match.end]), match.rule
        return Proposal(rule.role, rule.tags, f"{phrase!r} in its name stands for {rule.what}.", rule)
    if kind in ("date", "timestamp"):
        return Proposal(_DATE.role, _DATE.tags, f"Its type is {kind}: {_DATE.what}.", _DATE)
    return Proposal("plain", (), "No rule knows its name.")


def words_of(name: str) -> tuple[str, ...]:
    """Split a name into lower-case words without accents.

    >>> words_of("homeZIPCode_2"), words_of("Straße")
    (('home', 'zip', 'code', '2'), ('strasse',))
    """
    text = name.replace("ß", "ss").replace("'s", "")
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return tuple(word.lower() for word in _WORD.findall(plain))


@dataclass(frozen=True, slots=True)
class _Match:
    """Words of a name, from `start` to before `end`, that a rule knows."""

    start: int
    end: int
    rule: Rule

    def is_inside(self, other: "_Match") -> bool:
        return other.start <= self.start and self.end <= other.end and self.end - self.start < other.end - other.start

    def names_people(self, words: tuple[str, ...], kind: Type) -> bool:
        """Return False for a yes or no, a measurement, a date, and a fact about an identifier."""
        return kind in ("text", "integer") and _ABOUT.isdisjoint(words[: self.start] + words[self.end :])


def _matches(words: tuple[str, ...]) -> Iterator[_Match]:
    """Yield the known phrases in a name. Words are joined first, so that `first_name` and `firstname` are alike."""
    whole = "".join(words)
    if whole in _ALONE:
        yield _Match(0, len(words), _ALONE[whole])
    for start in range(len(words)):
        for end in range(start + 1, min(start + _MOST_WORDS, len(words)) + 1):
            for form in _singular("".join(words[start:end])):
                if form in _PHRASES:
                    yield _Match(start, end, _PHRASES[form])


def _singular(word: str) -> tuple[str, ...]:
    """Return a word, and without its plural ending; short words keep theirs."""
    if len(word) > 4 and word.endswith("s"):
        return (word, word[:-1], word[:-2]) if word.endswith("es") else (word, word[:-1])
    return (word,)
