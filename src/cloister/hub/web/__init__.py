"""Web interface of the hub: pages rendered on the server, and a JSON API under /api.

    app.py        create_app(hub): the whole application
    security.py   headers, cookies, body sizes, turns, the client's network address
    connection.py connections: how many, and how long one may neither send nor read
    context.py    the visitor, CSRF, and `page(...)`: start here to write a page
    forms.py      submitted forms, read safely
    refill.py     refused forms, shown again as they were filled in
    words.py      format of times, losses and numbers
    problems.py   errors as a page or as JSON
    charts.py     charts of answers with error bars, drawn offline; survey_charts.py: of surveys
    spreadsheets.py  safe CSV files
    pages/        one file per subject; each has a `router`
    api/          the same for programs
    respondent/   the pages and requests of survey respondents

Every page works without scripts; those in static/ are optional.
"""
