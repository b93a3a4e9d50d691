"""What one record that does not end costs all others: thread:8, 1,000 keys, a handler of 1 ms.

Records are written by the clock, whatever becomes of them, and carry the time at which they were
due. The first record of one key that comes once everything runs evenly sleeps. What the others get
done meanwhile is held against what they got done before it, in the same run.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from confluent_kafka import Producer

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.core.workers.shards import shard_of
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.hashing import slot_of
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster

TOPIC = "held-up"
STAMP = struct.Struct("<d")
KEYS = [b"key-%d" % number for number in range(1_000)]
SLEEPER = KEYS[0]
WARMING = 1.0
"""Seconds at the beginning that are not looked at."""

_PAUSE = threading.Event()

SETTLES = 2.0
"""Seconds behind the sleep in which what has waited gets done."""


@dataclass(frozen=True, slots=True)
class HeldUpPlan:
    """So many records a second; times are in seconds. ``detach_after`` 0: nothing is detached."""

    rate: int = 1_000
    before: float = 10.0
    sleep: float = 30.0
    workers: int = 8
    detach_after: float = 0.05


class Handler:
    """Takes 1 ms, or very long once; remembers when each record began, and how late that was."""

    def __init__(self, plan: HeldUpPlan) -> None:
        self.began: list[tuple[float, float, bytes]] = []
        self.asleep = self.awake = 0.0
        self.sleeps_from = float("inf")
        self._sleep = plan.sleep

    def __call__(self, record: Any) -> None:
        now, key = time.monotonic(), record.key()
        (due,) = STAMP.unpack(record.value())
        if key == SLEEPER and not self.asleep and now >= self.sleeps_from:
            self.asleep = now
            _PAUSE.wait(self._sleep)
            self.awake = time.monotonic()
            return
        _PAUSE.wait(0.001)
        self.began.append((now, now - due, key))


def write(bootstrap: str, plan: HeldUpPlan, began: float, until: float) -> int:
    """Write every record when it is due; return how many that were."""
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0})
    count = 0
    while (now := time.monotonic()) < until:
        while (due := began + count / plan.rate) <= now:
            producer.produce(TOPIC, STAMP.pack(due), KEYS[count % len(KEYS)])
            count += 1
        producer.poll(0.0)
        _PAUSE.wait(0.005)
    if left := producer.flush(30.0):
        raise KeySharedError(f"{left} records could not be written")
    return count


def mates(workers: int) -> set[bytes]:
    """Return the other keys of the shard that has the one that sleeps."""
    shards = SubscriptionSettings(workers=worker_names(workers), pooled=True).shard_count
    own = shard_of(slot_of(SLEEPER), shards)
    return {key for key in KEYS if shard_of(slot_of(key), shards) == own} - {SLEEPER}


def measure(plan: HeldUpPlan) -> dict[str, Any]:
    """Return of the other keys, and of those of the same shard, what of their throughput is left
    while one sleeps, and how long a record has waited at most, in seconds."""
    handler = Handler(plan)
    with EmbeddedCluster() as cluster:
        cluster.create_topic(TOPIC, 4)
        conf = {"bootstrap.servers": cluster.bootstrap, "group.id": TOPIC}
        app = KeyShared(
            {**conf, "auto.offset.reset": "earliest"},
            topics=[TOPIC],
            workers=f"thread:{plan.workers}",
            detach_after=plan.detach_after,
        )
        app.handler(handler)
        thread = threading.Thread(target=app.run, name="held-up", daemon=True)
        thread.start()
        try:
            while (status := app.status()) is None or not status.joined:
                _PAUSE.wait(0.05)
            began = time.monotonic()
            handler.sleeps_from = began + WARMING + plan.before
            until = handler.sleeps_from + plan.sleep + SETTLES
            written = write(cluster.bootstrap, plan, began, until)
            while len(handler.began) < written - 1 and time.monotonic() < until + 60.0:
                _PAUSE.wait(0.05)
        finally:
            app.stop()
            thread.join(30.0)
    if len(handler.began) != written - 1 or not handler.awake:
        raise KeySharedError(f"{len(handler.began)} of {written} records have run")
    same = mates(plan.workers)
    figures = {
        "others": _figures(handler, began + WARMING, set(KEYS) - same - {SLEEPER}),
        "same_shard": _figures(handler, began + WARMING, same),
    }
    status = app.status()
    detached = 0 if status is None else sum(each.detached for each in status.subscriptions)
    return {
        "rate": plan.rate,
        "sleep_s": plan.sleep,
        "detached": detached,
        **{f"{who}_{name}": value for who, each in figures.items() for name, value in each.items()},
    }


def _figures(handler: Handler, first: float, keys: Collection[bytes]) -> dict[str, float]:
    asleep, awake = handler.asleep, handler.awake
    before = [each for each in handler.began if first <= each[0] < asleep and each[2] in keys]
    during = [each for each in handler.began if asleep <= each[0] < awake and each[2] in keys]
    usual = len(before) / (asleep - first)
    return {
        "ratio": round(len(during) / (awake - asleep) / usual, 3),
        "longest_wait_s": round(max((each[1] for each in during), default=awake - asleep), 3),
        "longest_wait_before_s": round(max(each[1] for each in before), 3),
    }
