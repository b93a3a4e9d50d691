"""The status line of `keyshared run`: news, and only news."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafka_keyshared.cli.status import LINE_EVERY, LOOK_EVERY, StatusLine
from kafka_keyshared.model import TopicPartition

FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    """An instance with two partitions, as far as the status line looks at one."""

    def __init__(self, *, from_start: bool = True) -> None:
        self.now = 100.0
        self.said: list[str] = []
        self.ends: dict[TopicPartition, int | None] = {FIRST: 10, SECOND: 0}
        self.committed: dict[TopicPartition, int] = {}
        self.counts = SimpleNamespace(ok=0, dropped=0, dead_lettered=0)
        self.sub = SimpleNamespace(
            counts=self.counts, window=SimpleNamespace(records=0), closed=set[int]()
        )
        self.partitions = {
            FIRST: SimpleNamespace(received_end=None),
            SECOND: SimpleNamespace(received_end=None),
        }
        core = SimpleNamespace(
            subscriptions={"default": self.sub},
            partitions=self.partitions,
            commits=SimpleNamespace(committed=self.committed.get),
        )
        self.loop: Any = SimpleNamespace(core=core, ports=SimpleNamespace(client=self))
        self.line = StatusLine(
            from_start=from_start,
            say=self.said.append,
            clock=lambda: self.now,
        )

    def log_ends(self) -> dict[TopicPartition, int]:
        """What the client heard of the ends of the logs."""
        return {each: end for each, end in self.ends.items() if end is not None}

    def after(self, seconds: float) -> list[str]:
        """Let time pass, step once, and return what was said."""
        self.said.clear()
        self.now += seconds
        self.line(self.loop)
        return list(self.said)


def test_a_line_now_and_then_while_there_is_work() -> None:
    world = World()
    assert world.after(0.1) == []
    world.counts.ok, world.counts.dead_lettered = 1_200, 34
    world.sub.window.records, world.sub.closed = 56, {1, 2}
    assert world.after(1.0) == []
    (line,) = world.after(LINE_EVERY - 1.1)
    assert "settled 1,234 (247/s)" in line
    assert "dead letters 34" in line
    assert "56 held" in line
    assert "2 keys waiting for a retry" in line
    assert "2 partitions, lag 10" in line
    world.counts.ok += 1
    assert world.after(1.0) == []
    assert len(world.after(LINE_EVERY)) == 1


def test_nothing_is_said_while_nothing_changes() -> None:
    world = World()
    assert len(world.after(LINE_EVERY)) == 1
    assert world.after(LINE_EVERY) == []
    assert world.after(10 * LINE_EVERY) == []


def test_catching_up_is_said_at_once_and_once() -> None:
    world = World()
    assert len(world.after(LINE_EVERY)) == 1
    world.counts.ok = 10
    world.committed[FIRST] = 10
    (line,) = world.after(LOOK_EVERY)
    assert line.startswith("caught up: settled 10 ")
    assert line.endswith("lag 0")
    world.counts.ok, world.ends[FIRST], world.committed[FIRST] = 11, 11, 11
    assert world.after(LOOK_EVERY) == []
    assert len(world.after(LINE_EVERY)) == 1


def test_it_has_not_caught_up_while_a_record_is_held_or_uncommitted() -> None:
    world = World()
    world.committed[FIRST] = 10
    world.sub.window.records = 1
    (line,) = world.after(LINE_EVERY)
    assert "caught up" not in line
    world.sub.window.records = 0
    world.committed[FIRST] = 9
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag 1")
    assert "caught up" not in line


def test_it_has_not_caught_up_without_partitions() -> None:
    world = World()
    world.partitions.clear()
    (line,) = world.after(LINE_EVERY)
    assert "caught up" not in line


def test_the_lag_is_not_guessed() -> None:
    world = World()
    world.ends[SECOND] = None
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag not known yet")
    world.ends[SECOND] = 0
    world.partitions[FIRST].received_end = 10
    world.counts.ok = 10
    (line,) = world.after(LINE_EVERY)
    assert line.endswith("lag not known yet")


def test_without_a_committed_position_the_start_decides() -> None:
    (line,) = World(from_start=True).after(LINE_EVERY)
    assert line.endswith("lag 10")
    (line,) = World(from_start=False).after(LOOK_EVERY)
    assert line.startswith("caught up")
