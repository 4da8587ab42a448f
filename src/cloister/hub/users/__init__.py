"""Who is there: accounts, organisations, roles, passwords, second factors, sessions and tokens.

secrets.py     long random words, of which only a hash is kept
passwords.py  Argon2id: how long a password must be, hashed, checked in even time
rate_limits.py     slowing down: wrong tries lock an account and an address; a limiter of requests
accounts.py   making an account, organisations, changing and resetting a password
roles.py      who may do what in the hub, and who says so
one_time_links.py      invitations and resets: links that work once
totp.py       the second factor: six digits that work once
sessions.py   signed-in browsers
tokens.py     programs that act for a person
sign_in.py    the way in: password, second factor, session
user_actions.py       what is done about all these, each in one transaction with its line in the audit log

Secrets are kept as SHA-256 (sessions, tokens, links: they are long and random), as Argon2id (passwords) or sealed by
the master key (second factors). Pages and commands go through `sign_in` and `desk`.
"""
