"""diffprivlib in its own environment: scores of every model it has, printed as JSON.

    python ask_diffprivlib.py arrays.npz EPSILON,... SEEDS SECONDS

Bounds, norms and classes are given, as a careful user would. Its claim is for replaced rows. A model of which one fit
takes longer than SECONDS has no scores.
"""

import json
import signal
import sys
import time
import warnings

import numpy as np
from diffprivlib import models as dp
from sklearn.metrics import roc_auc_score


class TooLong(Exception):
    pass


def main(path, epsilons, seeds, seconds):
    warnings.simplefilter("ignore")
    signal.signal(signal.SIGALRM, stop)
    arrays = dict(np.load(path))
    found = {}
    for name, task in TASKS.items():
        try:
            found[name] = {amount: scores(task, arrays, amount, seeds, seconds) for amount in epsilons}
            print(f"  diffprivlib {name}", file=sys.stderr)
        except TooLong:
            found[name] = None
            print(f"  diffprivlib {name}: longer than {seconds} s a fit", file=sys.stderr)
    return found


def scores(task, arrays, amount, seeds, seconds):
    made = []
    for seed in range(seeds):
        signal.alarm(seconds)
        try:
            made.append(task(arrays, float(amount), seed))
        finally:
            signal.alarm(0)
    return made


def stop(*_):
    raise TooLong


def classes(make):
    def task(a, epsilon, seed):
        start = time.perf_counter()
        model = make(a, epsilon, seed).fit(a["X"], a["y"])
        seconds = time.perf_counter() - start
        right = float((model.predict(a["Xt"]) == a["yt"]).mean())
        return [right, float(roc_auc_score(a["yt"], model.predict_proba(a["Xt"])[:, 1])), seconds]

    return task


def logistic(a, epsilon, seed):
    return dp.LogisticRegression(epsilon=epsilon, data_norm=float(a["norm"]), max_iter=1000, random_state=seed)


def bayes(a, epsilon, seed):
    return dp.GaussianNB(epsilon=epsilon, bounds=(0, 1), random_state=seed)


def forest(a, epsilon, seed):
    return dp.RandomForestClassifier(
        n_estimators=10, max_depth=5, epsilon=epsilon, bounds=(0, 1), classes=[0, 1], random_state=seed
    )


def tree(a, epsilon, seed):
    return dp.DecisionTreeClassifier(max_depth=5, epsilon=epsilon, bounds=(0, 1), classes=[0, 1], random_state=seed)


def linear(a, epsilon, seed):
    model = dp.LinearRegression(
        epsilon=epsilon, bounds_X=(0, 1), bounds_y=tuple(map(float, a["ends"])), random_state=seed
    )
    return [float(model.fit(a["Z"], a["goal"]).score(a["Zt"], a["goalt"]))]


def means(a, epsilon, seed):
    low, high = a["points_low"], a["points_high"]
    model = dp.KMeans(n_clusters=10, epsilon=epsilon, bounds=(low, high), random_state=seed).fit(a["points"])
    away = [((a["points"] - one) ** 2).sum(axis=1) for one in model.cluster_centers_]
    return [float(np.min(away, axis=0).mean() / a["lloyd"])]


def components(a, epsilon, seed):
    model = dp.PCA(
        n_components=10, epsilon=epsilon, data_norm=float(a["image_norm"]), bounds=(0, 1), random_state=seed
    ).fit(a["images"])
    basis = np.linalg.qr(np.asarray(model.components_).T)[0]
    return [float(np.trace(basis.T @ a["scatter"] @ basis) / a["captured"])]


TASKS = {
    "LogisticRegression": classes(logistic),
    "GaussianNB": classes(bayes),
    "RandomForestClassifier": classes(forest),
    "DecisionTreeClassifier": classes(tree),
    "LinearRegression": linear,
    "KMeans": means,
    "PCA": components,
}

if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2].split(","), int(sys.argv[3]), int(sys.argv[4]))))
