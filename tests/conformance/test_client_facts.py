"""What the client was seen to do, asked of the simulated one and of the real one alike.

Rows of the table of client facts in ``docs/internals/client-behavior.md`` that need more of a
cluster than records: transactions, commits, retention, brokers that go away. Each runs on the
clusters that can do it; nothing that the simulation makes up may be kinder than what is measured
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import Client, Committed, EventKind, LogBounds, classify_event
from kafka_keyshared.core.contract.commands import Commit, CommitEntry
from kafka_keyshared.core.contract.events import CommitResult, Right
from kafka_keyshared.model import Record, TopicPartition
from kafka_keyshared.testing.clusters.embedded import EmbeddedCluster
from tests.conformance.client_sides import PATIENCE, Real, Simulated, World, offsets, read, take

Make = Callable[..., World]


def over(*kinds: str) -> pytest.MarkDecorator:
    """Run the test over these clients."""
    return pytest.mark.parametrize("kind", kinds)


@pytest.fixture
def make(kind: str, topic: str, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Make the client under test; with ``brokers`` over an embedded cluster of its own."""
    with ExitStack() as stack:

        def made(*, protocol: str = "eager", brokers: int = 0, **options: Any) -> World:
            side: World
            if kind == "simulated":
                side = Simulated(protocol=protocol, **options)
            elif brokers:
                own = stack.enter_context(EmbeddedCluster(brokers))
                side = Real(own, topic, protocol=protocol, **options)
            elif kind == "secured":
                secured = request.getfixturevalue("secured")
                own = secured.cluster
                side = Real(own, topic, protocol=protocol, secured=secured, **options)
            else:
                cluster = request.getfixturevalue(f"{kind}_cluster")
                side = Real(cluster, topic, protocol=protocol, **options)
            stack.callback(side.close)
            return side

        yield made


def await_answers(side: World, count: int) -> list[CommitResult]:
    """Poll until so many commits are answered; return what was said."""
    deadline = side.now() + PATIENCE
    while len(side.answers) < count:
        assert side.now() < deadline, side.answers
        side.client.poll(0.05)
    return [each.result for each in side.answers]


def committed(side: World, *partitions: TopicPartition) -> Committed:
    """Ask until it is answered: a new cluster refuses that for a moment."""
    deadline = side.now() + PATIENCE
    while True:
        try:
            return side.client.committed(partitions, 10.0)
        except KafkaException:
            assert side.now() < deadline, "the group has had no coordinator for a minute"


def await_event(side: World, wanted: EventKind) -> Record:
    """Poll until the client says that; nothing else but records may come before it."""
    found = take(side, lambda found: any(_is(each, wanted) for each in found))
    return next(each for each in found if _is(each, wanted))


def _is(record: Record, wanted: EventKind) -> bool:
    return record.error() is not None and classify_event(record.error()) is wanted


# --- fetching ---


@over("simulated", "embedded", "real")
def test_a_poll_returns_with_the_first_record_and_a_consume_with_what_is_there(make: Make) -> None:
    side = make()
    side.write(side.first, 5)
    side.client.assign({side.first: 0})
    first = side.client.poll(PATIENCE)
    assert first is not None
    found = [first.offset()]
    deadline = side.now() + PATIENCE
    while len(found) < 5:
        assert side.now() < deadline, "for ever, if it waited for the thousand"
        side.meanwhile()
        found += offsets(side.client.consume(1_000), side.first)
    assert found == [0, 1, 2, 3, 4]
    began = side.now()
    assert side.client.poll(0.3) is None
    assert side.now() - began > 0.25, "it waits for something to come"


@over("simulated", "embedded")
def test_a_resume_fetches_again_what_the_pause_has_discarded(make: Make) -> None:
    """Why a full window pauses only after 2 s."""
    side = make(brokers=1)
    side.write(side.first, 100)
    side.client.assign({side.first: 0})
    first = side.client.poll(PATIENCE)
    assert first is not None
    assert first.offset() == 0
    side.client.pause([side.first])
    side.away()
    side.client.resume([side.first])
    until = side.now() + 1.0
    while side.now() < until:
        assert side.client.poll(0.1) is None
    side.back()
    assert offsets(read(side, side.first, 99), side.first) == list(range(1, 100))


@over("simulated", "embedded")
def test_what_was_fetched_is_there_also_without_a_broker(make: Make) -> None:
    """Beside the test above: it is the pause that discards."""
    side = make(brokers=1)
    side.write(side.first, 100)
    side.client.assign({side.first: 0})
    deadline = side.now() + PATIENCE
    while side.client.log_ends().get(side.first) != 100:
        assert side.now() < deadline
        side.meanwhile()
    assert side.client.poll(PATIENCE) is not None
    side.away()
    assert side.client.consume(500)


