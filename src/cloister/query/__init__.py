"""Private SQL: queries in, answers with error bars out.

In the order of processing:

    sql_text      SQL text, parsed within fixed limits; allow-lists of arguments per SQL node, and of names
    question      one SELECT split into rows, groups, aggregates, and post-processing of the answer
    from_clause   FROM, JOIN, WHERE, subqueries: one relation in which every row belongs to one unit
    expression    row-wise expressions with their public type and interval: the allow-list of the language
    aggregate     COUNT, SUM, AVG, …: the bounded statistics each needs, and its estimator
    catalog       the tables as one reader sees them; a query is compiled against it
    plan          measurements, noise, cost; explain prints it and finds the smallest loss for an error
    run           from a query to its answer: plan, charge, read once, add noise
    estimate      from noisy statistics to answers with intervals
    postprocess   totals that add up, arithmetic over answers, HAVING, ORDER BY, LIMIT
    answer        a Release that is a table; display prints and exports it
    answer_cache  the record: released answers are reused free of charge
    discovery     groups and bounds that are not public, at a charge
    analyst       an analyst's own account beside the dataset's; who pays
    builder       the same queries, built in Python
    shell         the interactive shell; prompt reads its input
"""
