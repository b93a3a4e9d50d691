"""Orders over HTTP: authentication, execution and answers.

An order is a POST with JSON, and ``Authorization: Bearer TOKEN``. An instance without a token
accepts none. A refused order changes nothing, and its answer gives the reason. Each order is logged
with its sender.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.former_names import FORMER_ORDERS
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.observability.web.command_list import VERBS, Done, OrderRefused

log = log_of("kafka_keyshared.web")

ACTIONS = "/api/v1/actions/"
"""Path prefix of orders; the verb follows it."""

RANGES = "/api/v1/ranges"
"""Another path for assigning ranges."""

FILTERS = "/api/v1/filters"
"""Another path for changing a worker's filters."""

FIRST = {RANGES: ("assign", "ranges"), FILTERS: ("filter", "filters")}
"""The two oldest paths: their verbs, and the part of the result that they return."""

MOST_BYTES = 64 << 10
"""Maximum size of an order. No real one reaches it."""

TOKEN_CHARS = 16
"""Minimum length of a token. A shorter one could be guessed."""

NAME_HEADER = "X-Keyshared-As"
NAME_CHARS = 64
"""The sender may give a name in this header. It is for the log only, as it is not verified."""


class Acting(NamedTuple):
    """The token and the handler of orders. ``act`` may be called from any thread.

    It takes an order, and returns a text about its effect, and the result. It raises
    :class:`KeySharedError` for a refused order, and :class:`TimeoutError`.
    """

    token: str
    act: Callable[[Any], tuple[str, dict[str, Any]]]


class Asker(NamedTuple):
    """The sender of an order: its address and the name it gave."""

    address: str
    name: str = ""

    def __str__(self) -> str:
        name = "".join(each for each in self.name[:NAME_CHARS] if each.isprintable())
        return f"{name!r} at {self.address}" if name else self.address


class Said(NamedTuple):
    """An answer: its HTTP status and its text."""

    status: int
    text: bytes
    content_type: str = "text/plain; charset=utf-8"


class RequestRefusal(NamedTuple):
    """The reason why a request is refused, and its HTTP status."""

    status: int
    reason: str

    def said(self, path: str) -> Said:
        """Return the answer for this path: a line of text, or JSON for an action."""
        if path.startswith(ACTIONS):
            return self.as_json()
        return Said(self.status, f"{self.reason}\n".encode())

    def as_json(self) -> Said:
        """Return the answer as JSON."""
        told = msgspec.json.encode(OrderRefused(refused=self.reason))
        return Said(self.status, told, "application/json")


def read_token(path: str) -> str:
    """Return the token from a file, without surrounding whitespace.

    Raises :class:`ConfigError` for a file that cannot be read, or that has no token.
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


def without_token(token: str | None, authorization: str) -> RequestRefusal | None:
    """Return why a sender with this header may not give orders; None for the right token.

    The time this takes does not depend on how much of the token is right.
    """
    if token is None:
        return RequestRefusal(
            403,
            "this instance takes no orders: it runs without http_token_file; give it a file with a "
            "token, such as `openssl rand -hex 16` prints",
        )
    kind, _, given = authorization.partition(" ")
    right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    if kind.lower() != "bearer" or not right:
        return RequestRefusal(401, "this needs 'Authorization: Bearer' with the instance's token")
    return None


_seldom = Seldom(log)


def ordered(
    acting: Acting | None, path: str, authorization: str, body: bytes, asker: Asker
) -> Said:
    """Execute the order of this path, and return the answer."""
    verb, part = FIRST.get(path, (path.removeprefix(ACTIONS), ""))
    if path.startswith(ACTIONS) and verb in FORMER_ORDERS:
        now = FORMER_ORDERS[verb]
        reason = f"the order {verb!r} is {now!r} now: send it to {ACTIONS}{now}"
        return RequestRefusal(404, reason).said(path)
    if (not part and not path.startswith(ACTIONS)) or verb not in VERBS:
        known = ", ".join(VERBS)
        return RequestRefusal(404, f"orders are taken at {ACTIONS}VERB; there is {known}").said(
            path
        )
    refusal = without_token(None if acting is None else acting.token, authorization)
    if refusal is not None or acting is None:
        _seldom.warning("token", f"order {verb} of {asker} refused: without the token")
        return (refusal or without_token(None, "") or RequestRefusal(403, "")).said(path)
    try:
        order = msgspec.json.decode(body or b"{}", type=VERBS[verb].order)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return RequestRefusal(400, f"{error}; give JSON with {_fields(verb)}").said(path)
    try:
        done, result = acting.act(order)
    except (TimeoutError, KeySharedError) as error:
        late = isinstance(error, TimeoutError)
        log.warning("order %s of %s %s", verb, asker, "is not done in time" if late else "refused")
        return RequestRefusal(504 if late else 409, str(error)).said(path)
    log.info("order %s of %s is done", verb, asker)
    told = result[part] if part else None
    answer = {part: told} if part else Done(verb=verb, done=done, result=result)
    return Said(200, msgspec.json.encode(answer), "application/json")


def _fields(verb: str) -> str:
    fields = msgspec.structs.fields(VERBS[verb].order)
    needed = [each.encode_name for each in fields if each.required]
    named = needed or [each.encode_name for each in fields]
    *most, last = named or ["nothing in it"]
    return f"{', '.join(most)} and {last}" if most else last
