"""Base class that executes the core's commands and feeds it events.

It is the single place that defines how each command is executed. Its subclasses are the owner's
loop over a Kafka client, the inline executor, and the test adversaries. They share the mapping from
commands to actions, the conversion of mail into events, and the order of reads. Each subclass
supplies the rest.

The module is part of ``executors/`` because most commands go to a pool and it needs no Kafka
client. An executor without a client can therefore drive the core too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.notice_text import halt_text
from kafka_keyshared.executors.port import Pool
from kafka_keyshared.model import Record, TopicPartition

Mail: TypeAlias = ev.Report | ev.Recalled | ev.DeadLetterAnswer | ev.CommitAnswer | None
"""Mail to the thread that drives a core; None only wakes it."""

ANSWERS = (ev.Recalled, ev.DeadLetterAnswer, ev.CommitAnswer)
"""Mail that is an event of its own; all other mail is reports."""


class Actor(ABC):
    """Feeds events to the core and executes its commands. One thread calls it.

    ``clock`` is monotonic, in seconds.

    A pool may answer a recall within the call that executes it. The core hears such an answer after
    all commands of its batch. For example, the core returns ``Recall(worker 0)`` and
    ``LeaseSlice(worker 1, A)``. The sequence is then:

    1. :meth:`act` executes the recall. The pool answers at once, and the answer is deferred.
    2. :meth:`act` executes the lease: slice A is in the inbox of worker 1.
    3. No command is left, so :meth:`tell` gives the core the answer. The core returns
       ``LeaseSlice(worker 1, B)`` for the records that came back.
    4. :meth:`act` executes that lease: slice B is behind slice A, as in the core's own book.

    An answer heard in step 1 would put B ahead of A, although the core leased A first. The worker
    would then run later records of a key before earlier ones. A pool that answers later posts the
    answer to the mailbox; :meth:`hear` takes it between two batches.
    """

    def __init__(self, core: Dispatcher, pool: Pool, clock: Callable[[], float]) -> None:
        self.core = core
        self.pool = pool
        self._clock = clock
        # Answers to lane orders; the thread that gave the order takes them.
        self.lane_answers: list[cmd.LaneAnswer] = []
        # Answers that came while commands were executed; the class describes their order.
        self._deferred_answers: deque[ev.Recalled] = deque()
        self._actions: dict[type[Any], Callable[[Any], object]] = {
            cmd.LeaseSlice: lambda command: self.pool.submit(command.slice),
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
            cmd.RecordsDropped: self.dropped,
            cmd.Commit: self.send,
            cmd.ClientEvents: lambda command: self.client_events(command.events),
            cmd.AssignAt: lambda command: self.assign_at(command.positions),
            cmd.Notice: self.notice,
            cmd.Halt: lambda command: self.halt(halt_text(command.cause)),
        }

    # --- events in, commands out ---

    def tell(self, event: ev.Event) -> None:
        """Give an event to the core, and execute the commands that it returns."""
        self.act(self.core.handle(event, self._clock()))

    def act(self, commands: Iterable[cmd.Command]) -> None:
        """Execute the core's commands, in order.

        Raises :class:`InvariantError` for an unknown command: ignoring it could lose a record or a
        commit silently.
        """
        actions = self._actions
        for command in commands:
            try:
                action = actions[type(command)]
            except KeyError:
                raise InvariantError(f"unknown command: {command!r:.200}") from None
            action(command)
        while self._deferred_answers:
            self.tell(self._deferred_answers.popleft())

    def hear(self, mail: Iterable[Mail]) -> None:
        """Feed mail to the core, oldest first; consecutive reports become one event."""
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
        if answer is not None:  # else the pool posts the answer
            self._deferred_answers.append(answer)

    def _abandon(self, worker: cmd.AbandonWorker) -> None:
        self.pool.abandon(worker.subscription, worker.worker, settle=worker.settle)

    @abstractmethod
    def serve(self, timeout: float) -> bool:
        """Process all mail, waiting at most ``timeout`` seconds; return whether there was any."""

    # --- order of reads ---

    def progress(self) -> Progress:
        """Return the progress of every slice; the core then knows all earlier reports.

        Progress is read first, and the mailbox is processed after it. The core then knows every
        failure among the records that progress calls started. In the other order, a failed record
        could count as settled.
        """
        progress = self.pool.progress()
        self.serve(0.0)
        return progress

    def commit(
        self, partitions: Sequence[TopicPartition] | None = None, *, final: bool = False
    ) -> Progress:
        """Commit the settled records; return the progress on which the commit is based."""
        progress = self.progress()
        self.tell(ev.CommitDue(progress, partitions, final))
        return progress

    # --- supplied by each driver ---

    @abstractmethod
    def publish(self, publish: cmd.Publish) -> None:
        """Send a dead letter; the answer comes as mail."""

    def dropped(self, dropped: cmd.RecordsDropped) -> None:
        """Log records that were settled without a handler call, if the driver keeps a log."""
        del dropped

    @abstractmethod
    def send(self, commit: cmd.Commit) -> None:
        """Send a commit without waiting; the answer comes as mail."""

    @abstractmethod
    def client_events(self, messages: Sequence[Record]) -> None:
        """Handle client events that arrived among the records."""

    @abstractmethod
    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Read the partitions from these positions; None means where the reset policy says."""

    @abstractmethod
    def notice(self, notice: cmd.Notice) -> None:
        """Write a line to the log."""

    @abstractmethod
    def halt(self, reason: str) -> None:
        """Stop all work: to continue would break the contract or cannot succeed."""
