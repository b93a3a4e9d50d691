"""Snapshots that a console has to bear: of an instance that has nothing yet, and of a large one.

They are made of a real one, so that they have all that a snapshot has.
"""

from __future__ import annotations

import copy
from typing import Any, TypeAlias

Told: TypeAlias = dict[str, Any]
"""A snapshot as the page reads it."""

TOPIC = "a-topic-whose-name-is-as-long-as-those-of-large-organisations-get.orders.v2"
KEY = "9f86d081884c7d659a2feaa0c55ad015" * 4
LARGE = 987_654_321_012


def nothing(real: Told) -> Told:
    """An instance that has just begun: no worker, no partition, nothing that has happened."""
    told = copy.deepcopy(real)
    told |= {"stuck": [], "keys_shown": False}
    told["diagnosis"] |= {"text": "healthy", "healthy": True, "number": 0, "findings": []}
    told["dlq"] |= {"topics": {}, "answers": {}}
    told["totals"] = dict.fromkeys(told["totals"], 0) | {
        "lag": None,
        "backlog": None,
        "lag_seconds": None,
    }
    told["status"] |= {
        "phase": "starting",
        "joined": False,
        "partitions": [],
        "rebalanced": [],
        "rebalances": {},
        "commits": {},
        "client": None,
    }
    sub = told["status"]["subscriptions"][0]
    sub |= {"workers": [], "pending": [], "closed": [], "errors": [], "slots": []}
    sub |= {"draining_slots": 0, "drained_slots": 0, "shared": None}
    return told


def unordered(real: Told) -> Told:
    """One whose routing looks at no slot."""
    told = copy.deepcopy(real)
    sub = told["status"]["subscriptions"][0]
    sub |= {"routing": "unordered", "slots": []}
    for each in sub["workers"]:
        each |= {"share": 0.0, "draining": []}
    return told


def single(real: Told) -> Told:
    """One that has one of everything that is counted."""
    told = copy.deepcopy(real)
    sub = told["status"]["subscriptions"][0]
    status = told["status"]
    told["stuck"] = [{**told["stuck"][0], "waiting": 1, "attempts": 1}]
    told["totals"] |= dict.fromkeys(
        ("running", "busy", "stuck", "closed", "draining", "dead_letters", "held", "leased"), 1
    )
    status["partitions"] = [{**status["partitions"][0], "unsettled": 1, "settled": [[1, 2]]}]
    sub["workers"] = [{**sub["workers"][2], "leased": 1, "runs": 1, "share": 1.0, "stuck": 1}]
    sub |= {"slots": [[0, 65535, 0]], "pending": sub["pending"][:1], "draining_slots": 1}
    sub["errors"] = [{**sub["errors"][0], "count": 1, "keys": [["a", 1]], "slots": [7]}]
    sub["workers"][0] |= {"shards": 1, "detached": True}
    sub["shared"] = _shared("worker-2", 1, 1)
    return told


def much(real: Told) -> Told:
    """One with long names, long keys, large numbers and much of everything."""
    told = copy.deepcopy(real)
    status = told["status"]
    sub = status["subscriptions"][0]
    days = 3.2 * 86_400
    told["about"]["topics"] = [TOPIC, "payments"]
    status["group"] = "a-consumer-group-with-a-long-name-too"
    told["totals"] |= dict.fromkeys(
        ("fetched", "ok", "failed_attempts", "dead_letters", "lag"), LARGE
    )
    told["totals"] |= {"backlog": LARGE, "held": 987_654, "held_max": 1_000_000}
    told["stuck"] = [
        {**each, "topic": TOPIC, "offset": LARGE + at, "key": KEY, "waiting": 123_456}
        | {"seconds": days}
        for at, each in enumerate(told["stuck"] * 6)
    ]
    status["partitions"] = [_partition(status["partitions"][0], at) for at in range(24)]
    running = next(each["running"] for each in sub["workers"] if each["running"])
    sub["workers"] = [_worker(sub["workers"][2], running, at) for at in range(32)]
    lease = {**sub["pending"][0], "topic": TOPIC}
    sub["shared"] = _shared("worker-1", 5, 123_456)
    sub["pending"] = [
        {**lease, "worker": f"worker-{at % 32}", "offset": LARGE + at} for at in range(300)
    ]
    error = {**sub["errors"][0], "topic": TOPIC, "message": "y" * 300, "keys": [[KEY, 12_345]]}
    sub["errors"] = [{**error, "error": f"AnErrorWithAVeryLongName{at}" * 2} for at in range(3)]
    came = {**status["rebalanced"][0], "let_go": 123_456, "left": 12, "seconds": 17.3}
    status["rebalanced"] = [
        {
            **came,
            "at": came["at"] + at,
            "event": event,
            "partitions": [[TOPIC, n] for n in range(9)],
        }
        for at, event in enumerate(("assigned", "revoked", "lost"))
    ]
    told["dlq"] |= {"topics": {TOPIC: f"{TOPIC}.dlq"}, "refused": 12}
    status |= {"brokers_away_seconds": 45.0, "client_error": "all brokers are down: refused"}
    status |= {"commit_failures": 3, "commit_error": "_STATE", "rebalance_seconds": 12.0}
    return told


def _partition(one: Told, number: int) -> Told:
    held = ["the window is full", "it is paused by hand"] if number % 3 == 0 else []
    return one | {
        "topic": TOPIC,
        "partition": number,
        "committed": LARGE - 40_000,
        "safe": LARGE - 30_000,
        "settled_max": LARGE - 10_000,
        "fetched": LARGE,
        "log_end": LARGE + 12_345_678_901,
        "settled": [[LARGE - 20_000, LARGE - 10_000]],
        "unsettled": 12_345,
        "lag": 12_345_678_901,
        "backlog": 12_345_670_000,
        "oldest_seconds": 3.2 * 86_400,
        "lag_seconds": 9 * 86_400,
        "held_back": held,
        "held_seconds": [12.5, 400.0][: len(held)],
    }


def _worker(one: Told, running: Told, number: int) -> Told:
    drains = {"slot": number, "owner": "worker-31", "seconds": 123.4, "pending": 1_000}
    return one | {
        "name": f"worker-{number}",
        "state": ("idle", "running", "stuck", "gone")[number % 4],
        "running": running | {"topic": TOPIC, "key": KEY, "seconds": 190_000.0},
        "runs": 1_000,
        "leased": 1_000,
        "queued": 12_345,
        "restarts": 123,
        "share": 1 / 32,
        "draining": [drains | {"blocked": 123_456}] if number % 4 == 1 else [],
        "detached": number % 4 == 1,
        "shards": 4,
    }


def _shared(worker: str, hot: int, records: int) -> Told:
    """What workers share: so many hot keys with so many records each, and a detached record."""
    large = records > 1
    of = {"topic": TOPIC, "partition": 1, "offset": LARGE, "key": KEY, "slot": 7}
    key = {"key": KEY, "partitions": [[TOPIC, 1], [TOPIC, 2]], "waiting": records, "share": 0.5}
    key |= {"rate": 12_345.6 if large else 1.0, "capacity": 1_234.5 if large else None}
    return {
        "shards": 4 * hot,
        "ready": 1,
        "held": 1,
        "hot": hot,
        "hot_keys": [key | {"slot": at, "seconds": 190_000.0} for at in range(hot)],
        "detached": [of | {"worker": worker, "seconds": 190_000.0, "waiting": records}],
    }
