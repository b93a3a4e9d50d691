"""The owner thread's loop over the Kafka client and the core.

Every other thread posts to its mailbox. A step serves the mailbox, fetches, hands out records,
commits and runs the heartbeat. Each of these is a method over ports (client, pool, mailbox, clock,
publisher), so a simulator can run them unchanged. Rebalances are in :mod:`.rebalance`, the stop in
:mod:`.shutdown`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from queue import Empty

from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import (
    EventKind,
    RightRefusal,
    classify_event,
    refusal_of,
    with_cure,
)
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.dispatch.tick import BEAT_SECONDS
from kafka_keyshared.executors.command_interpreter import Actor
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, TopicPartition, partition_of
from kafka_keyshared.runtime.command_queue import Orders
from kafka_keyshared.runtime.fetch_quota import FULL_PAUSE_AFTER, Room
from kafka_keyshared.runtime.loop_stats import LoopStats
from kafka_keyshared.runtime.metadata_limit import MetadataLimit
from kafka_keyshared.runtime.notice_log import log_notice
from kafka_keyshared.runtime.partition_ends import PartitionEnds, ReceivedPositions
from kafka_keyshared.runtime.partition_fairness import Shares
from kafka_keyshared.runtime.pauses import ByHand, Pauses
from kafka_keyshared.runtime.ports import Ports
from kafka_keyshared.runtime.rights import DeniedRights
from kafka_keyshared.runtime.seeking import Reseek
from kafka_keyshared.runtime.topic_ids import TopicIds
from kafka_keyshared.runtime.wait_plan import (
    BUSY_WAIT,
    MAIL_TURNS,
    OwnerWait,
    RoundState,
    plan_full_poll,
    plan_wait,
)
from kafka_keyshared.runtime.watchdog import Watchdog

log = log_of("kafka_keyshared.loop")

CHUNK = 2_000
"""Most records of one fetch: enough to make the cost per chunk negligible."""

MAIL_AT_ONCE = 500
"""Most mailbox items that one turn takes, so that the client is polled in between."""

LONG = 0.05
"""Seconds that commits and checks may take in a turn before the heartbeat is postponed.

