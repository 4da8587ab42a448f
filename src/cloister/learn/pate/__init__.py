"""Private aggregation of teacher ensembles: teachers on disjoint rows, noisy votes on public rows, a student.

    from cloister.learn.pate import PATEClassifier
    PATEClassifier(epsilon(3, delta="1e-5"), public=unlabelled, teachers=250, classes=range(10)).fit(X, y)

It needs public rows beside the private ones, so it is not among the estimators of `cloister.learn`, which all fit from
`X` and `y` alone: `select` and `cross_val_score` do not take it. `learn.save` does, with the usual student.
"""

from cloister.learn.pate.classifier import PATEClassifier

__all__ = ["PATEClassifier"]
