"""What every local mechanism shares.

    oracle  number     public facts and verbs; mechanisms for numbers
    dyadic  tiling     probabilities that a device can toss exactly
    columns            columns of a row as public facts

Mechanisms are in the folder `mechanisms`, one file each.
"""
