"""No space left: nothing is released, nothing is freed, and the ledger goes on when there is space again."""

import errno
import os
import resource
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from cloister.privacy.errors import StoreFailed
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import rho
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.e2e
KEY = SigningKey.create()


def in_a_child(work: Callable[[], None]) -> None:
    """Run in a forked process, whose file size limit is its own; its failure is ours."""
    process = os.fork()
    if process == 0:
        status = 1
        try:
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


def limit_files_to(size: int) -> None:
    # The kernel refuses to let a file grow beyond this, as it does on a full disk (Python ignores SIGXFSZ).
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_a_full_disk_refuses_charges_and_keeps_those_it_has(tmp_path: Path) -> None:
    path, head = tmp_path / "ledger", tmp_path / "head"

    def work() -> None:
        with Ledger.create(path, key=KEY, head=head) as ledger:
            account = ledger.open_account("visits", rho(1_000))
            standing = account.reserve(rho(1), "looked at before the disk was full")
            standing.look()
            limit_files_to((tmp_path / "ledger-wal").stat().st_size + 30_000)
            acknowledged = []
            with pytest.raises(StoreFailed, match="nothing was released"):
                acknowledged.extend(account.reserve(rho("0.001"), "request") for _ in range(1_000))
            assert 1 < len(acknowledged) < 1_000
            limit_files_to(4_000)  # not one page more, wherever it goes
            with pytest.raises(StoreFailed):
                account.charge_all([rho("0.001")] * 50, "request")
            with pytest.raises(StoreFailed):
                standing.commit()
            assert standing.state == "looked"
            limit_files_to(resource.RLIM_INFINITY)
            assert account.spent == rho(1) + rho("0.001") * len(acknowledged)
            assert verify(path, KEY.public, ledger.head).ok
            assert standing.commit().settles == standing.entry.number
            account.reserve(rho("0.001"), "after").commit()
            assert verify(path, KEY.public, ledger.head).ok

    in_a_child(work)


def broken_disk(*_: object) -> int:
    """Only the head is written with pwrite, so only its disk fails."""
    raise OSError(errno.EIO, os.strerror(errno.EIO))


def test_a_head_that_cannot_be_kept_refuses_the_charge_and_it_stays_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, head = tmp_path / "ledger", tmp_path / "head"
    with Ledger.create(path, key=KEY, head=head) as ledger:
        account = ledger.open_account("visits", rho(1))
        charge = account.reserve(rho("0.1"), "request")
        kept = head.read_bytes()
        monkeypatch.setattr(os, "pwrite", broken_disk)
        with pytest.raises(StoreFailed, match="the head cannot be kept"):
            account.reserve(rho("0.1"), "request")
        with pytest.raises(StoreFailed, match="the head cannot be kept"):
            charge.commit()
        assert head.read_bytes() == kept
        assert account.spent == rho("0.2")
        monkeypatch.undo()
        assert charge.commit().settles == charge.entry.number
        assert ledger.head.number == 5
        account.reserve(rho("0.1"), "request").commit()
        assert verify(path, KEY.public, ledger.head).ok


def test_a_void_that_fails_halfway_leaves_nothing_to_look_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Ledger.create(tmp_path / "ledger", key=KEY, head=tmp_path / "head") as ledger:
        charge = ledger.open_account("visits", rho(1)).reserve(rho("0.1"), "request")
        monkeypatch.setattr(os, "pwrite", broken_disk)
        with pytest.raises(StoreFailed):
            charge.void()
        assert charge.state == "voided"