# --- positions ---


@over("simulated", "real")
def test_the_position_is_behind_what_was_taken_and_follows_an_event_of_the_end(make: Make) -> None:
    """Behind the last record taken, not behind markers; behind these with the event."""
    side = make(eof=True)
    # 0 1 2 and a marker at 3; 4 5 6 aborted, marker at 7; 8 9 10, marker at 11.
    for commit in (True, False, True):
        side.transaction(side.first, 3, commit=commit)
    side.client.assign({side.first: 0})
    seen: list[tuple[int, int]] = []
    while not seen or seen[-1][0] < 12:
        message = side.client.poll(PATIENCE)
        assert message is not None
        assert message.error() is None or message.error().code() == KafkaError._PARTITION_EOF
        seen.append((message.offset(), side.client.positions()[side.first]))
    assert seen == [(0, 1), (1, 2), (2, 3), (8, 9), (9, 10), (10, 11), (12, 12)]


@over("simulated", "real")
def test_without_such_events_the_position_passes_markers_in_silence(make: Make) -> None:
    side = make()
    for commit in (True, False):  # 0 1 2, marker; 4 5 6, marker
        side.transaction(side.first, 3, commit=commit)
    side.client.assign({side.first: 0})
    found = take(side, lambda _: side.client.positions() == {side.first: 8})
    assert offsets(found, side.first) == [0, 1, 2]
    assert side.client.log_ends() == {side.first: 8}


@over("simulated", "real")
def test_the_cached_end_is_behind_an_open_transaction_and_the_asked_one_before_it(
    make: Make,
) -> None:
    side = make()
    side.client.assign({side.first: 0})
    side.transaction(side.first, 1, commit=None)
    take(side, lambda _: side.client.log_ends() == {side.first: 1})
    assert side.client.log_bounds([side.first], PATIENCE)[side.first][:2] == (0, 0)
    assert side.client.positions() == {}
    side.abort(side.first)
    assert take(side, lambda _: side.client.positions() == {side.first: 2}) == []
    assert side.client.log_bounds([side.first], PATIENCE)[side.first][:2] == (0, 2)


@over("simulated", "embedded", "real")
@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_out_of_range_is_an_event_after_which_only_a_new_assignment_helps(
    make: Make, protocol: str
) -> None:
    """The client, told ``error``, goes nowhere by itself."""
    side = make(protocol=protocol)
    side.write(side.first, 3)
    side.write(side.second, 1)
    side.client.assign({side.first: 99, side.second: 0})
    message = await_event(side, EventKind.OUT_OF_RANGE)
    assert (message.topic(), message.partition()) == side.first
    with pytest.raises(KafkaException):
        side.client.seek(side.first, 1)
    side.client.restart({side.first: 1, side.second: 1}, [side.first])
    assert offsets(read(side, side.first, 2), side.first) == [1, 2]


@over("simulated", "embedded", "real")
def test_that_a_place_is_lost_is_told_whatever_is_paused_meanwhile(make: Make) -> None:
    """Else nobody would ever hear why the partition is silent."""
    side = make()
    side.client.assign({side.first: 99, side.second: 0})
    side.write(side.second, 1)
    deadline = side.now() + PATIENCE
    while side.client.log_ends().get(side.second) != 1:  # so the broker has answered for both
        assert side.now() < deadline
        side.meanwhile()
    side.client.pause([side.first])
    side.client.resume([side.first])
    message = await_event(side, EventKind.OUT_OF_RANGE)
    assert message.partition() == 0


@over("simulated", "real")
def test_what_retention_has_removed_is_out_of_range(make: Make) -> None:
    side = make()
    side.write(side.first, 10)
    side.retain_from(side.first, 5)
    side.client.assign({side.first: 2})
    message = await_event(side, EventKind.OUT_OF_RANGE)
    assert message.partition() == 0
    assert side.client.log_bounds([side.first], PATIENCE)[side.first][:2] == (5, 10)


@over("simulated", "real")
def test_a_topic_made_anew_has_no_positions_and_the_shorter_log_is_out_of_range(
    make: Make,
) -> None:
    side = make()
    side.write(side.first, 5)
    side.store(side.first, 4)
    side.client.assign({side.first: 0})
    read(side, side.first, 4)
    side.remake()
    message = take_until_out_of_range(side.client, side)
    assert message.partition() == 0
    assert committed(side, side.first)[side.first].position is None
    assert side.client.log_bounds([side.first], PATIENCE)[side.first] == (0, 0, 0)


