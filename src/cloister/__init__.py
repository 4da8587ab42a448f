"""Cloister: learn from data that nobody is allowed to see.

This is the one door. It offers few names, and the rooms behind it:

    open                           tables for private questions: `cl.open(source, schema=…, budget=…)` -> Dataset
    count, total, mean, …          what to ask, when a question is built in Python
    epsilon, rho, Loss, Relation   privacy paid, as a value
    Unit                           whom we protect
    Ledger, SigningKey             the durable account of every spend, and the key that signs it
    DiscreteLaplace, Laplace, DiscreteGaussian, Gaussian     exact noise for integers and reals
    measure                        one private answer: charge, look, add exact noise
    Release, Receipt               what a private call returns, and its signed proof
    privacy, attack, data, query, learn, local, synth, anonymize     the rooms: the trusted core, audits and attacks,
                                   tables, questions, models, noise on the device, synthetic and anonymised tables

Nothing is loaded before it is asked for, so `import cloister` costs a few milliseconds.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door
from cloister.version import __version__

if TYPE_CHECKING:
    from cloister import anonymize, attack, client, data, hub, learn, lessons, local, privacy, query, synth, vault
    from cloister.data.schema import Schema
    from cloister.dataset import Dataset, open  # noqa: A004
    from cloister.privacy import errors
    from cloister.privacy.ledger import Ledger
    from cloister.privacy.loss import Loss, Relation, Unit, epsilon, rho
    from cloister.privacy.measure import measure
    from cloister.privacy.mechanisms import DiscreteGaussian, DiscreteLaplace, Gaussian, Laplace
    from cloister.privacy.receipt import Receipt
    from cloister.privacy.release import Release
    from cloister.privacy.signing import SigningKey
    from cloister.query.builder import (
        count,
        count_people,
        maximum,
        mean,
        median,
        minimum,
        mode,
        quantile,
        std,
        total,
        var,
    )

__all__ = [
    "open",
    "Dataset",
    "Schema",
    "count",
    "count_people",
    "total",
    "mean",
    "var",
    "std",
    "median",
    "quantile",
    "minimum",
    "maximum",
    "mode",
    "epsilon",
    "rho",
    "Loss",
    "Relation",
    "Unit",
    "Ledger",
    "SigningKey",
    "DiscreteLaplace",
    "Laplace",
    "DiscreteGaussian",
    "Gaussian",
    "measure",
    "Release",
    "Receipt",
    "privacy",
    "attack",
    "data",
    "query",
    "learn",
    "local",
    "synth",
    "anonymize",
    "client",
    "hub",
    "lessons",
    "vault",
    "errors",
    "__version__",
]

__getattr__, __dir__ = door(__name__)
