"""Commit schedule, commits in flight, denied commits, and stored entries.

Commits are asynchronous and one at a time: the next waits for the answer. A revoke and the stop
have no time for that. Requests of a client reach the coordinator in order, with one exception. The
client itself resends a request that met a coordinator that had moved. That request may be stored
over the later one, so the later one is sent once more. After a failed commit of several partitions
it is unknown which of them were stored. So each is sent again alone, never lower.

It is unknown, too, when they are stored. A request that the client has given up on may still wait
at a coordinator that stood still. It may then be stored over a later commit that was accepted in
between. So for a while after a failure, accepted commits are in *doubt*. Then the last accepted one
is sent once more.

A commit may be denied because a right is missing for a moment. A new access-control list takes time
to reach every broker, and an authorizer denies everything while it reloads. So a denied commit is
sent again like any other failed one. Denials are kept only for people to read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import NamedTuple

from kafka_keyshared.core.contract.commands import Command, Commit, CommitEntry, Notice
from kafka_keyshared.core.contract.commit_facts import CommitFailed, SettledSetCut
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult, Right
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.offsets.commit_metadata import Encoded
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, LogPosition
from kafka_keyshared.core.offsets.positions import OffsetSnapshot, PartitionState
from kafka_keyshared.core.offsets.text_limit import TextLimit
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition

AUTHORIZATION_TIMEOUT = 900.0
"""Default of ``authorization_timeout``, in seconds; an alert on failing commits comes before."""


class Denial(NamedTuple):
    """The right that a partition's commits lack, since when, and the broker's error."""

    right: Right
    since: float
    error: str


class Denials:
    """The partitions whose last commit was denied."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, Denial] = {}

    def denied(
        self, right: Right, partitions: Sequence[TopicPartition], error: str, now: float
    ) -> None:
        """Note a denied commit of these partitions.

        A topic right is not noted for a commit of several topics, which does not show which one
        lacks it. Each partition is sent again alone.
        """
        if right is Right.TOPIC and len({each.topic for each in partitions}) > 1:
            return
        for partition in partitions:
            known = self.partitions.get(partition)
            since = known.since if known is not None and known.right is right else now
            self.partitions[partition] = Denial(right, since, error)

    def accepted(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop the denials that an accepted commit disproves, also those of the group right."""
        self.over(partitions)
        of_group = [each for each, it in self.partitions.items() if it.right is Right.GROUP]
        self.over(of_group)

    def over(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that were accepted or are gone."""
        for partition in partitions:
            self.partitions.pop(partition, None)


@dataclass(frozen=True, slots=True)
class CommitPolicy:
    """How often to commit, in seconds.

    ``interval`` applies while there is work, ``idle`` after nothing has been outstanding for that
    long. ``spacing`` is the least time between two commits outside revoke and stop.
    """

    interval: float = 1.0
    idle: float = 0.1
    spacing: float = 0.2

    def check(self) -> None:
        """Raise :class:`ConfigError` for invalid times."""
        if not (self.interval > 0 and self.idle >= 0 and self.spacing >= 0):
            raise ConfigError(
                f"commit interval={self.interval}, idle={self.idle}, spacing={self.spacing}: "
                "give seconds, the interval above 0"
            )


def encode(
    snapshots: Mapping[TopicPartition, OffsetSnapshot],
    states: Mapping[TopicPartition, PartitionState],
    text_limit: TextLimit,
) -> tuple[dict[TopicPartition, CommitEntry], dict[TopicPartition, Encoded]]:
    """Return the entry to commit for each partition, and how its settled sets were written."""
    entries: dict[TopicPartition, CommitEntry] = {}
    encoded: dict[TopicPartition, Encoded] = {}
    budget, limit = text_limit.set_budget, text_limit.chars
    for partition, snapshot in snapshots.items():
        position, runs, leader_epoch, notes, running = snapshot
        state = states[partition]
        if running:
            nothing = LaneNotes()
            noted = {
                name: replace(notes.get(name, nothing), running=each)
                for name, each in running.items()
            }
            notes = {**notes, **noted}
        at = LogPosition(partition, position, state.topic_id)
        text = commit_metadata.encode(
            at, runs, state.unknown, notes, set_budget=budget, limit=limit
        )
        encoded[partition] = text
        settled = snapshot._replace(leader_epoch=-1, notes=dict(snapshot.notes), running={})
        entries[partition] = CommitEntry(
            position, text.text, leader_epoch, settled=settled, names=bool(running)
        )
    return entries, encoded


def longest_text(commit: Commit) -> int:
    """Return the length of the longest metadata in a commit, in characters."""
    return max((len(entry.metadata) for entry in commit.entries.values()), default=0)


class CutSets:
    """The partitions whose settled set was cut when it was written; each is logged once.

    The set was written under a larger budget before the partition came. Or it had grown before the
    brokers' limit was known. ``left_out`` counts the settled offsets that are in no commit.
    """

    def __init__(self) -> None:
        self._cut: dict[TopicPartition, int] = {}

    def note(self, encoded: Mapping[TopicPartition, Encoded]) -> list[Notice]:
        """Note how sets were written; return a notice for each set that is newly cut."""
        self.forget(each for each, text in encoded.items() if not text.truncated)
        new = [each for each, text in encoded.items() if text.truncated and each not in self._cut]
        self._cut.update((each, text.left_out) for each, text in encoded.items() if text.truncated)
        return [Notice(SettledSetCut(partition)) for partition in new]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned, or whose sets fit again."""
        for each in list(partitions):
            self._cut.pop(each, None)

    @property
    def left_out(self) -> int:
        """How many offsets settled beyond positions run again at a restart, by the last texts."""
        return sum(self._cut.values())


RETRY_AFTER = 1.0
"""Maximum seconds until a failed commit is sent again, however long the interval is."""

DOUBT = 10.0
"""Seconds in which a coordinator may still store a commit that the client has given up on.

The coordinator itself delays a commit for 5 s (``offsets.commit.timeout.ms``). One that stands
still loses its place after 9 s (``broker.session.timeout.ms``).
"""

NO_BEGINS: Mapping[TopicPartition, int | None] = MappingProxyType({})

UNANSWERED_MOST = 100
"""The first and the last half of them are kept. A broker may have stored an entry that was sent as
an outage began or as it ended; the entries in between reached no broker."""


@dataclass(slots=True)
class _Committed:
    accepted: CommitEntry | None = None
    sent: CommitEntry | None = None
    alone: bool = False
    # Whether a failed or overwritten entry has to be sent again as soon as possible.
    again: bool = False
    # The highest position ever sent; a failed commit may have been stored, too.
    highest: int = -1
    # Where the partition began when no position was committed for it.
    began: int | None = None
    # The last position wanted was lower than ``highest``, so it was not sent.
    behind: bool = False
    # Until then a failed commit may be stored over the accepted one.
    doubt_until: float | None = None
    # Entries sent since the last accepted one; the broker may have stored any of them.
    unanswered: list[CommitEntry] = field(default_factory=list)

    def sends(self, entry: CommitEntry) -> None:
        """Store an entry that is sent now."""
        self.sent = entry
        self.highest = entry.position
        if len(self.unanswered) == UNANSWERED_MOST:
            del self.unanswered[UNANSWERED_MOST // 2]
        self.unanswered.append(entry)

    def answered_up_to(self, entry: CommitEntry) -> None:
        """Drop the entries up to this one, which the broker has; later ones stay unanswered."""
        for at, each in enumerate(self.unanswered):
            if each is entry:
                del self.unanswered[: at + 1]
                return


@dataclass(slots=True)
class Failing:
    """Since when commits have failed, how many since then, and the last error.

    It lasts until every partition that has failed is accepted or gone. So commits that are accepted
    in between do not hide a partition that is refused again and again. A commit that failed because
    the group has moved on does not count: its positions belong to another member.
    """

    since: float | None = None
    in_a_row: int = 0
    error: str = ""
    partitions: set[TopicPartition] = field(default_factory=set)

    def failed(self, partitions: Iterable[TopicPartition], error: str, now: float) -> None:
        """Count one more failed commit of these partitions."""
        self.since = now if self.since is None else self.since
        self.in_a_row += 1
        self.error = error
        self.partitions.update(partitions)

    def over(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop partitions that were accepted, that are gone, or that need no commit."""
        self.partitions.difference_update(partitions)
        if not self.partitions:
            self.since, self.in_a_row, self.error = None, 0, ""


class Commits:
    """The commit state of all assigned partitions."""

    def __init__(self, policy: CommitPolicy) -> None:
        policy.check()
        self.policy = policy
        # With the states that it was planned from. A late answer for an earlier epoch of a
        # partition changes only that epoch's state, which is no longer used.
        self.in_flight: dict[Commit, dict[TopicPartition, _Committed]] = {}
        self._partitions: dict[TopicPartition, _Committed] = {}
        self.cut_sets = CutSets()
        self._last_sent = float("-inf")
        self._retry_at = float("-inf")
        # When the first doubt is over.
        self._sure_at = float("inf")
        self.retrying = False
        self.sent_count = 0
        self.accepted_count = 0
        self.failed_count = 0
        self.failing = Failing()
        self.denials = Denials()

    def due(
        self, now: float, *, changed: bool, idle_since: float | None, hurried: bool = False
    ) -> bool:
        """Return whether a snapshot should be taken now.

        ``idle_since`` is the time since which nothing has been outstanding, None while something
        is. A ``hurried`` commit waits for no interval, only for commits in flight and the back-off.
        """
        if self.in_flight or now < self._retry_at:
            return False
        if hurried or self.retrying or now >= self._sure_at:
            return True
        if not changed or now - self._last_sent < self.policy.spacing:
            return False
        if now - self._last_sent >= self.policy.interval:
            return True
        return idle_since is not None and now - idle_since >= self.policy.idle

    def owed(self) -> bool:
        """Return whether a commit has failed without which a record would run again.

        A denied commit that only says where its partition began does not count: nothing has settled
        there. A pattern may match a topic that this user may not read.
        """
        again = [each for each, state in self._partitions.items() if state.again]
        return self.retrying and not (again and all(map(self._only_begins, again)))

    def unbegun(self) -> int:
        """Return for how many partitions the group has no position because commits are denied."""
        return sum(map(self._only_begins, self._partitions))

    def _only_begins(self, partition: TopicPartition) -> bool:
        state = self._partitions[partition]
        return (
            partition in self.denials.partitions
            and state.accepted is None
            and state.began == state.highest
            and not any(each.metadata for each in state.unanswered)
        )

    def retry_now(self) -> bool:
        """Return whether a failed commit has to be sent again, regardless of the back-off."""
        return self.retrying and not self.in_flight

    def plan(
        self,
        entries: Mapping[TopicPartition, CommitEntry],
        now: float,
        *,
        final: bool = False,
        named: Collection[TopicPartition] = (),
    ) -> list[Commit]:
        """Return the commits that bring the broker from its known entries to ``entries``.

        A ``final`` plan leaves nothing in doubt, because there is no later one. If only the running
        records changed, only a ``final`` plan or a partition in ``named`` commits that.
        """
        together: dict[TopicPartition, CommitEntry] = {}
        commits: list[Commit] = []
        for partition, entry in entries.items():
            state = self._partitions.setdefault(partition, _Committed())
            state.again = False
            known = state.sent or state.accepted
            state.behind = entry.position < state.highest
            doubted = state.doubt_until is not None and (final or now >= state.doubt_until)
            same = entry == known or (
                known is not None
                and not (final or partition in named)
                and entry.only_names_others(known)
            )
            if state.behind or (same and not (state.alone or doubted)):
                if state.behind and partition in self.failing.partitions:
                    self.failing.over([partition])  # a lower position is never sent
                continue
            if doubted:
                state.doubt_until = None
            state.sends(entry)
            if state.alone:
                commits.append(Commit({partition: entry}))
            else:
                together[partition] = entry
        if together:
            commits.append(Commit(together))
        if now >= self._sure_at:
            # The partitions left out of this one are still to be confirmed, but not in every turn.
            soon = now + self.policy.interval
            doubts = {each: state.doubt_until or 0.0 for each, state in self._partitions.items()}
            left = (max(at, soon) for each, at in doubts.items() if at and each not in entries)
            later = (at for at in doubts.values() if at > now)
            self._sure_at = min((*left, *later), default=float("inf"))
        self._last_sent = now
        # A commit of some partitions, at a revoke, does nothing for the others.
        self.retrying = any(each.again for each in self._partitions.values())
        for commit in commits:
            self.in_flight[commit] = {each: self._partitions[each] for each in commit.entries}
        self.sent_count += len(commits)
        return commits

    def carrying(self) -> dict[Commit, list[TopicPartition]]:
        """Return for each commit in flight the partitions for which it was sent last."""
        return {
            commit: [each for each, state in states.items() if state.sent is commit.entries[each]]
            for commit, states in self.in_flight.items()
        }

    def behind(self) -> list[TopicPartition]:
        """Return the partitions whose last position was not sent because it was lower."""
        return [partition for partition, state in self._partitions.items() if state.behind]

    def restart(
        self,
        starts: Mapping[TopicPartition, CommitEntry | None],
        begins: Mapping[TopicPartition, int | None] = NO_BEGINS,
    ) -> None:
        """Take over newly assigned partitions with the entries that the broker has for them.

        ``begins`` are the offsets at which reading begins, where they are known.
        """
        for partition, entry in starts.items():
            highest = -1 if entry is None else entry.position
            began = begins.get(partition) if entry is None else None
            self._partitions[partition] = _Committed(entry, highest=highest, began=began)

    def forget(self, partitions: Collection[TopicPartition]) -> None:
        """Drop partitions that are no longer assigned."""
        for partition in partitions:
            self._partitions.pop(partition, None)
        self.cut_sets.forget(partitions)
        self.failing.over(partitions)
        self.denials.over(partitions)

    def committed(self, partition: TopicPartition) -> int | None:
        """Return the position that the broker accepted, None when none is known."""
        state = self._partitions.get(partition)
        return state.accepted.position if state and state.accepted else None

    def ours(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, list[CommitEntry]]:
        """Return for each partition every entry that the broker may have from this member."""
        return {
            partition: [*state.unanswered, *([state.accepted] if state.accepted else [])]
            for partition in partitions
            if (state := self._partitions.get(partition)) is not None
        }

    def answered(self, answer: CommitAnswer, now: float) -> list[Command]:
        """Take the broker's answer; a failure never counts as committed."""
        states = self.in_flight.pop(answer.commit, {})
        if answer.result is CommitResult.ACCEPTED:
            self.failing.over(answer.commit.entries)
            self.denials.accepted(answer.commit.entries)
            self._accept(answer.commit, states)
            return []
        self.failed_count += 1
        here = [each for each, state in states.items() if self._partitions.get(each) is state]
        if answer.result is not CommitResult.LOST and here:
            self.failing.failed(here, answer.error, now)
        for partition, state in states.items():
            if state.sent is answer.commit.entries[partition]:
                state.sent = None
        partitions = sorted(answer.commit.entries)
        if answer.result is CommitResult.LOST:
            self._leave_doubt(answer.commit, now)
            return [Notice(CommitFailed(partitions, answer.error, refused=True))]
        if answer.result is CommitResult.TOO_LARGE and longest_text(answer.commit):
            # At once, and with the shorter texts that follow from the lower limit.
            self._send_alone(states, now)
            return []
        self._send_alone(states, now + min(self.policy.interval, RETRY_AFTER))
        for state in states.values():
            state.doubt_until = now + DOUBT
        self._sure_at = min(self._sure_at, now + DOUBT)
        if answer.result is CommitResult.DENIED and answer.right is not None and here:
            known = self.denials.partitions.keys() >= set(here)
            self.denials.denied(answer.right, here, answer.error, now)
            self.failing.over(filter(self._only_begins, here))
            if known:
                return []  # the owner logs a missing right once a minute, not for each commit
        return [Notice(CommitFailed(partitions, answer.error, refused=False))]

    def _accept(self, commit: Commit, states: Mapping[TopicPartition, _Committed]) -> None:
        self.accepted_count += 1
        for partition, state in states.items():
            entry = commit.entries[partition]
            state.accepted = entry
            state.answered_up_to(entry)
            state.alone = False
            if state.sent is entry:
                state.sent = None
            elif state.sent is None and self._partitions.get(partition) is state:
                # A later one was answered before, so the broker now has this older one.
                self.retrying = state.again = True

    def _leave_doubt(self, refused: Commit, now: float) -> None:
        """Confirm accepted entries again, where a refused commit was to confirm them."""
        for partition, entry in refused.entries.items():
            state = self._partitions.get(partition)
            if state is not None and state.sent is None and state.accepted == entry:
                state.doubt_until = now + self.policy.interval
                self._sure_at = min(self._sure_at, state.doubt_until)

    def _send_alone(self, states: Mapping[TopicPartition, _Committed], at: float) -> None:
        for partition, state in states.items():
            state.alone = True
            if self._partitions.get(partition) is state:
                self.retrying = state.again = True
        self._retry_at = at
