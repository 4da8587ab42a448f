"""Uniqueness in a population, estimated from a sample.

A row that is unique in a release can be re-identified with certainty only if it is unique in the population. n rows in
u classes, f_i of them of size i, are a simple random sample of the fraction p = n / N of a population of N people. Each
estimator returns the number of classes of size 1 in the population.

No estimator is reliable for every population. Estimate divided by truth, on four simulated populations of 200,000
(class probabilities equal, log-normal, Zipf's, and the product of six columns; 4 to 36 % unique):

    p               0.01          0.05          0.1           0.2           0.5
    Zayatz          2.5 to 19     1.8 to 15     1.6 to 12     1.3 to 6.9    1.1 to 2.1
    Pitman          1.1 to 4.7    1.0 to 4.9    1.2 to 4.8    1.1 to 4.3    1.0 to 3.6
    SNB             0.5 to 9.3    1.0 to 4.3    1.1 to 3.0    1.0 to 2.0    0.9 to 1.3
    Dankar's rule   1.1 to 4.7    1.0 to 4.9    1.2 to 4.8    1.0 to 1.5    0.9 to 1.1
"""

import math
from dataclasses import dataclass

import numpy as np

from cloister.attack.tables.columns import Floats, Integers
from cloister.privacy.errors import BadInput

__all__ = ["PopulationUniqueness", "dankar", "pitman", "population_uniqueness", "snb", "zayatz"]


@dataclass(frozen=True, slots=True)
class PopulationUniqueness:
    """Estimates of the number of people who are unique in the population.

    Attributes:
        population: number of people, rows divided by the sampling fraction.
        sample_unique: number of rows that are unique in the sample.
        zayatz, pitman, snb: the estimates; None where the model does not fit.
        chosen: the model that the rule of Dankar et al. selects.
        estimate: its number.
    """

    population: float
    sample_unique: int
    zayatz: float | None
    pitman: float | None
    snb: float | None
    chosen: str
    estimate: float

    @property
    def share(self) -> float:
        """Estimated share of the population that is unique."""
        return self.estimate / self.population if self.population else 0.0

    def to_json(self) -> dict[str, object]:
        """Return the estimates."""
        return {**{name: getattr(self, name) for name in self.__dataclass_fields__}, "share": self.share}

    def __str__(self) -> str:
        models = ", ".join(
            f"{name} {'does not fit' if value is None else f'{value:,.0f}'}"
            for name, value in (("Zayatz", self.zayatz), ("Pitman", self.pitman), ("SNB", self.snb))
        )
        return f"{self.estimate:,.0f} of {self.population:,.0f} people unique ({self.share:.2%}; {models})"


def population_uniqueness(sizes: Integers, fraction: float) -> PopulationUniqueness:
    """Estimate the number of population uniques by all models.

    Args:
        sizes: the sizes of the classes in the sample.
        fraction: the sampling fraction, above 0 and at most 1.
    """
    _check(sizes, fraction)
    models = {"zayatz": zayatz(sizes, fraction), "pitman": pitman(sizes, fraction), "snb": snb(sizes, fraction)}
    chosen, estimate = _rule(models, fraction)
    n = float(np.sum(sizes))
    return PopulationUniqueness(n / fraction, int(np.sum(sizes == 1)), **models, chosen=chosen, estimate=estimate)


def dankar(sizes: Integers, fraction: float) -> float:
    """Estimate by the rule of Dankar et al. (2012): Pitman up to a fraction of 0.1, else the smaller of Zayatz and SNB.

    Zayatz replaces a model that does not fit.
    """
    return population_uniqueness(sizes, fraction).estimate


def _rule(models: dict[str, float | None], fraction: float) -> tuple[str, float]:
    wanted = ("pitman",) if fraction <= 0.1 else ("zayatz", "snb")
    fits = [(value, name) for name in wanted if (value := models[name]) is not None]
    estimate, name = min(fits) if fits else (models["zayatz"] or 0.0, "zayatz")
    return name, estimate


def _check(sizes: Integers, fraction: float) -> None:
    if not 0 < fraction <= 1:
        raise BadInput(f"a sampling fraction is above 0 and at most 1, got {fraction}. Give 0.05 for one in twenty.")
    if not len(sizes):
        raise BadInput("the sample has no rows. Give a table with at least one.")


