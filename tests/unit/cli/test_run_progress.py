"""The status line of `keyshared run`: news, and only news."""

from __future__ import annotations

import re

from kafka_keyshared.cli.run_progress import (
    DRAW_EVERY,
    LINE_EVERY,
    LOOK_EVERY,
    SAME_EVERY,
    WAITING_EVERY,
    StatusLine,
)
from kafka_keyshared.cli.status_line import Live
from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.runtime.instance_view import InstanceView
from tests.support.loop_ports import Stage
from tests.support.records import ERROR, GIVE_UP, P0, P1, record


class Letters:
    """A publisher whose every letter is acknowledged at once, or never."""

    def __init__(self, *, heard: bool) -> None:
        self.stage: Stage
        self._heard = heard

    def publish(self, publish: cmd.Publish) -> None:
        if self._heard:
            self.stage.mailbox.put(ev.DeadLetterAnswer(publish, None))

    def serve(self) -> None: ...

    def unanswered(self) -> int:
        return 0


class World:
    """An instance with two partitions, the second one empty, as a status line looks at it."""

    def __init__(
        self,
        *,
        from_start: bool = True,
        committed: int | None = 0,
        settings: SubscriptionSettings = SubscriptionSettings(dlq=True),  # noqa: B008 - a value
        heard: bool = True,
        live: Live | None = None,
        session: float = 45.0,
    ) -> None:
        letters = Letters(heard=heard)
        self.stage = letters.stage = Stage(settings, publisher=letters)
        self.stage.accept()
        self.ends: dict[TopicPartition, int] = {P0: 0, P1: 0}
        self.stage.client.log_ends = lambda: dict(self.ends)  # type: ignore[method-assign]
        if committed is not None:
            for each in (P0, P1):
                self.stage.client.stored[each] = CommittedOffset(committed, None)
        self.stage.assign(P0, P1)
        self.said: list[str] = []
        self.line = StatusLine(
            from_start=from_start,
            session=session,
            live=live,
            say=self.said.append,
            clock=lambda: self.stage.now,
        )

    def write(self, count: int) -> None:
        """Add records to P0, each with a key of its own."""
        end = self.ends[P0]
        self.stage.fill(*(record(offset, f"key-{offset}") for offset in range(end, end + count)))
        self.ends[P0] = end + count

    def work(self, verdicts: dict[int, Ending] | None = None) -> None:
        """Run all that can run now, without letting time pass."""
        before = -1
        while before != self.stage.core.commits.sent_count + self.settled():
            before = self.stage.core.commits.sent_count + self.settled()
            self.stage.step(3)
            self.stage.work(verdicts)
            self.stage.step(3)

    def settled(self) -> int:
        counts = self.stage.core.subscriptions["default"].counts
        return counts.ok + counts.dropped + counts.dead_lettered

    def commit(self) -> None:
        """Let what is settled be committed, and the answer be heard."""
        self.stage.loop.commit()
        self.stage.loop.serve(0.0)

    def after(self, seconds: float) -> list[str]:
        """Let time pass, look once, and return what was said."""
        self.said.clear()
        self.stage.now += seconds
        self.line(InstanceView(self.stage.loop))
        return list(self.said)


def test_what_a_slow_worker_has_done_counts_before_its_slice_ends() -> None:
    """The core hears of a slice at its end: of a handler that takes a minute, half an hour on."""
    world = World()
    world.write(20)
    world.stage.step()
    worker = world.stage.worker()
    worker.start()
    for _ in range(6):
        worker.finish()
        worker.start()
    worker.finish(ERROR)
    worker.start()
    world.stage.step()
    (line,) = world.after(LINE_EVERY)
    assert "settled 6 (1/s)" in line
    assert "14 held, 1 record running, 1 key waiting for a retry" in line


def test_a_line_now_and_then_while_there_is_work() -> None:
    world = World()
    world.write(1_234)
    assert world.after(0.1) == []
    began = world.stage.now
    world.work(dict.fromkeys(range(34), GIVE_UP))
    world.write(4)
    world.work({1_234: ERROR, 1_235: ERROR})
    world.write(3)
    world.stage.step()
    world.stage.worker().start()
    spent = world.stage.now - began
    assert spent < 1.0
    (line,) = world.after(LINE_EVERY - 0.1 - spent)
    assert "settled 1,236 (247/s)" in line
    assert "dead letters 34" in line
    assert "5 held" in line
    assert "2 keys waiting for a retry" in line
    assert "2 partitions, lag " in line
    world.stage.worker().finish()
    world.work()
    assert world.after(1.0) == []
    assert len(world.after(LINE_EVERY)) == 1


def test_while_nothing_changes_one_line_a_minute_says_what_is_left() -> None:
    world = World()
    world.write(10)
    (line,) = world.after(LINE_EVERY)
    assert world.after(LINE_EVERY) == []
    assert world.after(SAME_EVERY - LINE_EVERY - 1) == []
    (again,) = world.after(1.0)
    assert again == line
    assert len(world.after(SAME_EVERY)) == 1


