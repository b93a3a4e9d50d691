"""A group and an instance as the doctor has looked at them."""

from __future__ import annotations

from typing import Any

import msgspec

from kafka_keyshared import status
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.observability.doctor import progress_checks
from kafka_keyshared.observability.doctor.findings import Check
from kafka_keyshared.observability.doctor.progress_checks import (
    Read,
    RecordFacts,
    Standing,
    Watched,
)
from kafka_keyshared.status import Status as InstanceStatus

ORDERS = TopicPartition("orders", 1)
NOW = 1_800_000_000_000

HELD = Standing(ORDERS, 17, 40, False, True, ((17, 18), (20, 21), (23, 26)), 33, seconds=6.0)
SILENT = Standing(ORDERS, 17, 40, moved=False, seconds=6.0)

URL = "http://127.0.0.1:8787/status"

NOTHING: dict[str, Any] = {"bounds": [], "counts": [0], "total": 0}


def worker(number: int, offset: int | None = None, seconds: float = 0.0) -> dict[str, Any]:
    running = {"topic": "orders", "partition": 1, "offset": offset, "seconds": seconds}
    return {
        "name": f"worker-{number}",
        "state": "idle" if offset is None else "running",
        "leased": 0,
        "queued": 0,
        "running": None if offset is None else running,
        "busy_seconds": 0.0,
        "starved_seconds": 0.0,
        "restarts": 0,
        "share": 0.5,
    }


def partition(number: int, lag: int = 0, *held_back: str) -> dict[str, Any]:
    known = {"fetched": 40, "safe": 17, "settled_max": 33, "committed": 17, "log_end": 17 + lag}
    times = {"unsettled": 0, "oldest_seconds": 0.0, "backlog": 0, "lag_seconds": 0.0}
    more = {"paused": bool(held_back), "held_back": held_back, "lag": lag}
    return {"topic": "orders", "partition": number, **known, **times, **more}


def blocked(number: int, key: str | None = None) -> dict[str, Any]:
    return {
        "key": f"customer-{number}" if key is None else key,
        "topic": "orders",
        "partition": 1,
        "offset": number,
        "seconds": 720.0,
        "attempts": 5,
        "error": "KeyError at app.py:6: 'customer_id'",
    }


def rate(what: str, **more: Any) -> dict[str, Any]:
    """A failure rate that is high: of attempts or of records given up."""
    shown = {"what": what, "level": "fail", "topic": "", "partition": None, "share": 0.97}
    counts = {"count": 388, "ok": 12, "window_seconds": 8.0, "total": 2_000, "seconds": 40.0}
    error = {"error": "ConnectionError", "where": "app.py:9", "error_share": 0.85}
    return shown | counts | error | {"message": "refused"} | more


def instance(**told: Any) -> InstanceStatus:
    """The status of an instance with two workers that has nothing to do, but for what is told.

    ``own`` is what its subscription tells beside that.
    """
    names = {
        *("bytes", "records", "stuck", "stale_results", "lane_records", "keys", "hottest"),
        *("process_seconds", "wait_seconds", "age_seconds"),
    }
    own: dict[str, Any] = {name: NOTHING if name.endswith("seconds") else 0 for name in names}
    counts: dict[str, Any] = {
        "processed": {},
        "retried": {},
        "attempts": {},
        "dlq_writes": {},
        "lanes": {},
    }
    subscription = {
        "name": "default",
        "pool": "thread",
        "workers": [worker(0), worker(1)],
        "records_max": 10_000,
        **own,
        **counts,
    }
    subscription |= {
        name: told.pop(name) for name in ("workers", "lanes", "blocked") if name in told
    }
    subscription |= told.pop("own", {})
    value = {
        "version": status.VERSION,
        "taken_at": 1_800_000_000.0,
        "started_at": 1_800_000_000.0,
        "phase": "running",
        "joined": True,
        "group": "billing",
        "partitions": [partition(0), partition(1)],
        "subscriptions": [subscription],
        "fetched": {},
        "rebalances": {},
        "revoke_seconds": NOTHING,
        "commits": {},
        "commit_seconds": NOTHING,
        "metadata_bytes": NOTHING,
        "paused_seconds": 0.0,
        "stalls": {},
        "polled_at": None,
        "poll_used": 0.0,
        "client": None,
        **told,
    }
    return msgspec.convert(value, InstanceStatus)


def progress(
    *standing: Standing, age: float | None = 5.0, found: Read | None = None, **seen: Any
) -> Check:
    """Judge positions, with records of that age at them, or with ``found`` there."""
    at = None if age is None else NOW - int(age * 1000)
    records = {
        (each.partition, offset): found or RecordFacts(offset, b"customer-%d" % offset, at)
        for each in standing
        for offset in (each.position, *each.held_offsets(4))
    }
    owners = {ORDERS: "app-1 at /10.0.0.7"}
    watched = Watched(6.0, standing, records, owners, NOW, **seen)
    return progress_checks.progress(watched, held_after=60.0)
