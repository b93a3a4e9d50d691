"""The server of the admin API, on a thread of its own."""

from __future__ import annotations

import contextlib
import socket
import threading

import uvicorn

from kafka_keyshared.logs import log_of
from kafka_keyshared.observability.web.admin.app import application
from kafka_keyshared.observability.web.admin.feed import Feed
from kafka_keyshared.observability.web.admin.slow_request_timeout import Impatient
from kafka_keyshared.observability.web.commands import Acting
from kafka_keyshared.observability.web.group.subscribe import GroupListener
from kafka_keyshared.observability.web.guard import RequestGuard

log = log_of("kafka_keyshared.web")

CONNECTIONS_MOST = 100
"""Maximum number of connections. Further ones get an error."""

ENDS_WITHIN = 3
"""Seconds that open streams have to end."""


class AdminServer:
    """Serves the admin API until closed; ``port`` 0 takes any free one.

    As with metrics, an unavailable address is logged and the instance goes on: :meth:`start`
    returns False then.
    """

    def __init__(
        self, host: str, port: int, feed: Feed, acting: Acting | None, group: GroupListener
    ) -> None:
        self._host = host
        self.port = port
        self._feed = feed
        self._acting = acting
        self._group = group
        self._guard = RequestGuard(host, None if acting is None else acting.token)
        self._closing = threading.Event()
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """The listening address as a URL."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> bool:
        """Listen, on a daemon thread. Return False when the address is not available."""
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        listening = socket.socket(family)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((self._host, self.port))
        except (OSError, OverflowError) as error:
            listening.close()
            log.error(  # noqa: TRY400 - a stack would say nothing more
                "no admin API: cannot listen at %s: %s; records are consumed all the same. End "
                "what listens there, or give another console_port (0: any free one)",
                self.url,
                getattr(error, "strerror", None) or error,
            )
            return False
        self.port = listening.getsockname()[1]
        config = uvicorn.Config(
            application(self._feed, self._guard, self._acting, self._group, self._closing),
            loop="asyncio",
            http=Impatient,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            server_header=False,
            limit_concurrency=CONNECTIONS_MOST,
            timeout_graceful_shutdown=ENDS_WITHIN,
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(
            target=self._serve, args=(listening,), name="keyshared-admin", daemon=True
        )
        self._thread.start()
        log.info("console at %s/, admin API at %s/api/v1", self.url, self.url)
        return True

    def _serve(self, listening: socket.socket) -> None:
        if self._server is None:
            return
        with contextlib.closing(listening):
            self._server.run(sockets=[listening])

    def close(self) -> None:
        """Stop listening, and end open streams; a second call does nothing."""
        self._closing.set()
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(ENDS_WITHIN + 1.0)
