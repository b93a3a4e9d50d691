"""What is told of pauses is one thing: to the client, in the status, and in the metrics."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.backpressure.pause_reasons import NOT_PAUSED, Reason
from kafka_keyshared.core.contract.commands import Publish
from kafka_keyshared.core.contract.dlq_limit import DlqLimit
from kafka_keyshared.core.contract.events import DeadLetterAnswer, DlqLimitLifted
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.model import Record, Retry, TopicPartition
from kafka_keyshared.observability.web.prometheus_collector import Exposition
from kafka_keyshared.runtime.pauses import Those
from kafka_keyshared.runtime.shutdown import stop
from kafka_keyshared.runtime.status_board import Observer, StatusBoard
from kafka_keyshared.status import PartitionStatus, Status
from tests.support.http_scrapes import samples
from tests.support.loop_ports import Stage
from tests.support.records import ERROR, P0, P1, FakeRecord, record

ROOT = Path(__file__).resolve().parents[3]

NO_ANSWER = KafkaException(KafkaError(KafkaError._TIMED_OUT))


def assigned(stage: Stage, *partitions: TopicPartition) -> Stage:
    """An instance that has started the partitions (P0 unless told) and has nothing to do."""
    for each in partitions or (P0,):
        stage.client.stored[each] = CommittedOffset(0, None)
    stage.accept()
    stage.assign(*partitions)
    stage.step(2)
    return stage


def seen(stage: Stage) -> Status:
    """What the instance shows of itself now."""
    board = StatusBoard(Clock())
    Observer(stage.loop, board, group="g", pool="thread", interval_ms=300_000).show()
    status = board.read(0.0)
    assert status is not None
    return status


def of(stage: Stage, partition: TopicPartition) -> PartitionStatus:
    """What it shows of one partition."""
    (found,) = [
        each for each in seen(stage).partitions if (each.topic, each.partition) == partition
    ]
    return found


def figure(stage: Stage, name: str) -> float:
    """One of its metrics that has no labels."""
    text, _ = Exposition(lambda: seen(stage)).text("")
    return samples(text.decode())[name, ()]


# --- the figures agree ---


def test_the_time_of_a_full_window_counts_as_that_of_the_pauses_that_it_makes() -> None:
    stage = assigned(Stage(SubscriptionSettings(window_records=10)))
    stage.fill(*(record(offset) for offset in range(100)))
    while not stage.client.paused:
        stage.step()
    assert figure(stage, "keyshared_partitions_paused") == 1
    before, began = figure(stage, "keyshared_paused_seconds_total"), stage.now
    while stage.now < began + 20.0:
        stage.step()
    counted = figure(stage, "keyshared_paused_seconds_total") - before
    assert abs(counted - 20.0) < 1.1, "looked at twice a second"


def test_a_partition_whose_start_is_not_known_is_shown_with_its_reason() -> None:
    stage = assigned(Stage())
    stage.client._cooperative = True
    stage.client.committed_fails += [NO_ANSWER]
    stage.assign(P1)
    shown = of(stage, P1)
    assert stage.client.paused == {P1}
    assert shown.paused
    assert shown.held_back == ("where it starts is not known yet",)
    assert figure(stage, "keyshared_partitions_assigned") == 2
    assert figure(stage, "keyshared_partitions_paused") == 1
    began = stage.now
    stage.client.committed_fails += [NO_ANSWER] * 10
    while stage.now < began + 5.0:
        stage.now += 0.5
        stage.step()
    assert figure(stage, "keyshared_paused_seconds_total") > 3.0


def test_a_partition_whose_place_cannot_be_found_is_shown_with_its_reason() -> None:
    """Nothing of it is used, for as long as its broker is away: that is no partition at rest."""
    stage = assigned(Stage(), P0, P1)
    stage.fill(*(FakeRecord(P0, offset, b"key") for offset in range(3)))
    stage.step(2)
    stage.client.seek_fails += [NO_ANSWER] * 1_000
    stage.loop.lost_some(RuntimeError("broken"))
    stage.step()
    assert of(stage, P0).held_back == ("its place in the log is being found",)
    stage.client.seek_fails.clear()
    stage.step()
    assert of(stage, P0).held_back == ()


# --- every reason is shown, for as long as its cause lasts ---


def why(stage: Stage, partition: TopicPartition = P0) -> tuple[str, ...]:
    """Why nothing is fetched from the partition, as the status says it; nothing if it has gone."""
    told = [each for each in seen(stage).partitions if (each.topic, each.partition) == partition]
    (held_back,) = [each.held_back for each in told] or [()]
    paused = bool(told) and told[0].paused
    assert paused == (partition in stage.client.paused), "the status is what the client was told"
    assert paused == bool({*held_back} - {each.value for each in NOT_PAUSED})
    return held_back


class Cause:
    """A cause of a hold on P0: ``begin`` brings it about, ``end`` ends it. Each is one scene."""

    def __init__(self) -> None:
        self.during: list[tuple[str, ...]] = []
        self.stage = self.made()
        self.begin()
        self.during.append(why(self.stage))

    def made(self) -> Stage:
        return assigned(Stage())

    def begin(self) -> None:
        raise NotImplementedError

    def end(self) -> None:
        raise NotImplementedError

    def later(self, seconds: float, step: float = 0.5) -> None:
        """Let time pass, and every worker work."""
        until = self.stage.now + seconds
        while self.stage.now < until:
            self.stage.now += step
            self.stage.step()
            self.stage.work()


class Unstarted(Cause):
    def made(self) -> Stage:
        return Stage()

    def begin(self) -> None:
        self.stage.client.committed_fails.append(NO_ANSWER)
        self.stage.assign()

    def end(self) -> None:
        self.later(10.0)


class Reseek(Cause):
    def begin(self) -> None:
        self.stage.client.seek_fails += [NO_ANSWER] * 3
        self.stage.loop.lost_some(RuntimeError("broken"))
        self.stage.step()

    def end(self) -> None:
        self.later(5.0)


class Closing(Cause):
    def begin(self) -> None:
        """Look from inside the callback: it waits for what runs, and nothing else is served."""
        stage = self.stage
        stage.fill(record(0))
        stage.step(2)
        assert stage.worker().start() is not None

        def inside() -> None:
            stage.on_wait = lambda: None
            self.during.append(why(stage))
            stage.worker().finish()

        stage.on_wait = inside
        stage.client.callbacks["revoke"]([P0])

    def end(self) -> None:
        self.stage.assign()


class SetFull(Cause):
    def made(self) -> Stage:
        settings = SubscriptionSettings(workers=("one", "two"), window_records=4_000)
        return assigned(Stage(settings, set_budget=60))  # some 200 offsets

    def begin(self) -> None:
        self.stage.fill(*(record(offset, f"key-{offset}") for offset in range(2_000)))
        self.stage.step()
        self.oldest = [self.stage.worker(index).start() for index in range(2)]
        for _ in range(20):
            self.stage.now += 0.1
            self.stage.step()

    def end(self) -> None:
        for index in range(2):
            self.stage.worker(index).finish()
        self.later(30.0, 0.1)


class Blocked(Cause):
    def made(self) -> Stage:
        settings = SubscriptionSettings(window_records=40, retry=RetryPolicy(attempts=1))
        return assigned(Stage(settings))

    def begin(self) -> None:
        self.stage.fill(*(record(offset, "bad") for offset in range(20)))
        self.stage.step()
        self.stage.work({0: ERROR})
        self.stage.step(2)

    def end(self) -> None:
        self.stage.client.callbacks["revoke"]([P0])
        self.stage.client.stored[P0] = CommittedOffset(20, None)
        self.stage.assign()


class Waiting(Cause):
    def made(self) -> Stage:
        settings = SubscriptionSettings(window_records=40, retry=RetryPolicy(backoff=10.0))
        return assigned(Stage(settings), P0, P1)

    def begin(self) -> None:
        self.stage.fill(*(record(offset, "bad") for offset in range(20)))
        self.stage.step()
        self.stage.work({0: ERROR})
        self.stage.step(2)

    def end(self) -> None:
        self.stage.now += 15.0
        self.stage.step(2)
        self.stage.work()
        self.later(2.0)


class DependencyAway(Cause):
    def made(self) -> Stage:
        return assigned(Stage(SubscriptionSettings(breaker=True)))

    def begin(self) -> None:
        self.stage.fill(*(record(offset, f"key-{offset}") for offset in range(3)))
        self.stage.step()
        away = replace(ERROR, waits=True)
        self.stage.work({0: away, 1: away, 2: away})
        self.stage.step(2)
        self.stage.now += 0.5
        self.stage.step(2)

    def end(self) -> None:
        self.later(2.0)


class Acknowledges:
    """A dead-letter topic that takes everything at once."""

    def __init__(self) -> None:
        self.stage: Stage | None = None

    def publish(self, publish: Publish) -> None:
        assert self.stage is not None
        self.stage.mailbox.put(DeadLetterAnswer(publish))

    def serve(self) -> None:
        """Nothing is on the way."""

    def unanswered(self) -> int:
        return 0


class Lettered(Cause):
    def made(self) -> Stage:
        topic = Acknowledges()
        settings = SubscriptionSettings(
            retry=RetryPolicy(attempts=1),
            on_exhausted="dead_letter",
            dlq=True,
            dlq_limit=DlqLimit(consecutive=3),
        )
        topic.stage = Stage(settings, publisher=topic)
        return assigned(topic.stage)

    def begin(self) -> None:
        self.stage.fill(*(record(offset, f"key-{offset}") for offset in range(3)))
        self.stage.step()
        self.stage.work({0: ERROR, 1: ERROR, 2: ERROR})
        self.stage.step(3)

    def end(self) -> None:
        self.stage.instance.tell(DlqLimitLifted([P0]))
        self.later(1.0)


class Unread(Cause):
    down = True

    def made(self) -> Stage:
        def key(item: Record) -> Any:
            if self.down:
                raise Retry(1.0) from ConnectionError("registry")
            return item.key()

        return assigned(Stage(SubscriptionSettings(key_of=key)))

    def begin(self) -> None:
        self.stage.fill(record(0))
        self.stage.step(2)

    def end(self) -> None:
        self.down = False
        self.later(3.0)


class WindowFull(Cause):
    def made(self) -> Stage:
        return assigned(Stage(SubscriptionSettings(window_records=10)))

    def begin(self) -> None:
        self.stage.fill(*(record(offset) for offset in range(40)))
        while not self.stage.client.paused:
            self.stage.step()

    def end(self) -> None:
        self.later(5.0)


class Share(Cause):
    def made(self) -> Stage:
        settings = SubscriptionSettings(workers=tuple("abcd"), window_records=400)
        return assigned(Stage(settings), P0, P1)

    def begin(self) -> None:
        """The window is slow, P0 fills it, and there is something to read of P1."""
        for partition in (P0, P1):
            self.stage.fill(*(FakeRecord(partition, at, b"%d" % at) for at in range(1_000)))
        until = self.stage.now + 10.0
        while not self.stage.core.holds.held_back(Reason.SHARE) & {P0}:
            self.stage.now += 0.02
            self.stage.step(3)
            for index in range(4):
                if self.stage.worker(index).start() is not None:
                    self.stage.worker(index).finish()
            assert self.stage.now < until

    def end(self) -> None:
        self.later(30.0, 0.1)


class PausedByHand(Cause):
    def begin(self) -> None:
        self.stage.loop.by_hand.order(Those(), paused=True, here=[P0])
        self.stage.step()

    def end(self) -> None:
        self.stage.loop.by_hand.order(Those(), paused=False, here=[P0])


class Stopping(Cause):
    def begin(self) -> None:
        stop(self.stage.loop, 1.0, lambda: False)

    def end(self) -> None:
        """A stop is for good: what is assigned now is another instance."""
        self.stage = self.made()


CAUSES: dict[Reason, type[Cause]] = {
    Reason.UNSTARTED: Unstarted,
    Reason.RESEEK: Reseek,
    Reason.CLOSING: Closing,
    Reason.SET_FULL: SetFull,
    Reason.BLOCKED: Blocked,
    Reason.WAITING: Waiting,
    Reason.DEPENDENCY: DependencyAway,
    Reason.DLQ_LIMIT: Lettered,
    Reason.UNREAD: Unread,
    Reason.WINDOW: WindowFull,
    Reason.SHARE: Share,
    Reason.BY_HAND: PausedByHand,
    Reason.STOPPING: Stopping,
}


@pytest.mark.parametrize("reason", Reason)
def test_each_reason_is_shown_and_logged_while_its_cause_lasts_and_no_longer(
    reason: Reason, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "kafka_keyshared.loop")
    cause = CAUSES[reason]()
    assert any(reason in held_back for held_back in cause.during), cause.during
    told = [each.getMessage() for each in caplog.records if "nothing is fetched" in each.message]
    assert any(reason in each for each in told) == (reason not in NOT_PAUSED)
    cause.end()
    cause.stage.step(3)
    assert why(cause.stage) == ()
    assert cause.stage.client.paused == set()


def test_every_reason_is_explained_where_the_status_is() -> None:
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text("utf-8")
    assert [each for each in Reason if f"| {each} |" not in page] == []
