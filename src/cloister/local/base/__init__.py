"""Shared parts of local mechanisms, in the order of a report.

    oracle  number          public facts and verbs; mechanisms for numbers
    dyadic  tiling          probabilities that a device can toss exactly
    columns                 columns of a row as public facts
    perturb  coins  laplace_rows   on the device: check values, draw bits and noise
    wire                    bytes of a report: encode, and decode any input
    counts  estimate  mean  at the collector: additive tables, shares, means
    intervals  projection   exact intervals of shares; projection to the simplex

Mechanisms are in the folder `mechanisms`, one file each.
"""
