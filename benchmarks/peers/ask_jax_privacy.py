"""jax-privacy, in its own environment: milliseconds of one private training step of three networks, printed as JSON.

    python ask_jax_privacy.py LOT ROUNDS

The networks are those of deepnets/steps.py. Gradients of single rows are clipped by `clipped_grad`; noise is normal
floats.
"""

import json
import statistics
import sys
import time

import jax
import jax.numpy as jnp
import jax_privacy
import optax


def dense(params, x, y):
    for place, layer in enumerate(params):
        x = x @ layer[:-1] + layer[-1]
        x = jnp.tanh(x) if place < len(params) - 1 else x
    return jax.nn.logsumexp(x) - x[y]


def convolutional(params, x, y):
    def layer(values, name, padding):
        out = jax.lax.conv_general_dilated(values, params[name], (2, 2), padding)
        out = jnp.tanh(out + params[name + "b"][None, :, None, None])
        return jax.lax.reduce_window(out, -jnp.inf, jax.lax.max, (1, 1, 2, 2), (1, 1, 1, 1), "VALID")

    values = layer(x.reshape(1, 1, 28, 28), "c1", [(3, 3), (3, 3)])
    values = layer(values, "c2", [(0, 0), (0, 0)]).reshape(-1)
    values = jnp.tanh(values @ params["d1"] + params["d1b"]) @ params["d2"] + params["d2b"]
    return jax.nn.logsumexp(values) - values[y]


def networks():
    shapes = {"c1": (16, 1, 8, 8), "c2": (32, 16, 4, 4), "d1": (512, 32), "d2": (32, 10)}
    conv = {name: 0.05 * jax.random.normal(jax.random.key(1), shape) for name, shape in shapes.items()}
    conv |= {f"{name}b": jnp.zeros(shape[0 if name[0] == "c" else 1]) for name, shape in shapes.items()}
    return {
        "linear": (dense, [jnp.zeros((785, 10))]),
        "one hidden layer of 128": (
            dense,
            [0.1 * jax.random.normal(jax.random.key(0), (785, 128)), jnp.zeros((129, 10))],
        ),
        "convolutional": (convolutional, conv),
    }


def main(lot, rounds):
    found = {}
    x, y = jax.random.uniform(jax.random.key(2), (lot, 784)), jnp.arange(lot) % 10
    for name, (loss, params) in networks().items():
        optimizer = optax.sgd(0.1, momentum=0.9)
        gradient = jax_privacy.clipped_grad(loss, l2_clip_norm=1.0, batch_argnums=(1, 2), keep_batch_dim=False)

        @jax.jit
        def step(params, state, key, gradient=gradient, optimizer=optimizer):
            total = gradient(params, x, y)
            leaves, form = jax.tree.flatten(total)
            keys = jax.random.split(key, len(leaves))
            noisy = [leaf + jax.random.normal(own, leaf.shape) for leaf, own in zip(leaves, keys, strict=True)]
            changes, state = optimizer.update(
                jax.tree.map(lambda leaf: leaf / lot, jax.tree.unflatten(form, noisy)), state
            )
            return optax.apply_updates(params, changes), state

        held, times = (params, optimizer.init(params)), []
        for turn in range(rounds + 2):
            start = time.perf_counter()
            held = jax.block_until_ready(step(*held, jax.random.key(turn)))
            times.append(time.perf_counter() - start)
        found[name] = 1000 * statistics.median(times[2:])
    return found


if __name__ == "__main__":
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
