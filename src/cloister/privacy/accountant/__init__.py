"""Accountants: the total privacy loss of many releases.

    step           a Loss, a mechanism, or a line of a fixed plan (DiscreteGaussianStep, …)
      │ compose
      ▼
    accountant     immutable; one kind of arithmetic
      │ epsilon(delta), delta(epsilon), loss(delta)
      ▼
    one Loss       rounded up, ready for a ledger

    PureAccountant           epsilons add                         adaptive, exact
    ZcdpAccountant           rho and delta add                    adaptive, exact
    RenyiAccountant          divergences add, order by order      steps fixed beforehand; samples (DP-SGD)
    DistributionAccountant   privacy losses convolve (PLD)        steps fixed beforehand; tightest; extra `accounting`

A ledger uses the two adaptive ones, which stay valid when each query is chosen after seeing the last answer
(Whitehouse, Ramdas, Rogers & Wu 2023). The other two price *one* release whose steps and their number are fixed before
the first row is read; their result enters a ledger as one (epsilon, delta).

The theorems are functions from losses to a loss: `sequential`, `parallel`, `advanced`, `post_processed`, `amplified`.
"""

from cloister.privacy.accountant.additive import PureAccountant, ZcdpAccountant
from cloister.privacy.accountant.amplification import amplified
from cloister.privacy.accountant.composition import advanced, parallel, post_processed, sequential
from cloister.privacy.accountant.contract import Accountant, Step
from cloister.privacy.accountant.events import DiscreteGaussianStep, GaussianStep, LaplaceStep
from cloister.privacy.accountant.pld import DistributionAccountant
from cloister.privacy.accountant.renyi import RenyiAccountant

__all__ = [
    "Accountant",
    "DiscreteGaussianStep",
    "DistributionAccountant",
    "GaussianStep",
    "LaplaceStep",
    "PureAccountant",
    "RenyiAccountant",
    "Step",
    "ZcdpAccountant",
    "advanced",
    "amplified",
    "parallel",
    "post_processed",
    "sequential",
]
