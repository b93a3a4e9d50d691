"""Producer of ``bench latency``, which sends by the clock.

It does not wait for the records. Run as ``python -m kafka_keyshared.lab.bench.paced`` with the pace
as JSON on standard input.
"""

from __future__ import annotations

import random
import struct
import sys
import time
from array import array
from typing import Any

import msgspec
from confluent_kafka import Producer

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.lab.bench.child import SEED, read_task, tell_parent
from kafka_keyshared.lab.bench.figures import percentile

STAMP = struct.Struct("<qq")
"""Beginning of a value: the record's number, and its due time (monotonic, in nanoseconds).

Python's monotonic clock is the same for all processes of a machine, and is never set back.
"""

HEAD_START_NS = 300_000_000
FLUSH_TIMEOUT = 30.0
NS_PER_MS = 1e6


HOT = b"hot"
"""The key of a pace's ``hot_share``."""


class Pace(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Parameters: the records to send, and their ``rate`` per second.

    ``hot_share`` of them have one key, :data:`HOT`, and so has the record with the number
    ``hot_record``. The others have any of ``keys``.
    """

    bootstrap: str
    topic: str
    records: int
    rate: int
    skip: int
    partitions: int
    keys: int
    value_bytes: int
    hot_share: float = 0.0
    hot_record: int | None = None


class Paced(msgspec.Struct, kw_only=True):
    """Lateness of the producer in handing records to the client, without the first ``skip``."""

    late_p50_ms: float
    late_p99_ms: float
    late_max_ms: float


def require_room(value_bytes: int) -> None:
    """Raise :class:`ConfigError` for values that are too small for the stamp."""
    if value_bytes < STAMP.size:
        raise ConfigError(
            f"--value-bytes {value_bytes}: give at least {STAMP.size}, which the number and the "
            "time of a record take"
        )


def hot_records(records: int, share: float) -> frozenset[int]:
    """Return the numbers of the records that have the hot key, the same on every run."""
    chance = random.Random(SEED + 1).random
    return frozenset(number for number in range(records) if chance() < share)


def send(pace: Pace) -> Paced:
    """Send every record when it is due. Raises :class:`KeySharedError` for a refused record."""
    failures: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        failures.append(str(error))

    producer = Producer(
        {
            "bootstrap.servers": pace.bootstrap,
            "linger.ms": 0,
            "acks": 1,
            "socket.nagle.disable": True,
            # With a slow broker the batches then grow, instead of thousands of waiting requests.
            "max.in.flight.requests.per.connection": 5,
            "queue.buffering.max.messages": 1_000_000,
            "on_delivery": delivered,
            "delivery.report.only.error": True,
        }
    )
    # The first record must not wait for the topic's metadata.
    producer.list_topics(pace.topic, timeout=FLUSH_TIMEOUT)
    choose = random.Random(SEED).randrange
    keys = [choose(pace.keys) for _ in range(pace.records)]
    hot = hot_records(pace.records, pace.hot_share) | {pace.hot_record}
    padding = b"x" * (pace.value_bytes - STAMP.size)
    late = array("q", bytes(8 * pace.records))
    clock = time.monotonic_ns
    start = clock() + HEAD_START_NS
    for number, key in enumerate(keys):
        due = start + number * 1_000_000_000 // pace.rate
        while (left := due - clock()) > 0:
            producer.poll(0)
            time.sleep(left / 1e9)
        late[number] = clock() - due
        # A key is always in the same partition, as with any producer.
        producer.produce(
            pace.topic,
            STAMP.pack(number, due) + padding,
            HOT if number in hot else b"key-%d" % key,
            0 if number in hot else key % pace.partitions,
        )
    if (unsent := producer.flush(FLUSH_TIMEOUT)) or failures:
        raise KeySharedError(
            f"{unsent + len(failures)} of {pace.records} records could not be produced to "
            f"{pace.topic}: {failures[0] if failures else 'no answer'}"
        )
    counted = sorted(late[pace.skip :])
    return Paced(
        late_p50_ms=percentile(counted, 0.5) / NS_PER_MS,
        late_p99_ms=percentile(counted, 0.99) / NS_PER_MS,
        late_max_ms=counted[-1] / NS_PER_MS,
    )


def main() -> int:
    """Send the records of the pace on standard input."""
    tell_parent(send(read_task(Pace)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
