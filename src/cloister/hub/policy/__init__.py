"""Policies of datasets: users, operations, purposes and costs. Every decision gives its reasons.

policy.py             values: purposes, budget, roles, joins, residency, retention
conditions.py         members of a role: people, organisations, places, times
cost.py               limits and approvals, compared exactly in the account's measure
anonymised.py         the rule for anonymised releases
predictions.py        the rule for the predictions of trained models
purposes.py           the vocabulary of purposes, as a tree
views.py              columns, rows and transforms that a role sees of a table, as SQL
decide.py             subject, operation, purpose, environment → Verdict; pure, denied by default
decision_log.py           decisions in the audit log, and the refusals that users get
signature.py          signatures on policies, and the label of results derived from the data
versions.py           the versions in the hub's database
text/yaml_page.py     problems with the line of every word (data/strict_yaml parses)
text/reader.py        text to values, strictly
text/roles.py         the roles in the text
text/writer.py        values to text
text/form.py          the common fields as a form over the same text
text/check.py         unit tests for a policy, as YAML
text/words.py         roles, conditions and views as sentences
"""
