"""Causes that a record makes, on a running instance: its diagnosis names each of them in time."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.integration.diagnosis.conftest import Started
from tests.support.diagnosis_causes import WAIT, Named, found
from tests.support.live_cluster import numbered, write
from tests.support.odd_records import ODD, RECORDS, Gate, fails, key_unread, nothing


def test_a_blocked_key_is_named_with_its_record_and_its_error(
    started: Started, topic: str, named: Named
) -> None:
    member = started(fails, retry={"attempts": 1}, on_exhausted="block")
    blocked = named(member.app, "key-blocked")
    assert blocked.sentence.startswith(f"key 'odd' is blocked by {topic}-{blocked.partition}@")
    assert "no such address" in blocked.sentence
    assert "in fails" in blocked.stack
    diagnosis = member.app.diagnosis()
    assert diagnosis is not None
    assert diagnosis.number == blocked.number


def test_a_key_whose_records_go_to_the_dead_letters_unrun_is_named(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    member = started(fails, retry={"attempts": 1}, on_exhausted="divert", dlq=True)
    diverted = named(member.app, "key-diverted")
    assert diverted.sentence == "key 'odd' is diverted to the dead-letter topic"
    member.app.unblock(key=ODD)
    named.cleared(member.app, "key-diverted")


def test_a_stuck_handler_is_named_with_where_it_stands(
    started: Started, gate: Gate, named: Named, eventually: Eventually
) -> None:
    member = started(gate, ack_timeout=0.2)
    stuck = named(member.app, "handler-stuck")
    assert stuck.key == "odd"
    assert stuck.worker.startswith("worker-")

    def stands() -> bool:
        now = found(member.app, "handler-stuck")
        return now is not None and "odd_records.py" in now.sentence and "wait(" in now.stack

    eventually(stands, WAIT)


def test_a_handler_that_runs_for_long_is_named_with_where_it_stands(
    started: Started, gate: Gate, named: Named, eventually: Eventually
) -> None:
    named.after_soon("SLOW")
    member = started(gate)
    slow = named(member.app, "handler-slow")
    assert "(key 'odd') runs long: on worker-" in slow.sentence

    def stands() -> bool:
        now = found(member.app, "handler-slow")
        return now is not None and "wait(" in now.stack

    eventually(stands, WAIT)


def test_a_key_that_fails_again_and_again_is_named_with_its_next_try(
    started: Started, named: Named
) -> None:
    named.after_soon("RETRYING")
    member = started(fails, retry={"attempts": 1_000, "backoff": 2.0, "backoff_max": 2.0})
    waits = named(member.app, "retry-waiting")
    assert waits.sentence.startswith("key 'odd' waits for another attempt of ")
    assert "ValueError" in waits.sentence


def test_a_key_that_cannot_be_read_is_named_with_why(
    started: Started, topic: str, named: Named
) -> None:
    named.after_soon("UNREAD")
    member = started(nothing, key=key_unread)
    unread = named(member.app, "key-unreadable")
    assert "OSError: the registry is away" in unread.sentence
    assert (unread.topic, unread.subscription) == (topic, "default")


def test_records_for_a_worker_that_is_not_there_are_named_with_the_worker(
    started: Started, named: Named
) -> None:
    named.after_soon("ABSENT")
    ranges = {"worker-0": "0-29999", "worker-1": "30000-39999", "worker-9": "40000-65535"}
    member = started(nothing, routing="sticky", ranges=ranges, on_unmatched="hold")
    absent = named(member.app, "worker-absent")
    assert absent.worker == "worker-9"
    assert "wait for worker-9" in absent.sentence


def test_a_slot_that_drains_for_long_is_named_with_who_holds_it(
    started: Started, gate: Gate, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    named.after_soon("DRAINING")
    member = started(gate, routing="sticky", ranges={"worker-0": "0-65535"})
    assert gate.entered.wait(WAIT)
    with pytest.raises(TimeoutError):
        member.app.assign_range(0, 65_535, "worker-1", take_over=True, timeout=0.1)
    write(cluster, topic, [(ODD, b"more")])
    drains = named(member.app, "slot-draining")
    assert "has been draining at worker-0, which runs" in drains.sentence
    assert "1 record waits for it at worker-1" in drains.sentence
    gate.open()
    named.cleared(member.app, "slot-draining")


def test_a_dead_letter_that_is_refused_is_named(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    cluster.create_topic(f"{topic}.dlq", 1)
    cluster.create_topic(topic, 2)
    write(cluster, topic, RECORDS)
    cluster.fail_next("Produce", "TOPIC_AUTHORIZATION_FAILED", times=1_000)
    options = {"retry": {"attempts": 1}, "on_exhausted": "dead_letter", "dlq": True}
    member = started(fails, records=None, **options)
    refused = named(member.app, "dlq-refusing")
    assert "(key 'odd') was refused" in refused.sentence
    assert "Topic authorization failed; allow this user to WRITE" in refused.sentence
    cluster.heal("Produce")
    named.cleared(member.app, "dlq-refusing")


def test_a_partition_of_which_too_much_fails_is_named(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    def fails_always(record: Any) -> None:
        raise ValueError("these all fail")

    cluster.create_topic(f"{topic}.dlq", 1)
    limit = {"dlq_limit": True, "dlq_limit_consecutive": 5}
    member = started(
        fails_always, retry={"attempts": 1}, on_exhausted="dead_letter", dlq=True, **limit
    )
    limited = named(member.app, "dlq-limit")
    assert limited.sentence.startswith(f"nothing more of {topic}-")
    assert limited.topic == topic


def test_a_dependency_that_is_away_is_named_with_its_error(started: Started, named: Named) -> None:
    back = threading.Event()

    def calls_it(record: Any) -> None:
        if not back.is_set():
            raise ConnectionError("nobody listens")

    retry = {"attempts": 1_000, "backoff": 0.2, "backoff_max": 1.0}
    member = started(calls_it, retry=retry)
    away = named(member.app, "most-attempts-fail")
    assert away.sentence.startswith("no attempt has succeeded for ")
    assert "all with ConnectionError at " in away.sentence
    assert away.level == "fail"
    back.set()
    named.cleared(member.app, "most-attempts-fail")


def test_an_outage_that_everything_waits_for_is_named_and_over_by_itself(
    started: Started, named: Named
) -> None:
    back = threading.Event()

    def calls_it(record: Any) -> None:
        if not back.is_set():
            raise ConnectionError("nobody listens")

    member = started(calls_it, retry={"attempts": 1}, wait_on=[ConnectionError])
    away = named(member.app, "dependency-waiting")
    assert away.sentence.startswith("everything waits for a dependency of the handler, for ")
    assert "several keys failed with ConnectionError at " in away.sentence
    assert "nobody listens" in away.sentence
    assert away.level == "fail"
    back.set()
    named.cleared(member.app, "dependency-waiting")


def test_records_that_go_to_the_dead_letters_in_numbers_are_named_with_their_share(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    def every_fifth_fails(record: Any) -> None:
        if int(record.value()) % 5 == 0:
            raise ValueError("no such address")

    cluster.create_topic(f"{topic}.dlq", 1)
    options = {"retry": {"attempts": 1}, "on_exhausted": "dead_letter", "dlq": True}
    member = started(every_fifth_fails, records=numbered(100), **options)
    much = named(member.app, "dead-lettering-much")
    assert "were dead-lettered or dropped" in much.sentence
    assert "all with ValueError at " in much.sentence
    assert much.level == "warn"


def test_a_partition_whose_settled_set_is_full_is_named(
    started: Started, gate: Gate, topic: str, named: Named
) -> None:
    # A gap at every tenth record, and more of them than the commit metadata has room for.
    records = [
        (ODD if number % 10 == 0 else b"key-%d" % (number % 13), None) for number in range(24_000)
    ]
    named.after_soon("FULL")
    member = started(gate, records=records, partitions=1, commit_interval=0.5)
    full = named(member.app, "metadata-full")
    assert full.sentence.startswith(f"nothing more of {topic}-0 is fetched, for ")
    assert full.offset == 0, "what holds it up is its oldest record"
