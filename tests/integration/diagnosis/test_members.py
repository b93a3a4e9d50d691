"""Causes that a member, its group or its brokers make: a running instance names each in time."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.runtime.standstill import HELD
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conftest import Eventually
from tests.integration.diagnosis.conftest import Started
from tests.support.diagnosis_causes import WAIT, Named, found
from tests.support.live_cluster import Member, client_conf, group_name, numbered, write
from tests.support.odd_records import ODD, Gate, nothing


def test_a_control_loop_that_does_not_come_round_is_named(
    started: Started, gate: Gate, named: Named
) -> None:
    def key(record: Any) -> bytes | None:  # it runs on the owner's thread
        gate(record)
        found: bytes | None = record.key()
        return found

    named.after_soon("SILENT")
    member = started(nothing, key=key)
    assert gate.entered.wait(WAIT)
    silent = named(member.app, "loop-silent")
    assert silent.sentence.startswith("the control loop has run no round for ")
    gate.open()
    named.cleared(member.app, "loop-silent")


def test_an_owner_thread_that_was_held_is_named_when_it_goes_on(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named, eventually: Eventually
) -> None:
    gate = Gate(ODD)

    def key(record: Any) -> bytes | None:  # it runs on the owner's thread
        gate(record)
        found: bytes | None = record.key()
        return found

    member = started(nothing, records=numbered(100), key=key)
    eventually(lambda: member.done() == 100, WAIT)
    write(cluster, topic, [(ODD, b"it")])

    def held() -> bool:
        status = member.app.status()
        return status is not None and status.silent_seconds > HELD + 1.0

    try:
        eventually(held, WAIT)
    finally:
        gate.open()
    stood = named(member.app, "loop-held")
    assert stood.sentence.startswith("the owner thread stood still in ")
    assert "odd_records.py" in stood.sentence
    assert found(member.app, "loop-silent") is None


def test_a_right_that_is_refused_is_named_with_what_to_grant(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    cluster.fail_next("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", times=500)
    member = started(nothing)
    refused = named(member.app, "right-refused")
    assert refused.sentence.startswith(f"topic {topic}: READ refused ")
    assert f"Grant READ on topic {topic} to the user of this instance" in refused.sentence
    assert (refused.topic, refused.level) == (topic, "fail")
    cluster.heal("OffsetCommit")
    named.cleared(member.app, "right-refused")


def test_commits_that_are_refused_are_named_with_the_error(
    started: Started, cluster: EmbeddedCluster, named: Named
) -> None:
    cluster.fail_next("OffsetCommit", "INVALID_COMMIT_OFFSET_SIZE", times=500)
    member = started(nothing)
    failing = named(member.app, "commit-failing")
    assert failing.count >= 2
    assert "commits in a row failed" in failing.sentence
    cluster.heal("OffsetCommit")
    named.cleared(member.app, "commit-failing")


def test_a_commit_that_is_not_answered_is_named(
    started: Started, cluster: EmbeddedCluster, named: Named
) -> None:
    named.after_soon("UNANSWERED")
    cluster.delay_next("OffsetCommit", 4.0)
    member = started(nothing)
    waits = named(member.app, "commit-unanswered")
    assert waits.sentence.startswith("a commit has waited for its answer for ")
    named.cleared(member.app, "commit-unanswered")


def test_a_coordinator_that_is_lost_is_named(
    started: Started,
    cluster: EmbeddedCluster,
    topic: str,
    named: Named,
    eventually: Eventually,
) -> None:
    member = started(nothing)
    eventually(lambda: member.done() == 101, WAIT)
    cluster.fail_next("OffsetCommit", "COORDINATOR_NOT_AVAILABLE", times=500)
    write(cluster, topic, numbered(10))
    lost = named(member.app, "coordinator-lost")
    assert "coordinator" in lost.sentence.lower()
    cluster.heal("OffsetCommit")
    named.cleared(member.app, "coordinator-lost")


def test_brokers_that_are_away_are_named_and_so_is_nothing_that_follows(
    started: Started, cluster: EmbeddedCluster, named: Named, eventually: Eventually
) -> None:
    member = started(nothing)
    eventually(lambda: member.done() == 101, WAIT)
    cluster.broker_down()
    away = named(member.app, "brokers-away")
    assert "no broker has answered for" in away.sentence
    assert found(member.app, "commit-failing") is None
    cluster.broker_up()
    named.cleared(member.app, "brokers-away")


def test_partitions_that_are_paused_by_hand_are_named(
    started: Started, topic: str, named: Named, eventually: Eventually
) -> None:
    member = started(nothing)
    eventually(lambda: member.done() == 101, WAIT)
    member.app.pause()
    paused = named(member.app, "paused-by-hand")
    assert f"{topic}-0, {topic}-1" in paused.sentence
    member.app.resume()
    named.cleared(member.app, "paused-by-hand")


def test_reports_that_are_not_written_are_named_with_the_error(
    started: Started, cluster: EmbeddedCluster, topic: str, named: Named
) -> None:
    named.after_soon("REPORTS")
    reports = f"{topic}.status"
    member = started(nothing, group_view_topic=reports, group_view_interval=1.0)
    failing = named(member.app, "report-failing")
    assert f"topic '{reports}' does not exist" in failing.sentence
    assert failing.level == "warn"
    cluster.create_topic(reports, 1)
    named.cleared(member.app, "report-failing")


def test_a_member_without_partitions_is_named(
    cluster: EmbeddedCluster, topic: str, named: Named, eventually: Eventually
) -> None:
    named.after_soon("RESERVE")
    cluster.create_topic(topic, 1)
    conf = client_conf(cluster, group_name())
    members = [Member(conf, [topic], nothing, name=f"m{n}").start() for n in range(2)]

    def idle() -> bool:
        return any(found(each.app, "no-partitions") is not None for each in members)

    try:
        eventually(idle, WAIT)
        eventually(lambda: sum(bool(each.assigned) for each in members) == 1, WAIT)
        (spare,) = [each for each in members if not each.assigned]
        reserve = named(spare.app, "no-partitions")
        assert "this member has had no partition for" in reserve.sentence
    finally:
        for member in members:
            member.stop()


def test_a_rebalance_that_waits_for_a_handler_is_named(
    started: Started, gate: Gate, named: Named, eventually: Eventually
) -> None:
    # The group has to wait for a member that hands over slowly, and not give it up.
    patient = {"session_timeout_ms": 10_000, "group_id": "patient"}
    first = started(gate, client=patient, revoke_deadline=20.0)
    assert gate.entered.wait(WAIT)

    def joined() -> bool:
        status = first.app.status()
        return status is not None and status.rebalance_seconds is None

    eventually(joined, WAIT)
    named.after_soon("REBALANCING")
    started(nothing, records=None, client=patient)
    turns = named(first.app, "rebalance-in-progress")
    assert "a rebalance has been in progress for" in turns.sentence
    gate.open()
    named.cleared(first.app, "rebalance-in-progress")


def test_a_healthy_run_under_load_raises_nothing(started: Started, eventually: Eventually) -> None:
    said: list[str] = []
    records = numbered(20_000, keys=500)
    member = started(nothing, records=records, partitions=4, workers=4, window_records=2_000)

    def done() -> bool:
        diagnosis = member.app.diagnosis()
        if diagnosis is not None:
            said.append(diagnosis.text)
        return member.done() == 20_000

    eventually(done, WAIT)
    assert member.stop() == 0
    assert set(said) == {"healthy"}
