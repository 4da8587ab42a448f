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
    privacy, attack, data, query, learn, local, synth     the rooms: the trusted core, audits and attacks, tables,
                                   questions, models, noise on the device, synthetic tables

Nothing is loaded before it is asked for, so `import cloister` costs a few milliseconds.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from cloister.version import __version__

if TYPE_CHECKING:
    from cloister import attack, client, data, hub, learn, lessons, local, privacy, query, synth, vault
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

_BUILDER = ("count", "count_people", "total", "mean", "var", "std", "median", "quantile", "minimum", "maximum", "mode")

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
    "client",
    "hub",
    "lessons",
    "vault",
    "errors",
    "__version__",
]

_ROOMS = {"privacy", "attack", "data", "query", "learn", "local", "synth", "client", "hub", "lessons", "vault"}
_HOMES = {
    "open": "dataset",
    "Dataset": "dataset",
    "Schema": "data.schema",
    **dict.fromkeys(_BUILDER, "query.builder"),
    "epsilon": "privacy.loss",
    "rho": "privacy.loss",
    "Loss": "privacy.loss",
    "Relation": "privacy.loss",
    "Unit": "privacy.loss",
    "Ledger": "privacy.ledger",
    "SigningKey": "privacy.signing",
    "DiscreteLaplace": "privacy.mechanisms",
    "Laplace": "privacy.mechanisms",
    "DiscreteGaussian": "privacy.mechanisms",
    "Gaussian": "privacy.mechanisms",
    "measure": "privacy.measure",
    "Release": "privacy.release",
    "Receipt": "privacy.receipt",
    "errors": "privacy",
}


def __getattr__(name: str) -> object:
    """Open a room, or fetch a name from its home, the first time it is asked for."""
    if name in _ROOMS:
        return import_module(f"cloister.{name}")
    if name in _HOMES:
        value: object = getattr(import_module(f"cloister.{_HOMES[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"cloister has no {name!r}. It offers: {', '.join(__all__)}.")


def __dir__() -> list[str]:
    return sorted(__all__)
