"""The owner: one thread that has the Kafka client and the core to itself.

Everyone else posts to its mailbox. A step serves the mailbox, fetches, hands out, commits and
beats; each of these is a method over ports (client, pool, mailbox, clock, publisher), so that a
simulator can run them unchanged. Rebalances are in :mod:`.rebalance`, the end in :mod:`.stopping`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Empty
from typing import Any

from confluent_kafka import KafkaException

from kafka_keyshared.client.port import EventKind, classify_event, told
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.heartbeat import BEAT_SECONDS
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.owner.holds import Hold, Holds
from kafka_keyshared.owner.loopstats import LoopStats
from kafka_keyshared.owner.notices import tell
from kafka_keyshared.owner.ports import ANSWERS, Ports
from kafka_keyshared.owner.room import FULL_PAUSE_AFTER, FULL_POLL_EVERY, Room
from kafka_keyshared.owner.seeking import Reseek
from kafka_keyshared.owner.shares import Shares
from kafka_keyshared.owner.watchdog import Watchdog

log = log_of("kafka_keyshared.loop")

CHUNK = 2_000
"""Most records of one fetch: enough that nothing per chunk matters."""

MAIL_AT_ONCE = 500
"""Most that one turn takes from the mailbox, so that the client is polled in between."""

MAIL_TURNS = 64
"""Turns in a row, each of half a millisecond at most, in which a full window has the mail alone."""

LONG = 0.05
"""Seconds in one turn, without a word to the client, after which the heartbeat has to wait."""

BUSY_WAIT = 0.0005
"""While a lease is out the owner waits in its mailbox, and what is fetched meanwhile waits too."""

IDLE_WAIT = 0.1

CLIENT_ERRORS = (KafkaException, RuntimeError, ValueError)
"""What poll and consume may raise; records that they had taken off the queue are then gone."""


class Loop:
    """The owner's steps and what they remember."""

    def __init__(self, dispatcher: Dispatcher, ports: Ports) -> None:
        self.core = dispatcher
        self.ports = ports
        self.stats = LoopStats()
        self.halted: str | None = None
        self.commits_stopped = False
        self.reseek = Reseek()
        self.released_in_call: set[TopicPartition] = set()
        # Assigned, but where they start is not known yet: nothing of them is admitted.
        self.withheld: set[TopicPartition] = set()
        self.stopping = False
        self.holds = Holds()
        self.watchdog = Watchdog(ports.client, self.holds, self.reseek)
        self.shares = Shares(ports.client, self.holds, self.core.subscriptions.values())
        self._room = Room(sub.window for sub in self.core.subscriptions.values())
        self._plenty = False
        self._next_beat = 0.0
        # For the next commit: the progress, and how much of the mail before it is not taken yet.
        self._progress: Mapping[ev.Slice, int] | None = None
        self._behind = 0
        self._full_since: float | None = None
        self._full_polled = 0.0
        self._hold_full = False
        self._mail_turns = 0
        self._acts: dict[type[Any], Callable[[Any], None]] = {
            ev.Lease: lambda command: ports.pool.submit(command.slice),
            ev.Fence: ports.pool.fence,
            ev.Recall: lambda c: self.tell(ports.pool.recall(c.subscription, c.worker)),
            ev.Publish: self._publish,
            ev.Commit: self._commit,
            ev.ClientEvents: lambda command: self._client_events(command.events),
            # What the core wants held back is one reason among others; its command says "look".
            ev.Pause: lambda _command: self.hold(),
            ev.Resume: lambda _command: self.hold(),
            ev.ReplaceWorker: lambda c: ports.pool.replace(c.subscription, c.worker),
            ev.AbandonWorker: lambda c: ports.pool.abandon(c.subscription, c.worker),
            ev.Notice: lambda notice: tell(notice, ports.pool),
            ev.Halt: self._halt,
        }

    # --- events in, commands out ---

    def tell(self, event: ev.Event) -> None:
        """Give an event to the core and do what it answers."""
        acts = self._acts
        for command in self.core.handle(event, self.ports.clock()):
            acts[type(command)](command)

    def start(
        self, starts: Mapping[TopicPartition, ev.StartPoint]
    ) -> Mapping[TopicPartition, int | None]:
        """Tell the core of partitions that start; return where the client has to read each."""
        places: Mapping[TopicPartition, int | None] = {}
        for command in self.core.handle(ev.Assigned(starts), self.ports.clock()):
            if isinstance(command, ev.AssignAt):
                places = command.positions
            else:
                self._acts[type(command)](command)
        return places

    def serve(self, timeout: float, most: int | None = None) -> bool:
        """Take the mail, the oldest ``most`` of it, waiting ``timeout`` seconds; say if any."""
        mailbox = self.ports.mailbox
        if self.ports.publisher is not None:
            self.ports.publisher.serve()
        try:
            mail = [mailbox.get(timeout=timeout) if timeout > 0 else mailbox.get_nowait()]
        except Empty:
            return False
        left = mailbox.qsize()
        for _ in range(left if most is None else min(left, most - 1)):
            mail.append(mailbox.get_nowait())
        self._behind -= len(mail)
        reports: list[ev.Report] = []
        for item in mail:
            if isinstance(item, ANSWERS):
                self._report(reports)
                reports = []
                self.tell(item)
            elif item is not None:
                reports.append(item)
        self._report(reports)
        return True

    def _report(self, reports: list[ev.Report]) -> None:
        if reports:
            self.tell(ev.Reported(reports))

    # --- a step ---

    def step(self) -> None:
        """Do one round: mailbox, fetch, delays, commit, heartbeat."""
        if self._full_since is not None and self._mail_alone():
            return
        now = self.ports.clock()
        core = self.core
        due = core.next_due()
        busy = (
            core.outstanding() > 0
            or (due is not None and due - now <= IDLE_WAIT)
            or (self.ports.publisher is not None and self.ports.publisher.pending() > 0)
        )
        self.serve(BUSY_WAIT if busy and not self._plenty else 0.0, MAIL_AT_ONCE)
        count = self._room.fetch(hungry=not busy)
        if count and not (busy and self.shares.wait_and_see(core.partitions)):
            self._window_has_room()
            self._fetch(min(count, self.shares.most or CHUNK, CHUNK), 0.0 if busy else IDLE_WAIT)
        else:
            if not busy:
                # Everything held waits for something far off; nothing but time will change that.
                self.serve(IDLE_WAIT)
            self._window_is_full()
        now = self.ports.clock()
        if self.shares.changed(core.partitions, self.stats.fetched, now):
            self.hold()
        if due is not None and due <= now:
            self.tell(ev.Flush())
        if self.reseek:
            self._read_again()
        if self.commits_stopped:
            self._progress = None
        elif self._progress is not None or core.commit_wanted(now):
            self._commit_in_turn()
        before, now = now, self.ports.clock()
        # Like a commit it looks at all that is held: after a long one the client is asked first.
        if now >= self._next_beat + (BEAT_SECONDS if now - before > LONG else 0.0):
            self._next_beat = now + BEAT_SECONDS
            self.stats.beats += 1
            self.watchdog.beat(self.core.partitions, now)
            self.hold()  # the backstop: what the client has refused is told again
            pool = self.ports.pool
            pool.tend()
            self.tell(ev.Beat(pool.progress(), pool.dead(), self.ports.wall(), pool.left()))

    def _mail_alone(self) -> bool:
        """Take the mail and leave it at that; say whether there was any. A few times in a row.

        While the window is full nothing is fetched, and with one lease per key there is mail for
        each single record: a whole turn would look at everything again for it.
        """
        if self._mail_turns < MAIL_TURNS and self.core.outstanding():
            self._mail_turns += 1
            if self.serve(BUSY_WAIT, MAIL_AT_ONCE):
                return True
        self._mail_turns = 0
        return False

    def _commit_in_turn(self) -> None:
        """Commit as :meth:`commit` does, after as many turns as the mail that was there takes."""
        if self._progress is None:
            self._progress = self.ports.pool.progress()
            self._behind = self.ports.mailbox.qsize()
            if self._behind:
                self.serve(0.0, MAIL_AT_ONCE)
        if self._behind <= 0:
            progress, self._progress = self._progress, None
            # Nothing of a partition whose place is not found yet; the others do not wait for it.
            placed = [each for each in self.core.partitions if each not in self.reseek.partitions]
            if placed:
                self.tell(ev.CommitDue(progress, placed if self.reseek else None))

    def commit(
        self, partitions: Sequence[TopicPartition] | None = None, *, final: bool = False
    ) -> Mapping[ev.Slice, int]:
        """Commit what is settled; return the progress that it was taken from."""
        progress = self.progress()
        self.tell(ev.CommitDue(progress, partitions, final))
        return progress

    def progress(self) -> Mapping[ev.Slice, int]:
        """Return the progress of every slice, with nothing before it that the core does not know.

        It is read first and the mailbox served after it: a failure among the records that progress
        calls started is then known to the core. In the other order it could count as settled.
        """
        progress = self.ports.pool.progress()
        self.serve(0.0)
        return progress

    def pending(self, partitions: Sequence[TopicPartition] | None) -> tuple[list[Record], int]:
        """Return the running records of the partitions and how many dead letters are on the way.

        A dead letter that the broker refused and that waits for its next try is not on the way:
        waiting for it would use up every deadline for as long as its topic is down.
        """
        progress = self.progress()
        running, dead_letters = self.core.pending(partitions, progress)
        publisher = self.ports.publisher
        return running, min(dead_letters, publisher.pending() if publisher is not None else 0)

    # --- fetching ---

    def _fetch(self, count: int, wait: float) -> None:
        client = self.ports.client
        self.released_in_call.clear()
        self.stats.polled(self.ports.clock())
        try:
            if wait:
                first = client.poll(wait)
                if first is None:
                    self._plenty = False
                    return
                chunk = [first, *(client.consume(count - 1) if count > 1 else ())]
            else:
                chunk = client.consume(count)
        except CLIENT_ERRORS as error:
            self.lost_some(error)
            return
        self._plenty = len(chunk) * 4 >= CHUNK
        if chunk:
            self.admit(chunk)

    def admit(self, chunk: list[Record]) -> None:
        """Give a chunk to the core with the positions after it."""
        if self.released_in_call or self.reseek or self.withheld:
            released = self.released_in_call
            chunk = self.reseek.wanted(chunk, released, self.core.partitions, self.withheld)
        self.stats.took_in(len(chunk), self.ports.clock())
        values, held = self._room.values(chunk)
        self.tell(ev.Fetched(chunk, self._received_ends()))
        self._room.took_in(len(chunk), values, held)

    def _received_ends(self) -> dict[TopicPartition, int]:
        assigned = self.core.partitions
        return {
            partition: position
            for partition, position in self.ports.client.positions().items()
            if partition in assigned and partition not in self.reseek.partitions
        }

    def lost_some(self, error: Exception) -> None:
        """Records may have been lost between the client and us: read them again."""
        log.error("the client raised %r; reading again from the last positions", error)
        self.reseek.partitions.update(self.core.partitions)

    def _read_again(self) -> None:
        reseek = self.reseek
        misplaced = len(reseek.out_of_range)
        reseek.seek(self)
        if len(reseek.out_of_range) < misplaced:
            # It was assigned anew, and in an eager group all others with it.
            self.holds.forget(self.core.partitions)
            self.hold()

    def _window_has_room(self) -> None:
        self._full_since = None
        if self._hold_full:
            self._hold_full = False
            self.hold()

    def _window_is_full(self) -> None:
        """Keep the group membership alive while there is little room or none.

        Pausing discards what was fetched, so it is left to a window that stays full. Until then a
        poll may return one record, for which room was left; when that is used up, it pauses. What
        the client would go on fetching without a bound is not worth that: it is refused at once.
        """
        now = self.ports.clock()
        self._plenty = False
        self.watchdog.full = True
        if self._full_since is None:
            self._full_since = self._full_polled = now
        if not self._hold_full and self._room.floods():
            self._hold_full = True
            self.hold()
        wait = FULL_POLL_EVERY if self._hold_full else self._room.poll_every()
        if now - self._full_polled < wait:
            return
        self._full_polled = now
        self.stats.polled(now)
        lasts = now - self._full_since >= FULL_PAUSE_AFTER
        if not self._hold_full and (lasts or self._room.used_up()):
            self._hold_full = True
            self.hold()
        self.released_in_call.clear()
        try:
            record = self.ports.client.poll(0)
        except CLIENT_ERRORS as error:
            self.lost_some(error)
            return
        if record is not None:
            self.admit([record])

    # --- which partitions are fetched from ---

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Let the client read there, and hold back of it what is to be held back."""
        self.ports.client.assign(positions)
        self.holds.forget(positions)
        self.hold()

    def hold(self) -> None:
        """Pause and resume whatever has to be, after a change of any reason to hold back."""
        assigned = {*self.core.partitions, *self.withheld}
        self.holds.bring(
            self.ports.client,
            assigned,
            {
                Hold.UNSTARTED: self.withheld,
                Hold.PRESSURE: self.core.pressure.paused(),
                Hold.WINDOW: assigned if self._hold_full else (),
                Hold.SHARE: self.shares.held_back,
                Hold.STOPPING: assigned if self.stopping else (),
            },
        )

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that are not fetched from just now."""
        return self.holds.paused()

    # --- acting on commands ---

    def _publish(self, command: ev.Publish) -> None:
        if self.ports.publisher is not None:
            self.ports.publisher.publish(command)

    def _commit(self, command: ev.Commit) -> None:
        answer = self.ports.client.commit(command)
        if answer is not None:
            self.ports.mailbox.put(answer)

    def _client_events(self, messages: Sequence[Record]) -> None:
        for message in messages:
            error = message.error()
            kind = classify_event(error)
            if kind is EventKind.END_OF_PARTITION:
                partition = partition_of(message)
                if partition in self.core.partitions and partition not in self.reseek.partitions:
                    self.tell(ev.Fetched([], {partition: message.offset()}))
            elif kind is EventKind.OUT_OF_RANGE and not self.ports.client.halts_out_of_range:
                self.reseek.misplaced(partition_of(message), self.ports.clock())
            elif kind is EventKind.MAX_POLL_EXCEEDED:
                log.error("%s; commits stop until partitions are assigned again", error.str())
                self.commits_stopped = True
            elif kind in (EventKind.FATAL, EventKind.OUT_OF_RANGE):
                self._halt(ev.Halt(error.str()))
            else:
                log.warning("%s", told(error))

    def _halt(self, command: ev.Halt) -> None:
        if self.halted is None:
            self.halted = command.reason
            log.error("stopping: %s", command.reason)