The client is polled first then.
"""

CLIENT_ERRORS = (KafkaException, RuntimeError, ValueError)
"""Exceptions that poll and consume may raise. Records they had already dequeued are lost."""


class Loop(Actor):
    """The owner's steps and the state they keep between rounds."""

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
        # Called with each commit answer after the core; set by a stop, which reads its own commit.
        self.on_answer: Callable[[ev.CommitAnswer], None] | None = None
        self.on_dropped: Callable[[cmd.RecordsDropped], None] | None = None
        self.pauses = Pauses(ports.client, dispatcher.holds, ports.clock)
        self.by_hand = ByHand(dispatcher.holds)
        self.rights = DeniedRights(ports.client, dispatcher.commits, self._received_end)
        refused = self.rights.unreadable
        self.watchdog = Watchdog(
            ports.client, dispatcher.holds, self.pauses, self.reseek, unreadable=refused
        )
        self.shares = Shares(
            ports.client, dispatcher.holds, self.core.subscriptions.values(), unreadable=refused
        )
        self._room = Room(sub.window for sub in self.core.subscriptions.values())
        self._ends = ReceivedPositions(ports.client, ports.clock)
        self._chunk = chunk
        self._plenty = False
        self._next_beat = 0.0
        # Used by the next commit or detach check. ``_progress`` is the pool's progress, ``_behind``
        # the number of mailbox items posted before it that are not taken yet.
        self._progress: Progress | None = None
        self._behind = 0
        self._to_commit = self._to_look = False
        self._full_since: float | None = None
        self._full_polled = 0.0
        # Where the core wants the partitions read that it was just given.
        self._read_at: Mapping[TopicPartition, int | None] = {}

    def start(
        self, starts: Mapping[TopicPartition, ev.StartPoint]
    ) -> Mapping[TopicPartition, int | None]:
        """Pass starting partitions to the core; return where the client must read each.

        The caller assigns them to the client: in one call with others that wait for their start, or
        by a seek.
        """
        self._read_at = {}
        self.tell(ev.Assigned(starts))
        self.by_hand.came(starts)
        return self._read_at

    def serve(self, timeout: float, most: int | None = None) -> bool:
        """Take at most ``most`` mailbox items, oldest first; return whether there were any.

        If the mailbox is empty, wait ``timeout`` seconds.
        """
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
                if isinstance(item, ev.CommitAnswer):
                    self.on_answer(item)
        return True

    # --- a step ---

    def step(self) -> None:
        """Do one round: mailbox, orders, fetch, delays, commit, heartbeat."""
        if self._full_since is not None:
            self._mail_alone()
        core, now = self.core, self._clock()
        due = core.next_due()
        wait = plan_wait(self._state(None if due is None else due - now))
        self.serve(wait.in_mailbox, MAIL_AT_ONCE)
        if self.orders.line:
            self.orders.serve()
        self._fetch_with_room(wait)
        now = self._clock()
        self.shares.look(core.partitions, self.stats.fetched, now)
        if due is not None and due <= now:
            self.tell(ev.LeaseDue())
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
        # Like a commit, the heartbeat looks at every held record. After a long turn the client is
        # polled first.
        if now >= self._next_beat + (BEAT_SECONDS if now - before > LONG else 0.0):
            self._beat(now)

    def _state(self, due_in: float | None) -> RoundState:
        """Return the state that decides the wait of this round."""
        publisher = self.ports.publisher
        return RoundState(
            self.core.outstanding(),
            due_in,
            publisher.unanswered() if publisher is not None else 0,
            bool(self.orders.line),
            self._plenty,
            self._full_since is not None,
        )

    def _fetch_with_room(self, wait: OwnerWait) -> None:
        """Fetch while the window has room; otherwise keep the membership alive."""
        count = self._room.fetch(hungry=wait.idle)
        if count and (wait.idle or not self.shares.wait_and_see(self.core.partitions)):
            self._window_has_room()
            self._fetch(min(count, self.shares.most or count, self._chunk), wait.in_client)
            return
        if wait.idle:
            # Every held record waits for something far off, so only time changes the state.
            self.serve(wait.in_client)
        self._window_is_full()

    def _beat(self, now: float) -> None:
        """Run the heartbeat: checks of the client, and a tick of the core."""
        self._next_beat = now + BEAT_SECONDS
        self.stats.beats += 1
        self._look_at_rights(now)
        self.watchdog.beat(self.core.partitions, now)
        self._look_at_topics(now)
        self.pause_and_resume()  # the backstop: repeats pauses that the client refused
        pool = self.ports.pool
        pool.beat()
        progress, dead, wall = pool.progress(), pool.dead(), self.ports.clock.wall()
        self.tell(ev.Tick(progress, dead, wall, pool.departed(), pool.late(), pool.revived()))

    def _look_at_rights(self, now: float) -> None:
        """Log missing rights; halt when nothing has been authorized for too long."""
        self.note_refusals()
        over = self.rights.beat(self.core.holds.assigned(self.core.partitions), now)
        if over is not None:
            self.halt(over)

    def note_refusals(self, *more: RightRefusal) -> None:
        """Note the rights that brokers refused in answers to queries, and ``more``."""
        assigned = self.core.holds.assigned(self.core.partitions)
        for refusal in (*self.ports.client.refusals(), *more):
            self.rights.refused(refusal, assigned, self._clock())

    def _look_at_topics(self, now: float) -> None:
        """Note topic ids, topics that were recreated, and the limit of commit metadata."""
        self.reseek.topics_made_anew(self.topic_ids.beat(self.core.partitions, now), now)
        if identified := self.topic_ids.take_identified():
            self.tell(ev.TopicsIdentified(identified))
        self.metadata_limit.hear()

    def _mail_alone(self) -> None:
        """Serve the mailbox repeatedly, a limited number of times, while mail keeps coming.

        While the window is full nothing is fetched. With one lease per key each record is one
        mailbox item, and a whole turn per item would check everything again.
        """
        for _ in range(MAIL_TURNS):
            if not self.core.outstanding() or self.halted is not None:
                return
            if not self.serve(BUSY_WAIT, MAIL_AT_ONCE):
                return

    def _look_in_turn(self) -> None:
        """Commit and check for records to detach, if due, after all mail that preceded.

        The pool's progress is read first. Every report that was in the mailbox then is taken before
        the progress is used.
        """
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
                self.tell(ev.LeaseDue(progress))
            self._to_commit = self._to_look = False

    def committable(self) -> list[TopicPartition]:
        """Return the partitions that may be committed.

        A partition whose position is not known yet is left out; the others do not wait for it.
        """
        return [each for each in self.core.partitions if each not in self.reseek.partitions]

    def awaited(self, partitions: Sequence[TopicPartition] | None) -> tuple[list[Record], int]:
        """Return what a revoke or a stop waits for: running records and the number of dead letters.

        A dead letter that the broker refused and that waits for its retry is not counted. Waiting
        for it would use up every deadline while its topic is down.
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
        """Pass a chunk to the core with the positions after it."""
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
        """Read again from the last positions; the client may have lost records."""
        log.error("the client raised %r; reading again from the last positions", error)
        self.reseek.again(self.core.partitions)

    def _read_again(self) -> None:
        reseek = self.reseek
        lost = len(reseek.out_of_range)
        reseek.seek(self)
        if len(reseek.out_of_range) < lost:
            # The partition was assigned anew; in an eager group all others were too.
            self.pauses.forget(self.core.partitions)
            self.pause_and_resume()

    def _window_has_room(self) -> None:
        self._full_since = None
        self.core.holds.let_go_all(Reason.WINDOW)
        self._follow()

    def _window_is_full(self) -> None:
        """Keep the group membership alive while the window has little or no room.

        A pause discards prefetched records, so only a window that stays full pauses. Until then
        each poll may return one record, and room is reserved for it. When that room is used up,
        partitions are paused. If the client would prefetch without a bound, they are paused at
        once. While the client refuses to pause, a record beyond the reserved room is read again
        later.
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
        every = plan_full_poll(
            paused=paused,
            reserve_every=self._room.poll_every(),
            answer_awaited=self.core.careful.awaits_answer(),
        )
        if now - self._full_polled < every:
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
        """Have the client read from these positions, then apply the pauses."""
        self.ports.client.assign(positions)
        self.pauses.forget(positions)
        self.pause_and_resume()

    def pause_and_resume(self) -> None:
        """Send the client the pauses that changed, and repeat those it refused."""
        self.pauses.bring(self.core.holds.assigned(self.core.partitions))

    def _follow(self) -> None:
        if self.pauses.behind():
            self.pause_and_resume()

    def paused(self) -> set[TopicPartition]:
        """Return the assigned partitions that the client was asked to pause."""
        return self.pauses.paused()

    # --- acting on commands ---

    def publish(self, publish: cmd.Publish) -> None:
        """Hand a dead letter to the publisher. Without a publisher the core asks for none."""
        if self.ports.publisher is not None:
            self.ports.publisher.publish(publish)

    def dropped(self, dropped: cmd.RecordsDropped) -> None:
        """Pass dropped records on to :attr:`on_dropped`."""
        if self.on_dropped is not None:
            self.on_dropped(dropped)

    def send(self, commit: cmd.Commit) -> None:
        """Send a commit. An answer that the client gives at once is posted to the mailbox."""
        answer = self.ports.client.commit(commit)
        if answer is not None:
            self.ports.mailbox.put(answer)

    def assign_at(self, positions: Mapping[TopicPartition, int | None]) -> None:
        """Note where the core wants partitions read, for :meth:`start`."""
        self._read_at = positions

    def notice(self, notice: cmd.Notice) -> None:
        """Log the notice with the stack position of its worker."""
        log_notice(notice, self.pool)

    def client_events(self, messages: Sequence[Record]) -> None:
        """Handle client events: ends of partitions, lost positions, fatal errors."""
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
                self.note_refusals(RightRefusal(ev.Right.GROUP, "", None, error.str()))
            elif kind in (EventKind.FATAL, EventKind.OUT_OF_RANGE):
                self.halt(with_cure(error))
            else:
                if error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self.topic_ids.look_soon()
                log.warning("%s", with_cure(error))

    def halt(self, reason: str) -> None:
        """Record why the instance must end. The current turn is the last."""
        if self.halted is None:
            self.halted = reason
            log.error("stopping: %s", reason)
