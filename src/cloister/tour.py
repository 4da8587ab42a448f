"""The tour behind `cloister demo`: private answers, a refusal, the ledger, and a receipt that cannot be forged."""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from cloister.data.hospital import WARDS, hospital
from cloister.privacy.errors import CloisterError, OverBudget, ReceiptRejected
from cloister.privacy.ledger import Account, Ledger, verify
from cloister.privacy.loss import epsilon
from cloister.privacy.measure import measure
from cloister.privacy.mechanisms import DiscreteLaplace, Laplace, Mechanism
from cloister.privacy.receipt import Receipt
from cloister.privacy.release import Release
from cloister.privacy.signing import SigningKey
from cloister.privacy.unit import Unit

__all__ = ["tour"]

PATIENT = Unit("patient", max_rows=8)


def tour(console: Console | None = None) -> None:
    """Walk through it, in a temporary folder that is gone afterwards."""
    console = console or Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder, Ledger.in_folder(Path(folder) / "visits") as ledger:
        console.print(Panel("A hospital shares its visits. Nobody may see a row; anybody may ask.", title="Cloister"))
        visits = hospital()
        account = ledger.open_account("visits", epsilon(1))
        console.print(f"\n[bold]The budget[/]  {account}\n[bold]The unit[/]    {PATIENT}\n")
        answers = _three_answers(visits, account, console)
        _one_refusal(account, console)
        _the_ledger(ledger, Path(folder) / "visits", console)
        _the_receipt(answers[-1].receipt, ledger.key, console)


def _three_answers(visits: dict[str, NDArray[Any]], account: Account, console: Console) -> list[Release]:
    kept = _first_rows(visits["patient"], PATIENT.max_rows)
    ward, stay = visits["ward"][kept], visits["stay_days"][kept]
    count = DiscreteLaplace.for_loss(PATIENT.max_rows, epsilon("0.2"))
    total = Laplace.for_bounds(0, 60, epsilon("0.3"), rows=PATIENT.max_rows)
    questions: list[tuple[str, Callable[[], Any], Mechanism]] = [
        ("How many visits were there?", lambda: len(ward), count),
        ("How many in each ward?", lambda: np.array([(ward == name).sum() for name in WARDS]), count),
        ("How many days in bed, all together?", lambda: total.grid.total(total.grid.encode(stay, 0, 60)), total),
    ]
    table = Table(title="Three private answers", title_justify="left")
    for column in ("question", "answer, 95 % sure", "cost"):
        table.add_column(column, overflow="fold")
    answers = []
    for question, look, mechanism in questions:
        answer = measure(look, mechanism, account=account, request=question, unit=PATIENT, data_version="2025")
        table.add_row(question, str(answer).splitlines()[0], str(answer.loss))
        answers.append(answer)
    console.print(table)
    return answers


def _one_refusal(account: Account, console: Console) -> None:
    console.print("\n[bold]One question too many[/]")
    greedy = DiscreteLaplace.for_loss(PATIENT.max_rows, epsilon("0.5"))
    try:
        measure(lambda: 0, greedy, account=account, request="How many were readmitted?", unit=PATIENT)
    except OverBudget as refusal:
        console.print(f"  [red]{refusal}[/]\n  Nothing was read and nothing was charged: {account.left} is left.")


def _the_ledger(ledger: Ledger, folder: Path, console: Console) -> None:
    console.print("\n[bold]The ledger, recomputed from its first entry[/]")
    console.print(f"  {verify(folder / 'ledger.db', ledger.key.public, ledger.head)}".replace("\n", "\n  "))


def _the_receipt(receipt: Receipt | None, key: SigningKey, console: Console) -> None:
    if receipt is None:
        raise CloisterError("a release from a ledger carries a receipt.")
    console.print(Panel(str(receipt), title="The last answer's receipt", title_align="left"))
    receipt.verify(key.public)
    console.print("  [green]Genuine[/]: the owner's key signed it.")
    cheaper = Receipt.parse(receipt.text().replace('"amount":"3/10"', '"amount":"1/10"', 1))
    try:
        cheaper.verify(key.public)
    except ReceiptRejected as refusal:
        console.print(f"  Somebody makes the answer look cheaper … [red]{refusal}[/]")


def _first_rows(person: NDArray[Any], most: int) -> NDArray[np.bool_]:
    """Which rows are among the first of their person: a choice that depends on that person's rows alone."""
    order = np.argsort(person, kind="stable")
    starts = np.r_[True, person[order][1:] != person[order][:-1]]
    place = np.arange(len(person)) - np.maximum.accumulate(np.where(starts, np.arange(len(person)), 0))
    kept = np.empty(len(person), dtype=bool)
    kept[order] = place < most
    return kept