@over("simulated", "real")
def test_a_topic_made_anew_has_another_id_and_is_read_on_in_silence_once_it_is_long_enough(
    make: Make,
) -> None:
    """By nothing else can it be told: neither offsets nor epochs say that it is another log."""
    side = make()
    side.write(side.first, 5)
    side.client.assign({side.first: 0})
    read(side, side.first, 4)
    topic = side.first.topic
    before = side.client.ask_topic_ids([topic]).answer(PATIENCE)
    side.remake()
    side.write(side.first, 8)
    deadline = side.now() + PATIENCE
    found: list[int] = []
    while 7 not in found:
        assert side.now() < deadline, found
        message = side.client.poll(0.1)
        if message is not None and message.error() is None:
            found.append(message.offset())
        elif message is not None:
            assert classify_event(message.error()) is not EventKind.OUT_OF_RANGE
    assert found == [5, 6, 7]
    assert side.client.positions() == {side.first: 8}
    assert side.client.received_epoch(side.first) == 0
    after = side.client.ask_topic_ids([topic]).answer(PATIENCE)
    assert before is not None
    assert after is not None
    assert list(before) == list(after) == [topic]
    assert before != after


def take_until_out_of_range(client: Client, side: World) -> Record:
    """Poll until that is said; while the topic is away, the client says other things too."""
    deadline = side.now() + PATIENCE
    while True:
        assert side.now() < deadline
        message = client.poll(0.1)
        if message is not None and _is(message, EventKind.OUT_OF_RANGE):
            return message


# --- commits ---


@over("simulated", "real")
def test_a_leader_epoch_comes_with_each_record_and_goes_with_a_commit(make: Make) -> None:
    side = make()
    side.write(side.first, 5)
    committed(side, side.first)
    side.client.assign({side.first: 0})
    read(side, side.first, 4)
    side.client.positions()
    assert side.client.received_epoch(side.first) == 0
    assert side.client.commit(Commit({side.first: CommitEntry(5, "text")})) is None
    assert await_answers(side, 1) == [CommitResult.ACCEPTED]
    assert committed(side, side.first)[side.first] == (5, "text", 0)


