"""The loop's ports without a world: a scripted client, a pool stepped by hand, a clock."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import (
    Committed,
    CommittedOffset,
    LogBounds,
    Rebalance,
    RightRefusal,
    ended_by_the_group,
)
from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.offsets.commit import CommitPolicy
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.subscription.subscription import Subscription
from kafka_keyshared.executors.command_interpreter import Mail
from kafka_keyshared.lab.simulator.handlers import Ending
from kafka_keyshared.lab.simulator.stepped import SteppedPool, SteppedWorker
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.ports import Ports
from kafka_keyshared.status import ClientStatus
from tests.support.records import P0, FakeRecord

Action = Callable[[], "list[Record]"]


class IdsTold:
    """A question for ids that is answered already, or by nobody (None)."""

    def __init__(self, found: dict[str, str] | None) -> None:
        self._found = found

    def answer(self, timeout: float) -> dict[str, str] | None:
        return self._found


class RightsTold:
    """A question for rights, answered as the client says when the answer is taken."""

    def __init__(self, client: FakeClient) -> None:
        self._client = client

    def answer(self) -> frozenset[str] | None:
        return self._client.readable


class LimitTold:
    """A question for the limit of metadata that is over."""

    def __init__(self, limit: int | None) -> None:
        self.limit = limit

    def answered(self, timeout: float) -> bool:
        return True


class FakeClient:
    """A client that has a log per partition, and plans for what its next calls do.

    ``plans`` are taken one per poll or consume: a callable that returns what the call returns, or
    raises. Without a plan a call delivers what is next in the logs. ``at`` is where each assigned
    partition is fetched from next. ``tests/conformance/test_client.py`` holds it to the real one.
    """

    halts_out_of_range = False
    last_error = ""
    away_seconds: float | None = None
    starts_at_end = False

    def __init__(self, now: Callable[[], float], *, cooperative: bool = False) -> None:
        self._now = now
        self._cooperative = cooperative
        self.logs: dict[TopicPartition, list[Record]] = {}
        self.at: dict[TopicPartition, int] = {}
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        # What delivers nothing although there is something, and how many seeks it takes to end it.
        self.stuck: dict[TopicPartition, int] = {}
        # As librdkafka has it: what was paused when it went is paused when it comes back.
        self.paused: set[TopicPartition] = set()
        self.stored: dict[TopicPartition, CommittedOffset] = {}
        self.plans: list[Action] = []
        self.commits: list[cmd.Commit] = []
        self.answer: Callable[[cmd.Commit], ev.CommitAnswer | None] = lambda commit: None
        self.committed_fails: list[BaseException] = []
        self.seek_fails: list[BaseException] = []
        self.pause_fails: list[BaseException] = []
        self.calls: list[tuple[str, Any]] = []
        self.callbacks: dict[str, Rebalance] = {}
        self.refused: set[TopicPartition] = set()
        self.unreachable: set[TopicPartition] = set()
        self.epochs: dict[TopicPartition, int] = {}
        self.received_epochs: dict[TopicPartition, int] = {}
        # Those that are told; without one as by brokers that have none. None: nobody answers.
        self.ids: dict[str, str] | None = {}
        # How many bytes of metadata the brokers say that they take; None: they do not say.
        self.metadata_limit: int | None = None
        self.added: set[TopicPartition] = set()
        # Refused in answers to questions, and the topics that may be read (None: no answer).
        self.told_refusals: list[RightRefusal] = []
        self.readable: frozenset[str] | None = frozenset()
        self.closed = False
        # Whether a broker is there, and what passes the time of asking one that is not.
        self.there = True
        self.wait: Callable[[float], None] = lambda seconds: None

    def subscribe(self, on_assign: Rebalance, on_revoke: Rebalance, on_lost: Rebalance) -> None:
        self.callbacks = {"assign": on_assign, "revoke": on_revoke, "lost": on_lost}

    def poll(self, timeout: float) -> Record | None:
        self.calls.append(("poll", (timeout, self._now())))
        found = self._deliver(1)
        return found[0] if found else None

    def consume(self, count: int) -> list[Record]:
        self.calls.append(("consume", count))
        return self._deliver(count)

    def _deliver(self, count: int) -> list[Record]:
        if not self.plans:
            return self.take(count)
        found = self.plans.pop(0)()
        for each in found:
            partition = TopicPartition(each.topic(), each.partition())
            if each.error() is None and partition in self.at:
                self.at[partition] = self._positions[partition] = each.offset() + 1
        return found

    def take(self, count: int) -> list[Record]:
        """Take records off the logs, moving the positions."""
        found: list[Record] = []
        for partition, position in self.at.items():
            log = self.logs.get(partition)
            if partition in self.paused or not log:
                continue
            self._ends[partition] = log[-1].offset() + 1
            if partition in self.stuck:
                continue
            first = bisect_left(log, position, key=lambda each: each.offset() or 0)
            part = log[first : first + count - len(found)]
            if part:
                self.at[partition] = self._positions[partition] = part[-1].offset() + 1
                found += part
        return found

    def positions(
        self, partitions: Collection[TopicPartition] | None = None
    ) -> dict[TopicPartition, int]:
        if partitions is None:
            return dict(self._positions)
        self.calls.append(("positions", set(partitions)))
        return {each: at for each, at in self._positions.items() if each in partitions}

    def committed(self, partitions: Sequence[TopicPartition], timeout: float) -> Committed:
        self.calls.append(("committed", list(partitions)))
        if self.committed_fails:
            raise self.committed_fails.pop(0)
        nothing = CommittedOffset(None, None)
        return {
            partition: self.stored.get(partition, nothing)
            for partition in partitions
            if partition not in self.refused
        }

    def log_bounds(
        self, partitions: Sequence[TopicPartition], timeout: float
    ) -> dict[TopicPartition, LogBounds]:
        self.calls.append(("log_bounds", list(partitions)))
        return {each: self._bounds(each) for each in partitions if each not in self.unreachable}

    def _bounds(self, partition: TopicPartition) -> LogBounds:
        log = self.logs.get(partition)
        start, end = (log[0].offset(), log[-1].offset() + 1) if log else (0, 0)
        return LogBounds(start, end, self.epochs.get(partition, 0))

    def received_epoch(self, partition: TopicPartition) -> int:
        return self.received_epochs.get(partition, 0)

    def ask_topic_ids(self, topics: Collection[str]) -> IdsTold:
        self.calls.append(("ask_topic_ids", set(topics)))
        told = self.ids
        return IdsTold(
            None if told is None else {each: told[each] for each in topics if each in told}
        )

    def refusals(self) -> list[RightRefusal]:
        found, self.told_refusals = self.told_refusals, []
        return found

    def ask_rights(self, topics: Collection[str]) -> RightsTold:
        self.calls.append(("ask_rights", set(topics)))
        return RightsTold(self)

    def ask_metadata_limit(self) -> LimitTold:
        return LimitTold(self.metadata_limit)

    def start_over(self, error: KafkaError) -> bool:
        return ended_by_the_group(error)

    def is_new(self, partition: TopicPartition) -> bool:
        return partition in self.added

    def log_ends(self) -> dict[TopicPartition, int]:
        return {each: end for each, end in self._ends.items() if each in self.at}

    def statistics(self) -> ClientStatus | None:
        return None

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        self.calls.append(("assign", dict(positions)))
        if not self._cooperative:
            self.released(list(self.at))
        for partition, position in positions.items():
            self._move(partition, position)

    def _move(self, partition: TopicPartition, position: int | None) -> None:
        """Fetch from there; until something of it is taken there is no position."""
        self.at[partition] = position or 0
        self._positions.pop(partition, None)

    def released(self, partitions: Iterable[TopicPartition]) -> None:
        for partition in partitions:
            self.at.pop(partition, None)
            self._positions.pop(partition, None)

    def seek(self, partition: TopicPartition, position: int | None) -> None:
        if self.seek_fails:
            raise self.seek_fails.pop(0)
        if partition not in self.at:
            raise KafkaException(KafkaError(KafkaError._STATE))
        self.calls.append(("seek", (partition, position)))
        if partition in self.stuck:
            self.stuck[partition] -= 1
            if not self.stuck[partition]:
                del self.stuck[partition]
        self._move(partition, position)

    def restart(
        self, positions: Mapping[TopicPartition, int | None], moved: Collection[TopicPartition]
    ) -> None:
        """Read on as an eager assignment makes the client do it: everything where it is said."""
        self.calls.append(("restart", (dict(positions), set(moved))))
        for each in moved if self._cooperative else list(self.at):
            self._move(each, positions.get(each))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        if self.pause_fails:
            raise self.pause_fails.pop(0)
        self.calls.append(("pause", {each for each in partitions if each in self.at}))
        self.paused.update(self.calls[-1][1])

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self.calls.append(("resume", {each for each in partitions if each in self.at}))
        self.paused.difference_update(self.calls[-1][1])

    def commit(self, commit: cmd.Commit) -> ev.CommitAnswer | None:
        self.commits.append(commit)
        return self.answer(commit)

    def answers(self, timeout: float) -> bool:
        self.calls.append(("answers", timeout))
        if not self.there:
            self.wait(timeout)
        return self.there

    def close(self, patience: float = 10.0) -> bool:
        self.closed = True
        return True

    def made(self, what: str) -> list[Any]:
        """The arguments of the calls of one kind, in order."""
        return [argument for name, argument in self.calls if name == what]


class Mailbox(SimpleQueue):  # type: ignore[type-arg]
    """A mailbox whose waits pass the fake time instead of the real one."""

    def __init__(self, wait: Callable[[float], None]) -> None:
        self._wait = wait

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        if timeout and self.empty():
            self._wait(timeout)
        return super().get(block=False)


class Stage:
    """A loop over fake ports. Time passes only when the loop waits, or when it is moved."""

    def __init__(
        self,
        settings: SubscriptionSettings = SubscriptionSettings(),  # noqa: B008 - immutable
        *,
        commit: CommitPolicy = CommitPolicy(),  # noqa: B008 - immutable
        publisher: Any = None,
        revoke_deadline: float = 5.0,
        set_budget: int = SET_BUDGET,
        careful: bool = False,
    ) -> None:
        self.now = 1_000.0
        self.on_wait: Callable[[], None] = lambda: None
        self.client = FakeClient(lambda: self.now)
        self.client.wait = self._pass
        core = Dispatcher([settings], commit, set_budget=set_budget, careful=careful)
        self.mailbox: SimpleQueue[Mail] = Mailbox(self._pass)
        self.pool = SteppedPool(core, self.mailbox.put)
        ports = Ports(self.client, self.pool, self.mailbox, Clock(lambda: self.now), publisher)
        self.instance = Instance(core, ports, revoke_deadline=revoke_deadline)
        self.loop, self.rebalancer = self.instance.loop, self.instance.rebalancer
        self.instance.start()
        self.instance.join()

    def _pass(self, seconds: float) -> None:
        self.now += seconds
        self.on_wait()

    @property
    def core(self) -> Dispatcher:
        return self.loop.core

    @property
    def sub(self) -> Subscription:
        """The core's state of its only subscription."""
        return self.core.subscriptions["default"]

    def assign(self, *partitions: TopicPartition) -> None:
        """Let the group assign partitions (P0 unless told), as the client's callback does."""
        self.client.callbacks["assign"](list(partitions or (P0,)))

    def fill(self, *records: FakeRecord) -> None:
        """Write records into the logs."""
        for each in records:
            partition = TopicPartition(each.topic(), each.partition())
            self.client.logs.setdefault(partition, []).append(each)

    def step(self, times: int = 1) -> None:
        """Do rounds of the loop."""
        for _ in range(times):
            self.instance.step()

    def worker(self, index: int = 0) -> SteppedWorker:
        """One worker."""
        return self.pool.workers["default", index]

    def work(self, verdicts: Mapping[int, Ending] | None = None) -> list[int]:
        """Let every worker run all that it has; return the offsets in order of their starts."""
        started = []
        for worker in self.pool.workers.values():
            while (item := worker.start()) is not None:
                started.append(item.offset())
                worker.finish((verdicts or {}).get(item.offset()))
        return started

    def accept(self) -> None:
        """From now on the broker accepts every commit at once."""
        self.client.answer = lambda commit: ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED)

    def sent(self) -> list[int]:
        """The positions of P0 that were sent, in order."""
        return [each.entries[P0].position for each in self.client.commits if P0 in each.entries]
