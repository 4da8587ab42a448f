"""Private cross-validation: every fit is charged, and the scores are noisy.

scikit-learn's own would fit private models and then report their scores on raw rows without a charge; see
learn/base/estimator.py.
"""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cloister.learn.base.estimator import quiet
from cloister.learn.model_selection.candidates import (
    Search,
    fit_within,
    payer_of,
    read_pair,
    rehearse,
    settled,
    take,
    total_spend,
)
from cloister.learn.model_selection.scoring import read_scoring
from cloister.privacy.errors import BadInput, BadLoss
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share, noise_for
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import root_above
from cloister.privacy.noise import uniform
from cloister.privacy.release import Release

__all__ = ["cross_val_score"]

_SCORES = Fraction(1, 10)  # default, relative to the cost of one fit


@quiet
def cross_val_score(
    model: Any,
    X: Any,  # noqa: N803
    y: Any,
    *,
    cv: int = 5,
    scoring: str | None = None,
    score_spend: Loss | None = None,
    ledger: Ledger | str | None = None,
    account: Account | None = None,
    random_state: Any = None,
) -> Release:
    """Return noisy scores of a model on held-out folds.

    Args:
        model: an estimator or pipeline of private parts, as for `select`; each fold's fit costs its `spend`. An
            (epsilon, delta) counts as the largest rho that implies it; a network then reads all rows in every step.
        X, y: rows as arrays or frames.
        cv: number of folds.
        scoring: "accuracy" (classifiers), "neg_log_loss" or "neg_mean_squared_error" (regressors).
        score_spend: budget of all scores together; a tenth of a fit unless given.
        ledger, account: charged; the model's own unless given here. If both name one, it must be the same.
        random_state: as for an estimator.

    Returns:
        A release: `value` has a score for each fold, `standard_error` the noise on each, `loss` the total.

    Privacy: `cv` times the model's spend plus `score_spend`, for one row added or removed, all charged before a row is
        read. Each row is assigned to a fold at random; it is used in `cv - 1` fits and in one fold's score
        (a sum and a count, released together with discrete Gaussian or Laplace noise). Audited in
        tests/statistical/test_learn_canaries.py.
    """
    if isinstance(cv, bool) or not isinstance(cv, int) or not 2 <= cv <= 100:
        raise BadInput("cv is the number of folds: a whole number from 2 to 100.")
    X, y = read_pair(X, y)  # noqa: N806
    model = settled(model)
    payer = payer_of([model], ledger, account)
    fit, score = total_spend(model), read_scoring(scoring, model)
    scores = BudgetShare(fit.part(_SCORES)) if score_spend is None else budget_share(score_spend)
    if scores.pure != fit.pure:
        raise BadLoss("the fits and the scores must be paid alike: both with a pure epsilon, or both with a rho.")
    noise = noise_for(root_above(2) * score.most, 2 * score.most, scores.loss)
    rehearse(
        model, X, y, lambda fitted, rows, labels: (score.points(fitted, rows, labels), score.counted(fitted, labels))
    )

    def steps(meter: PrivacyFilter, _budget: BudgetShare) -> NDArray[np.float64]:
        fold = uniform(cv, (len(y),), meter.source)
        models = [_fitted(meter, model, X, y, np.flatnonzero(fold != i)) for i in range(cv)]

        def look() -> NDArray[np.int64]:
            held_out = [(fitted, np.flatnonzero(fold == i)) for i, fitted in enumerate(models)]
            points = [score.points(fitted, take(X, at), take(y, at)) for fitted, at in held_out]
            return np.array(
                [points, [score.counted(fitted, take(y, at)) * score.most for fitted, at in held_out]], dtype=np.int64
            )

        return np.asarray(meter.release(look, noise), dtype=np.float64)

    request = f"cross-validate {model!r} by {score.name} in {cv} folds"
    total = fit.loss * cv + scores.loss
    released, release = Search(total, *payer, random_state, request).carry_out(steps)
    weights = np.maximum(released[1], score.most)
    share = np.clip(released[0] / weights, 0.0, 1.0)
    error = noise.standard_error * np.sqrt(1 + share**2) / weights * score.slope
    return replace(release, value=score.told(share), standard_error=error)


def _fitted(meter: PrivacyFilter, model: Any, rows: Any, labels: Any, places: NDArray[np.int64]) -> Any:
    from sklearn.base import clone

    return fit_within(meter, clone(model), take(rows, places), take(labels, places))
