"""Signed model files: JSON and npz with receipts, verified before they are parsed.

    cloister-model/1                    the file format
    BASE64                              the owner's signature over all that follows
    1234                                the length of the JSON
    {...}                               class, parameters, released values, receipts
    PK...                               the arrays, as npz

A file holds the attributes that `fit` sets: an attribute or a type that is not listed here is refused, so that nothing
else stored on a model is written. (If a caller replaces the value of a listed attribute, that value is kept.) Pickle
has none of these checks: it runs code from the file, and keeps everything an object holds.
"""

import base64
import io
import json
import os
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from cloister.lazy import homes
from cloister.learn.base.containers import column_values
from cloister.learn.base.estimator import PrivateEstimator
from cloister.learn.base.payer import Payer
from cloister.learn.serving.guard import reason_to_refuse
from cloister.privacy.errors import BadInput, BadName, BadSource, ReceiptRejected, SealBroken, StoreFailed
from cloister.privacy.ledger import Ledger
from cloister.privacy.loss import Loss, Unit
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release
from cloister.privacy.signing import PublicKey, SigningKey

__all__ = ["foreign_attributes", "is_kept", "load", "pack", "save", "unpack"]

_FORM = b"cloister-model/1\n"
_PURPOSE = b"cloister model\n"  # signatures of different kinds of text must never be exchangeable
_MOST_BYTES = 2**30
_ESTIMATORS = {name: home for name, home in homes("cloister.learn").items() if name[0].isupper()}
_ESTIMATORS["PATEClassifier"] = "cloister.learn.pate.classifier"
# Types of released or public values in models; none of them holds rows.
# Dataclasses that a model may hold: their name in files, which never changes, and their module.
_KINDS = {
    "data.schema.Column": "data.schema.Column",
    "learn.additive.Additive": "learn.trees.additive.Additive",
    "learn.bins.Axis": "learn.base.bins.BinnedFeature",
    "learn.boosting_regressor._Target": "learn.trees.boosting_regressor._Target",
    "learn.calibration.Curve": "learn.naive_bayes.calibration.CalibrationCurve",
    "learn.count_features.CountFeature": "learn.naive_bayes.count_features.CountFeature",
    "learn.forest.Forest": "learn.trees.forest.Forest",
    "learn.frame.Frame": "learn.base.frame.Frame",
    "learn.growth.Tree": "learn.trees.tree_growth.Tree",
    "learn.inputs.Box": "learn.base.inputs.Box",
    "learn.least_squares.CoefficientErrors": "learn.linear_model.least_squares.CoefficientErrors",
    "learn.linear_classifier.LinearModel": "learn.linear_model.classifier.LinearModel",
    "learn.naive_bayes._Model": "learn.naive_bayes.gaussian._Model",
    "learn.pate.LinearStudent": "learn.pate.student.LinearStudent",
    "learn.shapes.Shape": "learn.trees.shapes.Shape",
}
_NAMES = {home: name for name, home in _KINDS.items()}
# Values that JSON has no form for: the word beside each in files, and its text.
_TEXTS: dict[type, tuple[str, Callable[[Any], str]]] = {
    Fraction: ("fraction", str),
    Decimal: ("decimal", str),
    bytes: ("bytes", lambda value: base64.b64encode(value).decode("ascii")),
    date: ("date", date.isoformat),
}
# Payers, and what PATE learns from and with: the released student does without.
_NOT_KEPT = ("ledger", "account", "public", "estimator", "student")
_RETIRED = ("covariance_",)  # attributes in files of earlier versions
_NO_LESSON = "a model without a receipt is a lesson, and is not kept."
# Attributes that `fit`, `set_output` or routing sets; tests/unit/learn/test_keep.py compares them with the classes.
_STATE = frozenset(
    {
        "_axes", "_box", "_errors", "_features", "_forest", "_metadata_request", "_model", "_of_dataset", "_parts",
        "_seen", "_shape", "_sklearn_output_config", "_target", "_target_ends", "categories_", "center_errors_",
        "class_count_", "class_prior_", "classes_", "cluster_centers_", "cluster_sizes_", "coef_", "coefs_",
        "components_", "curve_", "data_dependent_", "data_max_", "data_min_", "estimators_", "expected_accuracy_",
        "expected_accuracy_interval_", "expected_score_", "explained_variance_", "explained_variance_ratio_",
        "feature_importances_", "feature_log_prob_", "feature_names_in_", "grid_", "intercept_", "intercepts_",
        "labelled_", "labels_", "loss_", "mean_", "min_", "n_components_", "n_features_in_", "n_iter_", "n_layers_",
        "n_outputs_", "n_rows_", "ranks_", "scale_", "shapes_", "size_error_", "standard_errors_", "student_",
        "teacher_agreement_", "theta_", "tree_", "var_",
    }
)  # fmt: skip


def is_kept(kind: type) -> bool:
    """Return True if a file can hold a model of exactly this class."""
    return _ESTIMATORS.get(kind.__name__) == kind.__module__


