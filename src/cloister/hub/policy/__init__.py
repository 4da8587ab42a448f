"""Who may do what with a dataset, for which purpose, at which cost. Every decision explains itself.

policy.py      the page as values: purposes, budget, roles, joins, residency, retention
yaml_page.py        a YAML page with the line of every word
reader.py      the page as text, read strictly
roles.py       the part of it that speaks of roles
writer.py      values as a page again
conditions.py  who belongs to a role: people, organisations, places, times
cost.py        limits and approvals, compared exactly in the account's measure
purposes.py    the words for what data may be used for, as a tree
views.py       columns, rows and transforms: what a role sees of a table, as SQL
decide.py      subject, operation, purpose, environment → Verdict; pure, and no by default
check.py       unit tests for a policy, as YAML
signature.py    signatures on policies, and the label that travels with what is derived from the data
versions.py   the versions in the hub's database
form.py        the common fields as a form over the same page
i18n.py       roles, conditions and views as sentences for people
"""
