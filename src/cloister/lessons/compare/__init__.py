"""The textbook's exercise, in one call: what does noise cost, where is it put best? A lesson, never private.

In the order of the work:

    files       a CSV or Parquet file, or the demo's hospital
    table       rows with their public facts, and the same rows with noise on every cell
    twins       what scikit-learn has for each private classifier
    scores      how good a model is: accuracy, AUC, calibration, gaps between groups, how well members are told
    run         the loops: epsilons, repetitions, plain and private models, original and noisy rows
    comparison  what came out
    charts      pictures of it
    report      Markdown, HTML, PNG and SVG
"""
