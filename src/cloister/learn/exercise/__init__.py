"""The textbook's exercise, in one call: what does noise cost, where is it put best? A lesson, never private.

In the order of the work:

table     rows with their public facts, and the same rows with noise on every cell
scores    how good a model is: accuracy, AUC, calibration, gaps between groups, how well members are told
run       the loops: epsilons, repetitions, plain and private models, original and noisy rows
charts    pictures of what came out
report    Markdown, HTML, PNG and SVG
"""
