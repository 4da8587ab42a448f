"""Membership from a model's parameters: norms of gradients, and losses under parameters that were disturbed.

    found = attack.membership(network, members=(X, y), others=(X2, y2), access="white box", method="gradient")
    found = attack.membership((loss, params), members=…, others=…, access="white box", method="disturbance")

gradient      training ends where the gradients of its rows are small: a record with a small one was probably there
              (Nasr, Shokri & Houmansadr 2019, the strongest single feature of their attack)
disturbance   a record that was learned keeps a low loss when noise is added to the parameters; for others it varies

A network is a fitted `MLPClassifier` or linear classifier of scikit-learn, or a pair of a loss and parameters in JAX:
`loss(params, row, label)` is the loss of one record, as in `learn.deep`, and labels are whole numbers.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from cloister.attack.finding import Finding
from cloister.attack.intervals import Floats
from cloister.attack.models.membership_finding import blind_guess, claimed, membership_of_scores
from cloister.attack.models.rows import check_whole, encode, generator, join, joined_labels, read_pair
from cloister.privacy.errors import BadInput
from cloister.privacy.loss import Loss

__all__ = ["WHITE_BOX", "OpenModel", "disturbance_scores", "gradient_scores", "membership_of_parameters", "open_model"]

WHITE_BOX = {"gradient": "gradient lengths", "disturbance": "disturbed parameters"}
_BLOCK = 256  # records whose gradients are in memory at a time
_SIZE = 0.1  # of the disturbance of an array, relative to the root mean square of its numbers
_LEAST = 1e-30
_ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "identity": lambda values: values, "logistic": jax.nn.sigmoid, "tanh": jnp.tanh, "relu": jax.nn.relu,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class OpenModel:
    """A model whose parameters the attacker has.

    Attributes:
        name: the model's name in findings.
        loss: `loss(params, row, label)` returns the loss of one record.
        params: a tree of arrays.
        classes: the classes that labels are numbers of; None if labels are numbers already.
        model: the object that was opened, which may state a claim.
    """

    name: str
    loss: Callable[..., Any]
    params: Any = field(repr=False)
    classes: NDArray[Any] | None = None
    model: Any = field(default=None, repr=False)

    def codes(self, labels: NDArray[Any]) -> NDArray[np.int32]:
        """Return labels as whole numbers."""
        if self.classes is None:
            if labels.dtype.kind not in "iub":
                raise BadInput("labels of a loss and parameters are whole numbers, as the loss takes them.")
            return labels.astype(np.int32)
        places = {value: place for place, value in enumerate(self.classes.tolist())}
        try:
            return np.array([places[value] for value in labels.tolist()], dtype=np.int32)
        except KeyError:
            raise BadInput(f"a label is none of the classes of {self.name}.") from None


def open_model(model: Any) -> OpenModel:
    """Return a model with its loss and parameters.

    Args:
        model: a pair (loss, params) in JAX, or a fitted MLPClassifier or linear classifier of scikit-learn.
    """
    if isinstance(model, OpenModel):
        return model
    if isinstance(model, tuple) and len(model) == 2 and callable(model[0]):
        return OpenModel("a loss and its parameters", model[0], jax.tree.map(jnp.asarray, model[1]), model=model)
    name, classes = type(model).__name__, getattr(model, "classes_", None)
    if classes is not None and np.ndim(classes) == 1 and type(model).__module__.startswith("sklearn."):
        if hasattr(model, "coefs_") and model.activation in _ACTIVATIONS:
            layers = list(zip(model.coefs_, model.intercepts_, strict=True))
            return OpenModel(name, _losses(model.activation), _single(layers), np.asarray(classes), model)
        if hasattr(model, "coef_") and hasattr(model, "predict_proba"):
            layers = [(np.asarray(model.coef_).T, np.atleast_1d(model.intercept_))]
            return OpenModel(name, _losses("identity"), _single(layers), np.asarray(classes), model)
    raise BadInput(
        f"the parameters of a {name} are not known to this attack. Pass (loss, params) in JAX, where loss(params, row, "
        "label) is the loss of one record, or a fitted MLPClassifier or linear classifier of scikit-learn."
    )


def _single(layers: Any) -> Any:
    return jax.tree.map(lambda part: jnp.asarray(part, dtype=jnp.float32), layers)


def _losses(activation: str) -> Callable[..., Any]:
    bend = _ACTIVATIONS[activation]

    def loss(params: Any, row: Any, label: Any) -> Any:
        for weights, bias in params[:-1]:
            row = bend(row @ weights + bias)
        outputs = row @ params[-1][0] + params[-1][1]
        if outputs.shape[0] == 1:  # of two classes: the score of the second
            outputs = jnp.concatenate((jnp.zeros(1), outputs))
        return -jax.nn.log_softmax(outputs)[label]

    return loss


def gradient_scores(model: OpenModel, rows: Floats, labels: NDArray[np.int32]) -> Floats:
    """Return minus the logarithm of the length of each record's gradient by all parameters."""

    @jax.jit
    def squares(part: Any, codes: Any) -> Any:
        slopes = jax.vmap(jax.grad(model.loss), in_axes=(None, 0, 0))(model.params, part, codes)
        return sum(jnp.sum(leaf.reshape(len(part), -1) ** 2, axis=1) for leaf in jax.tree.leaves(slopes))

    return np.asarray(-0.5 * np.log(np.maximum(_blocks(squares, rows, labels), _LEAST)))


