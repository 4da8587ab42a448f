"""Users: accounts, organisations, roles, passwords, second factors, sessions and tokens.

passwords.py       Argon2id: length rule, hash, constant-time check
rate_limits.py     failed attempts lock an account and an address; a limiter of requests
accounts.py        accounts, organisations, changing and resetting a password
roles.py           roles in the hub, and who grants them
one_time_links.py  invitations and resets: links that work once
totp.py            the second factor: six digits that work once
sessions.py        signed-in browsers
tokens.py          API tokens of a user
sign_in.py         sign-in: password, second factor, session
user_actions.py    actions on all these, each in one transaction with its entry in the audit log

Secrets are kept as SHA-256 (sessions, tokens, links: they are long and random), as Argon2id (passwords) or sealed by
the master key (second factors). Pages and commands call `sign_in` and `user_actions`.
"""
