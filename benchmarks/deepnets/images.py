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

__all__ = ["Images", "accuracies", "fashion", "mnist"]


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


def accuracies(images: Images, epsilon: str, seeds: int, ledger: Path) -> tuple[list[float], float, float]:
    """Return test accuracies, the longest training, and the time of the features of the training images."""
    plain = NetworkFrame.encode
    seconds = 0.0

    def once(frame: NetworkFrame, rows: np.ndarray) -> np.ndarray:
        nonlocal seconds
        if len(rows) not in images.kept:
            start = time.perf_counter()
            images.kept[len(rows)] = plain(frame, rows)
            seconds = max(seconds, time.perf_counter() - start)
        return images.kept[len(rows)]

    NetworkFrame.encode = once  # type: ignore[method-assign]
    found, longest = [], 0.0
    try:
        for _ in range(seeds):
            before, start = seconds, time.perf_counter()
            model = learn.NeuralNetworkClassifier(
                cl.epsilon(epsilon, delta="1e-5"), bounds=(0, 255), classes=range(10), ledger=ledger
            ).fit(images.rows, images.labels)
            longest = max(longest, time.perf_counter() - start - (seconds - before))
            found.append(float(model.score(images.test, images.test_labels)))
            print(images.name, epsilon, found[-1], f"training {longest:.0f} s, features {seconds:.0f} s", flush=True)
    finally:
        NetworkFrame.encode = plain  # type: ignore[method-assign]
    return found, longest, seconds
