"""What may be ordered of an instance over HTTP, by whoever has its token.

An order is a POST with JSON, and ``Authorization: Bearer TOKEN``. Without a token of its own an
instance takes none. What is refused changes nothing, and says why in a line of text.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from kafka_keyshared.core.metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.errors import ConfigError, KeySharedError

RANGES = "/api/v1/ranges"
"""Where ranges are assigned."""

FILTERS = "/api/v1/filters"
"""Where workers are given other filters."""

MOST_BYTES = 64 << 10
"""More than any order has."""

TOKEN_CHARS = 16
"""A token of fewer characters could be guessed."""


class RangeOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker is to have these slots, both ends included; ``timeout`` is in seconds.

    None for the worker makes them nobody's.
    """

    first: int
    last: int
    worker: str | None
    take_over: bool = False
    timeout: Annotated[float, Meta(gt=0, le=300)] = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class FilterOrder(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A worker is to take the keys that one of these patterns takes; ``timeout`` is in seconds.

    Without a pattern it is every key.
    """

    worker: str
    patterns: tuple[str, ...]
    timeout: Annotated[float, Meta(gt=0, le=300)] = 30.0
    subscription: str = DEFAULT_SUBSCRIPTION


class Acting(NamedTuple):
    """What whoever has the token may order; each may be called from any thread.

    ``assign_range`` returns the ranges of all workers, ``set_filters`` what each of them takes;
    they raise :class:`KeySharedError` for what is refused, and :class:`TimeoutError`.
    """

    token: str
    assign_range: Callable[[RangeOrder], Mapping[str, str]]
    set_filters: Callable[[FilterOrder], Mapping[str, Sequence[str]]]


Order = TypeVar("Order", RangeOrder, FilterOrder)


class Said(NamedTuple):
    """An answer: its HTTP status, and its text."""

    status: int
    text: bytes
    content_type: str = "text/plain; charset=utf-8"


def read_token(path: str) -> str:
    """Return the token that stands in a file, without what surrounds it.

    Raises :class:`ConfigError` for a file that cannot be read, or that has none.
    """
    try:
        token = Path(path).read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        said = getattr(error, "strerror", None) or "it is no ASCII text"
        raise ConfigError(f"http_token_file={path!r}: {said}") from error
    if len(token) < TOKEN_CHARS or not token.isprintable() or " " in token:
        raise ConfigError(
            f"http_token_file={path!r}: give a file with one token of at least {TOKEN_CHARS} "
            "characters, such as `openssl rand -hex 16` prints"
        )
    return token


def ordered(acting: Acting | None, path: str, authorization: str, body: bytes) -> Said:
    """Do what is ordered at this path, and return what to answer."""
    if path not in {RANGES, FILTERS}:
        return _text(404, f"orders are taken at {RANGES} and {FILTERS}")
    if acting is None:
        return _text(403, "this instance takes no orders: it runs without http_token_file")
    kind, _, token = authorization.partition(" ")
    given = token.strip().encode("utf-8", "replace")
    if kind.lower() != "bearer" or not hmac.compare_digest(given, acting.token.encode()):
        return _text(401, "an order needs 'Authorization: Bearer' with the instance's token")
    if path == RANGES:
        return _done("ranges", acting.assign_range, body, RangeOrder, "first, last and worker")
    return _done("filters", acting.set_filters, body, FilterOrder, "worker and patterns")


def _done(
    name: str,
    do: Callable[[Order], Mapping[str, object]],
    body: bytes,
    kind: type[Order],
    takes: str,
) -> Said:
    """Do what is ordered; the answer has what it returns under this name."""
    try:
        answer = do(msgspec.json.decode(body, type=kind))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _text(400, f"{error}; give JSON with {takes}")
    except TimeoutError as error:
        return _text(504, str(error))
    except KeySharedError as error:
        return _text(409, str(error))
    return Said(200, msgspec.json.encode({name: dict(answer)}), "application/json")


def _text(status: int, text: str) -> Said:
    return Said(status, f"{text}\n".encode())
