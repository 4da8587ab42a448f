"""Broken mechanisms, queries, models and protocols, each beside an honest twin with the same claim.

    twins.py       a pair of twins, and the run of an audit over all of them
    mechanisms.py  noise, selection, sparse vector, floating point
    queries.py     bounds, caps, groups, averages, histograms
    training.py    clipping, sampling, accounting, tuning; models that keep rows
    protocols.py   local reports, the shuffle model, sums under masks, noise in shares

Every fault is one that people have made. An audit that cannot tell a broken mechanism from its twin is worth nothing;
one that accuses the twin is worth less.

    from cloister.attack import zoo
    for result in zoo.run():
        print(result)
"""

from cloister.attack.zoo.mechanisms import MECHANISMS
from cloister.attack.zoo.protocols import PROTOCOLS
from cloister.attack.zoo.queries import QUERIES
from cloister.attack.zoo.training import TRAINING
from cloister.attack.zoo.twins import Twins, ZooResult, run_twins

__all__ = ["ZOO", "Twins", "ZooResult", "run"]

ZOO: tuple[Twins, ...] = (*MECHANISMS, *QUERIES, *TRAINING, *PROTOCOLS)


run = run_twins(ZOO)
