"""Orders over HTTP, to whoever has the token: who may give them, and what they are answered.

An order is a POST with JSON, and ``Authorization: Bearer TOKEN``. Without a token of its own an
instance takes none. What is refused changes nothing, and says why. Each is logged with who asked.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.web.orders import VERBS, Done, Refused

log = log_of("kafka_keyshared.web")

ACTIONS = "/api/v1/actions/"
"""Where orders are taken, each under its verb."""

RANGES = "/api/v1/ranges"
"""Where ranges are assigned, too."""

FILTERS = "/api/v1/filters"
"""Where workers are given other filters, too."""

FIRST = {RANGES: ("assign", "ranges"), FILTERS: ("filter", "filters")}
"""The two paths that there were first: their verbs, and the part of the result they answer with."""

MOST_BYTES = 64 << 10
"""More than any order has."""

TOKEN_CHARS = 16
"""A token of fewer characters could be guessed."""

NAME_HEADER = "X-Keyshared-As"
NAME_CHARS = 64
"""Who asks may say a name in this header. It is for the log alone: anybody can say any."""


class Acting(NamedTuple):
    """What whoever has the token may order; ``act`` may be called from any thread.

    It takes an order, and returns in words what was done and what there is to know of it. It raises
    :class:`KeySharedError` for what is refused, and :class:`TimeoutError`.
    """

    token: str
    act: Callable[[Any], tuple[str, dict[str, Any]]]


class Asker(NamedTuple):
    """Who asks: the address, and the name that was given."""

    address: str
    name: str = ""

    def __str__(self) -> str:
        name = "".join(each for each in self.name[:NAME_CHARS] if each.isprintable())
        return f"{name!r} at {self.address}" if name else self.address


class Said(NamedTuple):
    """An answer: its HTTP status, and its text."""

    status: int
    text: bytes
    content_type: str = "text/plain; charset=utf-8"


class Refusal(NamedTuple):
    """Why a request is refused, and with which HTTP status."""

    status: int
    reason: str

    def said(self, path: str) -> Said:
        """Return it as it is answered at this path: a line of text, or for an action as JSON."""
        if path.startswith(ACTIONS):
            return self.as_json()
        return Said(self.status, f"{self.reason}\n".encode())

    def as_json(self) -> Said:
        """Return it as JSON, for a reader that expects JSON."""
        told = msgspec.json.encode(Refused(refused=self.reason))
        return Said(self.status, told, "application/json")


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


def without_token(token: str | None, authorization: str) -> Refusal | None:
    """Return why whoever shows this may order nothing; None where it is the token.

    How long that takes does not depend on how much of it is right.
    """
    if token is None:
        return Refusal(
            403,
            "this instance takes no orders: it runs without http_token_file; give it a file with a "
            "token, such as `openssl rand -hex 16` prints",
        )
    kind, _, given = authorization.partition(" ")
    right = hmac.compare_digest(given.strip().encode("utf-8", "replace"), token.encode())
    if kind.lower() != "bearer" or not right:
        return Refusal(401, "this needs 'Authorization: Bearer' with the instance's token")
    return None


_seldom = Seldom(log)


def ordered(
    acting: Acting | None, path: str, authorization: str, body: bytes, asker: Asker
) -> Said:
    """Do what is ordered at this path, and return what to answer."""
    verb, part = FIRST.get(path, (path.removeprefix(ACTIONS), ""))
    if (not part and not path.startswith(ACTIONS)) or verb not in VERBS:
        known = ", ".join(VERBS)
        return Refusal(404, f"orders are taken at {ACTIONS}VERB; there is {known}").said(path)
    refusal = without_token(None if acting is None else acting.token, authorization)
    if refusal is not None or acting is None:
        _seldom.warning("token", f"order {verb} of {asker} refused: without the token")
        return (refusal or without_token(None, "") or Refusal(403, "")).said(path)
    try:
        order = msgspec.json.decode(body or b"{}", type=VERBS[verb].order)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return Refusal(400, f"{error}; give JSON with {_fields(verb)}").said(path)
    try:
        done, result = acting.act(order)
    except (TimeoutError, KeySharedError) as error:
        late = isinstance(error, TimeoutError)
        log.warning("order %s of %s %s", verb, asker, "is not done in time" if late else "refused")
        return Refusal(504 if late else 409, str(error)).said(path)
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
