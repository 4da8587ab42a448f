"""Runs of our generators and of peers', each in a process of its own, one after the other."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from peers.place import PLACES, python_of

from cloister.privacy.filter import budget_share
from cloister.privacy.loss import epsilon
from synthesis.data import Real, encoded
from synthesis.make import DELTA
from synthesis.measure import error, learned

__all__ = ["OURS", "PEERS", "Run", "ours", "theirs"]

HERE = Path(__file__).parents[1]
OURS = ("aim", "mixture", "mst", "independent")
PEERS = {"aim on mbi": ("mbi", "aim"), "mst on mbi": ("mbi", "mst"), "smartnoise aim": ("smartnoise_synth", "aim"),
         "smartnoise mst": ("smartnoise_synth", "mst")}  # fmt: skip
SECONDS = 3600


@dataclass(frozen=True)
class Run:
    """One table.

    Attributes:
        error: of its three-way marginals.
        seconds: on the clock; processor: of the process's own work.
        memory: the most, in MB.
        learned: accuracy and AUC of a model that was trained on it, for Adult.
    """

    error: float
    seconds: float
    processor: float
    memory: float
    learned: tuple[float, float] | None = None


def ours(key: str, real: Real, cells: Any, method: str, amount: float, seed: int) -> Run | str:
    """A table of ours, or a sentence on what failed."""
    out = _place() / f"{key}-{method}.parquet"
    told = _ask([sys.executable, HERE / "synthesis" / "make.py", key, method, f"{amount:g}", str(seed), out])
    if isinstance(told, str):
        return told
    rows = pd.read_parquet(out)
    out.unlink()
    out.with_name(f"{out.name}.side.json").unlink(missing_ok=True)
    made, sizes = encoded(real, rows)
    model = learned(rows, real.test) if key == "adult" and real.test is not None else None
    return Run(error(cells, made, sizes), told["seconds"], told["processor"], told["memory"], model)


def theirs(real: Real, cells: Any, sizes: list[int], peer: str, amount: float, seed: int) -> Run | str:
    """A peer's table at the same loss, or a sentence on what failed."""
    place, method = PEERS[peer]
    data, out = _place() / "cells.npz", _place() / "made.npz"
    np.savez_compressed(data, cells=cells, sizes=sizes)
    spend = epsilon(f"{amount:g}", delta=DELTA)
    loss = [str(float(budget_share(spend).loss.amount))] if place == "mbi" else [f"{amount:g}", DELTA]
    try:
        python = python_of(place)
    except (OSError, subprocess.SubprocessError) as failed:
        return f"{place} could not be installed here: {type(failed).__name__}."
    told = _ask([python, HERE / "peers" / f"ask_{place}.py", data, method, *loss, str(seed), out])
    if isinstance(told, str):
        return told
    with np.load(out) as file:
        made = file["cells"]
    out.unlink()
    return Run(error(cells, made, sizes), told["seconds"], told["processor"], told["memory"])


def _place() -> Path:
    PLACES.mkdir(parents=True, exist_ok=True)
    return PLACES


def _ask(command: list[Any]) -> Any:
    try:
        out = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=True,
            timeout=SECONDS,
            env=os.environ,
        )
        return json.loads(out.stdout.splitlines()[-1])
    except subprocess.TimeoutExpired:
        return f"more than {SECONDS:,} s"
    except subprocess.CalledProcessError as failed:
        last = failed.stderr.strip().splitlines()[-1:] or [""]
        return f"failed: {last[0][:120]}"
    except (OSError, json.JSONDecodeError, IndexError) as failed:
        return f"failed: {type(failed).__name__}"
