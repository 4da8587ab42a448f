"""A ledger restored from a backup refuses to spend until it is proven or written off."""

import shutil
from pathlib import Path

import pytest

from cloister.privacy.errors import HeadRejected, OverBudget, RolledBack, StoreFailed
from cloister.privacy.ledger import Ledger, verify
from cloister.privacy.loss import epsilon
from cloister.privacy.signing import SigningKey

pytestmark = pytest.mark.e2e
KEY = SigningKey.create()


class Owner:
    """An owner with a ledger, a head elsewhere, and a backup made after the first of two spends."""

    def __init__(self, folder: Path) -> None:
        self.path, self.head, self.backup = folder / "ledger", folder / "head", folder / "backup"
        self.newest = folder / "newest"
        self.backup.mkdir()
        with Ledger.create(self.path, key=KEY, head=self.head) as ledger:
            ledger.open_account("visits", epsilon(1))
            ledger.open_account("labs", epsilon(1))
            self.spend("visits")
        shutil.copy(self.path, self.backup)
        shutil.copy(self.head, self.backup)
        self.spend("visits")
        with self.open() as ledger:
            self.newest_head = ledger.head
        shutil.copy(self.path, self.newest)

    def open(self) -> Ledger:
        return Ledger.open(self.path, key=KEY, head=self.head)

    def spend(self, name: str) -> None:
        with self.open() as ledger:
            ledger.account(name).reserve(epsilon("0.4"), "request").commit()

    def restore(self) -> None:
        shutil.copy(self.backup / "ledger", self.path)


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_a_restored_ledger_can_be_read_but_not_spent_from(owner: Owner) -> None:
    owner.restore()
    with owner.open() as ledger:
        account = ledger.open_account("visits", epsilon(1))
        assert account.spent == epsilon("0.4")
        for spend in (
            lambda: account.reserve(epsilon("0.1"), "request"),
            lambda: account.charge_all([epsilon("0.1")], "request"),
            lambda: ledger.open_account("new", epsilon(1)),
            lambda: ledger.show_head(ledger.head),
        ):
            with pytest.raises(RolledBack, match=r"shows entry 7, .* ends at entry 5, .* older copy"):
                spend()
        assert ledger.head.number == 5


def test_the_newest_ledger_restored_spends_again(owner: Owner) -> None:
    owner.restore()
    shutil.copy(owner.newest, owner.path)
    owner.spend("labs")


def test_a_charge_that_was_open_when_an_older_ledger_came_cannot_be_settled(owner: Owner) -> None:
    with owner.open() as ledger:
        charge = ledger.account("labs").reserve(epsilon("0.1"), "request")
    owner.restore()
    with pytest.raises(RolledBack):
        charge.commit()


def test_a_lost_head_stops_spending_until_the_newest_is_shown(owner: Owner) -> None:
    owner.head.unlink()
    with owner.open() as ledger:
        with pytest.raises(RolledBack, match="no head is kept"):
            ledger.account("visits").reserve(epsilon("0.1"), "request")
        entry = ledger.show_head(owner.newest_head)
        assert (entry.kind, entry.detail["head"]) == ("head-shown", str(owner.newest_head))
        ledger.account("visits").reserve(epsilon("0.1"), "request").commit()
        assert verify(owner.path, KEY.public, owner.newest_head).ok


@pytest.mark.parametrize("text", ["", "nonsense", "9:" + "0" * 64 + ":AAAA"])
def test_a_spoiled_head_is_as_good_as_lost(owner: Owner, text: str) -> None:
    owner.head.write_text(text)
    with owner.open() as ledger:
        with pytest.raises(RolledBack):
            ledger.account("visits").reserve(epsilon("0.1"), "request")
        ledger.show_head(owner.newest_head)
    owner.spend("labs")


def test_with_the_head_lost_too_the_newest_head_shows_the_older_copy(owner: Owner) -> None:
    owner.restore()
    owner.head.unlink()
    with owner.open() as ledger:
        with pytest.raises(RolledBack, match="shows entry 7"):
            ledger.show_head(owner.newest_head)
        # It is kept now: even without showing it again nobody can spend.
        assert owner.head.read_text().strip() == str(owner.newest_head)
        with pytest.raises(RolledBack, match="shows entry 7"):
            ledger.show_head(ledger.head)
    with pytest.raises(RolledBack):
        owner.spend("labs")


