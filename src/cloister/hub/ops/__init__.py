"""Operation of a hub: its processes, backup and restore, settings page and demo.

setup.py      a new hub, and its first invitation
serve.py      web processes and workers under one command; a clean end
process.py    one of these processes
backup.py     a copy of everything but the master key, and its restore
ledger_heads.py   after a restore: the newest head shown, or the rest written off
demo.py       a hub with users, data and jobs (demo_survey.py: its survey)
settings_page.py  the page of settings
"""
