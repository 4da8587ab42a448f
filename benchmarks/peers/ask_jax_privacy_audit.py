"""jax-privacy's auditor, in its own environment: a lower bound on epsilon for each pair of samples, as JSON.

    python ask_jax_privacy_audit.py FILE.npz SIGNIFICANCE

The file holds, for each number i, `left_i` and `right_i` (scores of the samples of both inputs) and `delta_i`.
Thresholds are chosen on half of the scores; both directions are tried.
"""

import json
import sys

import numpy as np
from jax_privacy.auditing import CanaryScoreAuditor, Split


def main(path, significance):
    with np.load(path) as file:
        bounds = []
        for number in range(sum(name.startswith("left_") for name in file.files)):
            sides = file[f"right_{number}"], file[f"left_{number}"]
            found = [
                CanaryScoreAuditor(*order).epsilon_clopper_pearson(
                    significance / 2, float(file[f"delta_{number}"]), one_sided=False, threshold_strategy=Split(seed=0)
                )
                for order in (sides, sides[::-1])
            ]
            bounds.append(max(found))
        return bounds


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], float(sys.argv[2]))))
