"""What keeps a hub running: its processes, logs, metrics, copies, and a demo to click through.

setup.py      a new hub, and its first invitation
serve.py      pages and workers as processes of one command; a clean end
process.py    one of these processes
logs.py       one line of JSON for each thing that happens, without private data
metrics.py    numbers for Prometheus
backup.py     a copy of everything but the keys, and the way back
ledger_heads.py      after a restore: the newest head shown, or the rest written off
demo.py       a hub with people, data and work in it
settings_page.py  the page of settings
"""
