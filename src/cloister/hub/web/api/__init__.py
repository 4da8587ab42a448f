"""HTTP API: one file per subject, each with a module-level `router`. `create_app` finds them by itself.

Programs send `Authorization: Bearer clo_…`; the hub's own pages use the session's cookie and the header X-CSRF.
A refusal is JSON: `{"code": "CLO-502", "message": …, "way_out": …}`.
"""
