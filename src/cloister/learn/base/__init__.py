"""What every estimator shares, in the order of a fit.

    estimator                      who pays, what is recorded, what a fit leaves behind
    inputs  containers  cells      read arrays and frames, cell by cell
    private_data  row_source       read the columns or rows of a dataset
    frame  bins  binned_estimator  public scales and cells
    integer_rows  rowwise  quiet   exact sums
    nested_budget  bounds_search   several fits under one charge; bounds that are paid for

Families of estimators are the folders beside this one.
"""
