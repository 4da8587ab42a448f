"""Gradients that leak: a record in closed form, eight digits and table rows by a search, with and without a defence."""

import gzip
import time
from functools import partial
from typing import Any

import numpy as np
from learning.data import NAMES, SHARED, read_adult

from cloister.attack.updates import (
    Category,
    Defence,
    GradientStep,
    Number,
    compare_defences,
    dense_network,
    encode,
    image_leak,
    record_leak,
    table_leak,
)
from cloister.learn.deep import private_gradient
from cloister.privacy.loss import rho

__all__ = ["closed_form", "digits", "rows"]

NOISE = rho("0.5")  # of one step: noise as large as the clipping norm
BOUNDS = {"age": (17, 90), "hours": (1, 99), "education-num": (1, 16)}
DROPPED = ("fnlwgt", "capital-gain", "capital-loss")


def closed_form(records: int) -> dict[str, Any]:
    """Read records off the gradients of a network's first layer, and off private ones."""
    network = dense_network([784, 128, 10], activation="relu")
    images, labels = np.random.default_rng(0).random((records, 784)), np.arange(records) % 10
    if (SHARED / "mnist").exists():
        images, labels = mnist()
        images, labels = images[:records].reshape(records, -1), labels[:records]
    victims = [
        GradientStep(network.loss, network.params, (images[i : i + 1], labels[i : i + 1])) for i in range(records)
    ]
    defence = Defence.noise(private_gradient(network.loss, clip=1.0), NOISE)
    plain, private = compare_defences(victims, partial(record_leak, within=1e-6), [defence])
    return {
        name: {"share": one.success, "error": one.figures["median relative error"]}
        for name, one in (("plain", plain), ("private", private))
    }


def mnist() -> tuple[Any, Any]:
    """MNIST's test images in [0, 1], and their labels."""
    read = [
        np.frombuffer(gzip.decompress((SHARED / "mnist" / f"t10k-{part}.gz").read_bytes())[skip:], np.uint8)
        for part, skip in (("images-idx3-ubyte", 16), ("labels-idx1-ubyte", 8))
    ]
    return read[0].reshape(-1, 28, 28) / 255, read[1]


def digits(clients: int, steps: int) -> list[dict[str, Any]] | str:
    """Invert gradients of eight digits each, from perceptrons with two activations."""
    if not (SHARED / "mnist").exists():
        return "MNIST is not on this machine, so no digits were inverted."
    images, labels = mnist()
    found = []
    for activation in ("tanh", "relu"):
        network = dense_network([784, 128, 10], activation=activation)
        for seed in range(clients):
            chosen = 500 + np.random.default_rng(seed).choice(len(images) - 500, 8, replace=False)
            client = GradientStep(network.loss, network.params, (images[chosen], labels[chosen]))
            defence = Defence.noise(private_gradient(network.loss, clip=1.0), NOISE)
            attack = partial(image_leak, shape=(28, 28), public=images[:500], steps=steps)
            start = time.perf_counter()
            plain, private = compare_defences(client, attack, [defence])
            seconds = (time.perf_counter() - start) / 2
            shown = [one.figures["mean PSNR in dB"] for one in (plain, private)]
            found.append({"activation": activation, "plain": shown[0], "private": shown[1], "seconds": seconds,
                          "blind": plain.figures["mean PSNR in dB without the update"]})  # fmt: skip
    return found


def rows(clients: int, starts: int, steps: int) -> list[dict[str, Any]] | str:
    """Invert gradients of eight of Adult's rows each, alone, in a lot of 32, and with clipping and noise."""
    if not (SHARED / "adult").exists():
        return "Adult is not on this machine, so no table rows were inverted."
    frame = read_adult(SHARED / "adult" / "adult.data.gz")
    columns: list[Category | Number] = []
    cells = []
    for name in (one for one in NAMES[:-1] if one not in DROPPED):
        if name in BOUNDS:
            columns.append(Number(name, *BOUNDS[name]))
            cells.append(frame[name].to_numpy(float))
        else:
            kinds, codes = np.unique(frame[name], return_inverse=True)
            columns.append(Category(name, len(kinds)))
            cells.append(codes.astype(float))
    table, labels = np.column_stack(cells), (frame.income == ">50K").to_numpy().astype(int)
    chosen = np.random.default_rng(1).permutation(len(table))[: 400 + 8 * clients]
    public, kept = chosen[:400], chosen[400:]
    network = dense_network([sum(column.width for column in columns), 100, 100, 2])
    others = encode(table[public[:64]], columns), labels[public[:64]]
    victims = [
        GradientStep(network.loss, network.params, (encode(table[part], columns), labels[part]), others)
        for part in kept.reshape(clients, 8)
    ]
    attack = partial(table_leak, columns=columns, public=table[public[64:]], starts=starts, steps=steps)
    defences = [Defence.larger_lot(32), Defence.noise(private_gradient(network.loss, clip=1.0), NOISE)]
    return [
        {"name": one.target.partition(", ")[2], "right": one.success, "blind": one.baseline,
         "quarters": [one.figures[f"right in entropy quarter {place}"] for place in (1, 2, 3, 4)]}
        for one in compare_defences(victims, attack, defences)
    ]  # fmt: skip
