"""What an engine is: where rows live, and where statements run."""

from collections.abc import Callable
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
    """A place with tables that runs SQL.

    Privacy: `run` takes statements that Cloister built, never text from a user, and the rows it returns are as secret
    as the tables. Only noisy aggregates may go further.
    """

    @property
    def dialect(self) -> DialectName:
        """Which SQL it speaks."""
        ...

    def tables(self) -> list[str]:
        """The names of the tables it can read."""
        ...

    def columns(self, table: str) -> dict[str, str]:
        """The columns of a table with their declared types, without reading a row; empty if there is no such table."""
        ...

    def place(self, table: str) -> str:
        """The table as quoted SQL, to write behind FROM."""
        ...

    def prepare(self, sql: str) -> None:
        """Read one SELECT as far as names and types decide, before it is paid for. No row and no statistic is read.

        An engine that cannot do so without looking at tables does nothing here.

        Raises:
            EngineFailed: the engine does not take the statement.
        """
        ...

    def run(self, sql: str) -> "pa.Table":
        """Run one SELECT. Exact integers come as int64 or as decimal128 of scale 0, text as string.

        Raises:
            EngineFailed: if the engine fails, whatever the reason; its own words are kept for the owner.
        """
        ...

    def again(self) -> "Engine":
        """A connection of its own to the same tables: nothing that is done in one shows in the other."""
        ...

    def close(self) -> None:
        """Let go of the tables."""
        ...


def failing_quietly(engine: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Turn whatever a method of an engine raises into one error that says nothing about rows: engines quote them."""

    def decorate(work: Callable[P, T]) -> Callable[P, T]:
        @wraps(work)
        def quiet(*args: P.args, **kwargs: P.kwargs) -> T:
            try:
                return work(*args, **kwargs)
            except CloisterError:
                raise
            except Exception as error:
                detail = f"{type(error).__name__}: {error}"
            # Out here no error is being handled, so Python does not attach the engine's to ours as its context.
            raise EngineFailed(
                f"{engine} could not do what it was asked. What it said is not shown, since it may quote rows; "
                "the owner finds it in the error's owner_detail.",
                detail,
            )

        return quiet

    return decorate
