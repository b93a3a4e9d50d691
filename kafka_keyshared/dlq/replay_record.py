"""The records of the topic ``<DLQ>.replays``: keys and values."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from confluent_kafka import Message

from kafka_keyshared.dlq.replay_marks import marks_in

_KIND = {"keyshared": "replay"}


class Key(NamedTuple):
    """The key of a record; ``batch`` is None for the record of the run itself."""

    id: str
    run: str
    batch: int | None

    def packed(self) -> bytes:
        """Return the key as bytes."""
        known = {**_KIND, "id": self.id, "run": self.run}
        return json.dumps(known if self.batch is None else known | {"batch": self.batch}).encode()


def packed(value: Mapping[str, Any] | None) -> bytes | None:
    """Return a value as bytes; None deletes the record with the same key."""
    return None if value is None else json.dumps(value).encode()


def read(message: Message) -> tuple[Key | None, dict[str, Any] | None]:
    """Return key and value of a record; the key is None for a foreign record."""
    try:
        known: Any = json.loads(message.key() or b"")
        if known.pop("keyshared", None) != _KIND["keyshared"]:
            return None, None
        key = Key(str(known["id"]), str(known["run"]), known.get("batch"))
        raw = message.value()
        value: Any = None if raw is None else json.loads(raw)
        if value is not None and key.batch is not None:
            marks_in(value)
        return (key, value) if value is None or isinstance(value, dict) else (None, None)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None, None


def this_run() -> str:
    """Return a description of this process, which another run shows while this one works."""
    now = datetime.now(UTC).isoformat(" ", "seconds").removesuffix("+00:00")
    return f"process {os.getpid()} on {socket.gethostname()}, begun {now} UTC"
