"""Faults of DP-SGD, each injected into the real training loop, and the loop without one."""

from dataclasses import dataclass, replace
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np
import optax

from cloister.learn.deep import dpsgd
from cloister.learn.deep.clipping import GRID, PrivateGradient
from cloister.learn.deep.dpsgd import descend
from cloister.learn.deep.progress import Reporter
from cloister.learn.deep.rows import ArrayLots
from cloister.learn.deep.training import plan_descent
from cloister.privacy.accountant.planned import NoiseSteps


def linear(params, x):
    """The gradient of a row is the row itself: a canary moves the model in its own direction."""
    return -jnp.vdot(params["w"], x)


def twice(params, x):
    """Two layers of one shape."""
    return -jnp.vdot(params["w"], x) - 0 * jnp.vdot(params["v"], x)


def network(params, x):
    """A tiny network that reproduces its row."""
    hidden = jnp.tanh(x @ params["in"])
    return jnp.sum((hidden @ params["out"] - x) ** 2)


@dataclass(frozen=True)
class Setting:
    """A training run with a claim."""

    loss: object
    params: object
    spend: object
    rate: str
    steps: int
    clip: float = 1.0
    micro: int = 16
    optimizer: object = optax.sgd(1.0)


@cache
def planned(loss, shapes, spend, rate, steps, clip, micro, width):
    params = {name: np.zeros(shape, np.float32) for name, shape in shapes}
    source = ArrayLots((np.zeros((1, width), np.float32),))
    descent, lot = plan_descent(
        PrivateGradient(loss, clip=clip, micro=micro), params, source, spend=spend, rate=rate, lot=16, steps=steps,
        optimizer=optax.sgd(1.0),
    )  # fmt: skip
    return descent, lot, params


class NotClipped(PrivateGradient):
    """No clipping."""

    def sums(self, params, rows, key=None, clip=None):
        each = jax.vmap(jax.grad(self.loss), in_axes=(None, 0))(params, rows[0])
        flat = [np.asarray(leaf, np.float64).reshape(len(rows[0]), -1).sum(axis=0) for leaf in jax.tree.leaves(each)]
        return np.trunc(np.concatenate(flat) / self.clip * GRID).astype(np.int64)


class ClippedMean(PrivateGradient):
    """Clipping after the mean: the lot's gradient is clipped, as if it were one example of many."""

    lot = 16

    def sums(self, params, rows, key=None, clip=None):
        total = NotClipped.sums(self, params, rows).astype(np.float64)
        mean = total / self.lot
        norm = np.sqrt((mean**2).sum())
        return np.trunc(mean * min(1.0, GRID / max(norm, 1.0)) * self.lot).astype(np.int64)


class BatchNorm(PrivateGradient):
    """Batch normalisation: every row is scaled by its lot before its gradient is taken."""

    def sums(self, params, rows, key=None, clip=None):
        scale = np.maximum(np.abs(rows[0]).mean(axis=0, keepdims=True), 1e-3) if len(rows[0]) else 1.0
        return super().sums(params, (rows[0] / scale,), key, clip)


class DroppedPart(PrivateGradient):
    """The last micro-lot is dropped unless it is full."""

    def sums(self, params, rows, key=None, clip=None):
        whole = len(rows[0]) // self.micro * self.micro
        return super().sums(params, tuple(part[:whole] for part in rows), key, clip)


class FixedLots(ArrayLots):
    """Lots of one size in the order of the table, each row once an epoch, accounted as Poisson."""

    def lots(self, rate, steps, source):
        size = max(1, round(self.count() * float(rate)))
        for step in range(steps):
            yield self.take(np.arange(step * size, (step + 1) * size) % self.count())


class OncePerEpoch(NoiseSteps):
    """Noise in the first step of each epoch."""

    def release(self, integers):
        if self.done % int(1 / self.steps[0][0].rate) == 0:
            return super().release(integers)
        self.done += 1
        return integers


class ReusedKey(NoiseSteps):
    """Every layer of one shape gets its noise from the same key."""

    def release(self, integers):
        half = len(integers) // 2
        noise = super().release(np.zeros_like(integers))[:half]
        return integers + np.concatenate([noise, noise])


GRADIENTS = {
    "no clipping": NotClipped,
    "clipping after the mean": ClippedMean,
    "batch norm": BatchNorm,
    "last partial lot dropped": DroppedPart,
}
NOISE = {"noise once per epoch": OncePerEpoch, "reused key": ReusedKey}


def trained(rows, setting, source, fault=None):
    """Train on rows, with a fault, and return (params, what else is released, the params after each step)."""
    shapes = tuple((name, np.shape(leaf)) for name, leaf in setting.params.items())
    descent, lot, params = planned(
        setting.loss, shapes, setting.spend, setting.rate, setting.steps, setting.clip, setting.micro, rows.shape[1]
    )
    if fault in GRADIENTS:
        facts = descent.gradient
        made = GRADIENTS[fault](facts.loss, facts.clip, facts.clipping, micro=facts.micro)
        descent = replace(descent, gradient=made)
    lots = (FixedLots if fault == "fixed lots accounted as Poisson" else ArrayLots)((rows,))
    noise = NOISE.get(fault, NoiseSteps)(descent.release.steps, source)
    state = descent.start({name: setting.params[name] for name in params}, lot)
    history, path = [], []

    def losses(found):
        return float(np.mean(jax.vmap(lambda x: setting.loss(found.params, x))(rows)))

    if fault == "lot size read from the data":
        for lot_rows in lots.lots(descent.rate, descent.steps, source):
            noisy = noise.release(dpsgd.lot_sum(descent.gradient, state, lot_rows, None))
            state = dpsgd.stepped(descent, replace(state, lot=float(max(len(lot_rows[0]), 1))), noisy)
        return state.params, 0.0, path
    if fault == "early stopping on training accuracy":
        for lot_rows in lots.lots(descent.rate, descent.steps, source):
            noisy = noise.release(dpsgd.lot_sum(descent.gradient, state, lot_rows, None))
            state = dpsgd.stepped(descent, state, noisy)
            if losses(state) < -1.0:
                break
        return state.params, float(state.step), path

    def keep(state):
        path.append(np.asarray(state.params["w"]) if "w" in state.params else None)
        if fault == "loss history released unpaid":
            history.append(losses(state))

    state = descend(descent, lots, state, noise, Reporter(False, descent.steps, str), keep)
    return state.params, max(history, default=0.0), path
