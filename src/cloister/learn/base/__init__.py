"""Code that all estimators share, in the order of a fit.

    estimator  payer               charge, receipt, fitted attributes; who pays
    inputs  containers  cells      read arrays and frames, cell by cell
    private_data  row_source       read the columns or rows of a dataset
    frame  bins  binned_estimator  scales and cells; the search for bounds
    integer_rows                   exact sums

Each family of estimators has its own folder beside this one.
"""
