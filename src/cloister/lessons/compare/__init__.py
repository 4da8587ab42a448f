"""The textbook's exercise in one call: the cost of noise, and the best place for it. A lesson, not private.

In the order of processing:

    table       a CSV or Parquet file or the demo's hospital, with public facts; and its copy with noise on every cell
    scores      accuracy, AUC, calibration, gaps between groups, membership advantage
    run         the loops: epsilons, repetitions, plain and private models, original and noisy rows
    comparison  the results
    report      charts and report: Markdown, HTML, PNG and SVG
"""
