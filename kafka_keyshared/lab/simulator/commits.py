"""Commits in flight, and the commits that the simulated group has stored.

The outcome of a commit is drawn when it is sent. Commits are stored in the order in which they were
sent. Exceptions are commits that the client itself repeats, and commits that stay unanswered.
"""

from __future__ import annotations

import enum
from collections import deque
from itertools import chain

from confluent_kafka import KafkaError

from kafka_keyshared.client.port import CommittedOffset, classify_commit, refused_right
from kafka_keyshared.core.contract.commands import Commit
from kafka_keyshared.core.contract.events import CommitAnswer
from kafka_keyshared.lab.simulator.client import ClusterPort, SimClient
from kafka_keyshared.lab.simulator.commit_text import CommitTextError, read_commit, read_notes
from kafka_keyshared.lab.simulator.group import NO_ERROR, Seat
from kafka_keyshared.lab.simulator.history import CommitRequested, CommitStored, CommitTold
from kafka_keyshared.lab.simulator.member_events import TextCopied
from kafka_keyshared.model import TopicPartition

LATE = 3.0
"""Most seconds by which a commit is late that the client repeats."""

REFUSALS = (
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    KafkaError.REQUEST_TIMED_OUT,
)
"""Errors that may refuse a commit at any time. It is worth sending again."""


class CommitFate(enum.Enum):
    """Outcomes of a commit that chance decides; see :class:`~.fault_rates.Faults`."""

    STORED = "stored"
    REFUSED = "refused"
    PARTLY = "partly"
    UNHEARD = "unheard"
    DROPPED = "dropped"
    LATE = "late"
    GIVEN_UP = "given up"


AGAIN_AFTER = (0.1, 0.25)
"""Seconds until the client has repeated an unanswered commit over a new connection."""


class SentCommit:
    """A commit in flight. ``told`` is set once the client has its answer, or will get it.

    ``again`` is set once the client has repeated it unchanged, because no answer came in time.
    """

    __slots__ = (
        "again",
        "client",
        "commit",
        "entries",
        "fate",
        "generation",
        "made",
        "number",
        "seat",
        "told",
    )

    def __init__(self, client: SimClient, commit: Commit, number: int, fate: CommitFate) -> None:
        self.client = client
        self.commit = commit
        self.number = number
        self.fate = fate
        self.seat: Seat | None = client.membership.seat
        self.generation = client.membership.generation
        self.told = self.again = False
        # The log of each entry, as far as its member knows.
        self.made = {each: client.fetcher.made(each) for each in commit.entries}
        # With the leader epochs.
        self.entries = {
            partition: CommittedOffset(
                entry.position, entry.metadata, client.epoch_at(partition, entry)
            )
            for partition, entry in commit.entries.items()
        }


