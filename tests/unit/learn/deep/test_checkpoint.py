"""A run that was killed goes on from its checkpoint: one charge, no noise twice, no older copy, no rows in the file."""

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
from contextlib import suppress

import numpy as np
import optax
import pytest

from cloister import rho
from cloister.learn.deep import train
from cloister.learn.deep.checkpoint import CheckpointWriter
from cloister.learn.deep.dpsgd import TrainState
from cloister.privacy.errors import BadInput, ChargeClosed, LookFailed
from cloister.privacy.ledger import Ledger
from cloister.privacy.noise import SeededSource

X = SeededSource("rows").floats((200, 3)).astype(np.float32)
START = {"w": np.zeros(3, np.float32)}


def loss(params, x):
    return ((params["w"] - x) ** 2).sum()


def run(folder, **changed):
    told = {
        "spend": rho("0.5"), "rate": "1/4", "lot": 50, "steps": 12, "optimizer": optax.adam(0.05),
        "ledger": folder / "ledger", "checkpoint": folder / "run.npz", "checkpoint_seconds": 0.0,
    }  # fmt: skip
    return train(loss, START, X, **(told | changed))


class Killed(BaseException):
    pass


def stopped_at(step, folder, **changed):
    """Run until a step; the error stands for a process that ends there."""

    def stop(progress):
        if progress.step == step:
            raise Killed

    with pytest.raises(LookFailed):
        run(folder, progress=stop, **changed)


def spent(folder):
    with Ledger.in_folder(folder / "ledger") as book:
        return [account.spent for account in book.accounts()]


def test_a_run_goes_on_where_it_stopped_under_the_same_charge(tmp_path):
    stopped_at(5, tmp_path)
    assert spent(tmp_path) == [rho("0.5")]
    seen = []
    result = run(tmp_path, progress=lambda progress: seen.append(progress.step))
    assert seen == [6, 7, 8, 9, 10, 11, 12]
    assert spent(tmp_path) == [rho("0.5")]
    assert result.steps == 12
    with Ledger.in_folder(tmp_path / "ledger") as book:
        result.receipt.verify(book.key.public)
        assert book.noted(f"training, charge {result.receipt.body['ledger']['entry']}") == 15


def test_a_run_that_is_finished_gives_the_same_model_again_for_nothing(tmp_path):
    first, second = run(tmp_path), run(tmp_path)
    assert np.array_equal(first.params["w"], second.params["w"])
    assert spent(tmp_path) == [rho("0.5")]


def test_an_older_copy_of_a_checkpoint_is_refused(tmp_path):
    stopped_at(3, tmp_path)
    shutil.copy(tmp_path / "run.npz", tmp_path / "copy.npz")
    run(tmp_path)
    shutil.copy(tmp_path / "copy.npz", tmp_path / "run.npz")
    with pytest.raises(ChargeClosed, match="older copy"):
        run(tmp_path)


def test_a_run_stops_when_another_process_goes_on_with_it(tmp_path):
    def overtake(progress):
        if progress.step == 4:
            run(tmp_path)

    with pytest.raises(LookFailed) as failed:
        run(tmp_path, progress=overtake)
    assert "another process" in failed.value.owner_detail
    assert spent(tmp_path) == [rho("0.5")]


def test_a_checkpoint_of_other_arguments_is_refused(tmp_path):
    stopped_at(3, tmp_path)
    with pytest.raises(BadInput, match="another run"):
        run(tmp_path, steps=13)
    with pytest.raises(BadInput, match="other params or another optimiser"):
        run(tmp_path, optimizer=optax.sgd(0.1))
    (tmp_path / "run.npz").write_bytes(b"PK something else")
    with pytest.raises(BadInput, match="cut off"):
        run(tmp_path)