def foreign_attributes(model: Any) -> list[str]:
    """Return the attributes of a model that no fit sets."""
    return sorted(vars(model).keys() - set(model.get_params(deep=False)) - {"release_"} - _STATE)


def save(model: Any, path: str | os.PathLike[str], *, key: SigningKey | None = None) -> Path:
    """Write a fitted model, or a pipeline of fitted models, to one signed file.

    Args:
        model: fitted, with a receipt.
        path: the file to write.
        key: the owner's key; that of the model's ledger unless given. It must be the one that signed the receipt.

    Privacy: no cost: all that is written was released, and is as public as the model.
    """
    signed, file = pack(model, key or _key_of(model)), Path(path)
    try:
        file.write_bytes(signed)
    except OSError as error:
        raise StoreFailed(f"no model was written to {file} ({error.strerror}). Choose another path.") from None
    return file


def pack(model: Any, key: SigningKey) -> bytes:
    """Return the bytes that `save` writes.

    Privacy: no cost, as for `save`.
    """
    writer = _Writer(key.public)
    text = json.dumps(writer.estimator(model), separators=(",", ":")).encode()
    arrays = io.BytesIO()
    np.savez_compressed(arrays, allow_pickle=False, **writer.arrays)
    rest = b"%d\n" % len(text) + text + arrays.getvalue()
    return _FORM + key.sign(_PURPOSE + rest).encode("ascii") + b"\n" + rest


def load(path: str | os.PathLike[str], key: PublicKey | str) -> Any:
    """Read a model from its file. Nothing in the file is trusted before its signature is verified.

    Args:
        path: the file.
        key: the owner's public key, from a place you trust: `ed25519:…`, or `PublicKey.load(file)`.

    Raises:
        SealBroken: the file was changed, or another key signed it.
    """
    file = Path(path)
    try:
        if file.stat().st_size > _MOST_BYTES:
            raise BadSource(f"{file} is larger than any model kept here.")
        content = file.read_bytes()
    except OSError as error:
        raise StoreFailed(f"no model can be read from {file} ({error.strerror}).") from None
    return unpack(content, key, str(file))


def unpack(whole: bytes, key: PublicKey | str, origin: str = "this") -> Any:
    """Return the model in bytes from `pack`, verified before anything is parsed; see `load`."""
    owner = PublicKey.parse(key) if isinstance(key, str) else key
    if not whole.startswith(_FORM):
        raise BadSource(f"{origin} does not hold a model of the form {_FORM.decode().strip()}.")
    signature, _, rest = whole[len(_FORM) :].partition(b"\n")
    if not owner.verify(_PURPOSE + rest, signature.decode("ascii", "replace")):
        raise SealBroken("the model's signature does not fit: the file was changed, or another key signed it.")
    length, _, rest = rest.partition(b"\n")
    text, arrays = rest[: int(length)], rest[int(length) :]
    with np.load(io.BytesIO(arrays), allow_pickle=False) as archive:
        return _Reader(dict(archive), owner).estimator(json.loads(text))


def _key_of(model: Any) -> SigningKey:
    """Return the key of the ledger that a model was charged to."""
    inner = [step for _, step in model.steps] if hasattr(model, "steps") else [model]
    for estimator in (step for step in inner if isinstance(step, PrivateEstimator)):
        if estimator.account is not None:
            account = estimator.account.account() if isinstance(estimator.account, Payer) else estimator.account
            return account.book.key
        if isinstance(estimator.ledger, Ledger | Payer):
            return (estimator.ledger.ledger() if isinstance(estimator.ledger, Payer) else estimator.ledger).key
        file = Path(estimator.ledger or ".cloister") / "owner.key"
        if file.exists():
            return SigningKey.load(file)
    raise BadName("say which key signs: save(model, path, key=SigningKey.load('owner.key')).")


