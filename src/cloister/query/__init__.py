"""Private SQL: questions in, answers with error bars out.

In the order of the work:

    sql_text     SQL text from a person, read within fixed limits
    question     one SELECT taken apart: rows, groups, aggregates, and what happens to the answer afterwards
    rows         FROM, JOIN, WHERE, subqueries: one relation in which every row belongs to one unit
    term         row-wise expressions, with their public type and interval: the allow-list of the language
    aggregate    COUNT, SUM, AVG, …: what each needs, and how it is estimated
    need         the bounded statistics behind them
    plan         what will be measured, the noise, the cost; explain prints it, accuracy finds the cheapest
    run          charge, look once, add noise
    consistent   totals that add up
    estimate     from noisy statistics to answers with intervals
    arrange      arithmetic over answers, HAVING, ORDER BY, LIMIT
    answer       a Release that is a table
    record       what was released already is free
    find         groups and bounds that are not public, paid for
    builder      the same questions, built in Python
    console      the shell
    controls     rules beside noise that decide from the request or from noisy answers
    lessons      the classical controls, which look at true sizes, each with the attack that defeats it
"""
