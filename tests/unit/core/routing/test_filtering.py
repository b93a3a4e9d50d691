"""Filters that change while records run: who gets what, what waits, what is refused."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.routing.filters import OnUnmatched, shown
from kafka_keyshared.core.routing.modes import RoutingMode, RoutingSettings
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import ConfigError
from tests.support.core_harness import Harness
from tests.support.records import ERROR, record

SHIPS, FLIGHTS = {"A": ["ship-*"]}, {"A": ["ship-*"], "B": ["flight-*"]}


class Filtering(Harness):
    """Workers A and B on a ring."""

    def __init__(
        self,
        filters: Mapping[str, Sequence[str]] | None = None,
        *,
        mode: RoutingMode = "ring",
        on_unmatched: OnUnmatched | None = None,
        **rest: Any,
    ) -> None:
        chosen = RoutingSettings(mode, filters=filters or {}, on_unmatched=on_unmatched)
        super().__init__(SubscriptionSettings(workers=("A", "B"), routing=chosen, **rest))
        self.assign()

    def filter(self, worker: str, *patterns: str | bytes) -> None:
        self.tell(ev.SetFilters("default", worker, patterns))

    def has(self, name: str) -> list[int]:
        """The offsets that a worker holds."""
        worker = next(each for each in self.sub().workers.values() if each.name == name)
        return sorted(r.offset() for leased in worker.slices.values() for r in leased.records())


def test_a_key_that_goes_to_another_worker_waits_for_what_runs_of_it() -> None:
    member = Filtering(FLIGHTS, on_unmatched="hold")
    member.fetch(record(0, b"ship-1"), record(1, b"ship-1"), record(2, b"flight-1"))
    assert (member.has("A"), member.has("B")) == ([0, 1], [2])
    assert member.worker(0).start() is not None
    member.filter("B", "flight-*", "ship-*")
    member.filter("A", "truck-*")
    assert (member.has("A"), member.has("B")) == ([0], [2]), "A still runs one of the key"
    member.fetch(record(3, b"ship-1"), record(4, b"truck-1"))
    assert (member.has("A"), member.has("B")) == ([0, 4], [2])
    member.worker(0).finish()
    assert member.worker(0).start() is not None, "it goes on with the next slice"
    member.deliver()
    assert {1, 3} <= {*member.has("B")}
    member.worker(0).finish()
    ran = member.work()
    assert [each for each in ran if each in {1, 3}] == [1, 3]
    assert member.committed() == (5, [])


@pytest.mark.parametrize("one_in_flight_per_key", [False, True])
def test_a_key_that_fails_meanwhile_goes_on_in_order_at_its_new_worker(
    one_in_flight_per_key: bool,
) -> None:
    member = Filtering(FLIGHTS, on_unmatched="hold", one_in_flight_per_key=one_in_flight_per_key)
    member.fetch(*(record(offset, b"ship-1") for offset in range(3)))
    assert member.worker(0).start() is not None
    member.filter("B", "*")
    member.filter("A", "truck-*")
    member.worker(0).finish(ERROR)
    member.deliver()
    member.later(60.0)
    assert member.work() == [0, 1, 2]
    assert member.committed() == (3, [])


def test_the_first_filters_of_a_running_subscription_leave_the_others_every_key() -> None:
    member = Filtering()
    member.fetch(*(record(offset, b"ship-%d" % offset) for offset in range(20)))
    member.filter("A", "truck-*")
    assert (member.has("A"), len(member.has("B"))) == ([], 20)
    assert shown(member.sub().table.filtered) == {"A": ("truck-*",), "B": ()}
    assert len(member.work()) == 20


def test_a_worker_takes_every_key_again_without_patterns() -> None:
    member = Filtering(FLIGHTS, on_unmatched="hold")
    member.fetch(record(0, b"truck-1"), record(1, None))
    assert member.work() == []
    member.filter("A")
    assert sorted(member.work()) == [0, 1]
    assert member.committed() == (2, [])


@pytest.mark.parametrize(
    ("policy", "runs", "committed"),
    [("skip", [], (2, [])), ("hold", [], (0, [])), ("error", [], (0, []))],
)
def test_what_nobody_takes_any_more_goes_by_on_unmatched(
    policy: OnUnmatched, runs: list[int], committed: tuple[int, list[object]]
) -> None:
    member = Filtering(FLIGHTS, on_unmatched=policy)
    member.fetch(record(0, b"ship-1"), record(1, b"ship-2"))
    member.filter("A", "truck-*")
    assert bool(member.halted) is (policy == "error")
    assert member.work() == runs
    assert member.committed() == committed
    if policy == "hold":
        member.filter("B", "flight-*", "ship-*")
        assert member.work() == [0, 1]


def test_filters_of_a_worker_that_is_away_change_too_and_wait_for_it() -> None:
    member = Filtering({**FLIGHTS, "C": ["truck-*"]}, on_unmatched="skip")
    member.fetch(record(0, b"truck-1"), record(1, b"bike-1"))
    assert member.committed() == (0, [(1, 2)])
    member.filter("C", "bike-*")
    assert member.committed() == (2, [])
    member.fetch(record(2, b"bike-1"))
    assert member.work() == []
    member.tell(ev.Join("default", "C"))
    assert member.work() == [2]


def test_filters_that_change_nothing_recall_nothing() -> None:
    for member in (Filtering(FLIGHTS, on_unmatched="hold"), Filtering()):
        member.fetch(record(0, b"ship-1"))
        before = member.sub().table.version
        member.filter("A", *(["ship-*"] if member.sub().table.filtered else []))
        assert member.sub().table.version == before


def test_records_without_a_key_go_to_one_that_joins_where_nobody_else_takes_them() -> None:
    """It waits for all that came before it, and they are of that: they were held for ever."""
    member = Filtering({"B": ["ship-*"]}, new_workers_wait=True, on_unmatched="hold")
    member.fetch(record(0, b"ship-1"), record(1, None), record(2, None))
    member.fetch(*(record(offset, None) for offset in range(3, 6)))
    member.tell(ev.Resize("default", ["B", "C"]))
    member.fetch(record(6, None))
    member.work()
    member.beat()
    member.work()
    assert member.committed() == (7, [])
    assert not any(worker.joined_at for worker in member.sub().workers.values())


def test_one_that_joins_gets_no_records_without_a_key_while_others_take_them() -> None:
    member = Filtering({"B": ["ship-*"]}, new_workers_wait=True, on_unmatched="hold")
    member.fetch(record(0, b"ship-1"), record(1, None))
    member.tell(ev.Join("default", "C"))
    member.fetch(record(2, None), record(3, None))
    assert not {1, 2, 3} & {*member.has("C")}
    assert 1 in member.has("A")


# --- what is refused ---


@pytest.mark.parametrize(
    ("member", "worker", "patterns", "said"),
    [
        (Filtering, "Z", ["a"], "filters are for worker 'Z', and there is none; give one of A, B"),
        (lambda: Filtering(SHIPS), "B", ["b"], "no worker takes every key, each of A, B has"),
        (
            lambda: Filtering(mode="exclusive", on_exhausted="block"),
            "A",
            ["a"],
            "Exclusive takes no filters",
        ),
        (lambda: Filtering(mode="unordered"), "A", ["a"], "Unordered takes no filters"),
        (lambda: Filtering(hands_over=True), "A", ["a"], "filters, and a handler with release"),
        (lambda: Filtering(SHIPS), "A", [5], "worker 'A': filter 5: a pattern is text or bytes"),
    ],
    ids=["nobody", "no catch-all", "exclusive", "unordered", "with state", "no pattern"],
)
def test_filters_that_cannot_be_are_refused_and_nothing_changes(
    member: Any, worker: str, patterns: Sequence[str], said: str
) -> None:
    made: Filtering = member()
    sub = made.sub()
    before = sub.table.version, sub.table.routing, shown(sub.table.filtered), sub.routing.has_gaps
    with pytest.raises(ConfigError, match=said):
        made.filter(worker, *patterns)
    after = sub.table.version, sub.table.routing, shown(sub.table.filtered), sub.routing.has_gaps
    assert after == before