def disturbance_scores(
    model: OpenModel, rows: Floats, labels: NDArray[np.int32], draw: np.random.Generator, *, copies: int
) -> Floats:
    """Return minus the logarithm of each record's mean loss under parameters with normal noise.

    Args:
        model: the model.
        rows, labels: the records.
        draw: the generator of the noise.
        copies: models with noise.
    """
    leaves, structure = jax.tree.flatten(model.params)
    total = np.zeros(len(rows))

    @jax.jit
    def losses(params: Any, part: Any, codes: Any) -> Any:
        return jax.vmap(model.loss, in_axes=(None, 0, 0))(params, part, codes)

    for _ in range(copies):
        noisy = [
            leaf + jnp.asarray(draw.normal(0, _SIZE * float(jnp.sqrt(jnp.mean(leaf**2))), leaf.shape), leaf.dtype)
            for leaf in leaves
        ]
        total += _blocks(partial(losses, jax.tree.unflatten(structure, noisy)), rows, labels)
    return np.asarray(-np.log(np.maximum(total / copies, _LEAST)))


def _blocks(function: Callable[..., Any], rows: Floats, labels: NDArray[np.int32]) -> Floats:
    """Return a function of records, some at a time; the last block is filled up, so that one shape is compiled."""
    found = np.empty(len(rows))
    for start in range(0, len(rows), _BLOCK):
        places = np.arange(start, start + _BLOCK) % len(rows)
        part = np.asarray(function(jnp.asarray(rows[places], dtype=jnp.float32), jnp.asarray(labels[places])))
        if part.shape != (_BLOCK,):
            raise BadInput("loss(params, row, label) returns one number, the loss of one record.")
        found[start : start + _BLOCK] = part[: len(rows) - start]
    return found


def membership_of_parameters(
    methods: tuple[str, ...],
    model: Any,
    members: tuple[Any, Any],
    others: tuple[Any, Any],
    *,
    copies: int = 24,
    claim: Loss | None = None,
    delta: float = 0.0,
    confidence: float = 0.95,
    random_state: int | None = None,
) -> list[Finding]:
    """Find out whether a model's parameters tell its training rows from others; see `attack.membership`.

    Args:
        methods: some of "gradient" and "disturbance".
        model: see `open_model`.
        members, others: rows and labels; rows are numbers, as the model takes them.
        copies: models with noise, for "disturbance".
        claim, delta, confidence, random_state: as for `attack.membership`.

    Privacy: none, for the owner. It charges no account.
    """
    unknown = [name for name in methods if name not in WHITE_BOX]
    if unknown or not methods:
        raise BadInput(f"from parameters, method is 'gradient' or 'disturbance', got {unknown!r:.40}.")
    opened, draw = open_model(model), generator(random_state)
    count = check_whole(copies, "perturbations", 2, 10_000)
    pairs = [read_pair(members, "members"), read_pair(others, "others")]
    known = len(pairs[0][1])
    given = join([rows for rows, _ in pairs])
    rows, labels = encode(given), opened.codes(joined_labels([labels for _, labels in pairs]))
    flat = rows if not isinstance(given, np.ndarray) else np.asarray(given, dtype=np.float64)
    baseline, note = blind_guess(np.column_stack((rows, labels.astype(np.float64))), known, draw)
    found = []
    for method in methods:
        if method == "gradient":
            scores = gradient_scores(opened, flat, labels)
            what = "the length of the gradient at each record"
        else:
            scores = disturbance_scores(opened, flat, labels, draw, copies=count)
            what = f"its loss under {count} sets of parameters with noise"
        if not np.isfinite(scores).all():
            raise BadInput("the loss of a record is not a finite number at these parameters.")
        found.append(
            membership_of_scores(
                scores[:known], scores[known:], claim=claimed(opened.model, claim), delta=delta, confidence=confidence,
                attack=f"membership by {WHITE_BOX[method]}", target=opened.name, access="white box",
                knowledge=f"the record with its label, the model's parameters, and so {what}", baseline=baseline,
                figures={"parameters": sum(leaf.size for leaf in jax.tree.leaves(opened.params))},
                notes=[] if note is None else [note],
            )
        )  # fmt: skip
    return found
