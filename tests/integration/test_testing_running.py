"""An app beside a test: what is waited for, and what a test is told when it goes wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from kafka_keyshared import ConfigError, Drop, KeyShared, Record
from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.runtime.instance_view import InstanceView
from kafka_keyshared.testing import EmbeddedKafka, running
from tests.conftest import Eventually


class Held:
    """A handler that says when it has begun, and goes on when it may."""

    def __init__(self) -> None:
        self.started, self.release = threading.Event(), threading.Event()

    def __call__(self, _: Record) -> None:
        self.started.set()
        self.release.wait(60)


@pytest.fixture
def kafka() -> Iterator[EmbeddedKafka]:
    with EmbeddedKafka() as cluster:
        cluster.create_topic("orders", 3)
        cluster.create_topic("orders.dlq", 1)
        yield cluster


def an_app(kafka: EmbeddedKafka, handler: Any, group: str = "mine", **options: Any) -> KeyShared:
    conf = {**kafka.conf(group), **options.pop("conf", {})}
    options = {"workers": 4, "retry": {"attempts": 2, "backoff": 0.01}, **options}
    app = KeyShared(conf, ["orders"], **options)
    app.handler(handler)
    return app


def does(given: Record) -> Any:
    """Do what the value says."""
    if given.value() == b"bad":
        raise ValueError("cannot read it")
    return Drop() if given.value() == b"drop" else None


def test_everything_is_settled_and_committed_after_the_block(kafka: EmbeddedKafka) -> None:
    words = ["ok", "bad", "drop", "ok", "ok"] * 20
    kafka.produce("orders", [(f"k{number % 7}", word) for number, word in enumerate(words)])
    with running(an_app(kafka, does, dlq=True)) as run:
        run.wait_settled()
        assert (run.settled, run.unsettled) == (100, 0)
        kafka.produce("orders", [("late", "ok")])
        run.wait_settled(101)
    assert run.status == 0
    assert kafka.lag("mine", "orders") == 0
    assert len(kafka.records("orders.dlq")) == 20


def test_what_is_in_the_topics_at_the_call_is_waited_for(kafka: EmbeddedKafka) -> None:
    """Not only what has been received by then."""
    seen: list[Record] = []
    with running(an_app(kafka, seen.append)) as run:
        for count in range(1, 4):
            kafka.produce("orders", [(f"k{number}", "") for number in range(50)])
            run.wait_settled()
            assert len(seen) == 50 * count


def test_an_empty_topic_is_settled(kafka: EmbeddedKafka) -> None:
    with running(an_app(kafka, does)) as run:
        run.wait_settled()
        assert run.settled == 0


def test_a_group_that_has_read_everything_is_settled(kafka: EmbeddedKafka) -> None:
    kafka.produce("orders", [("a", ""), ("b", "")])
    for settled in (2, 0):
        with running(an_app(kafka, does)) as run:
            run.wait_settled()
            assert run.settled == settled


def test_a_blocked_key_is_named_when_a_wait_is_over(kafka: EmbeddedKafka) -> None:
    kafka.produce("orders", [("poison", "bad"), ("poison", "ok"), ("other", "ok")])
    with running(an_app(kafka, does), timeout=2) as run:
        run.wait_settled(1)
        with pytest.raises(AssertionError) as failed:
            run.wait_settled()
    said = str(failed.value)
    assert said.startswith("after 2 s not everything is settled (orders-")
    assert "1 settled, 2 received and not settled" in said
    assert "key b'poison' is blocked after 2 attempts (ValueError: cannot read it)" in said


def test_a_group_that_begins_at_the_end_is_told_apart(kafka: EmbeddedKafka) -> None:
    kafka.produce("orders", [("a", "")])
    app = KeyShared(kafka.conf("mine", {"auto.offset.reset": "latest"}), ["orders"], workers=1)
    app.handler(does)
    with running(app) as run:
        run.timeout = 0.3
        with pytest.raises(AssertionError, match="begins at the end"):
            run.wait_settled()


def test_an_app_that_gets_no_partitions_is_told_apart(kafka: EmbeddedKafka) -> None:
    kafka.fail_next("join_group", "GROUP_AUTHORIZATION_FAILED", times=1_000)
    with (
        pytest.raises(AssertionError, match="given the app no partitions"),
        running(an_app(kafka, does), timeout=1),
    ):
        pytest.fail("the block must not begin")
    assert not [each for each in threading.enumerate() if each.name == "keyshared-app"]


def test_what_run_raises_reaches_the_test(kafka: EmbeddedKafka) -> None:
    app = KeyShared(kafka.conf("mine"), ["ordres"], workers=1)
    app.handler(does)
    with (
        pytest.raises(AssertionError, match=r"the app has ended .*run\(\) raised") as failed,
        running(app),
    ):
        pytest.fail("the block must not begin")
    assert isinstance(failed.value.__cause__, ConfigError)


def test_an_app_that_dies_ends_every_wait_at_once(kafka: EmbeddedKafka) -> None:
    broken = threading.Event()

    def stepped(_: InstanceView) -> None:
        if broken.is_set():
            raise OSError("gone")

    app = an_app(kafka, does, hooks=Hooks(stepped=stepped))
    with pytest.raises(AssertionError, match=r"run\(\) raised OSError: gone"), running(app) as run:
        broken.set()
        run.wait_settled(1)


def test_the_exit_status_is_asserted(kafka: EmbeddedKafka) -> None:
    held = Held()
    kafka.produce("orders", [("a", "")])
    try:
        with (
            pytest.raises(AssertionError, match=r"status 1, not 0: .*gave up on 1 running"),
            running(an_app(kafka, held, stop_timeout=0.2)),
        ):
            assert held.started.wait(60)
    finally:
        held.release.set()


def test_a_status_that_is_expected_is_fine(kafka: EmbeddedKafka) -> None:
    held = Held()
    kafka.produce("orders", [("a", "")])
    with running(an_app(kafka, held, stop_timeout=0.2), exit_status=1) as run:
        assert held.started.wait(60)
        assert run.stop() == 1
        held.release.set()
    assert run.status == 1


def test_an_error_of_the_block_comes_first_and_the_app_is_stopped(kafka: EmbeddedKafka) -> None:
    with pytest.raises(ZeroDivisionError), running(an_app(kafka, does)) as run:
        raise ZeroDivisionError
    assert run.status == 0


def test_an_app_can_run_again_and_keeps_its_own_hooks(kafka: EmbeddedKafka) -> None:
    steps: list[InstanceView] = []
    hooks = Hooks(stepped=steps.append)
    app = an_app(kafka, does, hooks=hooks)
    kafka.produce("orders", [("a", "")])
    with running(app) as run:
        run.wait_settled()
    assert app.hooks is hooks
    seen = len(steps)
    kafka.produce("orders", [("a", "")])
    with running(app) as run:
        run.wait_settled(1)
    assert 0 < seen < len(steps)


def test_two_members_share_the_topic(kafka: EmbeddedKafka, eventually: Eventually) -> None:
    seen: list[Record] = []
    # On a busy machine heartbeats may be late by more than the second and a half of the others.
    patient = {"session.timeout.ms": 6_000, "partition.assignment.strategy": "range"}
    with (
        running(an_app(kafka, seen.append, conf=patient)) as first,
        running(an_app(kafka, seen.append, conf=patient)) as second,
    ):
        # The first may be through with everything before the second has its share.
        second.wait_assigned()
        kafka.produce("orders", [(f"k{number}", "") for number in range(300)])
        first.wait_settled()
        second.wait_settled()
        assert first.settled + second.settled == 300
        assert min(first.settled, second.settled) > 0
        # Before one of them leaves: in a rebalance the embedded cluster takes no commit.
        eventually(lambda: kafka.lag("mine", "orders") == 0, 60.0)
    assert len(seen) == 300


def test_faults_hit_the_apps_own_clients(kafka: EmbeddedKafka) -> None:
    kafka.produce("orders", [("a", "bad"), ("b", "ok")])
    kafka.fail_next("commit", "NOT_COORDINATOR", times=3)
    kafka.fail_next("produce", "TOPIC_AUTHORIZATION_FAILED")
    kafka.watch_requests()
    with running(an_app(kafka, does, dlq=True)) as run:
        run.wait_settled()
    assert kafka.requests()["produce"] >= 2, "the dead letter was written again"
    assert kafka.lag("mine", "orders") == 0
    assert len(kafka.records("orders.dlq")) == 1
