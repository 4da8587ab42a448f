"""diffprivlib, in an environment of its own, on the same arrays."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).parents[1]
PLACE = HERE.parent / "build" / "peers" / "diffprivlib"


def ask(arrays: dict[str, Any], epsilons: list[float], seeds: int, seconds: int) -> dict[str, Any] | str:
    """Scores by model and epsilon (None where a fit took longer than that), or a sentence on what failed."""
    python, data = PLACE / "bin" / "python", PLACE.parent / "diffprivlib.npz"
    try:
        if not (PLACE / "made").exists():
            subprocess.run([sys.executable, "-m", "venv", "--clear", PLACE], check=True)
            wanted = HERE / "peers" / "diffprivlib.txt"
            install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", wanted]
            subprocess.run(install, check=True, timeout=900, stderr=subprocess.DEVNULL)
            (PLACE / "made").touch()
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