class _Writer:
    """Encoder from objects to JSON, with arrays collected separately."""

    def __init__(self, owner: PublicKey) -> None:
        self.arrays: dict[str, Any] = {}
        self._owner = owner
        self._known: dict[int, str] = {}

    def estimator(self, model: Any) -> dict[str, Any]:
        if hasattr(model, "steps"):
            return {"pipeline": [[name, self.estimator(step)] for name, step in model.steps]}
        name = type(model).__name__
        if not is_kept(type(model)):
            if type(model).__module__.startswith("cloister.lessons."):
                raise BadInput(_NO_LESSON)
            reason = reason_to_refuse(model)
            why = "" if reason is None else f" Besides, {reason}"
            raise BadInput(f"only models of cloister.learn and pipelines of them are kept, not a {name}.{why}")
        parameters = model.get_params(deep=False)
        state = {name: value for name, value in vars(model).items() if name not in parameters and name != "release_"}
        if not state:
            raise BadInput("the model is not fitted: there is nothing to keep.")
        for foreign in foreign_attributes(model):
            raise BadInput(
                f"the model has {foreign:.60}, which no fit sets. Delete it: nobody knows whether it is public."
            )
        return {
            "class": name,
            "params": {name: self.value(value) for name, value in parameters.items() if name not in _NOT_KEPT},
            "state": {name: self.value(value) for name, value in state.items()},
            "release": self._release(getattr(model, "release_", None), parameters.get("spend") is not None),
        }

    def _release(self, release: Release | None, paid: bool) -> dict[str, Any] | None:
        if release is None and not paid:
            return None
        if release is None or release.receipt is None:
            raise BadInput(_NO_LESSON)
        try:
            release.receipt.verify(self._owner)
        except ReceiptRejected:
            raise BadName("another key signed the model's receipt. Give that of the ledger it was paid from.") from None
        record = {"receipt": release.receipt.text(), "unit": [release.unit.name, release.unit.max_rows]}
        charged = Loss.from_json(release.receipt.body["loss"])
        # A planned release is an (epsilon, delta), which its account counts as the rho that it implies.
        stated = release.loss.measure != charged.measure and release.loss.as_rho() == charged
        return {**record, "loss": release.loss.to_json()} if stated else record

    def value(self, value: Any) -> Any:
        """Return a JSON value that `_Reader.value` decodes to the same object."""
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if isinstance(value, np.generic) and value.dtype.kind in "biufU":
            return self.value(value.item())
        if isinstance(value, np.ndarray):
            return self._array(value)
        if isinstance(value, list | range):
            return [self.value(item) for item in value]
        if isinstance(value, tuple):
            return {"tuple": [self.value(item) for item in value]}
        if isinstance(value, dict):
            return {"dict": [[self.value(key), self.value(other)] for key, other in value.items()]}
        if isinstance(value, Loss):
            return {"loss": value.to_json()}
        for kind, (word, text) in _TEXTS.items():
            if type(value) is kind:
                return {word: text(value)}
        listed = column_values(value)  # a public list that was given as a column
        if listed is not None:
            return self.value(listed)
        name = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("cloister.")
        if is_dataclass(value) and name in _NAMES:
            parts = {field.name: self.value(getattr(value, field.name)) for field in fields(value)}
            return {"kind": _NAMES[name], "parts": parts}
        raise BadInput(f"a model that holds a {type(value).__name__} is not kept: nobody knows whether that is public.")

    def _array(self, value: Any) -> dict[str, Any]:
        if value.dtype.kind in "OT":  # numpy writes neither without pickle
            value = value.astype(object)
            return {"objects": [self.value(cell) for cell in value.ravel()], "shape": list(value.shape)}
        if id(value) not in self._known:  # arrays live as long as the model, so ids are unique
            self._known[id(value)] = f"a{len(self.arrays)}"
            self.arrays[self._known[id(value)]] = value
        return {"array": self._known[id(value)]}


class _Reader:
    """Decoder of verified JSON."""

    def __init__(self, arrays: dict[str, Any], owner: PublicKey) -> None:
        self._arrays, self._owner = arrays, owner

    def estimator(self, record: dict[str, Any]) -> Any:
        if "pipeline" in record:
            from sklearn.pipeline import Pipeline

            return Pipeline([(name, self.estimator(step)) for name, step in record["pipeline"]])
        kind = getattr(import_module(_ESTIMATORS[record["class"]]), record["class"])
        model = kind(**{name: self.value(value) for name, value in record["params"].items()})
        for name, value in record["state"].items():
            if name not in _RETIRED:
                setattr(model, name, self.value(value))
        if record["release"] is not None:
            model.release_ = self._release(record["release"], record["class"])
        return model

    def _release(self, record: dict[str, Any], name: str) -> Release:
        receipt = Receipt.parse(record["receipt"])
        receipt.verify(self._owner)
        body = receipt.body
        return Release(
            value=f"a {name} from a file",
            loss=Loss.from_json(record.get("loss", body["loss"])),
            unit=Unit(*record["unit"]),
            mechanism=body["mechanism"],
            parameters={},
            private=body["private"],
            receipt=receipt,
        )

    def value(self, record: Any) -> Any:
        if isinstance(record, list):
            return [self.value(item) for item in record]
        if not isinstance(record, dict):
            return record
        word, content = next(iter(record.items()))
        if word == "kind" and content in _KINDS:
            room, _, name = _KINDS[content].rpartition(".")
            parts = {part: self.value(value) for part, value in record["parts"].items()}
            return getattr(import_module(f"cloister.{room}"), name)(**parts)
        if word == "objects":
            listed = np.empty(len(content), dtype=object)
            listed[:] = [self.value(cell) for cell in content]
            return listed.reshape(record["shape"])
        return self._simple(word, content)

    def _simple(self, word: str, content: Any) -> Any:
        ways: dict[str, Any] = {
            "array": lambda: self._arrays[content],
            "tuple": lambda: tuple(self.value(item) for item in content),
            "dict": lambda: {self.value(key): self.value(other) for key, other in content},
            "loss": lambda: Loss.from_json(content),
            "fraction": lambda: Fraction(content),
            "decimal": lambda: Decimal(content),
            "bytes": lambda: base64.b64decode(content, validate=True),
            "date": lambda: date.fromisoformat(content),
        }
        return ways[word]()
