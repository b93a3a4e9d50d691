"""What the driver's member commits, and what it does not, where the group goes on without it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import Any

import pytest

from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitAnswer, CommitResult
from kafka_keyshared.errors import KeySharedError, TopicMissingError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.driver import group
from kafka_keyshared.spark.driver.group import GroupLostError, SoleMember
from kafka_keyshared.spark.driver.stop import Stop
from tests.support.loop_ports import IdsTold

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH = [P0, P1]
ACCEPTED = (CommitResult.ACCEPTED, "")
UNKNOWN = (CommitResult.RETRY, "KafkaError{code=UNKNOWN_TOPIC_OR_PART,val=3}")
ENTRIES = {P0: CommitEntry(5, ""), P1: CommitEntry(7, "")}


class Client:
    """A client whose group does what the test says; callbacks run inside ``poll``, as theirs do."""

    made: Client

    def __init__(self, conf: Any, topics: Any, answer: Callable[[CommitAnswer], None]) -> None:
        Client.made = self
        self.consumer = None
        self.committed_here: list[Commit] = []
        self.answers: dict[int, tuple[CommitResult, str]] = {}
        self.stands: dict[TopicPartition, tuple[int | None, str | None, int]] = {}
        self.bounds: dict[TopicPartition, tuple[int, int, int]] = {}
        self.ids: dict[str, str] | None = {}
        self.starts_at_end = self.halts_out_of_range = False
        self._answer = answer
        self._due: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def check_topics(self, timeout: float) -> None: ...

    def subscribe(self, on_assign: Any, on_revoke: Any, on_lost: Any) -> None:
        self.on_assign, self.on_revoke, self.on_lost = on_assign, on_revoke, on_lost
        self.happens(lambda: on_assign(BOTH))

    def happens(self, *steps: Callable[[], None]) -> None:
        for step in steps:
            self._due.put(step)

    def poll(self, timeout: float) -> None:
        while not self._due.empty():
            self._due.get()()

    def assign(self, positions: Mapping[TopicPartition, int | None]) -> None: ...

    def pause(self, partitions: Any) -> None: ...

    def released(self, partitions: Any) -> None: ...

    def commit(self, commit: Commit) -> None:
        self.committed_here.append(commit)
        answer = CommitAnswer(commit, *self.answers.get(len(self.committed_here), ACCEPTED))
        self.happens(lambda: self._answer(answer))

    def committed(self, partitions: Any, timeout: float) -> Any:
        return self.stands

    def log_bounds(self, partitions: Any, timeout: float) -> Any:
        return self.bounds

    def ask_topic_ids(self, topics: Any) -> IdsTold:
        return IdsTold(self.ids)

    def close(self) -> None: ...


@pytest.fixture
def joins(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., SoleMember]]:
    monkeypatch.setattr(group, "KafkaClient", Client)
    monkeypatch.setattr(group, "refuse_active", lambda conf: None)
    monkeypatch.setattr(group, "partitions_of", lambda consumer, topics: BOTH)
    monkeypatch.setattr(group, "_POLL", 0.001)
    members: list[SoleMember] = []

    def join(lost: Callable[[], None] = lambda: None, **conf: Any) -> SoleMember:
        member = SoleMember({"group.id": "g", **conf}, ["t"], lost)
        members.append(member.__enter__())
        return member

    yield join
    for member in members:
        member.close()


def waited(event: threading.Event) -> None:
    assert event.wait(30)


def test_a_batch_is_committed_while_its_partitions_are_asked_back(
    joins: Callable[..., SoleMember],
) -> None:
    member = joins()
    assert member.begin()
    client = Client.made
    asked, revoked = threading.Event(), threading.Event()
    client.happens(asked.set, lambda: client.on_revoke(BOTH), revoked.set)
    waited(asked)
    member.commit(ENTRIES)
    waited(revoked)
    assert [each.entries for each in client.committed_here] == [ENTRIES]
    assert not member.begin(), "and no other batch begins"


def test_a_batch_that_is_late_for_who_has_joined_is_given_up_and_not_committed(
    joins: Callable[..., SoleMember],
) -> None:
    """Whoever has the partitions has gone on in them, and would be set back."""
    lost, revoked = threading.Event(), threading.Event()
    member = joins(lost.set, **{"max.poll.interval.ms": 10})
    assert member.begin()
    client = Client.made
    client.happens(lambda: client.on_revoke(BOTH), revoked.set)
    waited(lost)
    waited(revoked)
    with pytest.raises(GroupLostError, match=r"not ended within 0 s.*--batch-offsets"):
        member.commit(ENTRIES)
    with pytest.raises(GroupLostError):
        member.refuse_failed()
    assert client.committed_here == []


def test_a_member_that_was_lost_and_has_joined_again_commits_nothing_of_before(
    joins: Callable[..., SoleMember],
) -> None:
    """The batch ran under a session that is over; the new one would let it set others back."""
    lost, again = threading.Event(), threading.Event()
    member = joins(lost.set)
    assert member.begin()
    client = Client.made
    client.happens(lambda: client.on_lost(BOTH))
    client.happens(lambda: client.on_assign(BOTH), again.set)
    waited(lost)
    waited(again)
    with pytest.raises(GroupLostError, match="to others"):
        member.commit(ENTRIES)
    assert client.committed_here == []


def test_what_begins_after_the_membership_was_lost_is_ended_too(
    joins: Callable[..., SoleMember],
) -> None:
    """A batch that was still being planned has no jobs that could be cancelled."""
    told: SimpleQueue[int] = SimpleQueue()
    joins(lambda: told.put(1))
    Client.made.happens(lambda: Client.made.on_lost(BOTH))
    assert [told.get(timeout=30) for _ in range(3)] == [1, 1, 1]


def test_a_partition_that_is_anothers_is_not_committed(joins: Callable[..., SoleMember]) -> None:
    """As where a group that assigns bit by bit has taken one of them between two batches."""
    member = joins()
    client = Client.made
    revoked = threading.Event()
    client.happens(lambda: client.on_revoke([P1]), revoked.set)
    waited(revoked)
    with pytest.raises(GroupLostError, match="other members own its partitions now"):
        member.commit(ENTRIES)
    assert client.committed_here == []


def test_a_log_that_ends_before_the_groups_position_is_refused(
    joins: Callable[..., SoleMember],
) -> None:
    """There would seem to be nothing to do, and what a topic made anew has would be left out."""
    member = joins()
    Client.made.stands = {P0: (100, None, 1), P1: (3, None, 1)}
    Client.made.bounds = {P0: (0, 40, 1), P1: (0, 40, 1)}
    with pytest.raises(KeySharedError, match=r"t-0: the group stands at 100, .* ends at 40"):
        member.starts()
    Client.made.bounds[P0] = (0, 100, 1)
    starts, untold = member.starts()
    assert ({each: at.position for each, at in starts.items()}, untold) == ({P0: 100, P1: 3}, set())


def test_who_is_stopped_twice_gives_its_batch_up_and_commits_nothing_of_it(
    joins: Callable[..., SoleMember],
) -> None:
    """Asked once, the batch that runs is still committed."""
    lost = threading.Event()
    now = 50.0
    stop = Stop(lambda: now)
    member = stop.ends(joins(lost.set))
    assert not stop.wait(0)
    assert member.begin()
    stop.ask()
    assert stop.wait(30)
    member.commit(ENTRIES)
    assert [each.entries for each in Client.made.committed_here] == [ENTRIES]
    assert not lost.is_set()
    now += 1.0
    stop.ask()
    waited(lost)
    with pytest.raises(KeySharedError, match="stopped twice: the running batch is given up"):
        member.commit(ENTRIES)
    assert len(Client.made.committed_here) == 1


def test_requests_to_stop_within_a_second_are_one(joins: Callable[..., SoleMember]) -> None:
    """GNU timeout signals its child twice: once directly, once through the process group."""
    lost = threading.Event()
    times = iter([50.0, 50.001, 50.999])
    stop = Stop(lambda: next(times))
    member = stop.ends(joins(lost.set))
    assert member.begin()
    for _ in range(3):
        stop.ask()
    member.commit(ENTRIES)
    member.refuse_failed()
    assert not lost.is_set()
    assert [each.entries for each in Client.made.committed_here] == [ENTRIES]


def test_a_topic_that_stays_unknown_ends_a_commit_and_one_that_is_late_does_not(
    joins: Callable[..., SoleMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A topic that was deleted does not come back by asking for a minute."""
    member = joins()
    Client.made.answers = {1: UNKNOWN}
    member.commit(ENTRIES)
    assert len(Client.made.committed_here) == 2
    monkeypatch.setattr(group, "UNKNOWN_FOR", 0.0)
    Client.made.answers = {3: UNKNOWN, 4: (CommitResult.RETRY, "busy"), 5: UNKNOWN, 6: UNKNOWN}
    with pytest.raises(TopicMissingError, match=r"one of its topics \(t\) was deleted while"):
        member.commit(ENTRIES)
    assert len(Client.made.committed_here) == 6
