"""The admin API application: routes, guarded by the rules of :mod:`.guard`."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Receive, Scope, Send

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.observability.web.admin.document import PREFIX, WHAT_IF, document
from kafka_keyshared.observability.web.admin.feed import OF_GROUP, PARTS, Feed, Look, Part
from kafka_keyshared.observability.web.commands import (
    ACTIONS,
    FILTERS,
    NAME_HEADER,
    RANGES,
    Acting,
    Asker,
    RequestRefusal,
    Said,
    ordered,
)
from kafka_keyshared.observability.web.commands import MOST_BYTES as ORDER_BYTES
from kafka_keyshared.observability.web.group.subscribe import GroupListener
from kafka_keyshared.observability.web.guard import RequestGuard
from kafka_keyshared.observability.web.resize_preview import foretell
from kafka_keyshared.observability.web.snapshot import REFRESH

ASSETS = Path(__file__).parents[1] / "console"
"""The folder served at ``/``, if it exists."""

STREAMS_MOST = 16
"""Maximum number of streams. Each of them is a connection that stays open."""

ORDERS_MOST = 8
"""Maximum number of concurrent orders."""

NAME_MOST = 200
"""Maximum length of the name that a sender gives."""

BODY_WITHIN = 10.0
"""Seconds in which the body of an order has to arrive."""

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
    "form-action 'none'; style-src 'self' 'unsafe-inline'; img-src 'self' data:",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
_HEADERS = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

TOO_SOON = "it has only just begun: no status yet\n"


class Guarded:
    """Passes requests that the guard allows to the API, and adds the headers to every answer."""

    def __init__(self, app: ASGIApp, guard: RequestGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", ()), *_HEADERS]
            await send(message)

        if scope["type"] == "http" and scope["path"].startswith("/api/"):
            refusal = self._guard.refuse(scope["method"], Headers(scope=scope))
            if refusal is not None:
                told = _response(refusal.said(scope["path"]))
                await told(scope, receive, with_headers)
                return
        await self._app(scope, receive, with_headers)


class Streams:
    """The open streams. They end when ``closing`` is set."""

    def __init__(self, feed: Feed, closing: threading.Event) -> None:
        self._feed = feed
        self._closing = closing
        self._open = 0

    async def answer(self, request: Request) -> Response:
        """Begin a stream, unless the maximum is reached."""
        del request
        if self._open >= STREAMS_MOST:
            return PlainTextResponse(f"there are {STREAMS_MOST} streams already\n", 503)
        return StreamingResponse(self._events(), media_type="text/event-stream")

    async def _events(self) -> AsyncIterator[bytes]:
        self._open += 1
        try:
            yield b"retry: 2000\n\n"
            while not self._closing.is_set():
                text = await run_in_threadpool(self._feed.text)
                yield b": no status yet\n\n" if text is None else _event(text)
                await asyncio.sleep(REFRESH)
        finally:
            self._open -= 1


def _event(text: bytes) -> bytes:
    return b"event: snapshot\ndata: " + text + b"\n\n"


def _response(said: Said) -> Response:
    return Response(said.text, said.status, media_type=said.content_type)


class OrderHandler:
    """Executes orders, a few at once: each waits for the owner on a thread of its own.

    The limit keeps a sender of orders from blocking read requests.
    """

    def __init__(self, acting: Acting | None) -> None:
        self._acting = acting
        self._going = 0

    async def answer(self, request: Request) -> Response:
        """Execute the order, unless its body is too long or too slow."""
        path, headers = request.url.path, request.headers
        if self._going >= ORDERS_MOST:
            return _response(
                RequestRefusal(503, f"there are {ORDERS_MOST} orders already").said(path)
            )
        self._going += 1
        try:
            async with asyncio.timeout(BODY_WITHIN):
                body = await _body(request)
            if body is None:
                text = f"an order has {ORDER_BYTES:,} bytes at most"
                return _response(RequestRefusal(413, text).said(path))
            peer = "?" if request.client is None else request.client.host
            asker = Asker(peer, headers.get(NAME_HEADER, ""))
            shown = headers.get("authorization", "")
            said = await run_in_threadpool(ordered, self._acting, path, shown, body, asker)
        except TimeoutError:
            text = f"its body was not there within {BODY_WITHIN:g} s"
            return _response(RequestRefusal(408, text).said(path))
        except ClientDisconnect:
            return _response(RequestRefusal(400, "it was given up").said(path))
        finally:
            self._going -= 1
        return _response(said)


async def _body(request: Request) -> bytes | None:
    """Return the body, None if it is too long, regardless of the announced length."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > ORDER_BYTES:
            return None
    return bytes(body)


def application(
    feed: Feed,
    guard: RequestGuard,
    acting: Acting | None,
    group: GroupListener,
    closing: threading.Event,
) -> ASGIApp:
    """Return the application. Open streams end when ``closing`` is set."""
    orders = OrderHandler(acting).answer
    described = msgspec.json.encode(document(version("kafka-keyshared")))

    async def openapi(request: Request) -> Response:
        del request
        return Response(described, media_type="application/json")

    routes: list[BaseRoute] = [
        *(Route(f"{PREFIX}/{name}", _answer(feed, part)) for name, (_, part) in PARTS.items()),
        Route(f"{PREFIX}/{WHAT_IF}", _what_if(feed)),
        *(
            Route(f"{PREFIX}/{name}", _answer_of_group(group, look))
            for name, (_, look) in OF_GROUP.items()
        ),
        Route(f"{PREFIX}/stream", Streams(feed, closing).answer),
        Route(f"{PREFIX}/openapi.json", openapi),
        *(Route(path, orders, methods=["POST"]) for path in (ACTIONS + "{verb}", RANGES, FILTERS)),
    ]
    if ASSETS.is_dir():
        routes.append(Mount("/", StaticFiles(directory=ASSETS, html=True)))
    return Guarded(Starlette(routes=routes), guard)


def _answer_of_group(group: GroupListener, look: Look) -> Any:
    """Return a handler for a view of the group. It runs on a thread of its own."""

    def answer(request: Request) -> Response:
        return _json(look(group, request.headers.get(NAME_HEADER, "")[:NAME_MOST]))

    return answer


def _answer(feed: Feed, part: Part) -> Any:
    """Return a handler for a part of the snapshot. It runs on a thread of its own."""

    def answer(request: Request) -> Response:
        del request
        found = feed.latest()
        return _json(None if found is None else part(found))

    return answer


def _what_if(feed: Feed) -> Any:
    """Return a handler for the effect of another number of workers. Nothing changes."""

    def answer(request: Request) -> Response:
        found = feed.latest()
        if found is None:
            return PlainTextResponse(TOO_SOON, 503)
        asked = request.query_params
        workers, subscription = asked.get("workers", ""), asked.get("subscription", "")
        try:
            told = foretell(found.status, feed.routing, workers, subscription)
        except ConfigError as error:
            return PlainTextResponse(f"{error}\n", 400)
        return Response(msgspec.json.encode(told), media_type="application/json")

    return answer


def _json(found: Any) -> Response:
    """Return the answer as JSON, or 503 before there is a status."""
    if found is None:
        return PlainTextResponse(TOO_SOON, 503)
    return Response(msgspec.json.encode(found), media_type="application/json")
