"""The core's commands, acted on: the one place that says what each of them means.

Whoever drives the core is an :class:`Actor`: the owner's loop over a Kafka client, records that run
inline, the adversaries of the tests. What they share stands here (which command goes to which part
of the world, how mail becomes events, what is read before what); what they differ in they supply.
It stands with the pools because most commands are for a pool, and because it needs no client: an
executor that has none can drive the core too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kafka_keyshared.core import commands as cmd
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.pools.port import Pool

Mail: TypeAlias = ev.Report | ev.Recalled | ev.DeadLettered | ev.CommitAnswered | None
"""What is posted to whoever drives a core; None only wakes it."""

ANSWERS = (ev.Recalled, ev.DeadLettered, ev.CommitAnswered)
"""The mail that is an event of its own; all other are reports."""


class Actor(ABC):
    """Tells the core what happens and does what it commands. One thread calls it.

    ``clock`` is monotonic, in seconds.
    """

    def __init__(self, core: Dispatcher, pool: Pool, clock: Callable[[], float]) -> None:
        self.core = core
        self.pool = pool
        self._clock = clock
        # To orders for lanes, until whoever gave the order takes it.
        self.lane_answers: list[cmd.LaneAnswer] = []
        self._answers: deque[ev.Recalled] = deque()
        self._actions: dict[type[Any], Callable[[Any], object]] = {
            cmd.Lease: lambda command: self.pool.submit(command.slice),
            cmd.Fence: lambda c: self.pool.fence(c),  # noqa: PLW0108 - the pool may be another
            cmd.Recall: self._recall,
            cmd.TimeOut: lambda c: self.pool.time_out(c),  # noqa: PLW0108 - the pool may be another
            cmd.Lapse: lambda c: self.pool.lapse(c),  # noqa: PLW0108 - the pool may be another
            cmd.StartWorker: lambda c: self.pool.add(c),  # noqa: PLW0108
            cmd.ReplaceWorker: lambda c: self.pool.replace(c.subscription, c.worker),
            cmd.AbandonWorker: self._abandon,
            cmd.LaneAnswer: self.lane_answers.append,
            cmd.EndWorker: lambda c: self.pool.end(c.subscription, c.worker),
            cmd.Release: lambda c: self.pool.release(c),  # noqa: PLW0108 - the pool may be another
            cmd.Adopt: lambda c: self.pool.adopt(c),  # noqa: PLW0108 - the pool may be another
            cmd.Publish: self.publish,
            cmd.Dropped: self.dropped,
            cmd.Commit: self.send,
            cmd.ClientEvents: lambda command: self.client_events(command.events),
            cmd.AssignAt: lambda command: self.assign_at(command.positions),
            cmd.Notice: self.notice,
            cmd.Halt: lambda command: self.halt(command.reason),
        }

    # --- events in, commands out ---

    def tell(self, event: ev.Event) -> None:
        """Give an event to the core and do what it answers."""
        self.act(self.core.handle(event, self._clock()))

    def act(self, commands: Iterable[cmd.Command]) -> None:
        """Do what the core has commanded, in order.

        Raises :class:`InvariantError` for what is no command: to drop one would be to lose a
        record, or a commit, without a word.
        """
        actions = self._actions
        for command in commands:
            try:
                action = actions[type(command)]
            except KeyError:
                raise InvariantError(f"nobody knows what to do for {command!r:.200}") from None
            action(command)
        # Not in between: what the core leases for an answer comes behind what it has leased before.
        while self._answers:
            self.tell(self._answers.popleft())

    def hear(self, mail: Iterable[Mail]) -> None:
        """Tell the core of mail, oldest first: reports that stand together are one event."""
        reports: list[ev.Report] = []
        for item in mail:
            if isinstance(item, ANSWERS):
                if reports:
                    self.tell(ev.Reported(reports))
                    reports = []
                self.tell(item)
            elif item is not None:
                reports.append(item)
        if reports:
            self.tell(ev.Reported(reports))

    def _recall(self, recall: cmd.Recall) -> None:
        answer = self.pool.recall(recall)
        if answer is not None:  # else it is posted
            self._answers.append(answer)

    def _abandon(self, worker: cmd.AbandonWorker) -> None:
        self.pool.abandon(worker.subscription, worker.worker, settle=worker.settle)

    @abstractmethod
    def serve(self, timeout: float) -> bool:
        """Take all the mail, waiting for some at most ``timeout`` seconds; say if there was any."""

    # --- what is read before what ---

    def progress(self) -> Progress:
        """Return the progress of every slice, with nothing before it that the core does not know.

        It is read first and the mailbox served after it: a failure among the records that progress
        calls started is then known to the core. In the other order it could count as settled.
        """
        progress = self.pool.progress()
        self.serve(0.0)
        return progress

    def commit(
        self, partitions: Sequence[TopicPartition] | None = None, *, final: bool = False
    ) -> Progress:
        """Commit what is settled; return the progress that it was taken from."""
        progress = self.progress()
        self.tell(ev.CommitDue(progress, partitions, final))
        return progress

    # --- what drivers differ in ---

    @abstractmethod
    def publish(self, publish: cmd.Publish) -> None:
        """Send a dead letter; the answer is mail."""

    def dropped(self, dropped: cmd.Dropped) -> None:
        """Note that these are settled without their handler, where a log is kept."""
        del dropped

    @abstractmethod
    def send(self, commit: cmd.Commit) -> None:
        """Send a commit, without waiting; the answer is mail."""

    @abstractmethod
    def client_events(self, messages: Sequence[Record]) -> None:
        """See to what the client said among the records."""

    @abstractmethod
    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read the partitions from there; None: where the reset policy says."""

    @abstractmethod
    def notice(self, notice: cmd.Notice) -> None:
        """Write a line into the log."""

    @abstractmethod
    def halt(self, reason: str) -> None:
        """Do nothing more: going on would break the contract or cannot succeed."""