def test_a_checkpoint_goes_on_for_the_same_payer_unit_and_rows_alone(tmp_path):
    with Ledger.in_folder(tmp_path / "ledger") as book:
        first, second = (book.open_account(name, rho(1)) for name in ("a", "b"))
        told = {"ledger": None, "account": first}
        stopped_at(3, tmp_path, **told)
        for changed in (
            told | {"account": second},
            {"ledger": book},
            told | {"units": np.arange(len(X)) // 2, "max_rows": 2},
        ):
            with pytest.raises(BadInput, match="another run"):
                run(tmp_path, **changed)
        again = {"spend": rho("0.5"), "rate": "1/4", "lot": 50, "steps": 12, "checkpoint": tmp_path / "run.npz"}
        with pytest.raises(BadInput, match="another run"):
            train(loss, START, X.astype(np.int32), optimizer=optax.adam(0.05), account=first, **again)
        assert (first.spent.amount, second.spent.amount) == (rho("0.5").amount, 0)
        run(tmp_path, ledger=None, account=first)
        assert first.spent == rho("0.5")


@pytest.mark.parametrize("part", ["step", "lot", "leaf0"])
def test_an_edited_checkpoint_is_refused(part, tmp_path):
    run(tmp_path)
    with np.load(tmp_path / "run.npz") as file:
        parts = {name: file[name] for name in file.files}
    if part == "leaf0":
        parts[part] = parts[part] + 1
    else:
        parts["head"] = np.array(json.dumps(json.loads(str(parts["head"])) | {part: 1}))
    np.savez(tmp_path / "run.npz", **parts)
    with pytest.raises(BadInput, match="was changed after it was written"):
        run(tmp_path)


def test_runs_that_go_on_at_the_same_moment_have_one_result(tmp_path):
    stopped_at(3, tmp_path)
    arrived, results = threading.Barrier(6), []

    def go_on():
        arrived.wait()
        with suppress(ChargeClosed, LookFailed, BadInput):
            results.append(run(tmp_path, checkpoint_seconds=1e9).params["w"].tobytes())

    threads = [threading.Thread(target=go_on) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(results)) == 1
    assert spent(tmp_path) == [rho("0.5")]


def test_of_two_that_write_the_same_number_one_goes_on(tmp_path):
    with Ledger.in_folder(tmp_path / "ledger") as book:
        account = book.open_account("a", rho(1))
        charge = account.reserve(rho("0.5"), "a run")
        first, second = (
            CheckpointWriter(tmp_path / "run.npz", "a run", [account], charge, "two of them", 0.0) for _ in range(2)
        )

        class Slow:
            """Parameters during whose writing the other one writes."""

            def __array__(self, dtype=None, copy=None):
                if not second.number:
                    second.keep(TrainState(1, START, (), START, 1.0, 50.0))
                return START["w"]

        with pytest.raises(ChargeClosed, match="another process"):
            first.keep(TrainState(1, {"w": Slow()}, (), START, 1.0, 50.0))
        assert (first.number, second.number) == (0, 1)
        second.keep(TrainState(2, START, (), START, 1.0, 50.0))


def test_a_number_is_noted_once_by_one_of_many(tmp_path):
    with Ledger.in_folder(tmp_path) as book:
        book.note("run", 1, once=True)
        for number in (0, 1):
            with pytest.raises(ChargeClosed, match="another process"):
                book.note("run", number, once=True)
        book.note("run", 2, once=True)
        assert book.noted("run") == 2


def test_a_crash_while_a_checkpoint_is_written_leaves_the_newest_noted_one(tmp_path):
    stopped_at(3, tmp_path)
    newest = (tmp_path / "run.npz").read_bytes()
    (tmp_path / "run.npz.next").write_bytes(newest[: len(newest) // 2])  # cut off before it was noted
    stopped_at(6, tmp_path)
    (tmp_path / "run.npz").rename(tmp_path / "run.npz.next")  # noted, and not yet renamed
    (tmp_path / "run.npz").write_bytes(newest)
    seen = []
    run(tmp_path, progress=lambda progress: seen.append(progress.step))
    assert seen[0] == 7
    assert spent(tmp_path) == [rho("0.5")]


def test_a_checkpoint_holds_no_rows_and_does_not_grow_with_them(tmp_path):
    stopped_at(3, tmp_path)
    with np.load(tmp_path / "run.npz") as file:
        sizes = {name: file[name].size for name in file.files if name != "head"}
        head = str(file["head"])
    assert set(sizes.values()) <= {1, 3}
    assert "as private as the release. It holds no rows." in head
    raw = (tmp_path / "run.npz").read_bytes()
    assert not any(row.tobytes() in raw for row in X)


def test_a_resumed_run_draws_fresh_noise(tmp_path):
    stopped_at(5, tmp_path, random_state=1)
    shutil.copytree(tmp_path, tmp_path / "other")
    resumed = run(tmp_path, random_state=1)
    whole = train(
        loss, START, X, spend=rho("0.5"), rate="1/4", lot=50, steps=12, optimizer=optax.adam(0.05),
        ledger=tmp_path / "new", random_state=1,
    )  # fmt: skip
    assert not np.array_equal(resumed.params["w"], whole.params["w"])


SCRIPT = """
    import sys, time
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    import test_checkpoint
    def slow(progress):
        print(progress.step, flush=True)
        time.sleep(0.2)
    test_checkpoint.run(Path(sys.argv[1]), progress=slow)
"""


def test_a_process_killed_in_the_middle_is_resumed_without_a_second_charge(tmp_path):
    here = os.path.dirname(__file__)  # noqa: PTH120
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(SCRIPT), str(tmp_path), here], stdout=subprocess.PIPE, text=True
    )
    for line in child.stdout:
        if line.strip() == "4":
            os.kill(child.pid, signal.SIGKILL)
            break
    child.stdout.close()
    assert child.wait() == -signal.SIGKILL
    before = spent(tmp_path)
    seen = []
    run(tmp_path, progress=lambda progress: seen.append(progress.step))
    assert before == spent(tmp_path) == [rho("0.5")]
    assert seen[0] in (4, 5)
    assert seen[-1] == 12
