"""One process of a hub, started by `serve`: `web ALIVE SOCKET` or `worker ALIVE`, both file descriptors."""

import contextlib
import ctypes
import os
import resource
import signal
import socket
import sys
import threading

from cloister.hub.core import logs
from cloister.hub.core.hub import Hub
from cloister.hub.core.settings import Settings

__all__ = ["application", "main"]

_M_MMAP_THRESHOLD = -3  # of malloc.h


def application(hub: Hub) -> object:
    """Return the web application with metrics; its plans are made in processes of their own."""
    from cloister.hub.core.metrics import RequestMetrics
    from cloister.hub.jobs.planner import Planner
    from cloister.hub.web.app import create_app
    from cloister.hub.web.security import KnownHosts

    app = create_app(hub)
    app.state.planner = Planner(hub.settings)
    return KnownHosts(RequestMetrics(app), hub.settings)


def web(hub: Hub, descriptor: int) -> None:
    """Serve requests from a listening socket until SIGTERM."""
    import uvicorn

    from cloister.hub.web.connection import Connections

    _return_large_blocks()
    config = uvicorn.Config(
        application(hub),  # type: ignore[arg-type]
        http=Connections(hub.settings, _most_connections()),  # type: ignore[arg-type]
        ws="none",
        log_config=None,
        access_log=False,  # it would write query strings; the application writes its own line
        proxy_headers=False,  # CLOISTER_TRUSTED_PROXIES decides whom to believe
        server_header=False,
        timeout_graceful_shutdown=20,
    )
    uvicorn.Server(config).run(sockets=[socket.socket(fileno=descriptor)])


def _return_large_blocks() -> None:
    """Let the C library return every freed block of a MB: by itself glibc keeps several times the largest answer."""
    with contextlib.suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_MMAP_THRESHOLD, 1024 * 1024)


def _most_connections() -> int:
    """Return how many connections this process serves: with a file each, half of its descriptors at most."""
    from cloister.hub.web.connection import MOST

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MOST
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return MOST if soft == resource.RLIM_INFINITY else max(20, min(MOST, soft // 4))


def main(arguments: list[str]) -> None:
    """Run one of these processes."""
    settings = Settings.from_environment()
    logs.configure(settings.log_level)
    logs.catch_all()
    os.umask(0o077)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a core dump would hold keys
    _end_with_the_parent(int(arguments[1]))
    if arguments[0] == "web":
        with Hub.open(settings) as hub:
            web(hub, int(arguments[2]))
    else:
        from cloister.hub.jobs.worker import run_worker

        run_worker(settings)


def _end_with_the_parent(alive: int) -> None:
    def watch() -> None:
        os.read(alive, 1)  # returns when the other end is closed
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="parent").start()


if __name__ == "__main__":
    main(sys.argv[1:])
elif __name__ == "__mp_main__":  # a worker's own child, which begins by loading this file: it logs like all others
    logs.configure(Settings.from_environment().log_level)
    logs.catch_all()
