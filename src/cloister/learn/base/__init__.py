"""Code that all estimators share, in the order of a fit.

    estimator                      charge, receipt, fitted attributes
    inputs  containers  cells      read arrays and frames, cell by cell
    private_data  row_source       read the columns or rows of a dataset
    frame  bins  binned_estimator  public scales and cells
    integer_rows  rowwise  quiet   exact sums
    nested_budget  bounds_search   several fits under one charge; private bounds

Each family of estimators has its own folder beside this one.
"""
