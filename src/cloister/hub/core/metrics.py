"""Metrics for Prometheus: requests and their times, jobs and their waiting times, charges, remaining budgets.

Requests are counted in every web process; with PROMETHEUS_MULTIPROC_DIR set (`serve` does it) their counts are added up
whichever process answers. All other metrics are read from the database and the ledger on request, so every process
reports the same. Routes are counted by their pattern: a path could hold the secret of an invitation.
"""

import hmac
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import MultiProcessCollector

from cloister.hub.core import heartbeats
from cloister.hub.core.database import now
from cloister.hub.core.models import Dataset, Job, Person, Request, Spent
from cloister.privacy.errors import CloisterError, NotHere, SignInFailed

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from cloister.hub.core.hub import Hub

__all__ = ["TYPE", "HubNumbers", "RequestMetrics", "read"]

TYPE = "text/plain; version=0.0.4; charset=utf-8"
_HERE = CollectorRegistry()
_LABELS = ("method", "route")
_REQUESTS = Counter("cloister_requests", "Answered requests.", (*_LABELS, "status"), registry=_HERE)
_SECONDS = Histogram(
    "cloister_request_seconds",
    "How long requests took.",
    _LABELS,
    registry=_HERE,
    buckets=(0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30),
)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_STATES = (
    *("waiting", "queued", "running", "charged"),
    *("done", "refused", "failed", "cancelled", "interrupted"),
)


class RequestMetrics:
    """Middleware that counts requests."""

    def __init__(self, app: "ASGIApp") -> None:
        self.app = app

    async def __call__(self, scope: "Scope", receive: "Receive", send: "Send") -> None:
        """Serve a request and count it."""
        if scope["type"] != "http":
            return await self.app(scope, receive, send)
        status, begun = 500, time.perf_counter()

        async def send_noting(message: "Message") -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, send_noting)
        finally:
            # Both come from a short list: invented methods or paths must not fill the memory.
            method = scope["method"] if scope["method"] in _METHODS else "other"
            route = getattr(scope.get("route"), "path", None) or "none"
            _REQUESTS.labels(method, route, status).inc()
            _SECONDS.labels(method, route).observe(time.perf_counter() - begun)


def read(hub: "Hub", authorization: str) -> bytes:
    """Return the page for Prometheus.

    Args:
        hub: the hub.
        authorization: the header of the request: `Bearer` and the token of the settings.

    Raises:
        NotHere: no token is set, so there is no such page.
        SignInFailed: another token was shown.
    """
    token = hub.settings.metrics_token
    if not token:
        raise NotHere("this hub does not publish metrics.")
    if not hmac.compare_digest(authorization.encode(), f"Bearer {token}".encode()):
        raise SignInFailed("metrics are for those who show the token of the settings.")
    numbers = CollectorRegistry()
    numbers.register(HubNumbers(hub))
    requests = _HERE
    if "PROMETHEUS_MULTIPROC_DIR" in os.environ:
        requests = CollectorRegistry()
        MultiProcessCollector(requests)  # type: ignore[no-untyped-call]
    return generate_latest(requests) + generate_latest(numbers)


class HubNumbers:
    """Metrics from the database and the ledger, read on request."""

    def __init__(self, hub: "Hub") -> None:
        self.hub = hub

    def describe(self) -> list[Metric]:
        """Return nothing: names are found when they are read."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        by_state = sa.select(Job.state, sa.func.count()).group_by(Job.state)
        with self.hub.database.reading() as session:
            yield _counts(
                "cloister_jobs",
                "Jobs by state.",
                "state",
                dict.fromkeys(_STATES, 0) | dict(session.execute(by_state).all()),
            )
            oldest = session.scalar(sa.select(sa.func.min(Job.created)).where(Job.state == "queued"))
            yield _gauge(
                "cloister_queue_age_seconds",
                "How long the oldest queued job has waited.",
                max(0.0, now() - oldest) if oldest is not None else 0,
            )
            charges = session.scalar(sa.select(sa.func.count()).select_from(Spent)) or 0
            yield _total("cloister_charges", "Jobs that were charged.", charges)
            people = session.scalar(sa.select(sa.func.count()).select_from(Person).where(Person.active)) or 0
            yield _gauge("cloister_people", "Open accounts.", people)
            waiting = sa.select(sa.func.count()).select_from(Request).where(Request.state == "open")
            yield _gauge("cloister_open_requests", "Requests that wait for a decision.", session.scalar(waiting) or 0)
            names = session.scalars(sa.select(Dataset.name).where(Dataset.deleted.is_(None))).all()
        yield from self._ledger(list(names))

    def _ledger(self, names: list[str]) -> Iterator[Metric]:
        labels = ["dataset", "measure"]
        left = GaugeMetricFamily("cloister_budget_left", "What a dataset can still spend.", labels=labels)
        cap = GaugeMetricFamily("cloister_budget", "What a dataset may spend in all.", labels=labels)
        try:
            yield _total("cloister_ledger_entries", "Entries of the ledger.", self.hub.ledger.head.number)
            for name in names:
                try:
                    balance = self.hub.ledger.balance(name)
                except CloisterError:  # shared, but its account has not been opened yet
                    continue
                left.add_metric([name, balance.left.measure], float(balance.left.amount))
                cap.add_metric([name, balance.rules.cap.measure], float(balance.rules.cap.amount))
            healthy = 1
        except CloisterError:
            healthy = 0
        yield left
        yield cap
        yield _gauge("cloister_ledger_readable", "Whether the ledger can be read.", healthy)
        yield _gauge(
            "cloister_ledger_spends", "Whether the ledger is known to be the newest, and spends.", self._spends()
        )
        yield _gauge("cloister_workers", "Workers that live.", len(heartbeats.living(self.hub.folder)))

    def _spends(self) -> int:
        try:
            self.hub.ledger.check_newest()
        except CloisterError:
            return 0
        return 1


def _gauge(name: str, meaning: str, value: float) -> Metric:
    return GaugeMetricFamily(name, meaning, value=value)


def _total(name: str, meaning: str, value: float) -> Metric:
    return CounterMetricFamily(name, meaning, value=value)


def _counts(name: str, meaning: str, label: str, counts: dict[Any, int]) -> Metric:
    family = GaugeMetricFamily(name, meaning, labels=[label])
    for word, count in counts.items():
        family.add_metric([str(word)], count)
    return family
