"""Where a benchmark leaves its result: `benchmarks/results/NAME.json`, shown in docs/benchmarks.md.

    from report import write
    write("noise", {"title": ..., "question": ..., "tables": [...], "bars": [...], "notes": [...]})

A table is {"caption": str, "columns": [...], "rows": [[...], ...]}; a bar is a figure to reach,
{"bar": str, "measured": str, "met": bool}. The machine and the date are added here, never a host name.
"""

import json
import os
import platform
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("cloister", "numpy", "scipy", "cryptography", "opendp", "dp-accounting", "psycopg")


def write(name: str, result: dict[str, Any]) -> Path:
    """Add the machine and the date, save, and say in the terminal which bars were met."""
    full = {
        "title": result["title"],
        "question": result["question"],
        "machine": machine(),
        "date": datetime.now(UTC).date().isoformat(),
        "tables": result.get("tables", []),
        "bars": result.get("bars", []),
        "notes": result.get("notes", []),
    }
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(full, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    for bar in full["bars"]:
        print(f"{'met   ' if bar['met'] else 'MISSED'}  {bar['bar']}: {bar['measured']}")
    return path


def machine() -> dict[str, Any]:
    """What a reader needs to judge the figures, and nothing that names the machine."""
    return {
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
    }


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or "unknown")


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
