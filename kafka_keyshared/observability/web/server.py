"""The HTTP server for metrics, health, status and orders.

The server has its own thread. ``/livez`` reports whether the control loop still runs. It ignores
lag and the duration of handlers, because a restart helps with neither. ``/readyz`` reports whether
the group has given this member its partitions and it is not stopping. ``/status`` is the status
value as JSON.

Probes and metrics are public, under any host name. ``/status`` and orders are guarded as the admin
API is (:mod:`.guard`): no web page may request them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

import msgspec

from kafka_keyshared.logs import log_of
from kafka_keyshared.observability.web.commands import (
    MOST_BYTES,
    NAME_HEADER,
    Acting,
    Asker,
    RequestRefusal,
    Said,
    ordered,
)
from kafka_keyshared.observability.web.guard import RequestGuard
from kafka_keyshared.observability.web.http_limits import ASKED_WITHIN, ConnectionLimits
from kafka_keyshared.observability.web.prometheus_collector import Exposition
from kafka_keyshared.observability.web.snapshot import without_record_data
from kafka_keyshared.status import Health, Status

log = log_of("kafka_keyshared.web")


class Probes(NamedTuple):
    """The callables behind the endpoints; each may be called from any thread.

    ``acting`` takes the orders. ``keys``: ``/status`` shows keys, stacks and the messages of errors
    (the setting ``show_keys``).
    """

    live: Callable[[], Health]
    ready: Callable[[], Health]
    status: Callable[..., Status | None]
    acting: Acting | None = None
    keys: bool = False


class HttpServer:
    """Serves an instance's endpoints until closed.

    ``port`` 0 takes any free one; :attr:`port` is the actual one. If the port is taken,
    :meth:`start` logs that and returns False. The instance goes on, because consuming matters more
    than metrics.
    """

    def __init__(self, host: str, port: int, exposition: Exposition, probes: Probes) -> None:
        self._host = host
        self.port = port
        self._exposition = exposition
        self._probes = probes
        self._server: ThreadingHTTPServer | None = None

    @property
    def url(self) -> str:
        """The listening address as a URL."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self.port}"

    def start(self) -> bool:
        """Listen, on a daemon thread. Return False when the address is not available."""
        try:
            self._server = _Server((self._host, self.port), self._exposition, self._probes)
        except (OSError, OverflowError) as error:
            log.error(  # noqa: TRY400 - a stack would say nothing more
                "no metrics and no health checks: cannot listen at %s: %s; records are consumed "
                "all the same. End what listens there, or give another http_port (0: any free one)",
                self.url,
                getattr(error, "strerror", None) or error,
            )
            return False
        self.port = self._server.server_address[1]
        threading.Thread(
            target=self._server.serve_forever, name="keyshared-http", daemon=True
        ).start()
        log.info("metrics and health checks at %s (/metrics /livez /readyz /status)", self.url)
        return True

    def close(self) -> None:
        """Stop listening; a second call does nothing."""
        server, self._server = self._server, None
        if server is not None:
            server.shutdown()
            server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    # A scraper that hangs must not keep the process from exiting.
    block_on_close = False

    def __init__(self, address: tuple[str, int], exposition: Exposition, probes: Probes) -> None:
        self.exposition = exposition
        self.probes = probes
        self.guard = RequestGuard(
            address[0], None if probes.acting is None else probes.acting.token
        )
        self.waiting = ConnectionLimits()
        super().__init__(address, _Handler)

    def service_actions(self) -> None:
        """Close connections with slow requests. The server calls it twice a second."""
        self.waiting.end_late()

    def handle_error(self, request: Any, client_address: Any) -> None:
        log.debug("%s: request of %s ended early", request, client_address, exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = ASKED_WITHIN  # also for a client that does not read the answer
    server: _Server

    def handle_one_request(self) -> None:
        self.server.waiting.begin(self.connection)
        super().handle_one_request()

    def finish(self) -> None:
        self.server.waiting.over(self.connection)
        super().finish()

    def do_GET(self) -> None:
        self.server.waiting.over(self.connection)
        path, _, query = self.path.partition("?")
        if self._has_body():
            # An unread body would be parsed as the next request of this connection. Behind a proxy
            # that could belong to another client.
            self._refuse(RequestRefusal(400, "a GET or HEAD has no body here").said(path))
            return
        if path == "/metrics":
            text, content_type = self.server.exposition.text(self.headers.get("Accept", ""))
            self._answer(200, text, content_type)
        elif path == "/livez":
            self._health(self.server.probes.live())
        elif path == "/readyz":
            self._health(self.server.probes.ready())
        elif path == "/status":
            refusal = self.server.guard.refuse_page(self._headers())
            if refusal is None:
                self._status(pending=query == "pending")
            else:
                self._refuse(refusal.as_json())
        else:
            self._answer(404, b"there are /metrics, /livez, /readyz and /status\n")

    do_HEAD = do_GET  # noqa: N815 - as above

    def do_POST(self) -> None:
        path, _, _ = self.path.partition("?")
        refusal = self.server.guard.refuse_page(self._headers())
        if refusal is not None:
            self._refuse(refusal.said(path))
            return
        length, *others = self.headers.get_all("Content-Length") or [""]
        if others or "Transfer-Encoding" in self.headers or not _is_length(length, MOST_BYTES):
            text = f"an order needs a Content-Length of {MOST_BYTES:,} at most"
            self._refuse(RequestRefusal(400, text).said(path))
            return
        body = self.rfile.read(int(length))
        self.server.waiting.over(self.connection)
        shown, name = self.headers.get("Authorization", ""), self.headers.get(NAME_HEADER, "")
        asker = Asker(self.client_address[0], name)
        said = ordered(self.server.probes.acting, path, shown, body, asker)
        self._answer(said.status, said.text, said.content_type)

    def _status(self, *, pending: bool) -> None:
        status = self.server.probes.status(**{"pending": True} if pending else {})
        if status is None:
            self._answer(503, b"it has only just begun: no status yet\n")
        else:
            shown = status if self.server.probes.keys else without_record_data(status)
            self._answer(200, msgspec.json.encode(shown), "application/json")

    def _headers(self) -> dict[str, str]:
        """Return the headers by their names in lower case; the first of several counts."""
        return {name.lower(): value for name, value in reversed(self.headers.items())}

    def _has_body(self) -> bool:
        """Return whether a body follows, by either of the two headers that announce one."""
        lengths = self.headers.get_all("Content-Length", ())
        return "Transfer-Encoding" in self.headers or any(each.strip() != "0" for each in lengths)

    def _refuse(self, said: Said) -> None:
        """Answer with a refusal and close the connection: its body is not read."""
        self.close_connection = True
        self._answer(said.status, said.text, said.content_type)

    def _health(self, health: Health) -> None:
        self._answer(200 if health.ok else 503, f"{health.reason}\n".encode())

    def _answer(
        self, status: int, body: bytes, content_type: str = "text/plain; charset=utf-8"
    ) -> None:
        self.log_request(status)
        closing = "Connection: close\r\n" if self.close_connection else ""
        head = (
            f"{self.protocol_version} {status} {HTTPStatus(status).phrase}\r\n"
            f"Date: {self.date_time_string()}\r\n"
            f"Content-Type: {content_type}\r\n"
            f"Content-Length: {len(body)}\r\n"
            f"{closing}"
            "Cache-Control: no-store\r\n\r\n"
        ).encode("iso-8859-1")
        # Send the answer in one piece. A second piece would wait until the client has acknowledged
        # the first, which takes 40 ms. Each piece also costs a turn at the interpreter.
        self.wfile.write(head if self.command == "HEAD" else head + body)

    def log_message(self, format: str, *args: Any) -> None:
        log.debug(format, *args)


def _is_length(text: str, most: int) -> bool:
    """Return whether a Content-Length is a number of bytes, at most ``most``."""
    return text.isdecimal() and int(text[:10]) <= most
