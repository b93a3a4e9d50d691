"""What a snapshot makes of a status: what does not get on, and what stays hidden."""

from __future__ import annotations

from typing import Any

import msgspec

from kafka_keyshared.observability.web.snapshot import stuck, without_keys, without_record_data
from tests.support.doctor_survey import instance, worker

SECRET = "customer-7"
AT = {"topic": "orders", "partition": 1, "offset": 17}


def detached() -> dict[str, Any]:
    """A worker whose record is detached, another one that is stuck, and a hot key."""
    run = AT | {"key": SECRET, "slot": 7, "seconds": 90.0}
    apart = AT | {"worker": "worker-0", "seconds": 90.0, "waiting": 12, "key": SECRET, "slot": 7}
    hot = {"slot": 7, "key": SECRET, "partitions": [["orders", 1]], "waiting": 9, "share": 1.0}
    hot |= {"rate": 9.0, "capacity": 1.0, "seconds": 9.0}
    shared = {"shards": 33, "ready": 1, "held": 1, "hot": 1, "hot_keys": [hot]}
    return {
        "workers": [
            worker(0) | {"running": run, "runs": 1, "detached": True, "leased": 1},
            worker(1, 20, 200.0) | {"runs": 1, "stuck": 1, "leased": 4},
        ],
        "own": {"shared": shared | {"detached": [apart]}},
    }


def test_a_detached_record_is_told_apart_from_one_that_is_stuck_with_what_waits_for_it() -> None:
    first, second = stuck(instance(**detached()))
    assert (first.state, first.offset, first.worker, first.waiting) == ("stuck", 20, "worker-1", 3)
    assert (second.state, second.offset, second.waiting) == ("detached", 17, 12)


def test_keys_that_are_hidden_are_in_no_part_of_what_workers_share() -> None:
    told = instance(**detached())
    assert SECRET.encode() in msgspec.json.encode(told)
    for hidden in (without_keys(told), without_record_data(told)):
        assert SECRET.encode() not in msgspec.json.encode(hidden)
        shared = hidden.subscriptions[0].shared
        assert shared is not None
        assert (shared.hot_keys[0].slot, shared.detached[0].slot) == (7, 7)
