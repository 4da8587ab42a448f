"""Base class of network estimators: settings from public facts, one planned release, the released layers.

    public facts ──► settings ──► noise for the spend ──► charge ──► encode rows ──► lots (dpsgd.py) ──► layers

Settings, unless given, follow published ones for private linear models on scattering features (Tramèr & Boneh 2021):
large lots, momentum, and a clipping norm below most gradients, so that the step size alone sets the pace.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np
import optax
from numpy.typing import NDArray

from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.inputs import (
    complete,
    keep_features,
    read_answers,
)
from cloister.learn.base.row_source import ArrayRows, FetchedTable, keep_input, read_input
from cloister.learn.deep.clipping import PrivateGradient
from cloister.learn.deep.dense import DenseGradient, forward, start_layers
from cloister.learn.deep.dpsgd import descend
from cloister.learn.deep.network_rows import (
    EncodedLots,
    EncodedTableLots,
    Kind,
    NetworkFrame,
    read_image_shape,
    unit_loss,
)
from cloister.learn.deep.progress import Reporter
from cloister.learn.deep.rows import Lots
from cloister.learn.deep.table_lots import TableLots
from cloister.learn.deep.training import plan_descent
from cloister.privacy.errors import BadInput, BadLoss, BadNumber
from cloister.privacy.filter import BudgetShare, PrivacyFilter, budget_share
from cloister.privacy.loss import Loss

__all__ = ["NetworkEstimator", "NetworkInput"]

Floats = NDArray[np.float64]

_WIDEST, _DEEPEST = 4096, 8
_MOST_EPSILON = 50  # beyond, sampling saves nothing, and the largest rho that implies the loss is spent


@dataclass(frozen=True, slots=True)
class _Settings:
    """Settings of a run, from public facts.

    Attributes:
        rate: the probability with which a row enters a lot.
        epochs, step, clip: passes over the rows, the step size, and the norm of an example's gradient.
        hidden: the sizes of hidden layers.
    """

    rate: Fraction
    epochs: int
    step: float
    clip: float
    hidden: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NetworkInput:
    """Public facts of the input of a fit, and how its rows are read.

    Attributes:
        lots: the rows.
        frame: how a row becomes inputs.
        classes: the public labels; None for a number.
        ends: the bounds of the target, if it is a number.
        source: the columns of a table; None for an array of images.
    """

    lots: Lots
    frame: NetworkFrame
    classes: NDArray[Any] | None
    ends: tuple[float, float]
    source: ArrayRows | FetchedTable | None

    @property
    def kind(self) -> Kind:
        """Return the kind of target."""
        return "number" if self.classes is None else "classes"

    @property
    def outputs(self) -> int:
        """Return the number of outputs of the network."""
        return 1 if self.classes is None else len(self.classes)


class NetworkEstimator(PrivateEstimator):
    """Estimator that is a dense network, trained by DP-SGD in one planned release."""

    bounds: Any
    hidden_layer_sizes: Any
    image_shape: Any
    image_features: str
    batch_size: int | None
    max_iter: int | None
    learning_rate_init: float | None
    clip: float | None
    rows: int | None
    fill: float | None
    progress: bool
    coefs_: list[NDArray[np.float32]]
    intercepts_: list[NDArray[np.float32]]
    n_features_in_: int
    n_iter_: int

    def _fit(self, given: NetworkInput) -> None:
        """Charge the spend, train, and keep the layers."""
        spend = _read_spend(self.spend)
        if self._meter is not None:  # a part of a selection or cross-validation, whose fits all count as a rho
            spend = budget_share(spend).loss
        facts = self._settings(spend, given)
        start = start_layers([given.frame.width, *facts.hidden, given.outputs])
        gradient: Any = (
            PrivateGradient(unit_loss(given.kind, given.frame.box, given.ends), facts.clip, grouped=True)
            if given.lots.grouped
            else DenseGradient(given.kind, facts.clip)
        )
        lot = None if self.rows is None else max(1, round(facts.rate * self.rows))
        descent, divisor = plan_descent(
            gradient, start, given.lots, spend=spend, rate=facts.rate, lot=lot, epochs=facts.epochs,
            optimizer=_optimizer(facts.step), averaging=0.9,
        )  # fmt: skip

        def steps(meter: PrivacyFilter, _budget: BudgetShare) -> Any:
            ended: list[Any] = []

            def run(noise: Any) -> Any:
                with Reporter(self.progress, descent.steps, lambda _step: str(spend)) as reporter:
                    ended.append(descend(descent, given.lots, descent.start(start, divisor), noise, reporter).average)
                return np.concatenate([np.asarray(layer).ravel() for layer in ended[0]])

            meter.release(lambda: run, descent.release)
            return [np.asarray(layer) for layer in ended[0]]

        data = given.source.data if isinstance(given.source, FetchedTable) else None
        asked = "" if data is None or not isinstance(given.source, FetchedTable) else given.source.asked
        layers = self._train(steps, data, asked, planned=spend)
        self._keep(layers, given, descent.steps)

    def _keep(self, layers: Sequence[NDArray[np.float32]], given: NetworkInput, steps: int) -> None:
        self.coefs_, self.intercepts_ = [layer[:-1] for layer in layers], [layer[-1] for layer in layers]
        self.n_layers_, self.n_iter_, self.n_outputs_ = len(layers) + 1, steps, given.outputs
        self._box, self._shape = given.frame.box, given.frame.shape
        if given.source is None:
            keep_features(self, len(given.frame.box.low), None)
        else:
            keep_input(self, given.source)

    def _input(self, X: Any, y: Any, kind: Kind, ends: tuple[float, float], **columns: Any) -> NetworkInput:  # noqa: N803
        """Check the public facts of the input. No row is looked at."""
        if not isinstance(self.image_features, str) or self.image_features not in ("scattering", "pixels"):
            raise BadInput("image_features is 'scattering' or 'pixels'.")
        shape = read_image_shape(X, self.image_shape)
        if isinstance(X, np.ndarray) and X.ndim == 3:
            X = X.reshape(len(X), -1)  # noqa: N806
        source = read_input(X, y, kind=kind, classes=getattr(self, "classes", None), fill=self.fill, **columns)
        box = source.box(self.bounds)
        if shape is not None and shape[0] * shape[1] != len(box.low):
            raise BadInput(f"images of {shape[0]} by {shape[1]} pixels have {shape[0] * shape[1]} features.")
        frame = NetworkFrame(box, shape, shape is not None and self.image_features == "scattering")
        if isinstance(source, FetchedTable):
            return self._of_dataset(source, frame)
        target = np.dtype(np.float32 if kind == "number" else np.int32)
        array = X if shape is not None and isinstance(X, np.ndarray) and X.dtype.kind in "biuf" else None

        def look() -> tuple[NDArray[Any], NDArray[Any]]:
            targets = source.labels()
            if array is not None:  # images: a pixel that is no number is black
                rows = array
            else:
                rows, targets = complete(source.numbers(), targets)
            real = np.isfinite(targets) if kind == "number" else targets >= 0
            rows, targets = (rows, targets) if real.all() else (rows[real], targets[real])
            return rows, _scaled(targets, ends) if kind == "number" else targets

        return NetworkInput(EncodedLots(look, frame, target), frame, source.classes, ends, source)

    def _of_dataset(self, source: FetchedTable, frame: NetworkFrame) -> NetworkInput:
        from cloister.learn.base.private_data import ends_of

        table = TableLots(source)
        if source.relation.max_rows is None and source.relation.copies > 1:
            raise BadInput("a row of this table can occur several times. Name a unit in the schema.")
        ends = (0.0, 1.0)
        if source.classes is None and source.target is not None:
            ends = ends_of(source.relation.columns[source.target])
        if table.grouped:
            if frame.scattering:
                raise BadInput("images of units with several rows are not transformed: image_features='pixels'.")
            return NetworkInput(table, frame, source.classes, ends, source)
        scale: Callable[[NDArray[Any]], NDArray[Any]] = (
            (lambda targets: _scaled(targets, ends)) if source.classes is None else (lambda targets: targets)
        )
        return NetworkInput(EncodedTableLots(table, frame, scale), frame, source.classes, ends, source)

    def _settings(self, spend: Loss, given: NetworkInput) -> _Settings:
        """Return the settings: those given, and others from the spend, the declared rows and the kind of input."""
        sampled = spend.measure == "epsilon"
        rate = Fraction(1, 8) if sampled else Fraction(1)
        if self.batch_size is not None:
            if self.rows is None:
                raise BadInput(
                    "batch_size is the expected lot: give rows=, about how many there are, if that is public."
                )
            size = _whole(self.batch_size, "batch_size", 2**31)
            rate = Fraction(min(size, self.rows), self.rows)
        epochs = self.max_iter or (40 if sampled else 80)
        scattering, hidden = given.frame.scattering, self.hidden_layer_sizes
        if hidden is None:
            hidden = () if scattering or given.frame.shape is None else (32,)
        hidden = _sizes(hidden)
        small = spend.measure == "rho" or float(spend.amount) < 2
        usual = (0.1, 4.0 if small else 8.0) if scattering else (0.5, 1.5) if hidden else (2.0, 1.0)
        if given.kind == "number":  # a squared error has no bound on how far noise moves it: shorter steps
            layered, linear = (0.3 if small else 0.7), (0.05 if sampled else 0.1)
            usual = (usual[0], 0.2 if scattering else layered if hidden else linear)
        clip = usual[0] if self.clip is None else self.clip
        step = usual[1] if self.learning_rate_init is None else self.learning_rate_init
        if isinstance(step, bool) or not isinstance(step, int | float) or not 1e-12 < step < 1e12:
            raise BadNumber("learning_rate_init is a number above 0.")
        if isinstance(clip, bool) or not isinstance(clip, int | float) or not 1e-12 < clip < 1e12:
            raise BadNumber("clip is a number above 0: the norm of one example's gradient.")
        return _Settings(rate, epochs, float(step), float(clip), hidden)

    def _outputs(self, rows: Any) -> Floats:
        """Return the outputs of the network for rows to predict."""
        if isinstance(rows, np.ndarray) and rows.ndim == 3:
            rows = rows.reshape(len(rows), -1)
        table = read_answers(self, rows, self.fill)
        frame = NetworkFrame(self._box, self._shape, self._shape is not None and self.image_features == "scattering")
        layers = [np.vstack([*pair]) for pair in zip(self.coefs_, self.intercepts_, strict=True)]
        numbers = frame.box.settle(table.numbers())
        found = [forward(layers, frame.inputs(numbers[at : at + 1024])) for at in range(0, len(numbers), 1024)]
        return np.concatenate(found) if found else np.zeros((0, self.n_outputs_))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags


@lru_cache(maxsize=64)
def _optimizer(step: float) -> Any:
    """Return momentum descent; the same object each time, so that its update is compiled once."""
    return optax.sgd(step, momentum=0.9)


def _read_spend(spend: Loss | None) -> Loss:
    if not isinstance(spend, Loss) or not (spend.measure == "rho" or spend.delta):
        raise BadLoss("networks need Gaussian noise: spend=cl.epsilon(1, delta='1e-6') or spend=cl.rho('0.02').")
    if spend.measure == "rho" or spend.amount > _MOST_EPSILON:
        return budget_share(spend).loss
    return spend


def _scaled(targets: NDArray[Any], ends: tuple[float, float]) -> NDArray[Any]:
    """Return numbers within their bounds as numbers from -1 to 1."""
    return np.asarray((np.clip(targets, *ends) - ends[0]) / (ends[1] - ends[0]) * 2 - 1)


def _whole(value: Any, name: str, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= most:
        raise BadNumber(f"{name} is a whole number from 1 to {most}.")
    return int(value)


def _sizes(hidden: Any) -> tuple[int, ...]:
    listed = [hidden] if isinstance(hidden, int) else hidden
    if not isinstance(listed, list | tuple) or len(listed) > _DEEPEST:
        raise BadInput(f"hidden_layer_sizes is a tuple of at most {_DEEPEST} sizes: hidden_layer_sizes=(64,).")
    return tuple(_whole(size, "a size of hidden_layer_sizes", _WIDEST) for size in listed)
