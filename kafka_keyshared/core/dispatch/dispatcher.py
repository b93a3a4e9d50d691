"""The only entry point of the core: ``Dispatcher.handle(event, now) -> commands``.

It passes events on to the subscriptions and derives positions over all of them. An event that
breaks a rule raises :class:`~kafka_keyshared.errors.InvariantError`; the owner then stops without a
commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kafka_keyshared.core.backpressure import pause_rules
from kafka_keyshared.core.backpressure.pause_reasons import Holds, Reason
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import Command
from kafka_keyshared.core.contract.events import Event
from kafka_keyshared.core.contract.slices import Book, Epochs, Progress, SliceState
from kafka_keyshared.core.dispatch import report_intake, tick
from kafka_keyshared.core.dispatch.invariants import check_subscription
from kafka_keyshared.core.dispatch.lease_step import LeaseStep
from kafka_keyshared.core.failures import (
    detaching,
    follow_up,
    lane_actions,
    outage,
    stuck,
    undecodable,
)
from kafka_keyshared.core.leasing import recall, shared_workers
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.commit import CommitPolicy, Commits, longest_text
from kafka_keyshared.core.offsets.positions import PartitionState
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.core.partitions import assignment
from kafka_keyshared.core.partitions.assignment import PartitionEvent, refuse_impossible
from kafka_keyshared.core.partitions.careful_starts import CarefulStarts
from kafka_keyshared.core.partitions.lost_progress import Regained
from kafka_keyshared.core.partitions.offset_ceilings import Ceilings
from kafka_keyshared.core.partitions.offset_snapshots import Snapshots
from kafka_keyshared.core.partitions.removal import (
    PartitionRemoval,
    RemovedPartitions,
    under_way,
)
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.core.subscription.subscription import Subscription, Subscriptions
from kafka_keyshared.core.telemetry.meters import Meters
from kafka_keyshared.core.worker_changes import slot_draining, slot_reassignment, worker_lifecycle
from kafka_keyshared.core.workers.worker import WorkerState
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Record, TopicPartition


class Dispatcher:
    """The whole state of one member: its partitions, subscriptions and commits.

    One thread calls it. ``now`` is monotonic, in seconds, and never goes back. ``set_budget`` is
    the number of characters of commit metadata that settled sets may take. With
    ``check_invariants`` every heartbeat ends with :meth:`check`. With ``careful`` commits name
    running records, and the first records of a partition start when a commit has named them
    (:mod:`kafka_keyshared.core.partitions.careful_starts`).
    """

    def __init__(
        self,
        subscriptions: Sequence[SubscriptionSettings],
        commit: CommitPolicy = CommitPolicy(),  # noqa: B008 - an immutable value
        *,
        set_budget: int = commit_metadata.SET_BUDGET,
        check_invariants: bool = False,
        careful: bool = False,
    ) -> None:
        names = [settings.name for settings in subscriptions]
        if not names or len(set(names)) != len(names):
            raise ConfigError(f"subscriptions {names}: give at least one, each with its own name")
        self.holds = Holds()
        self._epochs, self._book = Epochs(), Book()
        closing = self.holds.held_back(Reason.CLOSING)
        self.subscriptions = Subscriptions(
            (settings.name, Subscription(settings, closing, self._epochs, self._book))
            for settings in subscriptions
        )
        self.partitions: dict[TopicPartition, PartitionState] = {}
        self.commits = Commits(commit)
        tracked = [settings.name for settings in subscriptions if settings.at_least_once]
        self.text_limit = TextLimit(tracked, set_budget)
        self.ceilings = Ceilings(self.subscriptions, self.partitions, self.text_limit)
        self.regained = Regained()
        self.meters = Meters()
        self._check_invariants = check_invariants
        self.careful = CarefulStarts(self.ceilings.subs, self.partitions, enabled=careful)
        arrivals = self.meters.arrivals
        self.snapshots = Snapshots(self.partitions, self.ceilings, arrivals, self.careful)
        self.removal = PartitionRemoval(
            self.partitions,
            self.subscriptions,
            epochs=self._epochs,
            commits=self.commits,
            regained=self.regained,
            snapshots=self.snapshots,
            careful=self.careful,
            ceilings=self.ceilings,
            holds=self.holds,
            meters=self.meters,
        )
        self._share_lanes()
        self.topic: str | None = None  # the only topic of the partitions
        self.watches = {name: tick.RunningWatch() for name in names}
        self._changed = self._restored = self._stopping = False
        self._progress: Progress = {}
        self._leased = 0  # after the last event; only events change it
        self._idle_since: float | None = None
        self._handlers: dict[type[Any], Callable[[Any, float], list[Command]]] = {
            ev.Fetched: self._fetched,
            ev.Reported: self._reported,
            ev.Recalled: self._recalled,
            ev.Assigned: self._assigned,
            ev.Revoking: self._revoking,
            ev.Forget: self._forget,
            ev.Stopping: self._stop,
            ev.DeadLetterAnswer: self._dead_lettered,
            ev.CommitDue: self._commit_due,
            ev.CommitAnswer: self._commit_answered,
            ev.Tick: self._beat,
            **dict.fromkeys(slot_reassignment.EVENTS, self._membership),
            ev.LaneOrder: self._lane_order,
            ev.DlqLimitLifted: self._dlq_limit_lifted,
            ev.LeaseDue: self._lease_due,
            ev.TopicsIdentified: self._topics_identified,
            ev.TextLimitTold: self._text_limit_told,
        }

    # --- the entry point, and queries of the owner's loop ---

    def handle(self, event: Event, now: float) -> list[Command]:
        """Handle one event, and return the commands to act on, in order."""
        commands = self._handlers[type(event)](event, now)
        self._leased = sum([sub.leased for sub in self.subscriptions.values()])
        if self._leased:
            self._idle_since = None
        elif self._idle_since is None:
            self._idle_since = now
        return commands

    def room(self) -> int:
        """Return how many records may be fetched now."""
        return min(tick.fetch(sub) for sub in self.subscriptions.values())

    def outstanding(self) -> int:
        """Return how many records are leased."""
        return self._leased

    def next_due(self) -> float | None:
        """Return when the next :class:`LeaseDue` is due, in monotonic seconds."""
        due = [self.ceilings.next_look(), *(sub.next_due() for sub in self.subscriptions.values())]
        due.append(self.careful.next_due())
        return min([at for at in due if at is not None], default=None)

    def commit_wanted(self, now: float) -> bool:
        """Return whether a :class:`CommitDue` should be sent now."""
        hurry = any(sub.commit_at_once for sub in self.subscriptions.values())
        idle_since = float("-inf") if hurry else self._idle_since
        hurried = self.careful.commit_due(now)
        due = self.commits.due(now, changed=self._changed, idle_since=idle_since, hurried=hurried)
        return due and self.ceilings.tracks

    def look_wanted(self, now: float) -> bool:
        """Return whether a :class:`LeaseDue` with progress should be sent now."""
        subs = self.subscriptions.values()
        return any(detaching.wanted(sub, now) for sub in subs)

    def leased(self, id_: int) -> SliceState:
        """Return the book's entry of an outstanding slice."""
        return self._book.find(id_)

    def lanes(self, subscription: str) -> Callable[[Record], Lane]:
        """Return the function for the lane of a subscription's record; any thread may call it."""
        return self.subscriptions[subscription].keys.lane

    def under_way(
        self, partitions: Sequence[TopicPartition] | None, progress: Progress
    ) -> tuple[list[Record], int]:
        """Return the partitions' running records and the number of their unanswered dead letters.

        While a recall is not answered, every record that it may find started counts as running.
        """
        wanted = set(self.partitions if partitions is None else partitions)
        return under_way(self.subscriptions.values(), wanted, progress)

    def unsettled_count(self) -> int:
        """Return how many records are held, over all subscriptions."""
        return sum(sub.window.records for sub in self.subscriptions.values())

    def check(self, *, each_slot: bool = True) -> None:
        """Raise :class:`InvariantError` when any rule of the contract does not hold.

        Unless ``each_slot``, only slots with held records are checked.
        """
        for sub in self.subscriptions.values():
            check_subscription(sub, self.partitions, self.holds, each_slot=each_slot)

    # --- records ---

    def _fetched(self, event: ev.Fetched, now: float) -> list[Command]:
        ends = event.received_ends
        self._check(PartitionEvent.RECEIVED, ends)
        self.meters.arrivals.note(ends, now)
        park = not self.ceilings.admit(ends, event.records, now)
        for partition, end in ends.items():
            state = self.partitions[partition]
            if state.received_end is None or end > state.received_end:
                state.received_end = end
                self._changed = True
        commands: list[Command] = []
        client_events: list[Record] = []  # the same for each subscription
        step = self._lease_step(now)
        for sub in self.subscriptions.values():
            records = event.records
            if self._restored:
                records = assignment.not_settled_before(self.partitions, sub, records)
            client_events = sub.receive(records, park=park) or client_events
            commands += step.run(sub)
        self.ceilings.arrived(ends)
        if self.careful.fresh:
            self.careful.received(ends)
        if self._restored:
            self._drop_passed()
        if client_events:
            commands.append(cmd.ClientEvents(client_events))
        self.meters.took_in(event.records, len(client_events), self.topic)
        return commands

    def _drop_passed(self) -> None:
        """Drop the restored sets that all records of this chunk have passed."""
        for partition, state in self.partitions.items():
            state.drop_passed(self.ceilings.of(partition))
        self._note_restored()

    def _note_restored(self) -> None:
        """Note whether any restored set is left; without one, no record is looked up in them."""
        self._restored = any(state.restored for state in self.partitions.values())

    def _lease_due(self, event: ev.LeaseDue, now: float) -> list[Command]:
        commands = self.careful.tick(now) if self.careful.starts else []
        if self.ceilings.parked():
            self.ceilings.raise_all(now)
        step = self._lease_step(now)
        for sub in self.subscriptions.values():
            commands += self._ready(sub, now)
            if event.progress is not None:
                commands += detaching.look(sub, event.progress, now)
            commands += step.run(sub)
        return commands

    def _lease_step(self, now: float) -> LeaseStep:
        """Return the step that leases what may start, with the context of this event."""
        return LeaseStep(self.holds, len(self.partitions), now, self.meters.wall_offset)

    def _ready(self, sub: Subscription, now: float) -> list[Command]:
        """Ready the records that are due: retries, and those whose key could not be read."""
        commands: list[Command] = []
        due = sub.closed.next_due()
        if due is not None and due <= now:
            commands += tick.retries(sub, now)
        due = sub.keys.next_due()
        if due is not None and due <= now:
            self._changed = True
            commands += undecodable.read_again(sub, self.holds, now, self.meters.wall_offset)
        return commands

    # --- reports ---

    def _reported(self, event: ev.Reported, now: float) -> list[Command]:
        subs, book = self.subscriptions, self._book
        commands, touched = report_intake.take_reports(event.reports, subs, book, self.meters, now)
        self._changed = self._changed or bool(touched)
        self.ceilings.stirred = True
        if self.ceilings.parked():
            self.ceilings.raise_all(now)
            touched = subs
        step = self._lease_step(now)
        for sub in touched.values():
            commands += step.run(sub)
        return commands

    def _recalled(self, event: ev.Recalled, now: float) -> list[Command]:
        sub = self.subscriptions[event.subscription]
        worker, commands = stuck.recalled(sub, event, now)
        if sub.detaching is not None and sub.detaching.asked:
            detaching.recalled(sub, worker)
        if sub.draining.count:
            slot_draining.given_back(sub, worker, event)
        self._changed = self.ceilings.stirred = True
        if worker.state is WorkerState.LEAVING:
            commands += worker_lifecycle.recall_answered(sub, worker)
        return commands + self._lease_step(now).run(sub)

    def _membership(self, event: slot_reassignment.Ordered, now: float) -> list[Command]:
        sub = self.subscriptions[event.subscription]
        self._changed = self.ceilings.stirred = True  # records without an owner may be skipped
        commands = slot_reassignment.change(sub, event, self.partitions)
        return commands + self._lease_step(now).run(sub)

    def _lane_order(self, event: ev.LaneOrder, now: float) -> list[Command]:
        sub = self.subscriptions[event.subscription]
        self._changed = self.ceilings.stirred = True
        commands = lane_actions.obey(sub, event, now, self.meters.wall_offset)
        return commands + self._lease_step(now).run(sub)

    def _dlq_limit_lifted(self, event: ev.DlqLimitLifted, now: float) -> list[Command]:
        pause_rules.lift_dlq_limit(self.holds, self.subscriptions.values(), event.partitions)
        return self._lease_due(ev.LeaseDue(), now)

    def _dead_lettered(self, event: ev.DeadLetterAnswer, now: float) -> list[Command]:
        sub = self.subscriptions[event.publish.subscription]
        self._changed = self.ceilings.stirred = True
        commands = follow_up.dead_lettered(sub, event, now)
        return commands + self._lease_step(now).run(sub)

    # --- partitions ---

    def _assigned(self, event: ev.Assigned, now: float) -> list[Command]:
        self._check(PartitionEvent.ASSIGNED, event.starts)
        self.meters.assigned(event.starts)
        stored = assignment.stored(event.starts)
        starts, said = self.regained.starts(event.starts, stored, self.subscriptions, now)
        self._epochs.come(event.starts)
        commands = said + assignment.assign(self.partitions, starts, self.subscriptions)
        self.commits.restart(stored, {each: at.position for each, at in starts.items()})
        commands += self.careful.begin(starts, now)
        self._changed = self._changed or any(
            self.partitions[each].outdated or not point.stored for each, point in starts.items()
        )
        self._note_restored()
        for partition in event.starts:
            self.ceilings.begin(partition, self.partitions[partition].received_end)
        self._note_topics()
        return commands

    def _revoking(self, event: ev.Revoking, now: float) -> list[Command]:
        self._check(PartitionEvent.REVOKING, event.partitions)
        self.meters.revoking(now)
        self.holds.hold_back(Reason.CLOSING, event.partitions)
        theirs = recall.of_partitions(event.partitions)
        subs = self.subscriptions.values()
        return [each for sub in subs for each in recall.recall(sub, sub.workers.values(), theirs)]

    def _forget(self, event: ev.Forget, now: float) -> list[Command]:
        self._check(PartitionEvent.FORGOTTEN, event.partitions)
        gone = RemovedPartitions(set(event.partitions), event.lost, event.progress, now)
        commands = self.removal.remove(gone)
        self._note_restored()
        self._note_topics()
        return commands if self._stopping else commands + self._lease_due(ev.LeaseDue(), now)

    def _check(self, event: PartitionEvent, those: Iterable[TopicPartition]) -> None:
        refuse_impossible(self.partitions, self.holds.held_back(Reason.CLOSING), event, those)

    def _note_topics(self) -> None:
        """Note the only topic; with one, no record has to be asked for its topic."""
        self.topic = assignment.only_topic(self.partitions)
        for sub in self.subscriptions.values():
            sub.counts.topic = self.topic

    def _stop(self, event: ev.Stopping, now: float) -> list[Command]:
        del event
        self._stopping = True
        self.holds.hold_all_back(Reason.STOPPING)
        commands: list[Command] = []
        for sub in self.subscriptions.values():
            sub.stopped = True
            commands += sub.bursts.hurry(now)
            commands += recall.recall(sub, sub.workers.values())
        return commands

    # --- positions ---

    def _commit_due(self, event: ev.CommitDue, now: float) -> list[Command]:
        entries, encoded = self.snapshots.entries(
            event.progress, event.partitions, now, final=event.final
        )
        named = () if event.final else self.careful.named()
        commits = self.commits.plan(entries, now, final=event.final, named=named)
        self.meters.sent(commits, now)
        cut = self.commits.cut_sets.note(encoded)
        commands: list[Command] = [*([] if self.text_limit.without_sets else cut), *commits]
        if named and self.careful.sent(commits, self.commits.behind()):
            commands += self.careful.unnamed(now)
        if event.partitions is None:
            self._changed = False
        if not event.final:
            for sub in self.subscriptions.values():
                slot_draining.looked_at(sub, event.progress)
                sub.commit_at_once = False
                commands += pause_rules.look_at_closed(self.holds, sub, len(self.partitions), now)
                if (sub.parking and sub.unpark()) or sub.draining.cleared:
                    commands += self._lease_step(now).run(sub)
        return commands

    def _commit_answered(self, event: ev.CommitAnswer, now: float) -> list[Command]:
        self.meters.answered(event.commit, event.result, now)
        commands = self.commits.answered(event, now)
        if event.result is ev.CommitResult.TOO_LARGE:
            length = longest_text(event.commit)
            if self.text_limit.refused(length):
                self._limit_lowered()
                commands += self.text_limit.notices(refused=length)
        accepted = event.result is ev.CommitResult.ACCEPTED
        self._changed = self._changed or not accepted
        begun = self.careful.answered(event.commit, now, accepted=accepted)
        return (
            [*commands, *begun, *self._lease_due(ev.LeaseDue(), now)]
            if begun is not None
            else commands
        )

    def _topics_identified(self, event: ev.TopicsIdentified, now: float) -> list[Command]:
        del now
        for partition, topic_id in event.ids.items():
            state = self.partitions[partition]
            state.topic_id = state.topic_id or topic_id
        return []

    def _text_limit_told(self, event: ev.TextLimitTold, now: float) -> list[Command]:
        del now
        if not self.text_limit.told(event.limit):
            return []
        self._limit_lowered()
        return self.text_limit.notices(accepted=event.limit)

    def _limit_lowered(self) -> None:
        """Apply a lower limit of the commit metadata."""
        self.ceilings.lower()
        self._share_lanes()
        self._changed = True

    def _share_lanes(self) -> None:
        """Bound the lanes that may be diverted to the number that the metadata can name."""
        limit = self.text_limit.chars
        for name, most in commit_metadata.lane_rooms(self.subscriptions, limit).items():
            self.subscriptions[name].diverted.most = most

    # --- time ---

    def _beat(self, event: ev.Tick, now: float) -> list[Command]:
        commands: list[Command] = []
        self._sample(event, now)
        step = self._lease_step(now)
        for name, sub in self.subscriptions.items():
            commands += tick.ack_timeouts(sub, self.watches[name], event.progress, now)
            commands += tick.poison(sub, now)
            commands += self._ready(sub, now)
            commands += tick.reminders(sub, now)
            sub.failure_watch.beat(now)
            if sub.breaker is not None:
                outage.beat(sub, sub.breaker, self.holds, self.partitions, now)
            commands += worker_lifecycle.eviction(sub, event)
            left = [id_ for each, id_ in event.departed if each == name]
            commands += worker_lifecycle.departures(sub, left)
            worker_lifecycle.caught_up(sub)
            shared_workers.separate_hot(sub, now)
            commands += step.run(sub)
            commands += pause_rules.look_at_closed(self.holds, sub, len(self.partitions), now)
        if self._check_invariants:
            self.check()
        return commands

    def _sample(self, event: ev.Tick, now: float) -> None:
        """Update the counters that are sampled from time to time."""
        seconds = self.meters.beat(now, event.wall)
        # Records end long before a slow slice does, and are not reported until then.
        self._changed = self._changed or event.progress != self._progress
        self._progress = event.progress
        assigned = self.holds.assigned(self.partitions)
        self.meters.paused_seconds += seconds * len(self.holds.paused(assigned))
        for name, sub in self.subscriptions.items():
            tick.count(sub, event.late.get(name, 0), seconds)
