"""Headers as the client gives them, or a refusal where it cannot."""

from __future__ import annotations

from operator import methodcaller
from typing import Any

from kafka_keyshared.model import Record

NOT_UTF_8 = "a header has a name that is not UTF-8, which the Kafka client cannot read"


ask_headers = methodcaller("headers")
"""``record.headers()``, of which an error is always raised.

At a name that is not UTF-8 the client returns a list *and* leaves an error behind. Python notices
that as long as the call is new to it; a call that it has made often it trusts, and goes on with the
list. Calls that are made in C, as this one is, are looked at every time.
"""


class HeadersError(ValueError):
    """A record's headers cannot be read through the client."""


def read_headers(record: Record) -> list[tuple[str, Any]]:
    """Return a record's headers; raise :class:`HeadersError` when the client cannot read them.

    Kafka's protocol wants header names in UTF-8, and not every producer sees to it. At such a name
    the client raises SystemError the first time it is asked, and from then on returns pairs whose
    first half is no object at all: unpacking one ends the process, showing it does not.
    """
    try:
        found: list[tuple[str, Any]] = ask_headers(record) or []
    except (SystemError, UnicodeDecodeError) as error:
        raise HeadersError(NOT_UTF_8) from error
    if any(repr(pair).startswith("(<NULL>") for pair in found):
        raise HeadersError(NOT_UTF_8)
    return found
