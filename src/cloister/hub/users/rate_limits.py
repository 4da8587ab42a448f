"""Rate limits: failed attempts in the database, requests in memory.

`reserve` counts wrong passwords and codes in the database, so that every process sees them: an attempt is written
*before* the password is checked and removed when it was right. Concurrent guesses therefore get no more attempts than
sequential ones. `Limiter` counts requests in the memory of one process.

The count is kept by what was typed, whether or not such an account exists: a lock does not reveal that it does.
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterable

import sqlalchemy as sa
from sqlalchemy.orm import Session

from cloister.hub.core.database import now
from cloister.hub.core.models import Try
from cloister.hub.core.settings import Settings
from cloister.privacy.errors import TooMany

__all__ = ["Limiter", "forget", "give_back", "key", "reserve"]


def key(kind: str, what: str) -> str:
    """Return the key under which attempts are counted: a hash, so that a mistyped address is not stored.

    Args:
        kind: account, address or factor, which are counted separately.
        what: the e-mail address, network address or id of the user.
    """
    return hashlib.sha256(f"{kind}:{what}".encode("utf-8", "surrogatepass")).hexdigest()


def reserve(session: Session, settings: Settings, keys: Iterable[str]) -> int:
    """Count one attempt for each key, before checking the password. In a writing transaction.

    Returns:
        The attempts left to the key with the fewest: 0 means that it is locked unless this one is right.

    Raises:
        TooMany: one of them has no attempt left. The message is the same for every user.
    """
    window = settings.lock_minutes * 60
    session.execute(sa.delete(Try).where(Try.time <= now() - window))
    wanted = sorted(set(keys))
    if session.get_bind().dialect.name == "postgresql":
        # SQLite has one writer at a time. In PostgreSQL, two attempts for one key must not both be the last one.
        for key in wanted:
            session.execute(sa.select(sa.func.pg_advisory_xact_lock(int(key[:15], 16))))
    counted = sa.select(Try.who, sa.func.count()).where(Try.who.in_(wanted)).group_by(Try.who)
    used = {row[0]: row[1] for row in session.execute(counted)}
    if any(used.get(key, 0) >= settings.login_tries for key in wanted):
        raise TooMany(f"too many wrong tries. Wait {settings.lock_minutes} minutes, then try again.", wait_s=window)
    session.add_all(Try(who=key) for key in wanted)
    session.flush()
    return min(settings.login_tries - used.get(key, 0) - 1 for key in wanted)


def forget(session: Session, keys: Iterable[str]) -> None:
    """Remove these attempts after the right password."""
    session.execute(sa.delete(Try).where(Try.who.in_(list(keys))))


def give_back(session: Session, who: str) -> None:
    """Remove the last attempt of a key, and no other: an address does not earn attempts by one good account."""
    last = sa.select(sa.func.max(Try.id)).where(Try.who == who).scalar_subquery()
    session.execute(sa.delete(Try).where(Try.id == last))


class Limiter:
    """Limit of calls in any span of time, for each key; in the memory of this process.

    Two neighbouring spans are weighted instead of storing every call's time: two numbers per key, with a small error.

    Args:
        most: the calls per span.
        seconds: the length of the span.
        clock: returns the time.
    """

    def __init__(self, most: int, seconds: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        self.most = most
        self.seconds = seconds
        self._clock = clock
        self._counts: dict[str, tuple[int, int, int]] = {}  # key -> which span, calls in it, calls in the one before
        self._swept = 0  # the span in which idle keys were last dropped
        self._lock = threading.Lock()

    def check(self, who: str, weight: int = 1) -> None:
        """Count a call; a costly one counts as several.

        Raises:
            TooMany: the key has made its calls; this one is not counted.
        """
        at = self._clock() / self.seconds
        span = int(at)
        with self._lock:
            last, count, before = self._counts.get(who, (span, 0, 0))
            if last != span:
                count, before = 0, count if last == span - 1 else 0
            # The rest of the previous span still counts.
            if count + before * (1 - (at - span)) >= self.most:
                raise TooMany(f"more than {self.most} requests in {self.seconds:g} seconds. Wait a minute.")
            self._counts[who] = (span, count + weight, before)
            if self._swept != span:
                self._swept = span
                self._counts = {key: counts for key, counts in self._counts.items() if counts[0] >= span - 1}
