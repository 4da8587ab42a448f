"""Audits of mechanisms and training functions.

audit.py          lower bound on the epsilon of a mechanism from samples, with a verdict and a picture
exact.py          exact epsilon where the output distributions are known
audit_one_run.py  lower bound on the epsilon of a training function from one run with many canaries
floating.py       the doubles that textbook noise can reach, and the order in which floats were summed
outputs.py      outputs of a mechanism as a matrix of numbers
events.py       sets of outputs that distinguish two inputs
chart.py        picture of an audit
"""
