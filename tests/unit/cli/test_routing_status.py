"""`keyshared routing where --status-url`: the owner of a key, and where its records are now."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from kafka_keyshared.cli import routing_status
from kafka_keyshared.cli.routing import RoutingArguments
from kafka_keyshared.cli.routing_status import where_running
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.routing.modes import RoutingSettings
from kafka_keyshared.core.routing.ring import VnodeRing
from kafka_keyshared.core.subscription.settings import DETACH_AFTER, SubscriptionSettings
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.status import Status
from tests.support.cli import in_process
from tests.support.core_harness import Harness
from tests.support.core_status import status_of
from tests.support.records import ERROR, record

URL = "http://127.0.0.1:8787"
NAMES = ("worker-0", "worker-1", "worker-2")
KEY = b"customer-7"
CHOSEN = RoutingArguments(16, 200, "ring", (), ())

SHARED = SubscriptionSettings(
    workers=NAMES,
    pooled=True,
    prefetch_records=4,
    retry=RetryPolicy(attempts=5, backoff=10.0, jitter=0.0),
)


def harness(settings: SubscriptionSettings = SHARED, *keys: bytes) -> Harness:
    found = Harness(settings)
    found.assign()
    found.fetch(*(record(offset, key) for offset, key in enumerate(keys)))
    return found


def seen(of: Harness) -> Status:
    return status_of(of, pending=True)


def asked(of: Harness, key: bytes = KEY, chosen: RoutingArguments = CHOSEN) -> dict[str, Any]:
    return where_running(seen(of).subscriptions[0], key, chosen)


def test_the_worker_of_a_key_is_the_owner_of_its_slot_by_the_ring() -> None:
    ring = VnodeRing(NAMES, 200)
    for number in range(20):
        key = b"key-%d" % number
        found = asked(harness(), key)
        assert found["slot"] == slot_of(key)
        assert found["worker"] == ring.owner(slot_of(key))
    assert found["why"] == "by the ring; workers share waiting records, so any of them may run it"
    assert asked(harness(replace(SHARED, pooled=False)))["why"] == "by the ring"


def test_weights_are_not_in_the_status_and_are_asked_for() -> None:
    weighed = replace(SHARED, pooled=False, routing=RoutingSettings(weights={"worker-1": 3.0}))
    of = harness(weighed)
    assert "the instance has other shares" in asked(of)["why"]
    found = asked(of, chosen=CHOSEN._replace(weights=("worker-1=3",)))
    assert found["why"] == "by the ring"
    assert found["worker"] == of.sub().routing.owner_name(slot_of(KEY))


def test_ranges_of_the_instance_are_its_own() -> None:
    half = SLOTS // 2
    ranges = {"worker-0": [(0, half - 1)], "worker-1": [(half, SLOTS - 1)]}
    sticky = RoutingSettings("sticky", ranges, on_unmatched="hold")
    found = asked(harness(replace(SHARED, routing=sticky)))
    assert found["worker"] == ("worker-0" if slot_of(KEY) < half else "worker-1")
    assert found["shared"] is False
    found = asked(harness(replace(SHARED, routing=RoutingSettings("unordered"))))
    assert found["worker"] is None
    filters: dict[str, list[str | bytes]] = {"worker-1": ["x*"]}
    found = asked(harness(replace(SHARED, routing=RoutingSettings(filters=filters))))
    assert found["why"].startswith("workers have filters")


def test_the_slot_function_is_that_of_the_instance() -> None:
    found = asked(harness(replace(SHARED, slot_function="fnv1a")))
    assert found["slot_function"] == "fnv1a"


def test_records_of_the_key_are_named_with_the_worker_that_has_them() -> None:
    of = harness(SHARED, KEY, KEY, b"other")
    assert asked(of, b"nobody-has-it")["now"] == []
    worker = of.worker(next(each.id for each in of.sub().workers.values() if each.leased == 2))
    worker.start()
    of.beat(2)
    first, second = asked(of)["now"]
    name = of.sub().workers[worker.index].name
    assert (first["record"], first["state"], first["worker"]) == ("orders-0@0", "running", name)
    assert first["seconds"] == pytest.approx(0.5)
    assert (second["record"], second["state"], second["worker"]) == ("orders-0@1", "leased", name)


def test_a_detached_record_and_a_hot_key_are_named() -> None:
    of = harness(SHARED, *[KEY] * 120)
    worker = next(each for each in of.pool.workers.values() if each.inbox)
    worker.start()
    of.beat()
    found = asked(of)
    assert found["hot"]["partitions"] == ["orders-0"]
    assert found["hot"]["waiting"] >= 110
    of.look(4 * DETACH_AFTER)
    of.look(4 * DETACH_AFTER)
    first = asked(of)["now"][0]
    assert (first["record"], first["state"]) == ("orders-0@0", "detached")
    assert first["waiting"] == 119
    assert first["seconds"] > DETACH_AFTER


def test_the_record_that_keeps_the_key_closed_is_named() -> None:
    of = harness(SHARED, KEY, KEY, KEY)
    of.work({0: [ERROR]})
    (found,) = asked(of)["now"]
    assert (found["record"], found["state"], found["worker"]) == ("orders-0@0", "waiting", None)
    assert found["waiting"] == 2


def test_a_stuck_record_is_told_apart() -> None:
    of = harness(replace(SHARED, ack_timeout=1.0), KEY)
    of.pool.kind = "thread"
    next(each for each in of.pool.workers.values() if each.inbox).start()
    of.beat(5)
    of.deliver()
    (found,) = asked(of)["now"]
    assert (found["state"], found["record"]) == ("stuck", "orders-0@0")


def test_it_is_printed_as_a_table_or_as_json(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    of = harness(SHARED, KEY, KEY)
    next(each for each in of.pool.workers.values() if each.inbox).start()

    def status_at(url: str, *, pending: bool) -> Status:
        assert (url, pending) == (URL, True)
        return msgspec.json.decode(msgspec.json.encode(seen(of)), type=Status)

    monkeypatch.setattr(routing_status, "status_of", status_at)
    arguments = ("routing", "where", KEY.decode(), "--status-url", URL)
    shown = in_process(capsys, *arguments)
    assert shown.status == 0, shown.err
    for said in ("group billing", "owner", "orders-0@0", "running on worker-", "in the mailbox of"):
        assert said in shown.out
    found = json.loads(in_process(capsys, *arguments, "--json").out)
    assert [each["state"] for each in found["now"]] == ["running", "leased"]
    refused = in_process(capsys, *arguments[:2], "--null", *arguments[3:])
    assert refused.status == 2
    assert "give a key" in refused.err
