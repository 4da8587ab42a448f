"""Attacks on gradients and federated updates: the records behind what a client sends.

    closed_form.py  the record behind the gradient of a dense layer, exactly
    inversion.py    images, by a search for the gradient that was seen
    tabular.py      rows of a table, with the attacker's own confidence in each cell
    fedavg.py       images behind several local epochs
      update.py     what an attacker sees of a gradient
      defences.py   clipping, noise, secure sums, larger lots; an attack with and without each
      matching.py   distances between updates, the search from many starts, labels
      network.py    a dense network to try attacks on

Privacy: none. An attack reads a client's update; its findings are for the owner, and recovered records are records.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.attack.updates.closed_form import LeakedRecord, lone_records, record_from_layer, record_leak
    from cloister.attack.updates.defences import Defence, compare_defences
    from cloister.attack.updates.fedavg import LocalTraining, TrainingUpdate, invert_training, training_leak
    from cloister.attack.updates.inversion import InvertedImages, image_leak, invert, psnr
    from cloister.attack.updates.matching import label_counts
    from cloister.attack.updates.network import Network, dense_network
    from cloister.attack.updates.tabular import (
        Category,
        InvertedTable,
        Number,
        decode,
        encode,
        invert_table,
        table_leak,
    )
    from cloister.attack.updates.update import GradientStep, Update

__all__ = [
    "Category",
    "Defence",
    "GradientStep",
    "InvertedImages",
    "InvertedTable",
    "LeakedRecord",
    "LocalTraining",
    "Network",
    "Number",
    "TrainingUpdate",
    "Update",
    "compare_defences",
    "decode",
    "dense_network",
    "encode",
    "image_leak",
    "invert",
    "invert_table",
    "invert_training",
    "label_counts",
    "lone_records",
    "psnr",
    "record_from_layer",
    "record_leak",
    "table_leak",
    "training_leak",
]

_EXTRA = "attacks on updates need jax and optax. Run pip install 'cloister[jax]'."
__getattr__, __dir__ = door(__name__, extras={"jax": _EXTRA, "optax": _EXTRA})
