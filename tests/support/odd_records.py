"""Records of which those of one key are odd, and handlers that have their trouble with it."""

from __future__ import annotations

import threading
from typing import Any

from kafka_keyshared import Retry
from tests.support.diagnosis_causes import WAIT
from tests.support.live_cluster import Written, numbered

ODD = b"odd"
RECORDS: list[Written] = [*numbered(100), (ODD, b"it")]


class Gate:
    """A handler that stops in the records of one key, or of all, until it is opened."""

    def __init__(self, key: bytes | None = None) -> None:
        self.key = key
        self.entered = threading.Event()
        self._open = threading.Event()

    def __call__(self, record: Any) -> None:
        if self.key is None or record.key() == self.key:
            self.entered.set()
            self._open.wait(WAIT)

    def open(self) -> None:
        """Let all go on."""
        self._open.set()


def fails(record: Any) -> None:
    """Fail the odd one, whenever it runs."""
    if record.key() == ODD:
        raise ValueError("no such address")


def nothing(record: Any) -> None:
    """A handler that has nothing to do."""


def key_unread(record: Any) -> bytes | None:
    """Return the key, which of the odd one cannot be read just now."""
    if record.key() == ODD:
        raise Retry(0.2) from OSError("the registry is away")
    found: bytes | None = record.key()
    return found
