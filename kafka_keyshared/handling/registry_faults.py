"""Faults of a schema registry, told apart from bytes that cannot be decoded.

A deserializer raises both. A registry that is away, refuses the user or answers nonsense says
nothing about the record, so its record is put off and no attempt is counted: an outage must not
send a topic to the dead letters.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import Record, Retry, name_of

AGAIN_AFTER = 5.0
"""Seconds until a record is decoded again whose registry was at fault."""

LINES_EVERY = 60.0
"""Seconds between two lines of the log about a registry."""

IDS_MAX = 1_000
"""So many schema ids are remembered that a registry does not know."""

_CLIENTS = frozenset({"httpx", "httpx2", "httpcore", "requests", "urllib3", "authlib", "aiohttp"})
_REGISTRY = ("schema_registry.error", "schema_registry_client")
_NOT_FOUND = 404
_ID_END = 5


class RegistryRetry(Retry):
    """The registry is at fault: the record is put off, and no attempt is counted."""

    def __init__(self, reason: str) -> None:
        super().__init__(AGAIN_AFTER, attempt=False)
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason


class RegistryFaults:
    """What is known of the registry of one deserializer. Threads may share it."""

    def __init__(self) -> None:
        self._decoded = False
        # By the first bytes of the data the first record of a schema that the registry denies.
        self._denied: dict[bytes, tuple[str, int, int]] = {}
        self._seldom = Seldom(log_of("kafka_keyshared.pool"), every=LINES_EVERY)

    def decoded(self) -> None:
        """Take note that the registry has a schema."""
        self._decoded = True

    def put_off(self, error: Exception, data: Any, record: Record) -> RegistryRetry | None:
        """Return why the record is put off; None where the error is the record's fault.

        A schema that the registry denies is the registry's fault where nothing else could be
        decoded, and where a second record has it. A single one is a failed attempt.
        """
        if not any(map(_is_registrys, _causes(error))):
            return None
        denied = any(getattr(each, "http_status_code", 0) == _NOT_FOUND for each in _causes(error))
        if denied and self._decoded and not self._is_second(data, record):
            return None
        reason = f"the schema registry is at fault: {type(error).__name__}: {error}"
        self._seldom.warning(
            "registry",
            f"{name_of(record)} cannot be decoded: {reason}; the record waits, no attempt is "
            f"counted, next try in {AGAIN_AFTER:g} s",
        )
        return RegistryRetry(reason)

    def _is_second(self, data: Any, record: Record) -> bool:
        head = bytes(data[:_ID_END]) if isinstance(data, bytes) else b""
        here = record.topic(), record.partition(), record.offset()
        if len(self._denied) >= IDS_MAX and head not in self._denied:
            self._denied.clear()
        return self._denied.setdefault(head, here) != here


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__


def _is_registrys(error: BaseException) -> bool:
    """Say whether an error is of a registry, its client, or the connection to it."""
    if isinstance(error, OSError) or hasattr(error, "http_status_code"):
        return True
    module = type(error).__module__
    if module.partition(".")[0] in _CLIENTS or module.endswith(_REGISTRY):
        return True
    # An answer that is no JSON is a ValueError, raised within the client.
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).endswith(_REGISTRY):
            return True
        trace = trace.tb_next
    return False
