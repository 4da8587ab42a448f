"""Lessons: textbook methods and exercises, each with what defeats it. Never private; not for deployment.

    tour              the terminal tour behind `cloister demo`
    compare/          the textbook's exercise: what noise costs, and where to put it
    sql/              statistical-database protections before differential privacy, and the attacks on them
    local_accuracy    accuracy of local naive Bayes against epsilon
    synth_utility     what a model learns from synthetic rows

This room imports the product. The product never imports it.
"""
