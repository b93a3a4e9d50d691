"""A split consumer as a whole, without a broker: members, commits, the end, and what fails."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared import ConfigError, Consumer, KeyShared, KeySharedError, split
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.runtime import split as module
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.split import Split, SplitMember
from tests.support.offline import CONF, OfflineBroker
from tests.support.records import P0, record

WAIT = 60.0


def divided(
    broker: OfflineBroker, members: int = 1, *, auto_ack: bool = False, **options: Any
) -> Split:
    """An instance that is split, already running."""
    given = {"commit_interval": 0.05, **options}
    app = KeyShared(CONF, ["orders"], workers=f"split:{members}", hooks=broker.hooks, **given)
    return Split(app, members, auto_ack=auto_ack)


def received(member: SplitMember, count: int) -> list[Message]:
    """Poll until so many records have come."""
    found: list[Message] = []
    while len(found) < count:
        got = member.poll(WAIT)
        assert got is not None, f"only {len(found)} of {count} came"
        found.append(got)
    return found


@pytest.fixture
def broker() -> OfflineBroker:
    return OfflineBroker(*(record(offset) for offset in range(5)))


def test_what_is_committed_is_what_the_member_says_is_done(broker: OfflineBroker) -> None:
    with divided(broker) as members:
        got = received(members[0], 5)
        assert [each.offset() for each in got] == [0, 1, 2, 3, 4]
        members[0].commit(got[2])
        assert broker.wait_for(3)
        members[0].commit(offsets=[ClientPartition(*P0, 4)])
        assert broker.wait_for(4)
        members[0].store_offsets(got[4])
        assert broker.wait_for(5)
    assert max(broker.positions()) == 5
    assert members.status == 0
    assert broker.closed == 1


def test_a_commit_without_a_message_is_of_everything_received(broker: OfflineBroker) -> None:
    with divided(broker) as members:
        got = members[0].consume(2, WAIT)
        members[0].commit(asynchronous=False)
        assert broker.wait_for(len(got))
    assert max(broker.positions()) == len(got)


def test_with_auto_ack_a_poll_settles_what_the_one_before_it_returned(
    broker: OfflineBroker,
) -> None:
    with divided(broker, auto_ack=True) as members:
        received(members[0], 3)
        assert broker.wait_for(2)
    assert max(broker.positions()) == 2, "the last one may still be in work"


def test_a_member_settles_nothing_twice_and_nothing_that_is_not_its_own(
    broker: OfflineBroker,
) -> None:
    foreign: Any = record(4)
    with divided(broker) as members:
        got = received(members[0], 3)
        members[0].commit(foreign)
        members[0].commit(got[0])
        members[0].commit(got[0])
        assert broker.wait_for(1)
    assert max(broker.positions()) == 1


def test_a_commit_takes_a_message_or_offsets(broker: OfflineBroker) -> None:
    with divided(broker) as members:
        (got,) = received(members[0], 1)
        with pytest.raises(ConfigError, match="not both"):
            members[0].commit(got, [ClientPartition(*P0, 1)])
        with pytest.raises(ConfigError, match="was not received from a topic"):
            members[0].commit(Message())
        assert broker.positions() in ([], [0])


def test_the_members_of_a_split_are_a_sequence(broker: OfflineBroker) -> None:
    with divided(broker, 3) as members:
        assert len(members) == 3
        assert [each.name for each in members] == ["worker-0", "worker-1", "worker-2"]
        assert members[1:] == [members[1], members[2]]


def test_a_member_that_leaves_hands_on_what_it_has_not_settled() -> None:
    broker = OfflineBroker(*(record(offset, f"key-{offset}") for offset in range(40)))
    with divided(broker, 2) as members:
        first, second = members
        with first:
            mine = {each.offset() for each in first.consume(40, WAIT)}
        seen: set[int | None] = set()
        while len(seen) < 40:
            got = second.poll(WAIT)
            assert got is not None
            seen.add(got.offset())
            second.commit(got)
        assert mine
        assert mine < seen
        assert broker.wait_for(40)


def test_after_a_clean_end_a_member_gets_nothing_and_does_not_wait(broker: OfflineBroker) -> None:
    members = divided(broker)
    received(members[0], 5)
    assert members.close(WAIT) == 0
    assert members[0].poll() is None
    assert members[0].consume(3) == []


def ended(broker: OfflineBroker) -> Split:
    """A split whose instance has ended by itself, as its member has noticed."""
    members = divided(broker)
    with pytest.raises(KeySharedError, match="worker-0: the instance has failed"):
        received(members[0], 6)
    return members


def test_what_the_instance_failed_with_reaches_members_and_close(broker: OfflineBroker) -> None:
    def breaks(loop: Loop) -> None:
        if loop.core.outstanding():
            raise InvariantError("planted")

    failing = OfflineBroker(*broker.records, stepped=breaks)
    members = ended(failing)
    for _ in range(2):
        with pytest.raises(KeySharedError, match="planted"):
            members[0].poll(WAIT)
    with pytest.raises(InvariantError, match="planted"):
        members.close(WAIT)
    assert failing.closed == 1


def test_an_instance_that_has_to_halt_is_a_failure_too(broker: OfflineBroker) -> None:
    def halts(loop: Loop) -> None:
        if loop.core.outstanding():
            loop.halted = "no right to read"

    members = ended(OfflineBroker(*broker.records, stepped=halts))
    with pytest.raises(KeySharedError, match="it had to halt: no right to read"):
        members.close(WAIT)


def test_an_instance_that_does_not_even_start_lets_no_member_wait(broker: OfflineBroker) -> None:
    app = KeyShared(CONF, ["orders"], workers="split:1", hooks=broker.hooks)
    app.handler(print)
    members = Split(app, 1, auto_ack=False)
    with pytest.raises(KeySharedError, match="and a handler: members ask for records"):
        members[0].poll(WAIT)
    with pytest.raises(ConfigError):
        members.close(WAIT)


# --- split() itself ---


@pytest.fixture
def consumer() -> Iterator[Consumer]:
    made = Consumer(dict(CONF))
    yield made
    made.release()
    made.close()


def test_a_split_into_nobody_is_refused(consumer: Consumer) -> None:
    with pytest.raises(ConfigError, match="split into 0 members"):
        split(consumer, 0, topics=["orders"])


def test_split_takes_over_a_consumer_and_gives_its_options_to_the_instance(
    consumer: Consumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[tuple[KeyShared, int, bool]] = []

    def keep(app: KeyShared, members: int, *, auto_ack: bool) -> None:
        made.append((app, members, auto_ack))

    monkeypatch.setattr(module, "Split", keep)
    consumer.subscribe(["orders"])
    split(consumer, 3, auto_ack=True, window_records=77)
    ((app, members, auto_ack),) = made
    assert (members, auto_ack) == (3, True)
    assert (app.topics, app.options.workers, app.options.window_records) == (
        ["orders"],
        "split:3",
        77,
    )
    assert consumer.has_owner
