"""Count the files that one request visits: a SELECT, a fit, a synthetic table, a request to a hub.

    python tests/paths_of_data.py [--list]

A file counts when one of its functions runs. `--list` names them in the order of the first visit. The figures are in
docs/architecture.md.
"""

import importlib.util
import sys
import tempfile
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pandas as pd

import cloister as cl
from cloister import learn, synth
from cloister.privacy.noise import SeededSource

SOURCE = str(Path(cl.__file__).parent)
SCHEMA = """
unit: {name: person, max_rows: 2}
tables:
  visits:
    unit: person
    columns:
      ward: {type: text, categories: [a, b]}
      age: {type: integer, bounds: [0, 100], nullable: false}
      ill: {type: boolean, nullable: false}
"""
ROWS = {"person": list(range(400)), "ward": ["a", "b"] * 200, "age": [20, 70] * 200, "ill": [False, True] * 200}
SQL = "SELECT ward, COUNT(*) AS n, AVG(age) AS age FROM visits GROUP BY ward"


def visited(run: Callable[[], object]) -> list[str]:
    """Run something; the files of Cloister in which a function was called, in order."""
    files: dict[str, None] = {}

    def see(frame, event, _argument):
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(SOURCE) and frame.f_code.co_name != "<module>":
            files.setdefault(name.removeprefix(SOURCE + "/"))

    threading.setprofile_all_threads(see) if hasattr(threading, "setprofile_all_threads") else threading.setprofile(see)
    sys.setprofile(see)
    try:
        run()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return list(files)


def _hub(folder: Path) -> tuple[Callable[[], object], Callable[[], object]]:
    """A request to a hub (read, decided, planned, queued), and the job that it leads to (charged, run, stored)."""
    spec = importlib.util.spec_from_file_location("hub_world", Path(__file__).parent / "e2e" / "hub_world.py")
    hub_world = importlib.util.module_from_spec(spec)
    sys.modules["hub_world"] = hub_world
    spec.loader.exec_module(hub_world)
    world = hub_world.build(folder / "hub")
    world.token("ada")

    def request() -> None:
        body = {"kind": "query", "form": {"sql": hub_world.COUNT, "spend": "rho 0.02"}, "purpose": "health-research"}
        answer = world.call("ada", "POST", "/api/datasets/visits/jobs", body=body)
        assert answer.status_code in (200, 201, 202), answer.text

    return request, world.work


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame = pd.DataFrame(ROWS)
        with closing(cl.open(frame, schema=SCHEMA, budget=cl.rho(100), ledger=folder / "ledger")) as dataset:
            request, job = _hub(folder)
            model = learn.LogisticRegression(cl.rho(1), random_state=1)
            ways = {
                "SELECT": lambda: dataset.sql(SQL, spend=cl.rho(1), source=SeededSource(1)),
                "LogisticRegression.fit": lambda: model.fit(dataset, target="ill", features=["age"]),
                "synth.aim": lambda: synth.aim(dataset, spend=cl.rho(1), random_state=1),
                "a request to a hub": request,
                "the job of that request": job,
            }
            for way, run in ways.items():
                files = visited(run)
                print(f"{way}: {len(files)} files")
                if "--list" in sys.argv:
                    print("".join(f"    {file}\n" for file in files), end="")


if __name__ == "__main__":
    main()
