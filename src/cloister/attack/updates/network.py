"""Dense network of known shape, as a target for attacks on updates."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from cloister.privacy.errors import BadInput

__all__ = ["Network", "dense_network"]

_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {"tanh": jnp.tanh, "relu": jax.nn.relu, "sigmoid": jax.nn.sigmoid}


@dataclass(frozen=True, slots=True, eq=False)
class Network:
    """A network, its loss for one record, and its probabilities for many.

    Attributes:
        params: one matrix for each layer, (inputs + 1, outputs); the last row is the bias, as in `learn.deep`.
        loss: `loss(params, row, label)`, the cross-entropy of one record.
        probabilities: `probabilities(params, rows)`, one row of probabilities for each record.
    """

    params: list[NDArray[np.float32]]
    loss: Callable[..., Any]
    probabilities: Callable[..., Any]


def dense_network(sizes: Sequence[int], *, activation: str = "tanh", seed: int = 0) -> Network:
    """Make a network with random weights.

    Args:
        sizes: the number of inputs, of each hidden layer, and of classes.
        activation: "tanh", "relu" or "sigmoid", of hidden layers.
        seed: of the weights, which are normal with variance 1/inputs.

    >>> [layer.shape for layer in dense_network([4, 8, 3]).params]
    [(5, 8), (9, 3)]
    """
    if len(sizes) < 2 or not all(isinstance(size, int) and size > 0 for size in sizes):
        raise BadInput("sizes are the inputs, the hidden layers and the classes: [784, 128, 10].")
    if activation not in _ACTIVATIONS:
        raise BadInput(f"activation is one of {', '.join(_ACTIVATIONS)}, got {activation!r:.40}.")
    draw = np.random.default_rng(seed)
    params = [
        np.vstack((draw.normal(size=(inputs, outputs)) / np.sqrt(inputs), np.zeros((1, outputs)))).astype(np.float32)
        for inputs, outputs in pairwise(sizes)
    ]
    return Network(params, *_functions(activation))


@lru_cache(maxsize=8)
def _functions(activation: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return loss and probabilities; the same objects each time, so that they are compiled once."""
    bend = _ACTIVATIONS[activation]

    def outputs(params: Any, rows: Any) -> Any:
        for layer in params[:-1]:
            rows = bend(rows @ layer[:-1] + layer[-1])
        return rows @ params[-1][:-1] + params[-1][-1]

    def loss(params: Any, row: Any, label: Any) -> Any:
        return -jax.nn.log_softmax(outputs(params, row.ravel()))[label]

    def probabilities(params: Any, rows: Any) -> Any:
        return jax.nn.softmax(outputs(params, jnp.asarray(rows).reshape(len(rows), -1)))

    return loss, probabilities
