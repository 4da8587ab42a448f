"""The engine protocol: holds rows and runs statements."""

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, Literal, ParamSpec, Protocol, TypeVar

from cloister.privacy.errors import CloisterError, EngineFailed

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["DialectName", "Engine", "failing_quietly"]

DialectName = Literal["duckdb", "postgres", "spark"]
P = ParamSpec("P")
T = TypeVar("T")


class Engine(Protocol):
    """A database with tables that runs SQL.

    Privacy: `run` takes statements that Cloister built, never text from a user, and the rows it returns are as secret
    as the tables. Only noisy aggregates may be released.
    """

    @property
    def dialect(self) -> DialectName:
        """Return its SQL dialect."""
        ...

    def tables(self) -> list[str]:
        """Return the names of the tables it can read."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """Return the columns of a table with their declared types, reading no row; empty if there is no such table."""
        ...

    def place(self, table: str) -> str:
        """Return the table as quoted SQL, for a FROM clause."""
        ...

    def failing(self, table: str, readers: Mapping[str, Callable[[str], str]]) -> list[str]:
        """Return the columns whose readers fail on made-up values of their declared types. No row is read.

        Args:
            readers: for each column, the statement that reads it from rows, given as SQL.

        An engine on which this takes long returns none.
        """
        ...

    def prepare(self, sql: str) -> None:
        """Check names and types of one SELECT before it is charged. No row and no statistic is read.

        An engine that cannot do so without looking at tables does nothing here.

        Raises:
            EngineFailed: the engine does not accept the statement.
        """
        ...

    def run(self, sql: str) -> "pa.Table":
        """Run one SELECT. Exact integers come as int64 or as decimal128 of scale 0, text as string.

        Raises:
            EngineFailed: if the engine fails, for any reason; its own message is kept for the owner.
        """
        ...

    def again(self) -> "Engine":
        """Return a separate connection to the same tables: changes in one are invisible in the other."""
        ...

    def close(self) -> None:
        """Close the tables."""
        ...


def failing_quietly(engine: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Turn every exception of an engine's method into one error that contains no rows: engines quote them."""

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        @wraps(work)
        def quiet(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return work(*args, **kwargs)
            except CloisterError:
                raise
            except Exception as error:
                detail = f"{type(error).__name__}: {error}"
            # Here no error is being handled, so Python does not attach the engine's error as context.
            raise EngineFailed(
                f"{engine} could not do what it was asked. What it said is not shown, since it may quote rows; "
                "the owner finds it in the error's owner_detail.",
                detail,
            )

        return quiet

    return decorate