def zayatz(sizes: Integers, fraction: float) -> float | None:
    """Estimate by Zayatz (1991): population classes have the sizes of the sample's classes.

    With h(i) the hypergeometric probability that a class of i people has one row in the sample,

        Pr[population unique | sample unique] = f_1 h(1) / sum_i f_i h(i),    estimate = f_1 / p * that.

    >>> round(zayatz(np.array([1, 1, 2]), 1.0), 6)
    2.0
    """
    _check(sizes, fraction)
    from scipy.special import gammaln  # scipy.stats takes two seconds to import

    n = int(np.sum(sizes))
    size, count = np.unique(sizes, return_counts=True)
    unique = int(count[size == 1].sum())
    if not unique:
        return 0.0
    people = max(round(n / fraction), n)
    rest = people - size - n + 1  # people outside of the class and the sample
    log_ways = gammaln(people - size + 1) - gammaln(n) - gammaln(np.maximum(rest, 0) + 1)
    log_all = gammaln(people + 1) - gammaln(n + 1) - gammaln(people - n + 1)
    weight = np.where(rest >= 0, count * size * np.exp(log_ways - log_all), 0.0)
    return float(unique / fraction * weight[size == 1].sum() / weight.sum())


def pitman(sizes: Integers, fraction: float) -> float | None:
    """Estimate by Pitman's sampling formula (Hoshino 2001), with theta and alpha of maximal likelihood.

        log L = sum_{i<u} log(theta + i alpha) - sum_{i<n} log(theta + i) + sum_i f_i sum_{j<i} log(j - alpha)
        E[uniques of N] = N * Gamma(theta + 1) / Gamma(theta + alpha) * Gamma(N + theta + alpha - 1) / Gamma(N + theta)

    None if the likelihood has no maximum inside 0 < alpha < 1, theta > -alpha: all rows unique, or one class.
    """
    _check(sizes, fraction)
    from scipy.optimize import minimize
    from scipy.special import expit, gammaln, logit

    n, u = int(np.sum(sizes)), len(sizes)
    size, count = np.unique(sizes, return_counts=True)
    if not np.any(size == 1):
        return 0.0
    if u in (1, n):
        return None

    def negative(parameters: Floats) -> float:
        alpha = float(expit(parameters[0]))
        theta = math.exp(min(float(parameters[1]), 60.0)) - alpha
        ratio = theta / alpha
        classes = (u - 1) * math.log(alpha) + gammaln(ratio + u) - gammaln(ratio + 1)
        rows = gammaln(theta + n) - gammaln(theta + 1)
        inner = float(np.sum(count * (gammaln(size - alpha) - gammaln(1 - alpha))))
        return float(-(classes - rows + inner)) / n

    best = min(
        (minimize(negative, [logit(alpha), math.log(theta + alpha)], method="Nelder-Mead", options=_SEARCH)
         for alpha, theta in ((0.5, max(u / 4, 1.0)), (0.1, max(float(u), 1.0)))),
        key=lambda result: float(result.fun),
    )  # fmt: skip
    alpha = float(expit(best.x[0]))
    theta, people = math.exp(float(best.x[1])) - alpha, n / fraction
    log_unique = gammaln(theta + 1) - gammaln(theta + alpha) + gammaln(people + theta + alpha - 1)
    estimate = people * math.exp(log_unique - gammaln(people + theta))
    return float(estimate) if math.isfinite(estimate) else None


_SEARCH = {"xatol": 1e-6, "fatol": 1e-12, "maxiter": 2000}


def snb(sizes: Integers, fraction: float) -> float | None:
    """Estimate by the slide negative binomial model (Chen and Keller-McNulty 1998), fitted by moments.

    A class of the population has 1 + X people, X negative binomial with r and s; each person is sampled with
    probability p. With q = 1 - s and m(z) = (1 - p + p z) * (s / (1 - q (1 - p + p z)))^r, the generating function of
    the size in the sample, r, s and the number K of classes solve

        K (1 + r q / s) = N,    K (1 - m(0)) = u,    K m'(0) = f_1,    estimate = K s^r.

    None if no r and s solve them.
    """
    _check(sizes, fraction)
    from scipy.optimize import least_squares
    from scipy.special import expit

    n, u, f1 = float(np.sum(sizes)), float(len(sizes)), float(np.sum(sizes == 1))
    if not f1:
        return 0.0
    if fraction == 1:
        return f1
    people, p = n / fraction, fraction

    def expected(parameters: Floats) -> tuple[float, float, float, float]:
        r, s = math.exp(float(np.clip(parameters[0], -30, 30))), float(np.clip(expit(parameters[1]), 1e-12, 1 - 1e-12))
        q, missed = 1 - s, 1 - p
        number = people / (1 + r * q / s)
        power = math.exp(r * (math.log(s) - math.log1p(-q * missed)))
        single = p * power * (1 + missed * r * q / (1 - q * missed))
        return number, number * (1 - missed * power), number * single, number * math.exp(r * math.log(s))

    def residuals(parameters: Floats) -> list[float]:
        _, classes, single, _ = expected(parameters)
        return [math.log(max(classes, 1e-300) / u), math.log(max(single, 1e-300) / f1)]

    starts = [(math.log(r), start) for r in (0.01, 0.1, 1.0) for start in (-7.0, -4.0, -1.0)]
    best = min((least_squares(residuals, start) for start in starts), key=lambda result: float(result.cost))
    return expected(best.x)[3] if best.cost < 1e-8 else None
