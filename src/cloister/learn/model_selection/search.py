"""Private hyperparameter search: trials, selection and final fit under one charge.

    split rows at random ──► a trial fit of each candidate on most of them ──► its points on the others
          ──► choose by score (exponential mechanism) ──► fit the chosen one on all rows with the rest

Private selection from private candidates in its basic form. Trials share their part equally. The loss of the choice and
of the final fit does not grow with the number of candidates. (Random stopping, Liu & Talwar 2019 and Papernot & Steinke
2022, costs two to three times a single trial for any number of candidates: with Gaussian noise that is better for more
than about nine candidates, and its running time reveals how many were tried.)
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np

from cloister.learn.base.estimator import quiet
from cloister.learn.model_selection.candidates import (
    Search,
    fit_within,
    payer_of,
    paying_parts,
    priced,
    read_candidates,
    read_pair,
    rehearse,
    take,
)
from cloister.learn.model_selection.scoring import Scoring, read_scoring
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share
from cloister.privacy.ledger import Account, Ledger
from cloister.privacy.loss import Loss
from cloister.privacy.mechanisms import Exponential, PermuteAndFlip
from cloister.privacy.noise import uniform
from cloister.privacy.release import Release

__all__ = ["Selection", "select"]

_CHOICE = Fraction(1, 20)
_TRIALS = Fraction(3, 10)  # with a refit; otherwise trials get all but the choice
_HELD_BACK = 4  # one row in four, on average, is held out for scores


@dataclass(frozen=True, slots=True)
class Selection:
    """Result of a private search.

    Attributes:
        best: the chosen model, fitted.
        index: its index among the candidates.
        params: its parameters from the grid; empty without a grid.
        candidates: number of candidates.
        parts: the losses of trials, choice and final fit.
        release: loss, receipt and privacy of the whole.

    Privacy: the loss. Scores of candidates are not released, and trial fits are discarded.
    """

    best: Any
    index: int
    params: dict[str, Any]
    candidates: int
    parts: dict[str, Loss]
    release: Release

    @property
    def loss(self) -> Loss:
        """Return the total loss of trials, choice and the model."""
        return self.release.loss

    def __str__(self) -> str:
        changed = ", ".join(f"{name}={value!r}" for name, value in sorted(self.params.items()))
        name = f"{type(self.best).__name__}({changed})" if changed else type(self.best).__name__
        lines = [f"{name}, candidate {self.index + 1} of {self.candidates}"]
        if not self.release.private:
            lines.insert(0, "NOT PRIVATE: the noise came from a seeded source")
        lines += [f"  {part:<9} {loss}" for part, loss in self.parts.items()]
        return "\n".join([*lines, f"  {'total':<9} {self.loss}"])


@quiet
def select(
    models: Any,
    X: Any,  # noqa: N803
    y: Any,
    *,
    spend: Loss,
    grid: Mapping[str, Sequence[Any]] | None = None,
    scoring: str | None = None,
    refit: bool = True,
    ledger: Ledger | str | None = None,
    account: Account | None = None,
    random_state: Any = None,
) -> Selection:
    """Choose privately among models or parameters.

    Args:
        models: an estimator or pipeline of private parts, or a list of them; their own spends are ignored. Besides
            private parts, pipelines may hold Cloister's scalers and encoders from public facts, and
            FunctionTransformer, Normalizer and Binarizer, which are applied to one row at a time
            (learn/preprocessing/stateless.py).
        X, y: rows as arrays or frames.
        spend: total privacy budget.
        grid: parameters to try, as for scikit-learn's GridSearchCV.
        scoring: "accuracy" (classifiers), "neg_log_loss" or "neg_mean_squared_error" (regressors).
        refit: True to fit the chosen model again, on all rows, with two thirds of the spend. If False, the trials get
            nearly all of it and the chosen trial is kept: better for two or three candidates on few rows.
        ledger, account: charged; those that the models name unless given here. All that are named must be the same.
        random_state: as for an estimator.

    Privacy: the spend, for one row added or removed. Each row is held out by an independent coin, so two neighbouring
        tables, with the same coins for the rows they share, differ in one part by one row. Candidates, grid and the
        score's name are public. Audited in tests/statistical/test_learn_canaries.py, the choice alone in
        tests/unit/learn/test_select.py.
    """
    candidates, changes = read_candidates(models, grid)
    payer = payer_of(candidates, ledger, account)
    score = read_scoring(scoring, *candidates)
    shares = _shares(budget_share(spend), len(candidates), refit)
    X, y = read_pair(X, y)  # noqa: N806
    for candidate in candidates:
        rehearse(priced(candidate, shares["trials"].split(len(candidates))), X, y, score.points)

    def steps(meter: PrivacyFilter, budget: BudgetShare) -> tuple[int, Any]:
        coins = uniform(_HELD_BACK, (len(y),), meter.source)
        training, held_out = np.flatnonzero(coins != 0), np.flatnonzero(coins == 0)
        each = shares["trials"].split(len(candidates))
        trials = [
            fit_within(meter, priced(candidate, each), take(X, training), take(y, training)) for candidate in candidates
        ]
        choice = choose(meter, score, trials, lambda: (take(X, held_out), take(y, held_out)), shares["choice"])
        if not refit:
            return choice, trials[choice]
        return choice, fit_within(meter, priced(candidates[choice], shares["final fit"]), X, y)

    request = f"select among {candidates!r} by {score.name}"
    (index, best), release = Search(spend, *payer, random_state, request).carry_out(steps)
    release = replace(release, value=best)
    for part in paying_parts(best, fitted=True):
        if hasattr(part, "release_"):  # absent on a transformer without columns
            part.release_, part.loss_ = replace(release, value=part.release_.value), release.loss
    return Selection(best, index, changes[index], len(candidates), shares, release)


def choose(meter: PrivacyFilter, score: Scoring, models: Sequence[Any], look: Any, loss: Loss) -> int:
    """Choose the index of a model with about the most points on the rows that `look` returns.

    Privacy: the loss. A row adds up to `most` points to every score and subtracts none, so scores are monotone.
    """
    kind: Any = PermuteAndFlip if loss.measure == "epsilon" else Exponential

    def points() -> list[int]:
        rows, labels = look()
        return [score.points(model, rows, labels) for model in models]

    return int(meter.release(points, kind.for_loss(score.most, loss, monotone=True)))


def _shares(budget: BudgetShare, candidates: int, refit: bool) -> dict[str, Loss]:
    if not refit:
        return {"trials": budget.part(1 - _CHOICE), "choice": budget.part(_CHOICE)}
    rest = 1 - _TRIALS - _CHOICE
    return {"trials": budget.part(_TRIALS), "choice": budget.part(_CHOICE), "final fit": budget.part(rest)}
