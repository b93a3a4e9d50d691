"""Access to record headers, including those the client cannot read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from operator import methodcaller
from typing import Any

from kafka_keyshared.model import Record

NOT_UTF_8 = "a header has a name that is not UTF-8, which the Kafka client cannot read"

NO_HEADERS = "its handler has put something in the place of its headers that is no list of headers"


ask_headers = methodcaller("headers")
"""``record.headers()``, called so that an error is always raised.

When a name is not UTF-8, the client returns a list *and* sets an error. Python checks for that only
while the call site is new. After many calls it trusts the call and continues with the list. Calls
made in C, as this one is, are checked every time.
"""


class HeadersError(ValueError):
    """A record's headers cannot be read through the client."""


class UnreadableHeaders(list[Any]):
    """Stands for headers that the client could not read; any access raises an error."""

    def _refuse(self, *_: object) -> Any:
        raise SystemError(NOT_UTF_8)

    def __reduce__(self) -> Any:
        return UnreadableHeaders, ()  # in another process, too

    __len__ = __iter__ = __getitem__ = __contains__ = __reversed__ = _refuse


def size_of_headers(record: Any) -> int:
    """Return the size in bytes of a record's headers, which must not have been read before.

    The client reports unreadable headers only at the first call, so that is stored in the record.
    """
    headers = first_headers(record)
    if isinstance(headers, UnreadableHeaders) or not headers:
        return 0
    return sum(len(name) + len(value or b"") for name, value in headers)


def first_headers(record: Any) -> list[tuple[str, Any]] | None:
    """Return the headers of a record whose headers may not have been read before.

    Unreadable headers are stored in the record as :class:`UnreadableHeaders`.
    """
    try:
        found: list[tuple[str, Any]] | None = ask_headers(record)
    except (SystemError, UnicodeDecodeError):
        record.set_headers(found := UnreadableHeaders())
    return found


def headers_of_all(
    records: Sequence[Any], ask: Callable[[Any], Any] = ask_headers
) -> list[list[tuple[str, Any]] | None]:
    """Return the result of :func:`first_headers` for each record, in a third of the time.

    ``ask`` may be a function in C that is faster for this type of record.
    """
    found: list[list[tuple[str, Any]] | None] = []
    while len(found) < len(records):
        try:
            for headers in map(ask, islice(records, len(found), None)):
                found.append(headers)
        except (SystemError, UnicodeDecodeError):
            unreadable = UnreadableHeaders()
            records[len(found)].set_headers(unreadable)
            found.append(unreadable)
    return found


def read_headers(record: Record) -> list[tuple[str, Any]]:
    """Return a record's headers; raise :class:`HeadersError` when they cannot be read.

    Kafka's protocol requires header names in UTF-8, but not every producer complies. At such a name
    the client raises SystemError at the first call. Later calls return pairs whose first half is no
    object at all. Unpacking such a pair crashes the process; showing it does not.
    """
    try:
        found: list[tuple[str, Any]] = ask_headers(record) or []
        torn = any(repr(pair).startswith("(<NULL>") for pair in found)
        if not torn and all(map(_is_header, found)):
            return found
    except (SystemError, UnicodeDecodeError) as error:
        raise HeadersError(NOT_UTF_8) from error
    except Exception as error:  # an object that a handler has set in their place may raise anything
        raise HeadersError(f"{NO_HEADERS}: {type(error).__name__} when read") from error
    raise HeadersError(NOT_UTF_8 if torn else NO_HEADERS)


def _is_header(pair: object) -> bool:
    if not isinstance(pair, tuple) or len(pair) != 2:
        return False
    name, value = pair
    return isinstance(name, str) and (value is None or isinstance(value, bytes | str))
