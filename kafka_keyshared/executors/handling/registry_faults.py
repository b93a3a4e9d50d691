"""Detection of schema registry faults, as opposed to undecodable bytes.

A deserializer raises errors for both. A registry that is down, denies access, or sends an invalid
response says nothing about the record. The record is then retried later, and no attempt is counted.
An outage of the registry must not dead-letter a whole topic.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.model import Record, Retry, name_of

AGAIN_AFTER = 5.0
"""Seconds until the next attempt to decode after a registry fault."""

LINES_EVERY = 60.0
"""Seconds between two log lines about a registry."""

IDS_MAX = 1_000
"""Most schema ids to remember that the registry does not know."""

_CLIENTS = frozenset({"httpx", "httpx2", "httpcore", "requests", "urllib3", "authlib", "aiohttp"})
_REGISTRY = ("schema_registry.error", "schema_registry_client")
_NOT_FOUND = 404
_ID_END = 5


class RegistryRetry(Retry):
    """Retry after a fault of the schema registry; it counts no attempt."""

    def __init__(self, reason: str) -> None:
        super().__init__(AGAIN_AFTER, attempt=False)
        self.reason = reason

    def __str__(self) -> str:
        """Return the reason."""
        return self.reason


class RegistryFaults:
    """Registry faults seen by one deserializer. Threads may share it."""

    def __init__(self) -> None:
        self._decoded = False
        # For each schema that the registry denies: the first record that has it. The key is the
        # first bytes of the data.
        self._denied: dict[bytes, tuple[str, int, int]] = {}
        self._seldom = Seldom(log_of("kafka_keyshared.pool"), every=LINES_EVERY)

    def decoded(self) -> None:
        """Note that the registry knew the schema of a record."""
        self._decoded = True

    def put_off(self, error: Exception, data: Any, record: Record) -> RegistryRetry | None:
        """Return a retry for a registry fault; None if the error is the record's fault.

        A schema that the registry does not know counts as a registry fault in two cases: no record
        was decoded yet, or a second record has the same schema. A single such record is a failed
        attempt.
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
    """Return whether an error comes from a registry, its client, or the connection to it."""
    if isinstance(error, OSError) or hasattr(error, "http_status_code"):
        return True
    module = type(error).__module__
    if module.partition(".")[0] in _CLIENTS or module.endswith(_REGISTRY):
        return True
    # A response that is not JSON raises a ValueError inside the client.
    trace = error.__traceback__
    while trace is not None:
        if str(trace.tb_frame.f_globals.get("__name__", "")).endswith(_REGISTRY):
            return True
        trace = trace.tb_next
    return False