@over("simulated", "real")
@pytest.mark.parametrize(("unit", "width"), [("x", 1), ("é", 1), ("\U0001f600", 2)])
def test_a_commit_of_which_one_partition_is_refused_fails_though_the_others_are_stored(
    make: Make, unit: str, width: int
) -> None:
    """Refused for its metadata: a broker takes 4,095 UTF-16 units of it."""
    side = make()
    most = unit * (4_095 // width)
    committed(side, side.first)
    side.client.commit(Commit({side.first: CommitEntry(3, most)}))
    entries = {side.first: CommitEntry(4, most + unit), side.second: CommitEntry(9, "short")}
    side.client.commit(Commit(entries))
    assert await_answers(side, 2) == [CommitResult.ACCEPTED, CommitResult.TOO_LARGE]
    found = committed(side, side.first, side.second)
    assert (found[side.first][:2], found[side.second][:2]) == ((3, most), (9, "short"))


@over("simulated", "embedded")
def test_a_commit_can_be_denied(make: Make) -> None:
    side = make(brokers=1)
    committed(side, side.first)
    side.deny_commits()
    side.client.commit(Commit({side.first: CommitEntry(1, "")}))
    assert await_answers(side, 1) == [CommitResult.DENIED]


# --- rights that come and go ---


def quiet(side: World, seconds: float) -> list[Record]:
    """Poll for so long; return all that came."""
    found = []
    until = side.now() + seconds
    while side.now() < until:
        record = side.client.poll(0.1)
        if record is not None:
            found.append(record)
    return found


@over("simulated", "secured")
@pytest.mark.parametrize("protocol", ["eager", "cooperative"])
def test_a_refused_fetch_is_reported_once_and_goes_on_by_itself(make: Make, protocol: str) -> None:
    side = make(protocol=protocol)
    side.write(side.first, 3)
    side.client.assign({side.first: 0, side.second: 0})
    assert offsets(read(side, side.first, 2), side.first) == [0, 1, 2]
    for first in (3, 5):
        side.refuse_topic()
        events = quiet(side, 3.0)
        side.write(side.first, 2)
        events += quiet(side, 3.0)
        told = [(each.topic(), each.partition()) for each in events]
        assert sorted(told) == [side.first, side.second], "each partition once"
        assert {classify_event(each.error()) for each in events} == {EventKind.REFUSED}
        side.allow_topic()
        found = read(side, side.first, first + 1)
        assert offsets(found, side.first) == [first, first + 1], "and nothing says that it may"
        side.write(side.second, 1)
        read(side, side.second, 0 if first == 3 else 1)


@over("simulated", "secured")
def test_which_topics_may_be_read_can_be_asked(make: Make) -> None:
    side = make()
    topic = side.first.topic

    def readable() -> frozenset[str]:
        asked, until = side.client.ask_rights([topic]), side.now() + PATIENCE
        while (found := asked.answer()) is None:
            assert side.now() < until, "nobody answers"
            side.client.poll(0.05)
        return found

    assert readable() == {topic}
    side.refuse_topic()
    assert readable() == set()
    side.allow_topic()
    assert readable() == {topic}


@over("simulated", "secured")
def test_a_commit_without_the_right_on_its_topic_is_denied_for_that(make: Make) -> None:
    side = make()
    committed(side, side.first)
    side.refuse_topic()
    side.client.commit(Commit({side.first: CommitEntry(1, "")}))
    assert await_answers(side, 1) == [CommitResult.DENIED]
    assert side.answers[-1].right is Right.TOPIC
    assert committed(side, side.first)[side.first].position is None, "it may still be asked"
    side.allow_topic()
    side.client.commit(Commit({side.first: CommitEntry(2, "")}))
    assert await_answers(side, 2)[-1] is CommitResult.ACCEPTED
    assert committed(side, side.first)[side.first].position == 2


@over("simulated", "secured")
def test_a_group_without_its_right_denies_commits_and_positions(make: Make) -> None:
    side = make()
    committed(side, side.first)
    side.refuse_group()
    side.client.commit(Commit({side.first: CommitEntry(1, "")}))
    assert await_answers(side, 1) == [CommitResult.DENIED]
    assert side.answers[-1].right is Right.GROUP
    with pytest.raises(KafkaException) as told:
        side.client.committed([side.first], 10.0)
    assert told.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED


@over("simulated", "embedded", "real")
def test_who_may_choose_no_place_starts_at_the_newest_commit_whatever_was_asked_before(
    make: Make,
) -> None:
    side = make(reset="error")
    side.write(side.first, 6)
    side.store(side.first, 2)
    assert committed(side, side.first)[side.first].position == 2
    side.store(side.first, 4)
    side.client.assign({side.first: None})
    assert offsets(read(side, side.first, 5), side.first) == [4, 5]


# --- brokers that do not answer ---


@over("simulated", "embedded")
def test_committed_positions_that_nobody_answers_raise_when_the_time_is_over(make: Make) -> None:
    side = make(brokers=1)
    committed(side, side.first)
    side.away()
    began = side.now()
    with pytest.raises(KafkaException):
        side.client.committed([side.first], 0.5)
    assert side.now() - began > 0.4
    side.back()
    assert committed(side, side.first)[side.first].position is None


@over("simulated", "embedded")
def test_one_silent_leader_costs_only_its_own_partitions_their_bounds(make: Make) -> None:
    side = make(brokers=2)
    side.write(side.first, 2)
    side.write(side.second, 3)
    assert len(side.client.log_bounds([side.first, side.second], PATIENCE)) == 2
    side.leader_away(side.first)
    found: dict[TopicPartition, LogBounds] = {}
    for _ in range(3):  # the client asks the old leaders until it has been told of the new ones
        found = found or side.client.log_bounds([side.first, side.second], 6.0)
    assert {each: bounds[:2] for each, bounds in found.items()} == {side.second: (0, 3)}


@over("simulated", "embedded")
def test_brokers_that_go_and_come_back_cost_no_record_and_no_word(make: Make) -> None:
    """The client goes on by itself."""
    side = make(brokers=1)
    side.write(side.first, 3)
    side.client.assign({side.first: 0})
    found = offsets(read(side, side.first, 2), side.first)
    side.away()
    until = side.now() + 1.0
    while side.now() < until:
        assert side.client.poll(0.1) is None
    side.back()
    side.write(side.first, 3)
    found += offsets(read(side, side.first, 5), side.first)
    assert found == [0, 1, 2, 3, 4, 5]


@over("simulated", "embedded")
def test_a_close_waits_for_a_commit_that_is_on_its_way(make: Make) -> None:
    side = make(brokers=1)
    committed(side, side.first)
    side.client.assign({side.first: 0})
    began = side.now()
    side.away_for(1.0)
    side.client.commit(Commit({side.first: CommitEntry(1, "")}))
    side.close()
    assert side.now() - began > 0.8
    assert [each.result for each in side.answers] == [CommitResult.ACCEPTED]
