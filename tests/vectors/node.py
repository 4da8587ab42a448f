"""A Node that runs the browser's client for tests: started once, one JSON case a line, one answer a line."""

import json
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
CLIENT = FOLDER.parents[1] / "src" / "cloister" / "local" / "client"
NODE = shutil.which("node")


class Node:
    """To start one takes longer than most tests, so it serves all tests of a file."""

    process: subprocess.Popen[str] | None = None

    @classmethod
    def start(cls) -> subprocess.Popen[str]:
        """Start it with the client's door."""
        assert NODE is not None
        command = [NODE, str(FOLDER / "run.mjs"), (CLIENT / "index.mjs").as_uri()]
        cls.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return cls.process

    @classmethod
    def end(cls) -> None:
        """Close its input, and wait."""
        if cls.process is not None:
            cls.process.communicate(timeout=30)
            cls.process = None


def node(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the client answers to each case."""
    process = Node.process or Node.start()
    assert process.stdin is not None
    assert process.stdout is not None
    writer = process.stdin

    def ask() -> None:
        writer.writelines(json.dumps(case) + "\n" for case in cases)
        writer.flush()

    asking = threading.Thread(target=ask)  # beside the reading, so that neither waits for the other
    asking.start()
    answers = [process.stdout.readline() for _ in cases]
    asking.join()
    return [json.loads(answer) for answer in answers]


def spare(described: dict[str, Any], scripts: list[tuple[Any, bytes]]) -> list[tuple[bytes | None, int]]:
    """The report on each value from these bytes, and how many were not read; None if the client asked for more."""
    told = {"mechanism": described, "scripts": [[value, text.hex()] for value, text in scripts]}
    (answer,) = node([{"verb": "drive", **told}])
    return [
        (None, 0) if report is None else (bytes.fromhex(report), len(text) - used)
        for report, used, (_, text) in zip(answer["reports"], answer["used"], scripts, strict=True)
    ]
