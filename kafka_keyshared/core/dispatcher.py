"""The one funnel of the core: ``Dispatcher.handle(event, now) -> commands``.

It fans events out to the subscriptions and derives positions over all of them. An event that breaks
a rule raises :class:`~kafka_keyshared.errors.InvariantError`; the owner then stops without a
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kafka_keyshared.core import admission, assignment, failures, heartbeat, metadata, returns
from kafka_keyshared.core import events as ev
from kafka_keyshared.core.ceilings import Ceilings
from kafka_keyshared.core.commit import CommitPolicy, Commits, encode
from kafka_keyshared.core.events import Command, Event, Slice
from kafka_keyshared.core.invariants import check_subscription
from kafka_keyshared.core.meters import Meters
from kafka_keyshared.core.offsets import Derived, PartitionState, Snapshot, derive, look
from kafka_keyshared.core.pressure import Pressure
from kafka_keyshared.core.regained import Regained
from kafka_keyshared.core.settings import SubscriptionSettings
from kafka_keyshared.core.subscription import Subscription
from kafka_keyshared.errors import ConfigError, InvariantError
from kafka_keyshared.model import Record, TopicPartition


class Dispatcher:
    """The whole state of one member: its partitions, subscriptions and commits.

    One thread calls it. ``now`` is monotonic, in seconds, and never goes back. ``set_budget`` are
    the characters of commit metadata that settled sets may take. With ``check_invariants`` every
    heartbeat ends with :meth:`check`.
    """

    def __init__(
        self,
        subscriptions: Sequence[SubscriptionSettings],
        commit: CommitPolicy = CommitPolicy(),  # noqa: B008 - an immutable value
        *,
        set_budget: int = metadata.SET_BUDGET,
        check_invariants: bool = False,
    ) -> None:
        names = [settings.name for settings in subscriptions]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"subscriptions {names}: give at least one, each with its own name")
        self.subscriptions = {settings.name: Subscription(settings) for settings in subscriptions}
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.commits = Commits(commit)
        self.ceilings = Ceilings(self.subscriptions, self.partitions, set_budget)
        self.pressure = Pressure()
        self.regained = Regained()
        self.meters = Meters()
        self._check_invariants = check_invariants
        # What the last snapshot said, for whoever looks on; nothing is decided by it.
        self.derived: dict[TopicPartition, Derived] = {}
        self.derived_at = float("-inf")
        self._topic: str | None = None
        self._beat_at: float | None = None
        self.watches = {name: heartbeat.Watch() for name in names}
        self._epoch = 0
        self._changed = False
        self._unstarted = 0
        self._restored = False
        self._leased = 0  # after the last event; nothing else changes it
        self._idle_since: float | None = None
        self._stopping = False
        self._handlers: dict[type[Any], Callable[[Any, float], list[Command]]] = {
            ev.Fetched: self._fetched,
            ev.Reported: self._reported,
            ev.Recalled: self._recalled,
            ev.Assigned: self._assigned,
            ev.Revoking: self._revoking,
            ev.Forget: self._forget,
            ev.Stopping: self._stop,
            ev.DeadLettered: self._dead_lettered,
            ev.CommitDue: self._commit_due,
            ev.CommitAnswered: self._commit_answered,
            ev.Beat: self._beat,
            ev.Flush: self._flush,
        }

    # --- the way in, and what the loop asks ---

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take one event and return what is to be done, in order."""
        commands = self._handlers[type(event)](event, now)
        self._leased = sum([sub.leased() for sub in self.subscriptions.values()])
        if self._leased:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return commands

    def room(self) -> int:
        """Return how many records may be fetched now."""
        return min(heartbeat.fetch(sub) for sub in self.subscriptions.values())

    def outstanding(self) -> int:
        """Return how many records are leased."""
        return self._leased

    def next_due(self) -> float | None:
        """Return when a :class:`Flush` is due next, in monotonic seconds."""
        due = [self.ceilings.next_look()]
        for sub in self.subscriptions.values():
            due += sub.closed.next_due(), sub.keys.next_due()
        return min([at for at in due if at is not None], default=None)

    def commit_wanted(self, now: float) -> bool:
        """Say whether a :class:`CommitDue` should be sent now."""
        return self.commits.due(now, changed=self._changed, idle_since=self._idle_since)

    def pending(
        self, partitions: Sequence[TopicPartition] | None, progress: Mapping[Slice, int]
    ) -> tuple[list[Record], int]:
        """Return the running records of the partitions and how many dead letters are on the way."""
        wanted = set(self.partitions if partitions is None else partitions)
        return assignment.pending(self.subscriptions.values(), wanted, progress)

    def unsettled_count(self) -> int:
        """Return how many records are held, over all subscriptions."""
        return sum(sub.window.records for sub in self.subscriptions.values())

    def check(self) -> None:
        """Raise :class:`InvariantError` when any rule of the contract does not hold."""
        for sub in self.subscriptions.values():
            check_subscription(sub, self.partitions)

    # --- records ---

    def _fetched(self, event: ev.Fetched, now: float) -> list[Command]:
        ends = event.received_ends
        self.meters.arrivals.note(ends, now)
        if strangers := ends.keys() - self.partitions.keys():
            raise InvariantError(f"{min(strangers)} delivered records without being assigned")
        # Before the ends count as received: what is held is looked at without this chunk.
        park = self.ceilings.passed(ends)
        if park:
            self.ceilings.begin_with(event.records, ends)
            self.ceilings.raise_all(now, ends)
            park = self.ceilings.passed(ends)
        for partition, end in ends.items():
            state = self.partitions[partition]
            if state.received_end is None or end > state.received_end:
                state.received_end = end
                self._changed = True
        commands: list[Command] = []
        client_events: list[Record] = []
        for sub in self.subscriptions.values():
            records: Sequence[Record] = event.records
            if self._restored:
                records = assignment.not_settled_before(self.partitions, sub, records)
            client_events = sub.receive(records, park=park) or client_events
            commands += self._go_on(sub, now)
        self.ceilings.arrived(ends)
        if self._restored:
            for partition, state in self.partitions.items():
                state.drop_passed(self.ceilings.of(partition))
            self._restored = any(state.restored for state in self.partitions.values())
        if client_events:
            commands.append(ev.ClientEvents(client_events))
        self.meters.took_in(event.records, len(client_events), self._topic)
        return commands

    def _flush(self, event: ev.Flush, now: float) -> list[Command]:
        del event
        commands: list[Command] = []
        if self.ceilings.parked():
            self.ceilings.raise_all(now)
        for sub in self.subscriptions.values():
            commands += self._ready(sub, now)
            commands += self._go_on(sub, now)
        return commands

    def _go_on(self, sub: Subscription, now: float) -> list[Command]:
        """Deal with what routing has left over, weigh what is parked, lease what may start."""
        commands = (
            self.pressure.weigh_parked(sub, now) if sub.parking or self.pressure.holds else []
        )
        if sub.keys.refused or sub.keys.unread:
            commands += admission.routed(sub, self.pressure, now, self.meters.wall_offset)
        return commands + self._flush_one(sub)

    def _ready(self, sub: Subscription, now: float) -> list[Command]:
        """Ready what has waited for its time: retries, and keys that could not be read."""
        commands = heartbeat.retries(sub, now)
        due = sub.keys.next_due()
        if due is not None and due <= now:
            self._changed = True
            commands += admission.read_again(sub, self.pressure, now, self.meters.wall_offset)
        return commands

    def _flush_one(self, sub: Subscription) -> list[Command]:
        commands = list(sub.flush())
        if sub.blocked.grown:
            commands += self.pressure.stop_overfull(sub, len(self.partitions))
        return commands

    def _flush_unless_recalling(
        self, sub: Subscription, commands: Sequence[Command]
    ) -> list[Command]:
        """Lease nothing between a recall and its answer: it would overtake what comes back."""
        if any(isinstance(command, ev.Recall) for command in commands):
            return []
        return self._flush_one(sub)

    # --- reports ---

    def _reported(self, event: ev.Reported, now: float) -> list[Command]:
        commands: list[Command] = []
        touched: dict[str, Subscription] = {}
        for report in event.reports:
            if isinstance(report, ev.FencePassed):
                sub = self.subscriptions[report.subscription]
                failures.fence_passed(sub, report)
            else:
                sub = self.subscriptions[report.slice.subscription]
                if isinstance(report, ev.Ended):
                    self.meters.slice_ended(sub.counts, report, now)
                    failures.ended(sub, report)
                elif isinstance(report, ev.Failed):
                    commands += failures.failed(sub, report, now)
                else:
                    failures.set_aside(sub, report)
            touched[sub.name] = sub
        self._changed = self._changed or bool(touched)
        self.ceilings.stirred = True
        if self.ceilings.parked():
            self.ceilings.raise_all(now)
            touched = self.subscriptions
        for sub in touched.values():
            commands += self._go_on(sub, now)
        return commands

    def _recalled(self, event: ev.Recalled, now: float) -> list[Command]:
        del now
        commands: list[Command] = []
        for name, slices in returns.by_subscription(event.slices).items():
            returns.recalled(self.subscriptions[name], slices)
            commands += self._flush_one(self.subscriptions[name])
        return commands

    def _dead_lettered(self, event: ev.DeadLettered, now: float) -> list[Command]:
        sub = self.subscriptions[event.publish.subscription]
        commands = failures.dead_lettered(sub, event, now)
        self._changed = self.ceilings.stirred = True
        return commands + self._flush_one(sub)

    # --- partitions ---

    def _assigned(self, event: ev.Assigned, now: float) -> list[Command]:
        self.meters.assigned(event.starts)
        self._epoch += 1
        known = list(self.subscriptions)
        stored = assignment.stored(event.starts)
        starts, said = self.regained.starts(event.starts, stored, now)
        commands = said + assignment.assign(self.partitions, starts, self._epoch, known)
        self.commits.restart(stored)
        self._changed = self._changed or any(not point.stored for point in starts.values())
        self._restored = any(state.restored for state in self.partitions.values())
        for partition in event.starts:
            self.ceilings.begin(partition, self.partitions[partition].received_end)
        self._note_topics()
        return commands

    def _revoking(self, event: ev.Revoking, now: float) -> list[Command]:
        self.meters.revoking(now)
        commands: list[Command] = []
        for sub in self.subscriptions.values():
            sub.closing.update(event.partitions)
            commands += returns.recall_all(sub)
        return commands

    def _forget(self, event: ev.Forget, now: float) -> list[Command]:
        gone = set(event.partitions)
        if event.lost:
            left, _ = self._entries(event.progress, gone, now)
            self.regained.keep(left, self.commits.ours(gone), now)
        for sub in self.subscriptions.values():
            assignment.forget(sub, gone, event.progress)
        for partition in gone:
            self.partitions.pop(partition, None)
        self.commits.forget(gone)
        self.ceilings.unsettle()
        self.pressure.forget(gone)
        self.meters.gone(gone, now, lost=event.lost)
        self._restored = any(state.restored for state in self.partitions.values())
        self._note_topics()
        return [] if self._stopping else self._flush(ev.Flush(), now)

    def _note_topics(self) -> None:
        """Remember the only topic: with one there is nothing to ask each record for."""
        topics = {partition.topic for partition in self.partitions}
        self._topic = topics.pop() if len(topics) == 1 else None
        for sub in self.subscriptions.values():
            sub.counts.topic = self._topic
        self.derived = {
            each: kept for each, kept in self.derived.items() if each in self.partitions
        }

    def _stop(self, event: ev.Stopping, now: float) -> list[Command]:
        del event
        self._stopping = True
        commands: list[Command] = []
        for sub in self.subscriptions.values():
            sub.stopped = True
            commands += sub.bursts.hurry(now)
            commands += returns.recall_all(sub)
        return commands

    # --- positions ---

    def snapshot(self, progress: Mapping[Slice, int], now: float) -> dict[TopicPartition, Snapshot]:
        """Return position and settled sets of every partition that has received anything."""
        by_sub = self.ceilings.look(progress, now)
        snapshots: dict[TopicPartition, Snapshot] = {}
        for partition, state in self.partitions.items():
            if state.received_end is None:
                continue
            held = {name: found.get(partition, {}) for name, found in by_sub.items()}
            ceilings = self.ceilings.of(partition)
            snapshot = derive(state.received_end, held, state.restored, ceilings)
            snapshots[partition] = snapshot
            self.derived[partition] = look(snapshot, held, self.derived.get(partition), now)
            self.meters.arrivals.settled(partition, snapshot.position)
        self.derived_at = now
        return snapshots

    def _entries(
        self,
        progress: Mapping[Slice, int],
        only: Collection[TopicPartition] | None,
        now: float,
    ) -> tuple[dict[TopicPartition, ev.CommitEntry], list[Command]]:
        """Return what would be committed now, of these partitions or of all, and what to say."""
        found = self.snapshot(progress, now)
        found = {each: found[each] for each in found if only is None or each in only}
        entries, encoded = encode(found, self.partitions, self.ceilings.set_budget)
        said = [self.pressure.note_encoded(each, text) for each, text in encoded.items()]
        return entries, [command for commands in said for command in commands]

    def _commit_due(self, event: ev.CommitDue, now: float) -> list[Command]:
        entries, commands = self._entries(event.progress, event.partitions, now)
        commits = self.commits.plan(entries, now, final=event.final)
        self.meters.sent(commits, now)
        commands += commits
        if event.partitions is None:
            self._changed = False
        if not event.final:
            for sub in self.subscriptions.values():
                commands += self.pressure.release(sub, len(self.partitions))
                if sub.parking and sub.unpark():
                    commands += self._go_on(sub, now)
        return commands

    def _commit_answered(self, event: ev.CommitAnswered, now: float) -> list[Command]:
        self.meters.answered(event.commit, event.result, now)
        commands = self.commits.answered(event, now)
        if event.result is not ev.CommitResult.ACCEPTED:
            self._changed = True
        return commands

    # --- time ---

    def _beat(self, event: ev.Beat, now: float) -> list[Command]:
        commands: list[Command] = []
        self._sample(event, now)
        for name, sub in self.subscriptions.items():
            dead = [index for subscription, index in event.dead_workers if subscription == name]
            commands += heartbeat.ack_timeouts(sub, self.watches[name], event.progress, now)
            commands += heartbeat.poison(sub, now)
            commands += self._ready(sub, now)
            commands += heartbeat.tell(sub, now)
            evicted = heartbeat.eviction(sub, dead)
            evicted += heartbeat.departures(sub, [i for each, i in event.left if each == name])
            commands += evicted
            if heartbeat.fetch(sub):
                commands += self.pressure.release(sub, len(self.partitions))
            commands += self._flush_unless_recalling(sub, evicted)
        if self._check_invariants:
            self.check()
        return commands

    def _sample(self, event: ev.Beat, now: float) -> None:
        """Take what is counted by looking at it from time to time."""
        seconds = 0.0 if self._beat_at is None else now - self._beat_at
        self._beat_at = now
        if event.wall is not None:
            self.meters.wall_offset = event.wall - now
        # Records end long before a slow slice does, and nobody reports them until then.
        unstarted = sum(event.progress.values())
        self._changed = self._changed or unstarted != self._unstarted
        self._unstarted = unstarted
        self.meters.paused_seconds += seconds * len(self.pressure.paused())
        for sub in self.subscriptions.values():
            heartbeat.starve(sub, seconds)
