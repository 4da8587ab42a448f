"""The analyst's shell. SQL that ends with a semicolon is a query; a line that begins with a backslash is a command."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cloister.data.schema import Column
from cloister.privacy.errors import BadInput, BadLoss, CloisterError
from cloister.privacy.loss import Loss
from cloister.privacy.number import rational
from cloister.query.answer import Answer
from cloister.query.display import plain_console, show_answer
from cloister.query.explain import Conversation, explain, plan_of
from cloister.query.plan import Plan
from cloister.query.prompt import BARE, LineReader

__all__ = ["COMMANDS", "Shell", "working"]


def working() -> AbstractContextManager[Any]:
    """Show a spinner on stderr while the engine works, if it is a terminal."""
    screen = plain_console(stderr=True)
    return screen.status("asking …") if screen.is_terminal else nullcontext()


# The shell


class Shell:
    r"""A session with one dataset. A refusal is printed, and the session continues.

    Args:
        dataset: the dataset.
        reader: the source of queries.
        console: the output.
        spend: the most one answer may cost; `\spend` changes it.
        within: the largest error of an answer; `\within` changes it.
        confidence: of the intervals.
    """

    def __init__(
        self,
        dataset: Conversation,
        reader: LineReader,
        console: Console,
        *,
        spend: Loss | None = None,
        within: str | None = None,
        confidence: str = "0.95",
    ) -> None:
        self.dataset = dataset
        self.reader = reader
        self.console = console
        self.spend = spend
        self.within = within
        self.confidence = confidence
        self.last: Answer | None = None

    def run(self) -> None:
        """Read and answer until the end of input."""
        while True:
            try:
                self.do(self.reader.read(self._status()))
            except EOFError:
                return
            except KeyboardInterrupt:  # while reading: drop the line
                continue

    def do(self, text: str) -> None:
        """Answer one query or run one command. EOFError means exit."""
        text = BARE.get(text.strip().lower(), text.strip())
        try:
            if text.startswith("\\"):
                self._command(text)
            elif text.strip("; \n"):
                self._ask(text)
        except CloisterError as error:
            self._say(str(error), "red")
        except OSError as error:
            self._say(f"the file could not be written: {error.strerror}.", "red")
        except KeyboardInterrupt:
            self._say("Stopped. If the question was charged already, the charge stands: \\budget tells.", "red")

    def _command(self, text: str) -> None:
        word, _, rest = text[1:].partition(" ")
        names = [word] if word in COMMANDS else [name for name in COMMANDS if word and name.startswith(word)]
        if len(names) != 1:
            raise BadInput(f"there is no command \\{word:.40}. \\help lists those there are.")
        COMMANDS[names[0]][2](self, rest.strip().rstrip(";").rstrip())

    def _ask(self, sql: str) -> None:
        plan = self._planned(sql)
        with working():
            self.last = self.dataset.run(plan)
        show_answer(self.last, self.console, self.dataset.account.left)

    def _planned(self, sql: str) -> Plan:
        if self.spend is None and self.within is None:
            raise BadLoss("say first what an answer may cost (\\spend rho 0.01) or how far off it may be (\\within 5).")
        return plan_of(self.dataset, sql, self.spend, self.within, self.confidence)

    # Commands

    def _plan(self, sql: str) -> None:
        # The engine's SQL can fill screens and hide the rest; `cloister plan` prints it too.
        self._say(explain(self._planned(sql), sql=False))

    def _budget(self, _rest: str) -> None:
        account = self.dataset.account
        self._say(f"{account}\nspent {account.spent}\nleft  {account.left}")

    def _spend(self, text: str) -> None:
        self.spend = Loss.parse(text, bare=True) if text else self.spend
        self._say(f"An answer may cost {self.spend}." if self.spend else "Nothing is set. Write \\spend rho 0.01")

    def _within(self, text: str) -> None:
        if text.lower() == "off":
            self.within = None
        elif text:
            rational(text, "within")
            self.within = text
        most = f", and cost {self.spend} at most" if self.spend else ""
        self._say(f"An answer may be off by {self.within}{most}." if self.within else "Answers cost what \\spend says.")

    def _tables(self, _rest: str) -> None:
        rows = [
            [name, "public" if table.public else table.unit or "its rows", ", ".join(table.columns)]
            for name, table in self.dataset.schema.tables.items()
        ]
        self._grid(["table", "protects", "columns"], rows)

    def _schema(self, name: str) -> None:
        tables = {table_name.lower(): table for table_name, table in self.dataset.schema.tables.items()}
        table = tables.get(name.lower())
        if table is None:
            raise BadInput(f"write \\schema and one of: {', '.join(self.dataset.schema.tables)}.")
        rows = [
            [column.name, column.type, _facts(column), "" if column.nullable else "never"]
            for column in table.columns.values()
        ]
        unit = [[table.unit, "", f"names one {self.dataset.schema.unit.name}", "never"]] if table.unit else []
        self._grid(["column", "type", "public", "NULL"], [*unit, *rows])

    def _receipt(self, file: str) -> None:
        receipt = None if self.last is None else self.last.receipt
        if receipt is None:
            self._say("There is no receipt: the last answer, if any, cost nothing.")
        elif file:
            Path(file).write_text(receipt.text() + "\n", encoding="ascii")
            self._say(f"Written to {file}.")
        else:
            self._say(str(receipt))

    def _history(self, _rest: str) -> None:
        for text in self.reader.past()[-50:]:
            self._say(text)

    def _help(self, _rest: str) -> None:
        self._say("End a question with a semicolon. Ctrl-C drops a line, Tab completes, Ctrl-D leaves.")
        self._grid([], [[f"\\{name} {takes}", meaning] for name, (takes, meaning, _) in COMMANDS.items()])

    def _quit(self, _rest: str) -> None:
        raise EOFError

    # Output

    def _status(self) -> str:
        price = f"within {self.within}" if self.within else f"spend {self.spend or 'not set'}"
        return f" {price} · {self.dataset.account.left} left · \\help"

    def _say(self, text: str, style: str = "") -> None:
        self.console.print(Text(text, style=style), soft_wrap=True)

    def _grid(self, titles: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        table = Table(box=box.SIMPLE_HEAD if titles else None, pad_edge=False, show_header=bool(titles))
        for title in titles or [""] * len(rows[0]):
            table.add_column(title, overflow="fold")
        for row in rows:
            table.add_row(*map(Text, row))
        self.console.print(table)


def _facts(column: Column) -> str:
    if column.categories is not None:
        return ", ".join(map(str, column.categories))
    return f"{column.bounds[0]} to {column.bounds[1]}" if column.bounds is not None else ""


# Arguments, help text and method of each command.
COMMANDS: dict[str, tuple[str, str, Callable[[Shell, str], None]]] = {
    "budget": ("", "what was spent, and what is left", Shell._budget),
    "plan": ("SQL", "what a question would cost, and how wrong the answer may be; free", Shell._plan),
    "spend": ("LOSS", "what an answer may cost: rho 0.01; epsilon 1, delta 1e-6; 0.5", Shell._spend),
    "within": ("X", "how far off an answer may be, at the cheapest loss; off: as \\spend says", Shell._within),
    "tables": ("", "the tables", Shell._tables),
    "schema": ("TABLE", "what is public about a table", Shell._schema),
    "receipt": ("[FILE]", "the proof of the last answer, shown or saved", Shell._receipt),
    "history": ("", "what was asked before", Shell._history),
    "help": ("", "this list", Shell._help),
    "quit": ("", "leave", Shell._quit),
}
