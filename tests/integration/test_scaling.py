"""An app that is brought to more and to fewer workers while it runs."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.hashing import SLOTS, slot_of
from kafka_keyshared.runtime.command_queue import OrderRefusedError
from kafka_keyshared.testing.clusters.cluster import Cluster
from tests.conftest import Eventually
from tests.support.live_cluster import Member, client_conf, group_name, write

WAIT = 60.0
KEYS = 40
RECORDS = 6_000


class Folding:
    """Counts the records of each key; the state goes with the key from worker to worker."""

    answers: ClassVar[dict[bytes, list[int]]] = defaultdict(list)
    made: ClassVar[int] = 0

    def __init__(self) -> None:
        Folding.made += 1
        self.counts: dict[bytes, int] = {}
        self.slots: dict[int, set[bytes]] = defaultdict(set)

    def handle(self, record: Any) -> None:
        key = record.key()
        self.slots[slot_of(key)].add(key)
        self.counts[key] = self.counts.get(key, 0) + 1
        self.answers[key].append(self.counts[key])

    def release(self, slots: Sequence[int]) -> dict[bytes, int]:
        keys = [key for each in slots for key in self.slots.pop(each, ())]
        return {key: self.counts.pop(key) for key in keys}

    def adopt(self, slots: Sequence[int], state: object) -> None:
        assert isinstance(state, dict)
        self.counts.update(state)
        for key in state:
            self.slots[slot_of(key)].add(key)


class Gate:
    """A handler that notes who ran what, and keeps the record ``0`` until it is let go."""

    def __init__(self) -> None:
        self.began, self.go_on = threading.Event(), threading.Event()
        self.ran: list[tuple[str, bytes]] = []

    def handle(self, record: Any) -> None:
        if record.value() == b"0":
            self.began.set()
            self.go_on.wait(WAIT)
        self.ran.append((threading.current_thread().name, record.value()))


def test_state_follows_its_keys_while_an_app_is_scaled_up_and_down(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    """Each key counts 1, 2, 3, … whatever worker it is at: nothing lost, repeated or reordered."""
    Folding.answers.clear()
    Folding.made = 0
    embedded_cluster.create_topic(topic, 2)
    records = [(b"key-%d" % (at % KEYS), b"%d" % at) for at in range(RECORDS)]
    member = Member(client_conf(embedded_cluster, group_name()), [topic], Folding, workers=2)
    member.start()
    for number, workers in enumerate((8, 3, 5)):
        part = records[number * 2_000 : (number + 1) * 2_000]
        write(embedded_cluster, topic, part[:1_000])
        eventually(lambda number=number: member.done() > number * 2_000, WAIT)  # type: ignore[misc]
        named = member.app.scale(workers, WAIT)
        assert named == tuple(f"worker-{index}" for index in range(workers))
        write(embedded_cluster, topic, part[1_000:])
    eventually(lambda: member.done() == RECORDS, WAIT)
    assert member.stop() == 0
    assert len(Folding.answers) == KEYS
    assert all(each == list(range(1, RECORDS // KEYS + 1)) for each in Folding.answers.values())
    assert Folding.made >= 8


def test_what_cannot_be_scaled_is_refused_by_name(embedded_cluster: Cluster, topic: str) -> None:
    embedded_cluster.create_topic(topic, 1)
    member = Member(client_conf(embedded_cluster, group_name()), [topic], lambda _: None)
    with pytest.raises(OrderRefusedError, match="scale: the app does not run"):
        member.app.scale(2)
    with pytest.raises(ConfigError, match=r"scale\(0\): give at least 1 worker"):
        member.app.scale(0)


def test_a_worker_that_is_busy_is_waited_for_and_the_scaling_goes_on_by_itself(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    began, go_on, ran = list[bytes](), threading.Event(), list[bytes]()

    def handle(record: Any) -> None:
        if record.value() == b"slow":
            began.append(record.key())
            go_on.wait(WAIT)
        ran.append(record.value())

    member = Member(client_conf(embedded_cluster, group_name()), [topic], handle, workers=4)
    member.start()
    keys = [b"key-%d" % number for number in range(64)]
    write(embedded_cluster, topic, [(key, b"slow") for key in keys[:4]])
    eventually(lambda: len(began) == 4, WAIT)  # one on each worker
    with pytest.raises(TimeoutError, match=r"scale\(1\): not done within 2 s; the") as raised:
        member.app.scale(1, 2.0)
    told = str(raised.value)
    assert "given up" not in told, "it goes on"
    assert "the table has changed, and the rest follows by itself: it waits for" in told
    assert re.search(rf"{topic}-0@[123], key b'key-[123]', \d s so far", told), told
    go_on.set()
    write(embedded_cluster, topic, [(key, b"quick") for key in keys])
    eventually(lambda: len(ran) == 68, WAIT)
    assert member.app.scale(1, WAIT) == ("worker-0",)
    assert member.stop() == 0


# --- ranges that are assigned ---

HALF = SLOTS // 2
HALVES = {"worker-0": f"0-{HALF - 1}", "worker-1": f"{HALF}-{SLOTS - 1}"}
LOW = next(key for n in range(99) if slot_of(key := b"low-%d" % n) < HALF)


def test_a_range_moves_while_the_app_runs_and_its_new_worker_waits_for_what_runs(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    gate = Gate()
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], gate.handle, workers=2, routing="sticky", ranges=HALVES).start()
    write(embedded_cluster, topic, [(LOW, b"%d" % at) for at in range(3)])
    eventually(gate.began.is_set, WAIT)
    app = member.app
    with pytest.raises(
        OrderRefusedError,
        match=r"assign_range\(5, 9, 'worker-1'\): range 0\.\.32767 of worker 'worker-0' and 5\.\.9 "
        r"of worker 'worker-1' overlap in 5\.\.9",
    ):
        app.assign_range(5, 9, "worker-1")
    with ThreadPoolExecutor(1) as other:
        moved = other.submit(app.assign_range, 0, HALF - 1, "worker-1", take_over=True)
        write(embedded_cluster, topic, [(LOW, b"3")])
        instance = app.instance
        assert instance is not None
        eventually(lambda: instance.core.unsettled_count() == 4, WAIT)
        assert not moved.done()
        assert not gate.ran
        gate.go_on.set()
        assert moved.result(WAIT) == {"worker-1": f"0-{SLOTS - 1}"}
    eventually(lambda: len(gate.ran) == 4, WAIT)
    assert [value for _, value in gate.ran] == [b"0", b"1", b"2", b"3"]
    assert ["worker-0" in name for name, _ in gate.ran] == [True, False, False, False]
    assert member.stop() == 0


def test_state_goes_with_a_range(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    Folding.answers.clear()
    embedded_cluster.create_topic(topic, 1)
    conf = client_conf(embedded_cluster, group_name())
    member = Member(conf, [topic], Folding, workers=2, routing="sticky", ranges=HALVES).start()
    keys = [b"key-%d" % at for at in range(KEYS)]
    for number in range(4):
        write(embedded_cluster, topic, [(key, b"") for key in keys])
        eventually(lambda number=number: member.done() > number * KEYS, WAIT)  # type: ignore[misc]
        worker = f"worker-{number % 2}"
        ranges = member.app.assign_range(0, SLOTS - 1, worker, take_over=True, timeout=WAIT)
        assert ranges == {worker: f"0-{SLOTS - 1}"}
    eventually(lambda: member.done() == 4 * KEYS, WAIT)
    assert member.stop() == 0
    assert all(Folding.answers[key] == [1, 2, 3, 4] for key in keys)


def test_ranges_of_an_app_that_has_none_or_does_not_run_are_refused(
    embedded_cluster: Cluster, topic: str
) -> None:
    conf = client_conf(embedded_cluster, group_name())
    by_ring = Member(conf, [topic], lambda _: None)
    with pytest.raises(ConfigError, match=r"assign_range\(0, 9, 'worker-1'\): .* routing='ring'"):
        by_ring.app.assign_range(0, 9, "worker-1")
    sticky = Member(conf, [topic], lambda _: None, workers=2, routing="sticky", ranges=HALVES)
    with pytest.raises(OrderRefusedError, match="assign_range: the app does not run"):
        sticky.app.assign_range(0, 9, "worker-1")


# --- filters that are set ---


def test_filters_change_while_the_app_runs_and_a_key_waits_for_what_runs_of_it(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    gate = Gate()
    conf = client_conf(embedded_cluster, group_name())
    filters = {"worker-0": ["ship-*"], "worker-1": ["flight-*"]}
    member = Member(
        conf, [topic], gate.handle, workers=2, filters=filters, on_unmatched="hold"
    ).start()
    write(embedded_cluster, topic, [(b"ship-1", b"%d" % at) for at in range(3)])
    eventually(gate.began.is_set, WAIT)
    app = member.app
    with pytest.raises(
        OrderRefusedError, match=r"set_filters\('worker-7'\): filters are for worker 'worker-7'"
    ):
        app.set_filters("worker-7", ["ship-*"])
    with pytest.raises(ConfigError, match=r"worker 'worker-1': filters='ship': give a list"):
        app.set_filters("worker-1", "ship")
    assert app.set_filters("worker-1", ["flight-*", b"ship-*"], timeout=WAIT) == {
        "worker-0": ("ship-*",),
        "worker-1": ("flight-*", "ship-*"),
    }
    with ThreadPoolExecutor(1) as other:
        moved = other.submit(app.set_filters, "worker-0", ["truck-*"], timeout=WAIT)
        write(embedded_cluster, topic, [(b"ship-1", b"3"), (b"truck-1", b"4")])
        instance = app.instance
        assert instance is not None
        eventually(lambda: instance.core.unsettled_count() == 5, WAIT)
        assert not moved.done()
        assert not gate.ran
        gate.go_on.set()
        assert moved.result(WAIT) == {
            "worker-0": ("truck-*",),
            "worker-1": ("flight-*", "ship-*"),
        }
    eventually(lambda: len(gate.ran) == 5, WAIT)
    values = [value for _, value in gate.ran if value != b"4"]
    assert values == [b"0", b"1", b"2", b"3"]
    by_value = {value: name for name, value in gate.ran}
    assert {value for value, name in by_value.items() if "worker-0" in name} == {b"0", b"4"}
    assert member.stop() == 0


def test_a_range_that_is_nobodys_is_held_while_the_app_runs_until_somebody_has_it(
    embedded_cluster: Cluster, topic: str, eventually: Eventually
) -> None:
    embedded_cluster.create_topic(topic, 1)
    ran: list[bytes] = []
    conf = client_conf(embedded_cluster, group_name())
    member = Member(
        conf, [topic], lambda record: ran.append(record.value()), workers=2, routing="sticky",
        ranges=HALVES, on_unmatched="hold",
    ).start()  # fmt: skip
    write(embedded_cluster, topic, [(LOW, b"0")])
    eventually(lambda: ran == [b"0"], WAIT)
    app = member.app
    assert app.assign_range(0, HALF - 1, None) == {"worker-1": f"{HALF}-{SLOTS - 1}"}
    write(embedded_cluster, topic, [(LOW, b"1"), (LOW, b"2")])
    instance = app.instance
    assert instance is not None
    eventually(lambda: instance.core.unsettled_count() == 2, WAIT)

    def shown() -> tuple[str, dict[str, str]]:
        """A status may be half a second old."""
        status = app.status()
        assert status is not None
        (sub,) = status.subscriptions
        return sub.unassigned, sub.ranges

    assigned = {"worker-1": f"{HALF}-{SLOTS - 1}"}
    eventually(lambda: shown() == (f"0-{HALF - 1}", assigned), WAIT)
    assert ran == [b"0"]
    assert app.assign_range(0, 99, "worker-0")["worker-0"] == "0-99"
    app.assign_range(100, HALF - 1, "worker-1")
    eventually(lambda: ran == [b"0", b"1", b"2"], WAIT)
    assert member.stop() == 0
