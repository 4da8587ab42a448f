"""The hub in a browser and over HTTP: pages drawn on the server, and the same nouns as JSON under /api.

    app.py        create_app(hub): everything put together
    security.py   headers, cookies, body sizes, whose request it is by network address
    context.py    who is visiting, CSRF, and `page(...)`: start here to write a page
    forms.py      what a form sent, read safely
    i18n.py      how times, losses and numbers are written
    problems.py   how a refusal is shown: a page or JSON
    charts.py     answers as pictures with error bars, drawn offline
    pages/        one file a subject; each has a `router`
    api/          the same for programs

Every page works without scripts; those in static/ are comforts.
"""
