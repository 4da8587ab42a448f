"""diffprivlib, in an environment of its own, on the same arrays."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
from peers.place import PLACES, python_of

HERE = Path(__file__).parents[1]


def ask(arrays: dict[str, Any], epsilons: list[float], seeds: int, seconds: int) -> dict[str, Any] | str:
    """Scores by model and epsilon (None where a fit took longer than that), or a sentence on what failed."""
    data = PLACES / "diffprivlib.npz"
    try:
        python = python_of("diffprivlib")
        np.savez(data, **arrays)
        told = [
            python,
            HERE / "peers" / "ask_diffprivlib.py",
            data,
            ",".join(map(str, epsilons)),
            str(seeds),
            str(seconds),
        ]
        out = subprocess.run(told, stdout=subprocess.PIPE, text=True, check=True, timeout=7200, env=os.environ)
        found: dict[str, Any] = json.loads(out.stdout.splitlines()[-1])
        return found
    except (OSError, subprocess.SubprocessError, json.JSONDecodeError) as error:
        return f"diffprivlib could not be run here: {type(error).__name__}."
    finally:
        data.unlink(missing_ok=True)
