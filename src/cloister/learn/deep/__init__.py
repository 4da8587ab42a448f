"""Deep learning with privacy: any JAX loss, any optax optimiser.

    loss(params, *row)                   the loss of one row
    train(loss, params, data, spend=…)   DP-SGD with one charge and one receipt
    private_gradient(loss)               clipped gradients in integers, for loops of your own

Path of a run: rows.py (Poisson lots) → clipping.py (exact sums of clipped gradients) → dpsgd.py (noise, optimiser) →
training.py (plan, charge, receipt). Prices: privacy/accountant/planned.py.

Needs the extra `jax`. Submodules are imported on first use.
"""

from typing import TYPE_CHECKING

from cloister.lazy import door

if TYPE_CHECKING:
    from cloister.learn.deep.clipping import PrivateGradient, private_gradient
    from cloister.learn.deep.progress import Progress
    from cloister.learn.deep.training import TrainResult, train

__all__ = ["PrivateGradient", "Progress", "TrainResult", "private_gradient", "train"]

_EXTRA = "deep learning needs jax and optax. Run pip install 'cloister[jax]'."
__getattr__, __dir__ = door(__name__, extras={"jax": _EXTRA, "optax": _EXTRA})
