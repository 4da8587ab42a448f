"""Several questions, at the collector: estimates for all people, from those who were asked."""

from dataclasses import replace
from typing import Any

import numpy as np

from cloister.local.base.number import NumberMechanism
from cloister.local.collector.mean import mean_interval
from cloister.privacy.number import Number

__all__ = ["widened"]


def widened(estimate: Any, share: float, confidence: Number) -> Any:
    """With the error of having asked only a share of the people: n drawn from n/share, none twice."""
    if share >= 1:
        return estimate
    if isinstance(estimate.mechanism, NumberMechanism):
        noise, whole = np.square(estimate.standard_error), np.square(estimate.population_error)
        error = np.sqrt(noise + np.maximum(whole - noise, 0) * (1 - share))
        return replace(estimate, standard_error=error, interval=mean_interval(estimate.mean, error, confidence))
    spread = estimate.spread.asking(share)
    shares = estimate.frequencies
    return replace(
        estimate, spread=spread, standard_error=spread.error(shares), interval=spread.interval(shares, confidence)
    )
