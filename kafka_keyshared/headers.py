"""Headers as the client gives them, or a refusal where it cannot."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.model import Record

NOT_UTF_8 = "a header has a name that is not UTF-8, which the Kafka client cannot read"


class HeadersError(ValueError):
    """A record's headers cannot be read through the client."""


def read_headers(record: Record) -> list[tuple[str, Any]]:
    """Return a record's headers; raise :class:`HeadersError` when the client cannot read them.

    Kafka's protocol wants header names in UTF-8, and not every producer sees to it. At such a name
    the client raises SystemError the first time it is asked, and from then on returns pairs whose
    first half is no object at all: unpacking one ends the process, showing it does not.
    """
    try:
        found = record.headers() or []
    except (SystemError, UnicodeDecodeError) as error:
        raise HeadersError(NOT_UTF_8) from error
    if any(repr(pair).startswith("(<NULL>") for pair in found):
        raise HeadersError(NOT_UTF_8)
    return found
