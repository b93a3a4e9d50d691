"""What an image runs until it is built with a handler of yours: it prints each record."""

from __future__ import annotations

from kafka_keyshared import Record


def handle(record: Record) -> None:
    """Print where the record comes from, and its key."""
    print(record.topic(), record.partition(), record.offset(), record.key())  # noqa: T201 - its purpose
