"""Textbook methods of models, corrected, for teaching; not private, and no ledger accepts them.

    from cloister import epsilon, lessons
    model = lessons.LogisticRegression(
        epsilon(1), bounds=(0, 1), classes=[0, 1], method="objective", random_state=1
    ).fit(X, y)

    method         base class, seeded noise in floats, input perturbation
    perturbation   output and objective perturbation of a convex loss
    linear         LogisticRegression, LinearSVC, LinearRegression, Ridge
    naive_bayes    GaussianNB, MixedNB, CategoricalNB
    kmeans         KMeans by DPLloyd
    pca            PCA by SuLQ, noisy rows, or drawn directions

Each class has the parameters and attributes of the class of the same name in cloister.learn.
"""
