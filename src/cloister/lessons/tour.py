"""The tour behind `cloister demo`: a SQL query, its error, a refusal, the ledger and a receipt."""

import tempfile
from pathlib import Path

import pyarrow as pa
from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from cloister.data.hospital import SCHEMA, hospital
from cloister.dataset import Dataset
from cloister.dataset import open as open_dataset
from cloister.privacy.errors import CloisterError, ReceiptRejected
from cloister.privacy.ledger import verify
from cloister.privacy.loss import epsilon, rho
from cloister.privacy.receipt import Receipt
from cloister.query.answer import Answer
from cloister.query.explain import expected_errors

__all__ = ["tour"]

WARDS = "SELECT ward, COUNT(*) AS visits, AVG(stay_days) AS stay FROM visits GROUP BY ward ORDER BY visits DESC"
OLD = "SELECT COUNT(DISTINCT patient) AS patients FROM visits WHERE age >= 65"
AGES = "SELECT MEDIAN(age) AS median_age FROM visits"


def tour(console: Console | None = None) -> None:
    """Run the tour in a temporary folder, which is deleted afterwards."""
    console = console or Console(highlight=False)
    with tempfile.TemporaryDirectory() as folder:
        budget = epsilon(2, delta="1e-6")
        with open_dataset(pa.table(hospital()), schema=SCHEMA, budget=budget, ledger=folder, version="2025") as visits:
            console.print(
                Panel("A hospital shares its visits. Nobody may see a row; anybody may ask.", title="Cloister")
            )
            console.print(f"[bold]The budget[/]  {visits.account}\n[bold]The unit[/]    {visits.unit}\n")
            _plan(visits, console)
            answer = _answers(visits, console)
            _refusals(visits, console)
            _ledger(visits, Path(folder), console)
            _receipt(answer, visits, console)


def _plan(visits: Dataset, console: Console) -> None:
    plan = visits.plan(WARDS, spend=rho("0.03"))
    console.print(f"[bold]Plan first[/] (costs nothing, reads nothing)\n  {WARDS}\n  cost: {plan.loss}")
    for text, error in expected_errors(plan):
        console.print(f"  expected error of {text}: {error}")
    console.print()


def _answers(visits: Dataset, console: Console) -> Answer:
    for sql, spend in ((WARDS, "0.03"), (OLD, "0.005"), (AGES, "0.02")):
        answer = visits.sql(sql, spend=rho(spend))
        _show(answer, sql, console)
    again = visits.sql(WARDS, spend=rho("0.03"))
    console.print(f"Asked again, the first question is answered from the record: cost {again.loss}.\n")
    return answer


def _show(answer: Answer, sql: str, console: Console) -> None:
    table = Table()
    for name in answer.columns:
        table.add_column(name)
    for row in answer.cells():
        table.add_row(*row)
    console.print(f"[bold]{sql}[/]", table, f"  95 % intervals, cost {answer.loss}\n", sep="\n")


def _refusals(visits: Dataset, console: Console) -> None:
    console.print("[bold]What is refused[/]")
    for sql, spend in (("SELECT * FROM visits", "0.01"), ("SELECT SUM(cost) FROM visits", "0.5")):
        try:
            visits.sql(sql, spend=rho(spend))
        except CloisterError as refusal:
            console.print(f"  {sql}, spend rho {spend}\n  [red]{refusal}[/]")
    console.print(f"  Nothing was read and nothing was charged: {visits.left} is left.\n")


def _ledger(visits: Dataset, folder: Path, console: Console) -> None:
    book = visits.account.book
    report = verify(folder / "ledger.db", book.key.public, book.head)
    console.print(f"[bold]The ledger, recomputed from its first entry[/]\n  {report}\n")


def _receipt(answer: Answer, visits: Dataset, console: Console) -> None:
    receipt, key = answer.receipt, visits.account.book.key.public
    if receipt is None:
        raise CloisterError("a release from a ledger carries a receipt.")
    console.print(Panel(str(receipt), title="The last answer's receipt", title_align="left"))
    receipt.verify(key)
    console.print("  [green]Genuine[/]: the owner's key signed it.")
    cheaper = Receipt.parse(receipt.text().replace('"amount":"1/50"', '"amount":"1/500"', 1))
    try:
        cheaper.verify(key)
    except ReceiptRejected as refusal:
        console.print(f"  Somebody makes the answer look cheaper … [red]{refusal}[/]")
