"""Private models that drop into scikit-learn.

    from cloister import learn, epsilon
    model = learn.LogisticRegression(epsilon(1, delta="1e-6"), bounds=(0, 1), classes=[0, 1]).fit(X, y)

The way of a fit: inputs.py (what is public, what is clipped) → estimator.py (charge, once, before anything is read) →
exact.py (rows as integers, summed exactly, plus noise) → the estimator's own file → release_ and receipt.
"""
