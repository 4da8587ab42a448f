"""Many processes and threads at one ledger."""

import multiprocessing
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from cloister.privacy.errors import ChargeClosed, OverBudget
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import epsilon
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.e2e
KEY = SigningKey.create()
FORK = multiprocessing.get_context("fork")


def greedy(ledger: Ledger, start: threading.Barrier, won: "multiprocessing.Queue[int]") -> None:
    """Take thousandths until the budget is gone; tell how many."""
    account = ledger.account("visits")
    start.wait()
    count = 0
    try:
        while True:
            charge = account.reserve(epsilon("0.001"), f"process {os.getpid()}")
            charge.look()
            charge.commit()
            count += 1
    except OverBudget:
        won.put(count)


def test_32_processes_racing_for_the_last_tenth_use_it_all_and_never_more(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger", key=KEY, head=tmp_path / "head") as ledger:
        account = ledger.open_account("visits", epsilon(1))
        account.charge_all([epsilon("0.9")], "before the race")
        start, won = FORK.Barrier(32), FORK.Queue()
        racers = [FORK.Process(target=greedy, args=(ledger, start, won)) for _ in range(32)]
        for racer in racers:
            racer.start()
        counts = [won.get(timeout=120) for _ in racers]
        for racer in racers:
            racer.join()
        assert sum(counts) == 100
        assert account.spent == epsilon(1)
        assert account.left.amount == 0
        assert verify(tmp_path / "ledger", KEY.public, ledger.head).ok
        assert (tmp_path / "head").read_text().strip() == str(ledger.head)


def test_threads_of_one_process_never_overspend(tmp_path: Path) -> None:
    with Ledger.create(tmp_path / "ledger", key=KEY, head=tmp_path / "head") as ledger:
        account = ledger.open_account("visits", epsilon(1))

        def spend(_: int) -> bool:
            try:
                account.reserve(epsilon("0.1"), "thread").commit()
            except OverBudget:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(spend, range(40))) == 10
        assert verify(tmp_path / "ledger", KEY.public, ledger.head).ok


def test_processes_that_open_the_same_account_at_once_open_it_once(tmp_path: Path) -> None:
    def opener(ledger: Ledger, start: threading.Barrier) -> None:
        start.wait()
        ledger.open_account("visits", epsilon(1))

    with Ledger.create(tmp_path / "ledger", key=KEY, head=tmp_path / "head") as ledger:
        start = FORK.Barrier(8)
        openers = [FORK.Process(target=opener, args=(ledger, start)) for _ in range(8)]
        for process in openers:
            process.start()
        for process in openers:
            process.join()
        assert [process.exitcode for process in openers] == [0] * 8
        assert ledger.head.number == 2


def test_a_forked_copy_of_a_charge_can_neither_look_nor_void(tmp_path: Path) -> None:
    def child(charge: object, said: "multiprocessing.Queue[str]") -> None:
        for verb in ("look", "commit", "void"):
            try:
                getattr(charge, verb)()
            except ChargeClosed as error:
                said.put(str(error))

    with Ledger.create(tmp_path / "ledger", key=KEY, head=tmp_path / "head") as ledger:
        account = ledger.open_account("visits", epsilon(1))
        charge = account.reserve(epsilon("0.1"), "request")
        said = FORK.Queue()
        process = FORK.Process(target=child, args=(charge, said))
        process.start()
        for _ in range(3):
            assert "belongs to the process that reserved it" in said.get(timeout=30)
        process.join()
        assert account.spent == epsilon("0.1")
        charge.void()
        assert account.spent.amount == 0
