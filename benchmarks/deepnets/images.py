"""Accuracy of private networks on images, with everything inside the loss: features, number of rows, training.

The transform of the training images does not depend on the seed, so it is carried out once for all seeds of a set, and
its time is told apart.
"""

import gzip
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from learning.data import SHARED

import cloister as cl
from cloister import learn
from cloister.learn.deep.network_rows import NetworkFrame

__all__ = ["Images", "fashion", "fitted", "mnist"]


@dataclass
class Images:
    """Training and test images with labels."""

    name: str
    rows: np.ndarray
    labels: np.ndarray
    test: np.ndarray
    test_labels: np.ndarray
    kept: dict[int, Any] = field(default_factory=dict)


def mnist() -> Images:
    """The 60,000 training and 10,000 test images of MNIST."""
    read = [
        np.frombuffer(gzip.decompress((SHARED / "mnist" / f"{part}.gz").read_bytes())[skip:], dtype=np.uint8)
        for part, skip in (
            ("train-images-idx3-ubyte", 16), ("train-labels-idx1-ubyte", 8),
            ("t10k-images-idx3-ubyte", 16), ("t10k-labels-idx1-ubyte", 8),
        )
    ]  # fmt: skip
    return Images("MNIST", read[0].reshape(-1, 28, 28), read[1], read[2].reshape(-1, 28, 28), read[3])


def fashion() -> Images:
    """20,000 training and 4,000 test images of Fashion-MNIST."""
    with np.load(SHARED / "fashion-mnist" / "fashion_mnist_24k.npz") as file:
        return Images("Fashion-MNIST", file["x_train"], file["y_train"], file["x_test"], file["y_test"])


def fitted(images: Images, epsilon: str, ledger: Path) -> tuple[float, float, float]:
    """Fit once, with fresh noise. Return the test accuracy, the seconds of training, and those of the features.

    The seconds of the features are 0 where they were kept.
    """
    plain, seconds = NetworkFrame.encode, 0.0

    def once(frame: NetworkFrame, rows: np.ndarray) -> np.ndarray:
        nonlocal seconds
        if len(rows) not in images.kept:
            start = time.perf_counter()
            images.kept[len(rows)] = plain(frame, rows)
            seconds += time.perf_counter() - start
        return images.kept[len(rows)]

    NetworkFrame.encode = once  # type: ignore[method-assign]
    try:
        start = time.perf_counter()
        model = learn.NeuralNetworkClassifier(
            cl.epsilon(epsilon, delta="1e-5"), bounds=(0, 255), classes=range(10), ledger=ledger
        ).fit(images.rows, images.labels)
        training, features = time.perf_counter() - start - seconds, seconds
        return float(model.score(images.test, images.test_labels)), training, features
    finally:
        NetworkFrame.encode = plain  # type: ignore[method-assign]