class ClientCommits:
    """The commits of all clients, and the stored ones.

    ``next_fates`` are the outcomes of the next commits, before any is drawn.
    """

    def __init__(self, cluster: ClusterPort) -> None:
        self._cluster = cluster
        self._timeline = cluster.timeline
        self._chance = cluster.chance("commits")
        self._sent = 0
        # Commits that may still be stored.
        self._on_their_way: dict[int, SentCommit] = {}
        self.stored: dict[TopicPartition, CommittedOffset] = {}
        # The log of each stored commit.
        self._made: dict[TopicPartition, int] = {}
        self.next_fates: deque[CommitFate] = deque()

    def store(self, partition: TopicPartition, position: int, metadata: str | None) -> None:
        """Store a commit that another program has made for the group."""
        self.stored[partition] = CommittedOffset(position, metadata)

    def copy_text(self, partition: TopicPartition, text: str, kind: str) -> None:
        """Overwrite the text of a partition, as a tool does. Its position stays."""
        position = self.stored[partition].position or 0
        self.stored[partition] = CommittedOffset(position, text)
        self._cluster.history.tell(TextCopied(partition, position, text, kind))

    def forget(self, topic: str) -> None:
        """Delete the commits for a topic, as the broker does with the topic itself."""
        for partition in [each for each in self.stored if each.topic == topic]:
            del self.stored[partition]

    def of_another_log(self, partition: TopicPartition) -> bool:
        """Return whether a commit of it, stored or in flight, is of another log.

        Only offsets beyond the part that both logs share count. Below, the commit is true of the
        current log too.
        """
        log = self._cluster.log(partition)
        entries = [
            (each.entries[partition], each.made[partition])
            for each in self._on_their_way.values()
            if partition in each.entries and not each.client.link.dead
        ]
        if partition in self.stored:
            entries.append((self.stored[partition], self._made.get(partition, log.made)))
        return any(_reach(entry) > min(log.end, log.shared(made)) for entry, made in entries)

    def send(self, client: SimClient, commit: Commit) -> None:
        """Take a commit. The answer comes to a later poll of the client."""
        self._sent += 1
        sent = SentCommit(client, commit, self._sent, self._fate())
        entries = {each: (entry.position, entry.metadata) for each, entry in commit.entries.items()}
        self._cluster.history.tell(CommitRequested(client.member, sent.number, entries))
        client.in_flight[sent.number] = sent
        if sent.fate is not CommitFate.DROPPED:
            self._on_their_way[sent.number] = sent
        if sent.fate is CommitFate.DROPPED:
            self._fail_later(sent)
        elif sent.fate is CommitFate.LATE:
            self._later(sent)
        else:
            client.link.ask(lambda: self._arrive(sent))
        if not client.link.coordinated():
            self._fail_unless_answered(sent)

    def _fate(self) -> CommitFate:
        if self.next_fates:
            return self.next_fates.popleft()
        faults = self._cluster.faults
        roll = self._chance.random()
        for fate, share in (
            (CommitFate.REFUSED, faults.commit_refused),
            (CommitFate.PARTLY, faults.commit_partly),
            (CommitFate.UNHEARD, faults.commit_unheard),
            (CommitFate.DROPPED, faults.commit_dropped),
            (CommitFate.LATE, faults.commit_late),
            (CommitFate.GIVEN_UP, faults.commit_given_up),
        ):
            if roll < share:
                return fate
            roll -= share
        return CommitFate.STORED

    def _later(self, sent: SentCommit) -> None:
        """Let it arrive on another way, behind commits that were sent after it."""

        def arrive() -> None:
            if self._cluster.coordinator_there():
                self._arrive(sent)
            else:
                self._later(sent)

        self._timeline.after(self._chance.random() * LATE, arrive)

    # --- at the coordinator ---

    def _arrive(self, sent: SentCommit) -> None:
        if sent.fate is CommitFate.GIVEN_UP and not sent.told:
            self._answer(sent, KafkaError._TIMED_OUT)
            self._later(sent)
            return
        seat = sent.seat
        if seat is not None and seat.joined:
            self._wait_behind_join(sent, seat)
        else:
            self._decide(sent)

    def _wait_behind_join(self, sent: SentCommit, seat: Seat) -> None:
        """Queue it behind the member's JoinGroup, which the connection answers first.

        That takes as long as the slowest member. A client that waits for too long breaks the
        connection, and repeats the commit at once. The JoinGroup follows later.
        """

        def decide() -> None:
            self._decide(sent)

        def out_of_time() -> None:
            if decide in seat.behind_join:
                seat.behind_join.remove(decide)
                sent.again = True
                self._timeline.after(self._chance.uniform(*AGAIN_AFTER), decide)

        seat.behind_join.append(decide)
        self._timeline.after(self._cluster.settings.request_timeout, out_of_time)

    def _decide(self, sent: SentCommit) -> None:
        """Store or refuse it, and answer."""
        self._on_their_way.pop(sent.number, None)
        code = self._refusal(sent)
        if code == NO_ERROR:
            code = self._store(sent)
        if sent.fate is CommitFate.UNHEARD:
            self._fail_later(sent)
        elif not sent.told:
            self._answer(sent, code)

    def _refusal(self, sent: SentCommit) -> int:
        if self._cluster.rights.group:
            return KafkaError.GROUP_AUTHORIZATION_FAILED
        if sent.seat is not None:
            code = self._cluster.group.check(sent.seat, sent.generation)
            if code != NO_ERROR:
                return code
        elif sent.client.membership.subscribed:
            return KafkaError._ASSIGNMENT_LOST
        elif self._cluster.group.seats:
            return KafkaError.UNKNOWN_MEMBER_ID
        return self._chance.choice(REFUSALS) if sent.fate is CommitFate.REFUSED else NO_ERROR

    def _store(self, sent: SentCommit) -> int:
        """Store each partition by itself; return the code of the first refusal."""
        code = NO_ERROR
        refused = (
            self._chance.randrange(len(sent.entries)) if sent.fate is CommitFate.PARTLY else -1
        )
        kept = {}
        for at, (partition, entry) in enumerate(sent.entries.items()):
            if sent.client.link.dead and sent.made[partition] != self._cluster.log(partition).made:
                continue  # ``Cluster.known`` ignores it, because its sender is dead
            # The binding adds a NUL.
            units = len((entry.metadata or "").encode("utf-16-le")) // 2 + 1
            if partition.topic in self._cluster.rights.commits:
                code = code or KafkaError.TOPIC_AUTHORIZATION_FAILED
            elif units > self._cluster.metadata_max:
                code = code or KafkaError.OFFSET_METADATA_TOO_LARGE
            elif at == refused:
                code = code or KafkaError.UNKNOWN_TOPIC_OR_PART
            else:
                kept[partition] = entry
                self._made[partition] = sent.made[partition]
        self.stored.update(kept)
        if kept:
            told = {
                each: (entry.position or 0, entry.metadata or "") for each, entry in kept.items()
            }
            self._cluster.history.tell(CommitStored(sent.client.member, sent.number, told))
        return code

    # --- the answer ---

    def _answer(self, sent: SentCommit, code: int) -> None:
        sent.told = True
        sent.client.link.hear(lambda: self._told(sent, code))

    def _fail_later(self, sent: SentCommit) -> None:
        """Report after a while that no answer came."""

        def fail() -> None:
            if not sent.told:
                sent.told = True
                self._told(sent, KafkaError._TIMED_OUT)

        self._timeline.after(self._chance.random() * LATE, fail)

    def _fail_unless_answered(self, sent: SentCommit) -> None:
        """Give up on an unreachable coordinator. The commit may be stored all the same."""

        def fail() -> None:
            if not sent.told:
                sent.told = True
                self._told(sent, KafkaError._WAIT_COORD)

        self._timeline.after(self._cluster.settings.session_timeout, fail)

    def _told(self, sent: SentCommit, code: int) -> None:
        """Queue the answer for the next poll, and let the client react to it."""
        client = sent.client
        if client.link.dead:
            return
        error = KafkaError(code) if code != NO_ERROR else None
        result = classify_commit(error)
        text, right = "" if error is None else str(error), refused_right(error)
        answered = CommitAnswer(sent.commit, result, text, right)

        def tell() -> None:
            del client.in_flight[sent.number]
            self._cluster.history.tell(CommitTold(client.member, sent.number, str(result)))
            client.answer(answered)

        client.membership.ops.append(tell)
        if code == KafkaError.UNKNOWN_MEMBER_ID and sent.seat is client.membership.seat:
            client.membership.lose()
        elif code == KafkaError.ILLEGAL_GENERATION and sent.seat is client.membership.seat:
            client.membership.aged(unheard=sent.again)


def _reach(entry: CommittedOffset) -> int:
    """Return the position after the last offset that it mentions."""
    position, text = entry.position or 0, entry.metadata or ""
    try:
        settled, notes = read_commit(text, position), read_notes(text, position)
    except CommitTextError:
        return position
    offsets = [*chain(*settled.values()), *chain(*(each.tried for each in notes.values()))]
    return max((position, *(each + 1 for each in offsets)))
