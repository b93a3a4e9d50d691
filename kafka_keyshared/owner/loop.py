"""The owner: one thread that has the Kafka client and the core to itself.

Everyone else posts to its mailbox. A step serves the mailbox, fetches, hands out, commits and
beats; each of these is a method over ports (client, pool, mailbox, clock, publisher), so that a
simulator can run them unchanged. Rebalances are in :mod:`.rebalance`, the end in :mod:`.stopping`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Empty

from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import EventKind, Refusal, classify_event, refusal_of, with_cure
from kafka_keyshared.core import commands as cmd
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.dispatcher import Dispatcher
from kafka_keyshared.core.heartbeat import BEAT_SECONDS
from kafka_keyshared.core.holds import Reason
from kafka_keyshared.core.slices import Progress
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.owner.by_hand import ByHand
from kafka_keyshared.owner.ends import Ends
from kafka_keyshared.owner.loopstats import LoopStats
from kafka_keyshared.owner.metadata_limit import MetadataLimit
from kafka_keyshared.owner.notices import log_notice
from kafka_keyshared.owner.orders import Orders
from kafka_keyshared.owner.partition_ends import PartitionEnds
from kafka_keyshared.owner.pauses import Pauses
from kafka_keyshared.owner.ports import Ports
from kafka_keyshared.owner.rights import Rights
from kafka_keyshared.owner.room import FULL_PAUSE_AFTER, FULL_POLL_EVERY, FULL_WAIT, Room
from kafka_keyshared.owner.seeking import Reseek
from kafka_keyshared.owner.shares import Shares
from kafka_keyshared.owner.topic_ids import TopicIds
from kafka_keyshared.owner.watchdog import Watchdog
from kafka_keyshared.pools.actor import Actor

log = log_of("kafka_keyshared.loop")

CHUNK = 2_000
"""Most records of one fetch: enough that nothing per chunk matters."""

MAIL_AT_ONCE = 500
"""Most that one turn takes from the mailbox, so that the client is polled in between."""

MAIL_TURNS = 64
"""Times in a row, each of half a millisecond at most, that a full window takes the mail alone."""

LONG = 0.05
"""Seconds in one turn, without a word to the client, after which the heartbeat has to wait."""

BUSY_WAIT = 0.0005
"""While a lease is out the owner waits in its mailbox, and what is fetched meanwhile waits too."""

IDLE_WAIT = 0.1

ANSWER_POLL_EVERY = 0.005
"""Seconds between polls of a full window while records wait for the answer to a commit."""

CLIENT_ERRORS = (KafkaException, RuntimeError, ValueError)
"""What poll and consume may raise; records that they had taken off the queue are then gone."""


class Loop(Actor):
    """The owner's steps and what they remember."""

    def __init__(self, dispatcher: Dispatcher, ports: Ports, chunk: int = CHUNK) -> None:
        super().__init__(dispatcher, ports.pool, ports.clock.monotonic)
        self.ports = ports
        self.stats = LoopStats()
        self.halted: str | None = None
        self.commits_stopped = False
        self.topic_ids = TopicIds(ports.client)
        self.ends = PartitionEnds(ports.clock)
        self.metadata_limit = MetadataLimit(ports.client, self.tell)
        self.reseek = Reseek(dispatcher.holds)
        self.orders = Orders(lambda: ports.mailbox.put(None))
        self.released_in_call: set[TopicPartition] = set()
        # Told of each answer to a commit, behind the core; by a stop, which reads its own.
        self.on_answer: Callable[[ev.CommitAnswered], None] | None = None
        self.on_dropped: Callable[[cmd.Dropped], None] | None = None
        self.pauses = Pauses(ports.client, dispatcher.holds, ports.clock)
        self.by_hand = ByHand(dispatcher.holds)
        self.rights = Rights(ports.client, dispatcher.commits, self._received_end)
        refused = self.rights.unreadable
        self.watchdog = Watchdog(
            ports.client, dispatcher.holds, self.pauses, self.reseek, unreadable=refused
        )
        self.shares = Shares(
            ports.client, dispatcher.holds, self.core.subscriptions.values(), unreadable=refused
        )
        self._room = Room(sub.window for sub in self.core.subscriptions.values())
        self._ends = Ends(ports.client, ports.clock)
        self._chunk = chunk
        self._plenty = False
        self._next_beat = 0.0
        # For the next commit, or look at who is held up: the progress, and how much of the mail
        # before it is not taken yet.
        self._progress: Progress | None = None
        self._behind = 0
        self._to_commit = self._to_look = False
        self._full_since: float | None = None
        self._full_polled = 0.0
        # Where the core wants partitions read that it has just been told of.
        self._read_at: Mapping[TopicPartition, int | None] = {}

    def start(
        self, starts: Mapping[TopicPartition, ev.StartPoint]
    ) -> Mapping[TopicPartition, int | None]:
        """Tell the core of partitions that start; return where the client has to read each.

        Whoever starts them assigns them: together with others that wait for their start, or by a
        seek.
        """
        self._read_at = {}
        self.tell(ev.Assigned(starts))
        self.by_hand.came(starts)
        return self._read_at

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
        self.hear(mail)
        if self.on_answer is not None:
            for item in mail:
                if isinstance(item, ev.CommitAnswered):
                    self.on_answer(item)
        return True

    # --- a step ---

    def step(self) -> None:
        """Do one round: mailbox, orders, fetch, delays, commit, heartbeat."""
        if self._full_since is not None:
            self._mail_alone()
        now = self._clock()
        core = self.core
        due = core.next_due()
        busy = (
            core.outstanding() > 0
            or (due is not None and due - now <= IDLE_WAIT)
            or (self.ports.publisher is not None and self.ports.publisher.unanswered() > 0)
            or bool(self.orders.line)
        )
        wait = BUSY_WAIT if self._full_since is None else FULL_WAIT
        self.serve(wait if busy and not self._plenty else 0.0, MAIL_AT_ONCE)
        if self.orders.line:
            self.orders.serve()
        count = self._room.fetch(hungry=not busy)
        if count and not (busy and self.shares.wait_and_see(core.partitions)):
            self._window_has_room()
            most = min(count, self.shares.most or count, self._chunk)
            self._fetch(most, 0.0 if busy else IDLE_WAIT)
        else:
            if not busy:
                # Everything held waits for something far off; nothing but time will change that.
                self.serve(IDLE_WAIT)
            self._window_is_full()
        now = self._clock()
        self.shares.look(core.partitions, self.stats.fetched, now)
        if due is not None and due <= now:
            self.tell(ev.Flush())
        if self.reseek:
            self._read_again()
        self.ends.hand_on(core)
        self._follow()
        self._to_look = core.look_wanted(now) or self._to_look
        self._to_commit = not self.commits_stopped and (self._to_commit or core.commit_wanted(now))
        if self._to_commit or self._to_look:
            self._look_in_turn()
        else:
            self._progress = None
        before, now = now, self._clock()
        # Like a commit it looks at all that is held: after a long one the client is asked first.
        if now >= self._next_beat + (BEAT_SECONDS if now - before > LONG else 0.0):
            self._next_beat = now + BEAT_SECONDS
            self.stats.beats += 1
            self._look_at_rights(now)
            self.watchdog.beat(self.core.partitions, now)
            self._look_at_topics(now)
            self.pause_and_resume()  # the backstop: what the client has refused is told again
            pool = self.ports.pool
            pool.beat()
            progress, dead, wall = pool.progress(), pool.dead(), self.ports.clock.wall()
            self.tell(ev.Beat(progress, dead, wall, pool.departed(), pool.late(), pool.revived()))

    def _look_at_rights(self, now: float) -> None:
        """Say which rights are missing; end when nothing has been allowed for too long."""
        self.note_refusals()
        over = self.rights.beat(self.core.holds.assigned(self.core.partitions), now)
        if over is not None:
            self.halt(over)

    def note_refusals(self, *more: Refusal) -> None:
        """Note what brokers have refused in answers to questions, and ``more``."""
        assigned = self.core.holds.assigned(self.core.partitions)
        for refusal in (*self.ports.client.refusals(), *more):
            self.rights.refused(refusal, assigned, self._clock())

    def _look_at_topics(self, now: float) -> None:
        """Note the ids of topics, and which of them were made anew; note the limit of texts."""
        self.reseek.topics_made_anew(self.topic_ids.beat(self.core.partitions, now), now)
        if identified := self.topic_ids.take_identified():
            self.tell(ev.TopicsIdentified(identified))
        self.metadata_limit.hear()

    def _mail_alone(self) -> None:
        """Take the mail, and again as long as there is some, a few times in a row.

        While the window is full nothing is fetched, and with one lease per key there is mail for
        each single record: a whole turn would look at everything again for it.
        """
        for _ in range(MAIL_TURNS):
            if not self.core.outstanding() or self.halted is not None:
                return
            if not self.serve(BUSY_WAIT, MAIL_AT_ONCE):
                return

    def _look_in_turn(self) -> None:
        """Commit, and look who is held up, as wanted, behind all the mail that was there."""
        if self._progress is None:
            self._progress = self.ports.pool.progress()
            self._behind = self.ports.mailbox.qsize()
            if self._behind:
                self.serve(0.0, MAIL_AT_ONCE)
        if self._behind <= 0:
            progress, self._progress = self._progress, None
            if self._to_commit and (committable := self.committable()):
                self.tell(ev.CommitDue(progress, committable if self.reseek else None))
            if self._to_look:
                self.tell(ev.Flush(progress))
            self._to_commit = self._to_look = False

    def committable(self) -> list[TopicPartition]:
        """Return the partitions that may be committed.

        Not one whose position is not found yet; the others do not wait for it.
        """
        return [each for each in self.core.partitions if each not in self.reseek.partitions]

    def awaited(self, partitions: Sequence[TopicPartition] | None) -> tuple[list[Record], int]:
        """Return what a revoke or a stop waits for: running records, and a number of dead letters.

        A dead letter that the broker refused and that waits for its next try is not on the way:
        waiting for it would use up every deadline for as long as its topic is down.
        """
        progress = self.progress()
        running, dead_letters = self.core.under_way(partitions, progress)
        publisher = self.ports.publisher
        return running, min(dead_letters, publisher.unanswered() if publisher is not None else 0)

    # --- fetching ---

    def _fetch(self, count: int, wait: float) -> None:
        client = self.ports.client
        self.released_in_call.clear()
        self.stats.polled(self._clock())
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
        self._plenty = len(chunk) * 4 >= self._chunk
        if chunk:
            self.admit(chunk)

    def admit(self, chunk: list[Record]) -> None:
        """Give a chunk to the core with the positions after it."""
        released = self.released_in_call
        if released:
            self.reseek.again(released & self.core.partitions.keys())
        if released or self.reseek or self.core.holds.held_back(Reason.UNSTARTED):
            chunk = self.reseek.wanted(chunk, released)
        if self.rights:
            self.rights.delivered(chunk, self._clock())
        self.stats.took_in(len(chunk), self._clock())
        values, held = self._room.values(chunk)
        self.tell(ev.Fetched(chunk, self._received_ends(chunk)))
        self._room.took_in(len(chunk), values, held)

    def _received_ends(self, chunk: list[Record]) -> dict[TopicPartition, int]:
        assigned = self.core.partitions
        behind = self._ends.behind(chunk, len(assigned), self.core.topic)
        gone = self.reseek.partitions
        return {each: end for each, end in behind.items() if each in assigned and each not in gone}

    def _received_end(self, partition: TopicPartition) -> int | None:
        state = self.core.partitions.get(partition)
        return None if state is None else state.received_end

    def lost_some(self, error: Exception) -> None:
        """Records may have been lost between the client and us: read them again."""
        log.error("the client raised %r; reading again from the last positions", error)
        self.reseek.again(self.core.partitions)

    def _read_again(self) -> None:
        reseek = self.reseek
        lost = len(reseek.out_of_range)
        reseek.seek(self)
        if len(reseek.out_of_range) < lost:
            # It was assigned anew, and in an eager group all others with it.
            self.pauses.forget(self.core.partitions)
            self.pause_and_resume()

    def _window_has_room(self) -> None:
        self._full_since = None
        self.core.holds.let_go_all(Reason.WINDOW)
        self._follow()

    def _window_is_full(self) -> None:
        """Keep the group membership alive while there is little room or none.

        Pausing discards what was fetched, so it is left to a window that stays full. Until then a
        poll may return one record, for which room was left; when that is used up, it pauses. What
        the client would go on fetching without a bound is not worth that: it is refused at once.
        While the client refuses to pause, what it brings beyond that is left to be read again.
        """
        now = self._clock()
        self._plenty = False
        self.watchdog.full = True
        if self._full_since is None:
            self._full_since = self._full_polled = now
        holds = self.core.holds
        if self._room.floods():
            holds.hold_all_back(Reason.WINDOW)
        paused = Reason.WINDOW in holds.everywhere
        wait = FULL_POLL_EVERY if paused else self._room.poll_every()
        if self.core.careful.awaits_answer():
            wait = min(wait, ANSWER_POLL_EVERY)
        if now - self._full_polled < wait:
            return
        self._full_polled = now
        self.stats.polled(now)
        lasts = now - self._full_since >= FULL_PAUSE_AFTER
        used_up = self._room.used_up()
        if lasts or used_up:
            holds.hold_all_back(Reason.WINDOW)
        self._follow()
        self.released_in_call.clear()
        try:
            record = self.ports.client.poll(0)
        except CLIENT_ERRORS as error:
            self.lost_some(error)
            return
        if record is not None:
            if used_up and record.error() is None:
                self.reseek.again([partition_of(record)])
            self.admit([record])

    # --- which partitions are fetched from ---

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Let the client read there, and hold back of it what is to be held back."""
        self.ports.client.assign(positions)
        self.pauses.forget(positions)
        self.pause_and_resume()

    def pause_and_resume(self) -> None:
        """Tell the client of the holds what is new to it, and again what it has refused."""
        self.pauses.bring(self.core.holds.assigned(self.core.partitions))

    def _follow(self) -> None:
        if self.pauses.behind():
            self.pause_and_resume()

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that the client was told to fetch nothing of."""
        return self.pauses.paused()

    # --- acting on commands ---

    def publish(self, publish: cmd.Publish) -> None:
        """Hand a dead letter to the publisher; without one nobody is asked to write any."""
        if self.ports.publisher is not None:
            self.ports.publisher.publish(publish)

    def dropped(self, dropped: cmd.Dropped) -> None:
        """Tell whoever keeps a log."""
        if self.on_dropped is not None:
            self.on_dropped(dropped)

    def send(self, commit: cmd.Commit) -> None:
        """Send a commit; what the client answers at once is mail like any other answer."""
        answer = self.ports.client.commit(commit)
        if answer is not None:
            self.ports.mailbox.put(answer)

    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Note where the core wants them read, for :meth:`start`."""
        self._read_at = positions

    def notice(self, notice: cmd.Notice) -> None:
        """Log it, with where its worker stands."""
        log_notice(notice, self.pool)

    def client_events(self, messages: Sequence[Record]) -> None:
        """Act on what the client said: ends of partitions, lost positions, what is fatal."""
        for message in messages:
            error = message.error()
            kind = classify_event(error)
            if kind is EventKind.END_OF_PARTITION:
                partition = partition_of(message)
                self.rights.reached_end(partition, self._clock())
                if partition in self.core.partitions and partition not in self.reseek.partitions:
                    self.tell(ev.Fetched([], {partition: message.offset()}))
                    self.ends.note(message)
            elif kind is EventKind.OUT_OF_RANGE and not self.ports.client.halts_out_of_range:
                self.reseek.lost_position(partition_of(message), self._clock())
            elif kind is EventKind.REFUSED:
                where = partition_of(message) if message.topic() is not None else None
                if (refusal := refusal_of(error, where)) is not None:
                    self.note_refusals(refusal)
            elif kind is EventKind.MAX_POLL_EXCEEDED:
                log.error("%s; commits stop until partitions are assigned again", error.str())
                self.commits_stopped = True
            elif kind is EventKind.FATAL and self.ports.client.start_over(error):
                log.warning("%s; the client is replaced and joins again", error.str())
                self.note_refusals(Refusal(ev.Right.GROUP, "", None, error.str()))
            elif kind in (EventKind.FATAL, EventKind.OUT_OF_RANGE):
                self.halt(with_cure(error))
            else:
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self.topic_ids.look_soon()
                log.warning("%s", with_cure(error))

    def halt(self, reason: str) -> None:
        """Note why the instance has to end; its turn is the last."""
        if self.halted is None:
            self.halted = reason
            log.error("stopping: %s", reason)
