"""Surveys whose collector never sees a true answer.

    compose ──► publish ──► a device draws the noise ──► intake ──► results
    draft.py   survey.py   web/respondent, local/client   intake.py  results.py, export.py
                            ballots.py: each invited respondent answers once, and answers cannot be linked to them

    question.py   a question as it is composed: its type, its public domain, its levels; the expected error
    survey.py     states of a survey: draft, open (wave 1, 2, …), closed
    ballots.py    invitations, and blindly signed ballots made from them
    intake.py     submissions: checked, counted if invalid, durable before they are acknowledged
    draft.py      a draft: questions added, moved and removed, and their expected errors
    results.py    estimates: a question_result.py for each question, cross-tables, models, signs of invented reports
    sentences.py  results in words, no more than the intervals allow
    export.py     reports and estimates as files, and the receipt of an analysis; receipts.py puts receipts into words
    comparison.py a question compared with a central release of the same user
    i18n.py       texts of the respondent's page, in four languages (messages/*.json)
    explain_level.py  what a level reveals about an answer, computed from the mechanism
    device.py     a respondent's device in Python, for scripts and tests

Only a respondent's reports and chosen levels are stored: no address, no browser, no time, no order of arrival.
"""
