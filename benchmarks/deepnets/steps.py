"""Milliseconds of one training step of four networks: private, and the same without privacy.

A step takes a lot of rows that are in memory: gradients, clipping, noise, optimiser. The networks are those of
peers/ask_opacus.py and peers/ask_jax_privacy.py.
"""

import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cloister import epsilon
from cloister.learn.deep.clipping import PrivateGradient
from cloister.learn.deep.dense import DenseGradient, encoded, start_layers
from cloister.learn.deep.dpsgd import lot_sum, stepped
from cloister.learn.deep.rows import ArrayLots
from cloister.learn.deep.training import plan_descent
from cloister.privacy.accountant.planned import NoiseSteps
from cloister.privacy.noise import SYSTEM

LOT, ROUNDS = 256, 7
EACH = 8  # steps of a round: noise of short vectors is drawn for several steps at once
DENSE = {"linear": [784, 10], "one hidden layer of 128": [784, 128, 10], "linear on scattering": [3969, 10]}
LOTS = {"linear": (256, 4096), "one hidden layer of 128": (256, 4096), "linear on scattering": (256, 4096)}
CONV = "convolutional"


def milliseconds(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Median over several rounds of a step's mean, after two steps that are not counted."""
    call(), call()
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        for _ in range(EACH):
            call()
        times.append((time.perf_counter() - start) / EACH)
    return 1000 * statistics.median(times)


def dense_loss(params: Any, x: Any, y: Any) -> Any:
    for place, layer in enumerate(params):
        x = x @ layer[:-1] + layer[-1]
        x = jnp.tanh(x) if place < len(params) - 1 else x
    return jax.nn.logsumexp(x) - x[y]


def conv_params() -> dict[str, Any]:
    """Weights of the small network of Papernot et al. 2021: 26,010 numbers."""
    key = jax.random.key(0)
    shapes = {"c1": (16, 1, 8, 8), "c2": (32, 16, 4, 4), "d1": (512, 32), "d2": (32, 10)}
    params = {
        name: jax.random.normal(jax.random.fold_in(key, i), shape) * 0.05
        for i, (name, shape) in enumerate(shapes.items())
    }
    return params | {f"{name}b": jnp.zeros(shape[0 if name[0] == "c" else 1]) for name, shape in shapes.items()}


def conv_loss(params: Any, x: Any, y: Any) -> Any:
    def layer(values: Any, name: str, padding: Any) -> Any:
        out = jax.lax.conv_general_dilated(values, params[name], (2, 2), padding)
        out = jnp.tanh(out + params[name + "b"][None, :, None, None])
        # Largest of two neighbours, twice: XLA differentiates this five times faster than `reduce_window`.
        out = jnp.maximum(out[..., :-1, :], out[..., 1:, :])
        return jnp.maximum(out[..., :-1], out[..., 1:])

    values = layer(x.reshape(1, 1, 28, 28), "c1", [(3, 3), (3, 3)])
    values = layer(values, "c2", [(0, 0), (0, 0)]).reshape(-1)
    values = jnp.tanh(values @ params["d1"] + params["d1b"]) @ params["d2"] + params["d2b"]
    return jax.nn.logsumexp(values) - values[y]


def plain(loss: Any, params: Any, rows: Any) -> float:
    """The step without privacy, compiled as a whole."""
    optimizer = optax.sgd(0.1, momentum=0.9)

    @jax.jit
    def step(params: Any, state: Any, x: Any, y: Any) -> Any:
        slope = jax.grad(lambda p: jnp.mean(jax.vmap(loss, (None, 0, 0))(p, x, y)))(params)
        changes, state = optimizer.update(slope, state, params)
        return optax.apply_updates(params, changes), state

    held = [params, optimizer.init(params)]

    def once() -> None:
        held[:] = jax.block_until_ready(step(*held, *rows))

    return milliseconds(once)


def private(gradient: Any, params: Any, rows: Any) -> tuple[float, float]:
    """The private step, and its noise alone."""
    source = ArrayLots(tuple(rows))
    descent, divisor = plan_descent(
        gradient, params, source, spend=epsilon(3, delta="1e-5"), rate="1/100", lot=len(rows[0]), steps=1000,
        optimizer=optax.sgd(0.1, momentum=0.9),
    )  # fmt: skip
    noise = NoiseSteps(descent.release.steps, SYSTEM)
    held = [descent.start(params, divisor)]
    key = jax.random.key(0)

    def once() -> None:
        held[0] = stepped(descent, held[0], noise.release(lot_sum(descent.gradient, held[0], rows, key)))
        jax.block_until_ready(held[0].params)

    zeros = np.zeros(gradient.coordinates(params), dtype=np.int64)
    return milliseconds(once), milliseconds(lambda: noise.release(zeros))


def lots(width: int, size: int) -> tuple[Any, Any]:
    grid = np.modf(np.arange(size * width) * 0.6180339887498949)[0].reshape(size, width)
    return grid.astype(np.float32), (np.arange(size) % 10).astype(np.int32)


def measured() -> list[tuple[str, int, float, float, float, float]]:
    """Return network, lot, and milliseconds: plain, private, noise alone, private by one gradient for each row."""
    found = []
    for name, widths in DENSE.items():
        for size in LOTS[name]:
            rows = lots(widths[0], size)
            start = start_layers(widths)
            reach = float(np.sqrt(widths[0]))
            exact = private(DenseGradient(), start, (encoded(rows[0], reach), rows[1]))
            general = private(PrivateGradient(dense_loss), start, rows)[0] if size == LOT else float("nan")
            found.append((name, size, plain(dense_loss, start, rows), *exact, general))
    rows = lots(784, LOT)
    found.append(
        (
            CONV,
            LOT,
            plain(conv_loss, conv_params(), rows),
            *private(PrivateGradient(conv_loss), conv_params(), rows),
            float("nan"),
        )
    )
    return found


if __name__ == "__main__":
    for line in measured():
        print(line)
