"""Lessons: textbook methods and exercises, each with the attack that defeats it. Not private; not for deployment.

    tour              the terminal tour behind `cloister demo`
    compare/          the textbook's exercise: the cost of noise and the best place for it
    sql/              statistical-database protections before differential privacy, and the attacks on them
    local_accuracy    accuracy of local naive Bayes against epsilon
    synth_utility     utility of models trained on synthetic rows

This package imports the product. The product never imports it.
"""