def test_nothing_is_said_when_nothing_is_left() -> None:
    world = World()
    world.write(10)
    world.work()
    world.commit()
    assert len(world.after(LINE_EVERY)) == 1
    assert world.after(10 * SAME_EVERY) == []


def test_what_runs_waits_is_blocked_and_is_on_its_way_are_told_apart() -> None:
    world = World(settings=SubscriptionSettings(retry=RetryPolicy(attempts=2)))
    world.write(8)
    world.work({0: GIVE_UP, 1: GIVE_UP, 2: GIVE_UP, 3: ERROR, 4: ERROR})
    world.write(1)
    world.stage.step()
    world.stage.worker().start()
    (line,) = world.after(LINE_EVERY)
    assert "6 held, 1 record running, 2 keys waiting for a retry, 3 keys blocked; " in line
    world = World(heard=False)
    world.write(2)
    world.work({0: GIVE_UP, 1: GIVE_UP})
    (line,) = world.after(LINE_EVERY)
    assert "2 held, 2 dead letters on their way; " in line


def test_a_record_that_takes_long_while_others_go_on_is_told() -> None:
    world = World()
    world.write(1)
    world.stage.step()
    worker = next(iter(world.stage.core.subscriptions["default"].workers.values()))
    worker.detached = 1
    (line,) = world.after(LINE_EVERY)
    assert "1 record detached; " in line


def test_catching_up_is_said_at_once_and_once() -> None:
    world = World()
    world.write(10)
    assert len(world.after(LINE_EVERY)) == 1
    world.work()
    world.commit()
    (line,) = world.after(LOOK_EVERY)
    assert re.match(r"caught up after \d+\.\d s: settled 10 \(\d+/s over all\), ", line)
    assert line.endswith("lag 0")
    world.write(1)
    world.work()
    world.commit()
    assert world.after(LOOK_EVERY) == []
    assert len(world.after(LINE_EVERY)) == 1


def test_it_has_not_caught_up_while_a_record_is_held() -> None:
    world = World()
    world.write(10)
    world.work()
    world.write(1)
    world.ends[P0] = 10  # what the client has heard of the end is older than what it has fetched
    world.stage.step()
    world.stage.worker().start()
    world.commit()
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("1 held, 1 record running; 2 partitions, lag 0")
    assert "caught up" not in line


def test_it_has_not_caught_up_while_a_record_is_not_committed() -> None:
    world = World()
    world.write(10)
    world.work()
    world.commit()
    world.stage.client.answer = lambda commit: None
    world.write(1)
    world.work()
    world.commit()
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag 1")
    assert "caught up" not in line


def test_it_has_not_caught_up_without_partitions() -> None:
    world = World()
    world.stage.client.callbacks["revoke"]([P0, P1])
    world.stage.client.callbacks["assign"]([])
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("; no partitions")
    assert "caught up" not in line
    assert world.after(SAME_EVERY) == [], "that is as it should be"


def test_while_the_group_gives_out_no_partitions_it_is_said_for_how_long_and_why() -> None:
    world = World(session=10.0)
    world.stage.client.callbacks["revoke"]([P0, P1])
    world.after(0.0)
    (line,) = world.after(LINE_EVERY)
    assert line.endswith(
        "; waiting for partitions for 5 s; a crashed member keeps its partitions for up to "
        "session.timeout.ms (10 s)"
    )
    assert world.after(WAITING_EVERY - 1) == []
    (line,) = world.after(1.0)
    assert "for 20 s;" in line
    world.stage.assign(P0)
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("; 1 partition, lag 0")


def test_the_lag_is_not_guessed() -> None:
    world = World(committed=None)
    world.write(10)
    del world.ends[P1]
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag unknown"), "nothing was heard of the end of one"
    world.ends[P1] = 0
    world.stage.client.answer = lambda commit: None
    world.work()
    assert world.settled() == 10
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag unknown"), "the first commit is still to be answered"
    for each in world.stage.client.commits:
        world.stage.mailbox.put(ev.CommitAnswer(each, ev.CommitResult.ACCEPTED))
    world.stage.loop.serve(0.0)
    world.stage.accept()
    world.commit()
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag 0")


def test_without_a_committed_position_the_lag_is_known_once_the_start_is_committed() -> None:
    world = World(committed=None)
    world.write(10)
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag unknown")
    world.commit()
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag 10")


def test_a_live_line_is_always_up_to_date_and_lines_are_written_for_catching_up_alone() -> None:
    live = Live()
    world = World(live=live)
    world.write(10)
    world.work()
    assert world.after(DRAW_EVERY) == []
    assert live.text.startswith("settled 10 (")
    assert live.text.endswith("lag 10")
    world.commit()
    (line,) = world.after(DRAW_EVERY)
    assert line.startswith("caught up after ")
    world.write(5)
    world.work()
    world.commit()
    assert world.after(LINE_EVERY) == []
    assert live.text.startswith("settled 15 (1/s)")
    world.write(1)
    world.work()
    world.commit()
    assert len(world.after(SAME_EVERY)) == 1
