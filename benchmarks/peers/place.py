"""Where peers run: each in an environment of its own under build/peers, since their pins would drag ours back."""

import subprocess
import sys
from pathlib import Path

__all__ = ["PLACES", "python_of"]

HERE = Path(__file__).parent
PLACES = HERE.parents[1] / "build" / "peers"


def python_of(name: str) -> Path:
    """The interpreter of a peer's environment, which is made from NAME.txt if it is not there.

    Raises:
        OSError, subprocess.SubprocessError: if it cannot be made here.
    """
    place = PLACES / name
    python = place / "bin" / "python"
    if not (place / "made").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", place], check=True)
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", HERE / f"{name}.txt"]
        subprocess.run(install, check=True, timeout=900, stderr=subprocess.DEVNULL)
        (place / "made").touch()
    return python
