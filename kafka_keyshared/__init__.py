"""Per-key ordering and high parallelism for a confluent-kafka consumer.

>>> from kafka_keyshared import KeyShared, Retry, DeadLetter, Drop, Ack
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.app.reader import Reader
    from kafka_keyshared.app.split import split
    from kafka_keyshared.client.consumer import Consumer
    from kafka_keyshared.config.options import Backoff, never
    from kafka_keyshared.errors import ConfigError, InvariantError, KeySharedError, LeaseOverError
    from kafka_keyshared.executors.lease import Lease, attempt_of, lease_of
    from kafka_keyshared.model import Ack, Attempt, DeadLetter, Drop, Output, Record, Retry, Verdict

__version__ = "0.1.0"

_HOMES = {
    "Ack": "model",
    "Attempt": "model",
    "Backoff": "config.options",
    "Consumer": "client.consumer",
    "ConfigError": "errors",
    "DeadLetter": "model",
    "Drop": "model",
    "InvariantError": "errors",
    "KeyShared": "app.keyshared",
    "KeySharedError": "errors",
    "Lease": "executors.lease",
    "LeaseOverError": "errors",
    "Output": "model",
    "Reader": "app.reader",
    "Record": "model",
    "Retry": "model",
    "Verdict": "model",
    "attempt_of": "executors.lease",
    "lease_of": "executors.lease",
    "never": "config.options",
    "split": "app.split",
}

__all__ = [
    "Ack",
    "Attempt",
    "Backoff",
    "ConfigError",
    "Consumer",
    "DeadLetter",
    "Drop",
    "InvariantError",
    "KeyShared",
    "KeySharedError",
    "Lease",
    "LeaseOverError",
    "Output",
    "Reader",
    "Record",
    "Retry",
    "Verdict",
    "attempt_of",
    "lease_of",
    "never",
    "split",
]


if not TYPE_CHECKING:  # a type checker would accept any name

    def __getattr__(name: str) -> Any:
        # Loaded on first use: `keyshared --help` must not pay for the Kafka client.
        home = _HOMES.get(name)
        if home is None:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{home}"), name)
