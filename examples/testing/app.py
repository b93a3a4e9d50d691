"""Payments per customer, and what has to be tested of them: order, bad input, nothing lost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kafka_keyshared import Drop, KeyShared, Record


class Accounts:
    """Keeps the balance of each customer; each worker has one, so there is nothing to lock."""

    def __init__(self) -> None:
        self.balances: dict[bytes, int] = {}

    def handle(self, record: Record) -> Drop | None:
        """Add one payment."""
        if record.value() is None:
            return Drop()  # a tombstone is no payment
        customer, amount = record.key(), int(record.value())
        balance = self.balances.get(customer, 0) + amount
        if balance < 0:
            raise RuntimeError(f"{customer!r} would owe {-balance}")
        self.balances[customer] = balance
        return None


def make_app(conf: Mapping[str, Any]) -> KeyShared:
    """Return the app; tests give it another Kafka."""
    app = KeyShared(conf, ["payments"], workers=4, dlq=True, dead_letter_on=(ValueError,))
    app.handler(Accounts)
    return app


if __name__ == "__main__":
    make_app({"bootstrap.servers": "localhost:9092", "group.id": "accounts"}).run()
