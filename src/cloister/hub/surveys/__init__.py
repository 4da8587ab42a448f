"""Surveys whose collector never sees a true answer.

    compose ──► publish ──► a device draws the noise ──► intake ──► results
    form.py    survey.py   web/respondent, local/client   intake.py  results.py, export.py
                            ballots.py: who was invited answers once, and nobody knows which answer is theirs

    form.py      a question as it is composed: its type, its public domain, the levels offered; what error to expect
    survey.py     a survey's life: draft, open (wave 1, 2, …), closed
    ballots.py    invitations, and blindly signed ballots made from them
    intake.py     submissions as they arrive: checked, counted if bad, durable before they are acknowledged
    draft.py  a draft: questions put, moved and taken out, and what error to expect of them
    results.py    what the reports tell: a question_result.py for each question, cross-tables, models, suspicions
    sentences.py  the same in words, no more than the intervals allow
    export.py     reports and estimates as files, and the receipt of an analysis; receipts.py reads receipts aloud
    comparison.py     a question beside a central release of the same person
    proof.py      signed receipts: for a respondent, that reports were taken; for a reader, what an analysis said
    i18n.py      what the respondent's page says, in four languages (messages/*.json)
    explain_level.py    what a level tells about an answer, computed from the mechanism

What is kept of a respondent: the reports, the levels they chose, and nothing else. No address, no browser, no time, no
order of arrival.
"""