def test_an_old_head_restored_with_an_old_ledger_is_noticed_by_any_newer_head(owner: Owner) -> None:
    owner.restore()
    shutil.copy(owner.backup / "head", owner.head)
    owner.spend("labs")  # nothing on this machine can know
    report = verify(owner.path, KEY.public, owner.newest_head)
    assert not report.ok
    assert "rewritten" in report.reason
    with owner.open() as ledger, pytest.raises(RolledBack):
        ledger.show_head(owner.newest_head)


def test_a_copy_that_went_on_elsewhere_does_not_pass_for_the_ledger(owner: Owner) -> None:
    owner.restore()
    shutil.copy(owner.backup / "head", owner.head.with_name("other"))
    with Ledger.open(owner.path, key=KEY, head=owner.head.with_name("other")) as copy:
        for _ in range(3):
            copy.account("labs").reserve(epsilon("0.1"), "request").commit()
        longer = copy.head
    assert longer.number > owner.newest_head.number
    with owner.open() as ledger:
        for _ in range(2):  # showing the copy's head must not make the lost one forgotten
            with pytest.raises(RolledBack, match="shows entry 7"):
                ledger.show_head(longer)
    with pytest.raises(RolledBack):
        owner.spend("labs")


def test_a_head_that_the_owner_did_not_sign_proves_nothing(owner: Owner) -> None:
    owner.head.unlink()
    with Ledger.create(owner.path.with_name("x"), key=SigningKey.create(), head=owner.head.with_name("y")) as other:
        foreign = other.head
    with owner.open() as ledger, pytest.raises(HeadRejected, match="not signed"):
        ledger.show_head(foreign)
    assert not owner.head.exists()


def test_after_writing_everything_off_the_ledger_goes_on_and_nothing_is_spent_twice(owner: Owner) -> None:
    owner.restore()
    with owner.open() as ledger:
        entry = ledger.write_off(ledger.account("visits"))
        assert entry.lines[0].loss == epsilon("0.6")
        assert entry.detail["lost"] == str(owner.newest_head)
        with pytest.raises(RolledBack):  # labs may have been spent from in the lost entries too
            ledger.account("labs").reserve(epsilon("0.1"), "request")
        ledger.write_off(ledger.account("labs"))
        for name in ("visits", "labs"):
            with pytest.raises(OverBudget, match="0 is left"):
                ledger.account(name).reserve(epsilon("0.1"), "request")
        ledger.open_account("next-year", epsilon(1)).reserve(epsilon("0.1"), "request").commit()
        assert verify(owner.path, KEY.public, ledger.head).ok


def test_writing_off_an_account_of_a_sound_ledger_closes_that_account_only(owner: Owner) -> None:
    with owner.open() as ledger:
        assert ledger.write_off(ledger.account("visits")).detail == {}
        with pytest.raises(OverBudget):
            ledger.account("visits").reserve(epsilon("0.01"), "request")
        assert ledger.write_off(ledger.account("visits")).lines[0].loss.amount == 0
    owner.spend("labs")


def test_a_new_ledger_does_not_take_the_place_of_a_lost_one(owner: Owner) -> None:
    with pytest.raises(StoreFailed, match="already"):
        Ledger.create(owner.path, key=KEY, head=owner.head.with_name("other"))
    owner.path.unlink()
    with pytest.raises(RolledBack, match="its ledger existed"):
        Ledger.create(owner.path, key=KEY, head=owner.head)
    assert not owner.path.exists()


def test_a_ledger_is_not_made_where_its_head_cannot_be_kept(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="Make it first"):
        Ledger.create(tmp_path / "ledger", key=KEY, head=tmp_path / "usb" / "head")
    assert not (tmp_path / "ledger").exists()


def test_a_process_that_was_behind_does_not_move_the_head_back(owner: Owner) -> None:
    with owner.open() as one, owner.open() as other:
        slow = one.account("labs").reserve(epsilon("0.1"), "request")
        other.account("labs").reserve(epsilon("0.1"), "request").commit()
        slow.commit()
        assert owner.head.read_text().strip() == str(one.head) == str(other.head)
