"""Opacus, in its own environment: milliseconds of one private training step of three networks, printed as JSON.

    python ask_opacus.py LOT ROUNDS

The networks, the lot and the clipping are those of deepnets/steps.py; noise is normal floats of torch's generator,
which is what Opacus draws unless secure_mode is asked for.
"""

import json
import statistics
import sys
import time
import warnings

import torch
from opacus import GradSampleModule
from opacus.optimizers import DPOptimizer
from torch import nn

NETWORKS = {
    "linear": lambda: nn.Linear(784, 10),
    "one hidden layer of 128": lambda: nn.Sequential(nn.Linear(784, 128), nn.Tanh(), nn.Linear(128, 10)),
    "convolutional": lambda: nn.Sequential(
        nn.Unflatten(1, (1, 28, 28)),
        nn.Conv2d(1, 16, 8, 2, padding=3), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2), nn.Tanh(), nn.MaxPool2d(2, 1),
        nn.Flatten(), nn.Linear(512, 32), nn.Tanh(), nn.Linear(32, 10),
    ),
}  # fmt: skip


def main(lot: int, rounds: int) -> dict[str, float]:
    found = {}
    rows, labels = torch.rand(lot, 784), torch.arange(lot) % 10
    for name, make in NETWORKS.items():
        model = GradSampleModule(make())
        inner = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        optimizer = DPOptimizer(inner, noise_multiplier=1.0, max_grad_norm=1.0, expected_batch_size=lot)
        loss, times = nn.CrossEntropyLoss(), []
        for _ in range(rounds + 2):
            start = time.perf_counter()
            optimizer.zero_grad()
            loss(model(rows), labels).backward()
            optimizer.step()
            times.append(time.perf_counter() - start)
        found[name] = 1000 * statistics.median(times[2:])
    return found


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print(json.dumps(main(int(sys.argv[1]), int(sys.argv[2]))))
