"""The collector's half: bytes in, refusals counted, shares with errors out. It never sees a true value.

    bytes ──► decode ──► valid ──► tally ──► Counts (+ Counts) ──► frequencies ──► Estimate ──► projected

All of it is post-processing of reports and costs no privacy, so floats are fine here. What arrives may be anything:
it is refused and counted, never raised.
"""

from cloister.local.collector.counts import Counts, aggregate, frequencies, likelihood, tally, valid
from cloister.local.collector.estimate import Estimate, estimate
from cloister.local.collector.wire import decode

__all__ = [
    "Counts",
    "Estimate",
    "aggregate",
    "decode",
    "estimate",
    "frequencies",
    "likelihood",
    "tally",
    "valid",
]
