"""The owner's steps over fake ports: fetch, full window, commit, rebalance, stop."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.outcomes import Disposition
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.records.window import Window
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.lab.simulator.stepped import SteppedWorker
from kafka_keyshared.model import Record, Retry, TopicPartition
from kafka_keyshared.runtime.fetch_quota import Room
from kafka_keyshared.runtime.shutdown import REFUSED_MOST, stop
from kafka_keyshared.runtime.wait_plan import FULL_WAIT, MAIL_TURNS
from tests.support.loop_ports import Stage
from tests.support.records import P0, P1, FakeRecord, failure, record

STATE = KafkaException(KafkaError(KafkaError._STATE))


def event(code: int, at: TopicPartition = P0, offset: int = -1) -> FakeRecord:
    return FakeRecord(at, offset, None, error=KafkaError(code))


def planned(stage: Stage, *records: Record) -> None:
    """The next call returns these, whatever the logs have."""
    stage.client.plans.append(lambda: list(records))


def raising(stage: Stage, error: Exception, lost: int = 0) -> None:
    """The next call takes records off the queue, loses them and raises."""

    def plan() -> list[Record]:
        stage.client.take(lost)
        raise error

    stage.client.plans.append(plan)


@pytest.fixture
def stage() -> Stage:
    made = Stage()
    made.client.stored[P0] = CommittedOffset(10, None)
    made.fill(*(record(offset) for offset in range(10, 20)))
    made.assign()
    return made


# --- reading again after a loss ---


@pytest.mark.parametrize("error", [STATE, RuntimeError("callback"), ValueError("header")])
def test_a_fetch_that_raises_is_read_again_from_the_kept_end(
    stage: Stage, error: Exception
) -> None:
    raising(stage, error, lost=4)
    stage.step()
    assert stage.client.made("seek") == [(P0, 10)]
    stage.step()
    assert stage.work() == list(range(10, 20))


def test_a_loss_in_the_second_half_of_a_fetch_takes_the_first_record_along(stage: Stage) -> None:
    planned(stage, record(10))
    raising(stage, ValueError("header"), lost=4)
    stage.step(2)
    assert stage.client.made("seek") == [(P0, 10)]
    assert stage.work() == list(range(10, 20))


def test_until_the_seek_is_done_nothing_counts_as_received_and_nothing_is_committed(
    stage: Stage,
) -> None:
    stage.accept()
    planned(stage, record(10))
    planned(stage, record(11))
    stage.client.at[P0] = 12
    stage.step()
    assert stage.work() == [10, 11]
    stage.client.seek_fails += [STATE, STATE]
    raising(stage, ValueError("header"), lost=4)
    stage.step()
    stage.now += 5.0
    assert stage.core.commit_wanted(stage.now), "there is something to commit"
    planned(stage, event(KafkaError._PARTITION_EOF, offset=20))
    stage.step()
    assert stage.core.partitions[P0].received_end == 12
    assert stage.core.outstanding() == 0
    assert stage.client.commits == []
    stage.step(2)
    assert stage.client.made("seek") == [(P0, 12)]
    assert stage.work() == list(range(12, 20))
    stage.step()
    stage.now += 5.0
    stage.step()
    assert stage.sent() == [12, 20]


def test_a_loss_before_anything_was_received_is_read_again_from_the_start() -> None:
    stage = Stage()
    stage.fill(*(record(offset) for offset in range(5)))
    stage.assign()
    raising(stage, ValueError("header"), lost=3)
    stage.step(2)
    assert stage.client.made("seek") == [(P0, 0)]
    assert stage.work() == [0, 1, 2, 3, 4]


# --- partitions that go in the same call ---


def test_records_fetched_in_the_same_call_as_a_revoke_are_dropped(stage: Stage) -> None:
    def plan() -> list[Record]:
        taken = stage.client.take(5)
        stage.client.callbacks["revoke"]([P0])
        return taken

    stage.client.plans.append(plan)
    stage.step()
    assert stage.core.outstanding() == 0
    assert stage.core.unsettled_count() == 0
    assert stage.work() == []


def test_a_partition_that_comes_back_in_the_same_call_starts_where_its_assignment_says(
    stage: Stage,
) -> None:
    """What was fetched before and after cannot be told apart, so all of it is read again."""

    def plan() -> list[Record]:
        taken = stage.client.take(3)
        stage.client.callbacks["revoke"]([P0])
        stage.client.stored[P0] = CommittedOffset(15, None)
        stage.client.callbacks["assign"]([P0])
        return [*taken, *stage.client.take(3)]

    stage.client.plans.append(plan)
    stage.step()
    assert stage.core.outstanding() == 0
    assert stage.core.partitions[P0].received_end == 15
    stage.step()
    assert stage.work() == [15, 16, 17, 18, 19]


# --- events among the records ---


def test_max_poll_exceeded_stops_commits_until_partitions_are_assigned_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    stage.accept()
    stage.step()
    stage.work()
    planned(stage, event(KafkaError._MAX_POLL_EXCEEDED))
    stage.step()
    stage.now += 10.0
    stage.step(3)
    assert stage.client.commits == []
    assert "commits stop until partitions are assigned again" in caplog.text
    stage.client.callbacks["lost"]([P0])
    stage.assign()
    stage.step()
    assert stage.work() == [], "nobody else has been there"
    stage.now += 10.0
    stage.step()
    assert stage.sent() == [20]


def test_the_end_of_a_partition_moves_the_position_behind_markers(stage: Stage) -> None:
    stage.accept()
    stage.step()
    stage.work()
    planned(stage, event(KafkaError._PARTITION_EOF, offset=23))
    stage.step(2)
    stage.now += 10.0
    stage.step()
    assert stage.sent()[-1] == 23


def test_an_end_of_a_partition_that_is_gone_is_ignored(stage: Stage) -> None:
    planned(stage, event(KafkaError._PARTITION_EOF, P1, offset=23))
    stage.step()
    assert P1 not in stage.core.partitions


def test_a_group_that_refuses_this_member_is_told_with_the_cure(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    planned(stage, event(KafkaError.INCONSISTENT_GROUP_PROTOCOL))
    stage.step()
    assert stage.loop.halted is None
    assert "partition.assignment.strategy" in caplog.text


def test_a_fatal_event_halts_and_a_transient_one_does_not(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    planned(stage, event(KafkaError._ALL_BROKERS_DOWN))
    stage.step()
    assert stage.loop.halted is None
    assert caplog.records
    planned(stage, event(KafkaError.FENCED_INSTANCE_ID))
    stage.step()
    assert stage.loop.halted is not None


# --- bounded turns ---


class Told(Stage):
    """Writes down what each call of the client's and each event finds, in order."""

    def __init__(self) -> None:
        super().__init__(SubscriptionSettings(retry=RetryPolicy(attempts=2, jitter=0.0)))
        self.log: list[Any] = []
        tell = self.loop.tell

        def told(event: ev.Event) -> None:
            if isinstance(event, ev.Reported):
                self.log.append(len(event.reports))
            elif isinstance(event, ev.CommitDue | ev.Tick):
                self.log.append(type(event).__name__)
            tell(event)

        self.loop.tell = told  # type: ignore[method-assign]
        self.client.stored[P0] = CommittedOffset(0, None)
        self.accept()

    def step(self, times: int = 1) -> None:
        for _ in range(times):
            self.log.append("turn")
            super().step()


def test_no_turn_takes_more_than_its_part_of_the_mail(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when 100,000 records fail, or fall due, at once: the client is polled all the while."""
    monkeypatch.setattr("kafka_keyshared.runtime.loop.MAIL_AT_ONCE", 5)
    stage = Told()
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(30)))
    stage.assign()
    stage.step()
    assert stage.work({offset: failure() for offset in range(30)}) == list(range(30))
    waiting = stage.mailbox.qsize()
    assert waiting > 30
    stage.log.clear()
    turns = 0
    stage.client.calls.clear()
    while waiting > 0:
        stage.step()
        waiting, turns = waiting - 5, turns + 1
        assert stage.mailbox.qsize() >= waiting, "a turn has taken more"
    assert len(stage.client.made("consume")) + len(stage.client.made("poll")) >= turns
    most = max(each for each in stage.log if isinstance(each, int))
    assert most == 5


def test_a_commit_waits_for_the_mail_before_its_progress_and_not_for_later_mail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else it would pass a record that has failed, or never come while mail keeps coming."""
    monkeypatch.setattr("kafka_keyshared.runtime.loop.MAIL_AT_ONCE", 4)
    stage = Told()
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(40)))
    stage.assign()
    stage.step()
    stage.client.commits.clear()
    stage.work({offset: failure() for offset in range(12, 40)})
    stage.now += 5.0
    stage.log.clear()
    turns = 0
    while not stage.client.commits:
        stage.mailbox.put(ev.FencePassed("default", 0, ()))
        stage.mailbox.put(ev.FencePassed("default", 0, ()))
        stage.step()
        turns += 1
        assert turns < 60
    assert turns > 5, "what was there is not taken in one turn"
    assert stage.mailbox.qsize() > 0, "what came since is not waited for"
    assert stage.sent() == [12]
    assert max(each for each in stage.log if isinstance(each, int)) == 4


def test_the_heartbeat_waits_a_turn_for_a_commit_that_took_long_but_not_for_ever() -> None:
    stage = Told()
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(3)))
    stage.assign()
    stage.step()
    answer = stage.client.answer

    def slowly(commit: cmd.Commit) -> ev.CommitAnswer | None:
        stage.now += 0.2
        return answer(commit)

    stage.client.answer = slowly
    stage.work()
    stage.now += 0.45
    stage.log.clear()
    while "CommitDue" not in stage.log:
        stage.now = stage.loop._next_beat
        stage.step()
    stage.step()
    at = stage.log.index("CommitDue")
    assert stage.log[at + 1] == "turn", "the client is asked between the two"
    assert "Tick" in stage.log[at + 1 :]


# --- a full window ---


def full(window: int = 400, keys: int = 100_000) -> Stage:
    stage = Stage(SubscriptionSettings(window_records=window))
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(*(record(offset, f"key-{offset % keys}") for offset in range(window * 2)))
    stage.assign()
    while stage.loop.stats.fetched < window * 0.95:
        stage.step()
        assert stage.now < 1_010
    return stage


def test_a_full_window_polls_every_100_ms_and_takes_what_comes() -> None:
    stage = full()
    before, held = stage.now, stage.core.unsettled_count()
    stage.client.calls.clear()
    while stage.now < before + 1.0:
        stage.step()
    polls = stage.client.made("poll")
    assert {timeout for timeout, _ in polls} == {0}
    assert 8 <= len(polls) <= 11
    assert stage.client.made("consume") == []
    assert stage.core.unsettled_count() == held + len(polls), "each poll's record was taken"


def test_a_window_that_stays_full_pauses_after_2_s_and_resumes_with_room() -> None:
    stage = full()
    before = stage.now
    while not stage.client.paused:
        stage.step()
        assert stage.now < before + 3.0
    assert 1.5 <= stage.now - before < 2.5
    assert stage.client.paused == stage.loop.paused() == {P0}
    while stage.client.paused:
        stage.work()
        stage.step()
        assert stage.now < before + 60
    assert stage.loop.paused() == set()
    while stage.core.partitions[P0].received_end != 800 or stage.core.outstanding():
        stage.step()
        stage.work()
        assert stage.now < before + 60


@pytest.mark.parametrize("window", [1, 4, 10, 25, 50, 150, 400, 1_000])
def test_a_window_is_never_outgrown_and_is_polled_twice_a_second_at_least(window: int) -> None:
    stage = full(window)
    before, most = stage.now, 0
    stage.client.calls.clear()
    while stage.now < before + 5.0:
        stage.step()
        most = max(most, stage.core.unsettled_count())
    assert window - 1 <= most <= window
    moments = [before, *(at for _, at in stage.client.made("poll"))]
    assert max(later - at for at, later in pairwise(moments)) < 0.52
    assert stage.client.paused == {P0}


def refuses_pauses(stage: Stage) -> list[bool]:
    """Let the client refuse every pause until the list is emptied."""
    pause, refusing = stage.client.pause, [True]

    def maybe(partitions: Iterable[TopicPartition]) -> None:
        if refusing:
            raise STATE
        pause(partitions)

    stage.client.pause = maybe  # type: ignore[method-assign]
    return refusing


@pytest.mark.parametrize("window", [1, 25, 400])
def test_a_window_is_not_outgrown_while_the_client_refuses_to_pause(
    window: int, caplog: pytest.LogCaptureFixture
) -> None:
    stage = full(window)
    refusing = refuses_pauses(stage)
    before, most = stage.now, 0
    while stage.now < before + 10.0:
        stage.step()
        most = max(most, stage.core.unsettled_count())
    assert most == window
    assert stage.client.paused == set()
    assert stage.core.partitions[P0].received_end == window, "what came too much counts as received"
    assert len([each for each in caplog.records if "pause: " in each.message]) == 1
    refusing.clear()
    step_until(stage, lambda: stage.client.paused == {P0}, seconds=2.0)
    done: list[int] = []
    while len(done) < window * 2:
        done += stage.work()
        stage.step()
        assert stage.now < before + 60
    assert sorted(done) == list(range(window * 2)), "each of them runs, and once"


def test_mail_alone_is_no_reason_to_look_at_everything_and_keeps_nothing_waiting_for_long() -> None:
    """With one lease per key there is mail for every single record."""
    stage = full()
    looks = 0
    due = stage.core.next_due

    def next_due() -> float | None:
        nonlocal looks
        looks += 1
        return due()

    stage.core.next_due = next_due  # type: ignore[method-assign]
    mails = 0

    def mail_and_nothing_that_makes_room() -> None:
        nonlocal mails
        mails += 1
        stage.mailbox.put(None)

    stage.on_wait = mail_and_nothing_that_makes_room
    before = stage.loop.stats.beats
    stage.step(40)
    assert looks == 40
    assert 30 * MAIL_TURNS <= mails <= 50 * MAIL_TURNS
    assert stage.loop.stats.beats - before >= 2


def test_a_full_window_in_which_nothing_happens_leaves_the_processor_to_the_workers() -> None:
    """It takes nothing in: that the owner looks more often helps nobody."""
    stage = full()
    waits = turns = 0

    def count() -> None:
        nonlocal waits
        waits += 1

    stage.on_wait = count
    before = stage.now
    while stage.now < before + 1.0:
        stage.step()
        turns += 1
    assert turns <= 1.0 / FULL_WAIT
    assert waits <= 2 * turns


LARGE = 8 << 10
WINDOW_BYTES = 128 * LARGE
LARGE_KEY = b"k" * LARGE


def small_window(*records: FakeRecord) -> Stage:
    stage = Stage(SubscriptionSettings(window_records=400, window_bytes=WINDOW_BYTES))
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(*records)
    stage.accept()
    stage.assign()
    return stage


def fullness(stage: Stage) -> float:
    window = stage.sub.window
    return max(window.records / window.records_max, window.bytes / window.bytes_max)


def step_until(stage: Stage, condition: Callable[[], bool], seconds: float = 60.0) -> None:
    before = stage.now
    while not condition():
        stage.step()
        assert stage.now < before + seconds


@pytest.mark.parametrize(
    ("key", "headers", "size"),
    [
        (LARGE_KEY, None, 0),
        (LARGE_KEY, None, LARGE // 2),
        (b"k", [("h", LARGE_KEY)], 2),
    ],
    ids=["keys", "keys above values", "headers"],
)
def test_what_the_client_does_not_count_pauses_at_a_quarter_of_the_window_and_at_once(
    key: bytes, headers: list[tuple[str, Any]] | None, size: int
) -> None:
    """It would go on fetching while the window is full: its own bound knows values only."""
    one = len(key) + size + (len(headers[0][1]) if headers else 0)
    stage = small_window(
        *(FakeRecord(P0, offset, key, size=size, headers=headers) for offset in range(300))
    )
    step_until(stage, lambda: bool(stage.client.paused), seconds=0.5)
    assert stage.client.paused == stage.loop.paused() == {P0}
    assert stage.core.holds.reasons(P0) == (Reason.WINDOW,)
    most = stage.core.unsettled_count() * one
    assert WINDOW_BYTES * 0.15 < most <= WINDOW_BYTES / 4 + one
    before, done = stage.now, 0
    while done < 300:
        done += len(stage.work())
        stage.step()
        most = max(most, stage.core.unsettled_count() * one)
        assert stage.now < before + 60
    assert most <= WINDOW_BYTES / 4 + 2 * one


@pytest.mark.parametrize(
    ("key", "size"),
    [(b"k", LARGE), (LARGE_KEY[: LARGE // 2], LARGE), (b"k" * 100, 0)],
    ids=["values", "values above keys", "small keys alone"],
)
def test_what_the_client_counts_or_what_is_small_has_all_of_the_window(
    key: bytes, size: int
) -> None:
    stage = small_window(*(FakeRecord(P0, offset, key, size=size) for offset in range(600)))
    step_until(stage, lambda: fullness(stage) > 0.85, seconds=0.5)
    stage.step(3)
    assert stage.client.paused == set(), "a pause would throw away what was fetched"


def test_what_came_long_ago_says_nothing_of_what_comes() -> None:
    room, mib = Room([Window()]), 1 << 20
    assert not room.floods()
    room.took_in(64, 0.0, -32.0 * mib)
    assert room.floods()
    for _ in range(12):
        room.took_in(64, 32.0 * mib, -32.0 * mib)
    assert not room.floods()
    for _ in range(12):
        room.took_in(64, 0.0, -32.0 * mib)
    assert room.floods()


@pytest.mark.parametrize("size", [100, 100_000, 700_000])
def test_one_slow_record_stops_no_other_key_whatever_the_size_of_the_values(size: int) -> None:
    stage = Stage(SubscriptionSettings(workers=("worker-0", "worker-1")))
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(*(FakeRecord(P0, offset, b"%d" % offset, size=size) for offset in range(900)))
    stage.accept()
    stage.assign()
    stage.step()
    slow = stage.worker(0)
    assert slow.start() is not None
    done, most = 0, 0
    for _ in range(200):
        stage.step()
        most = max(most, stage.core.unsettled_count() * size)
        other = stage.worker(1)
        while other.start() is not None:
            other.finish()
            done += 1
    # What waits behind the slow record, on its worker, is all that the window may hold back.
    assert done > 40
    assert most <= (64 << 20) + size, "the bound holds, but for the last record"
    assert stage.core.partitions[P0].received_end == 900 or most > 0.85 * (64 << 20)


def test_a_window_full_of_what_waits_for_a_retry_does_not_spin() -> None:
    stage = full(4, keys=1)
    stage.work({0: failure(after=30.0)})
    for _ in range(20):
        stage.step()
        stage.work()
    before, steps = stage.now, 0
    while stage.now < before + 5.0:
        stage.step()
        steps += 1
    assert steps <= 60


# --- pauses over a rebalance ---


def comes_back(stage: Stage, *partitions: TopicPartition, lost: bool = False) -> None:
    """The partitions (P0 unless told) go, and come back after a round without them."""
    stage.client.callbacks["lost" if lost else "revoke"](list(partitions or (P0,)))
    stage.step()
    stage.assign(*partitions)


@pytest.mark.parametrize("lost", [False, True])
def test_a_partition_that_a_full_window_paused_is_read_when_it_comes_back(lost: bool) -> None:
    stage = full()
    while not stage.client.paused:
        stage.step()
    comes_back(stage, lost=lost)
    stage.step(2)
    assert stage.client.paused == stage.loop.paused() == set()
    for _ in range(50):
        stage.step()
        stage.work()
    assert stage.core.partitions[P0].received_end == 800


def test_what_comes_back_is_told_whatever_was_told_before(stage: Stage) -> None:
    """Somebody else may have paused it meanwhile: the client keeps that too."""
    stage.client.callbacks["revoke"]([P0])
    stage.client.paused.add(P0)
    stage.assign()
    assert stage.client.paused == set()


def test_what_is_gone_is_not_reported_as_paused() -> None:
    stage = full()
    while not stage.client.paused:
        stage.step()
    stage.client.callbacks["revoke"]([P0])
    stage.step()
    assert stage.loop.paused() == set()


def test_a_partition_that_comes_while_the_window_is_paused_is_paused_too() -> None:
    stage = full()
    while not stage.client.paused:
        stage.step()
    stage.client._cooperative = True
    stage.assign(P1)
    assert stage.client.paused == stage.loop.paused() == {P0, P1}


def unreadable(down: list[bool]) -> SubscriptionSettings:
    """A key function that cannot read while ``down`` says so."""

    def key(item: Record) -> Any:
        if down:
            raise Retry(1.0) from ConnectionError("registry")
        return item.key()

    return SubscriptionSettings(key_of=key)


def test_a_partition_paused_for_an_unreadable_key_is_read_when_it_comes_back() -> None:
    down = [True]
    stage = Stage(unreadable(down))
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(*(record(offset) for offset in range(10)))
    stage.assign()
    stage.step(2)
    assert stage.client.paused == stage.loop.paused() == {P0}
    down.clear()
    comes_back(stage)
    assert stage.client.paused == stage.loop.paused() == set()
    stage.step(3)
    assert stage.work() == list(range(10))


def test_what_the_core_lets_go_stays_paused_while_the_window_is_full() -> None:
    """Two reasons for one pause: it ends with the last of them."""
    stage = full()
    while not stage.client.paused:
        stage.step()
    stage.client.calls.clear()
    stage.core.holds.hold_back(Reason.UNREAD, [P0])
    stage.loop.pause_and_resume()
    stage.core.holds.let_go(Reason.UNREAD, [P0])
    stage.loop.pause_and_resume()
    assert stage.client.paused == {P0}
    stage.core.holds.hold_back(Reason.UNREAD, [P0])
    while stage.core.holds.reasons(P0) != (Reason.UNREAD,):
        stage.work()
        stage.step()
    assert stage.client.paused == {P0}
    stage.core.holds.let_go(Reason.UNREAD, [P0])
    stage.loop.pause_and_resume()
    assert stage.client.paused == set()


def test_a_withheld_partition_that_goes_and_comes_back_is_read(stage: Stage) -> None:
    stage.client.committed_fails += [STATE]
    stage.client._cooperative = True
    stage.fill(FakeRecord(P1, 0, b"key"))
    stage.assign(P1)
    assert stage.client.paused == stage.loop.paused() == {P1}
    comes_back(stage, P1)
    assert stage.client.paused == stage.loop.paused() == set()


def test_a_pause_that_the_client_refuses_is_told_again(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    pause = stage.client.pause

    def refused(partitions: Iterable[TopicPartition]) -> None:
        stage.client.pause = pause  # type: ignore[method-assign]
        raise STATE

    stage.client.pause = refused  # type: ignore[method-assign]
    stage.core.holds.hold_back(Reason.UNREAD, [P0])
    stage.loop.pause_and_resume()
    assert stage.loop.paused() == set()
    assert "pause: " in caplog.text
    stage.now += 1.0
    stage.step()
    assert stage.client.paused == stage.loop.paused() == {P0}


def test_after_a_restart_the_client_is_told_of_every_pause(stage: Stage) -> None:
    """An eager client assigns all of them anew for one that was out of range."""
    stage.core.holds.hold_back(Reason.UNREAD, [P0])
    stage.loop.pause_and_resume()
    stage.client.calls.clear()
    planned(stage, event(KafkaError._AUTO_OFFSET_RESET))
    stage.step()
    stage.now += 0.2
    stage.step()
    assert [name for name, _ in stage.client.calls if name in ("restart", "pause")] == [
        "restart",
        "pause",
    ]


# --- committing ---


@pytest.mark.parametrize("moment", ["before", "after"])
def test_progress_is_read_before_the_mailbox(moment: str) -> None:
    """A failure that arrives as progress is read, and after it, must not be committed past."""
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(10, None)
    stage.fill(*(record(offset, f"key-{offset}") for offset in range(10, 20)))
    stage.assign()
    stage.step()
    stage.now += 10.0
    worker = stage.worker()
    for _ in range(3):
        worker.start()
        worker.finish()
    worker.start()
    progress = stage.pool.progress

    def fail() -> None:
        worker.finish(failure())
        worker.start()

    def racing() -> Progress:
        if moment == "before":
            fail()
        seen = progress()
        if moment == "after":
            fail()
        return seen

    stage.pool.progress = racing  # type: ignore[method-assign]
    stage.loop.commit()
    assert stage.sent() == [13]


def test_a_commit_that_fails_at_once_is_answered_through_the_mailbox(stage: Stage) -> None:
    stage.client.answer = lambda commit: ev.CommitAnswer(commit, ev.CommitResult.RETRY, "no")
    stage.step()
    stage.work()
    stage.now += 10.0
    stage.step(2)
    assert stage.core.commits.failed_count == 1
    stage.accept()
    stage.now += 10.0
    stage.step(2)
    assert stage.sent() == [20, 20]
    assert stage.core.commits.committed(P0) == 20


# --- assigned, but the positions are not known ---


def test_an_assign_without_an_answer_is_held_paused_and_started_when_it_comes() -> None:
    stage = Stage()
    stage.fill(*(record(offset) for offset in range(20)))
    stage.client.stored[P0] = CommittedOffset(17, None)
    stage.client.committed_fails += [STATE, STATE]
    stage.assign()
    assert stage.client.paused == {P0}
    assert stage.client.made("assign") == [{P0: None}]
    # One that slips through all the same is not admitted: it may have been settled long ago.
    planned(stage, record(3))
    stage.step()
    assert stage.core.outstanding() == 0
    stage.client.seek_fails.append(STATE)
    for _ in range(20):
        if not stage.client.paused:
            break
        stage.now += 0.3
        stage.step()
    assert stage.client.paused == set()
    assert len(stage.client.made("committed")) == 3
    planned(stage, record(4))
    stage.step(3)
    assert stage.client.made("seek") == [(P0, 17)]
    assert stage.work() == [17, 18, 19]


def test_a_revoke_forgets_what_was_held(stage: Stage) -> None:
    stage.client.committed_fails += [STATE]
    stage.assign(P1)
    stage.client.callbacks["revoke"]([P1])
    before = len(stage.client.made("committed"))
    stage.now += 10.0
    stage.step()
    assert len(stage.client.made("committed")) == before
    assert stage.core.holds.held_back(Reason.UNSTARTED) == set()


# --- revoke and lost ---


def finish(worker: SteppedWorker) -> None:
    """End the running record and, as nothing unstarted is left behind it, its slice."""
    if worker.running is not None:
        worker.finish()
        assert worker.start() is None


def test_what_had_ended_counts_although_a_record_of_its_slice_outlasts_the_revoke() -> None:
    stage = Stage(revoke_deadline=0.1)
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(*(record(offset) for offset in range(4)))
    stage.assign()
    stage.step()
    (worker,) = [each for each in stage.pool.workers.values() if each.start() is not None]
    for _ in range(2):
        worker.finish()
        worker.start()
    stage.client.callbacks["revoke"]([P0])
    assert stage.sent() == [2]
    finish(worker)
    stage.step()
    assert (stage.sub.counts.ok, stage.sub.counts.stale_results) == (2, 1)


def test_a_revoke_waits_for_what_runs_commits_and_then_tells() -> None:
    stage = Stage()
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(*(record(offset) for offset in range(5)))
    stage.assign()
    told: list[str] = []
    stage.rebalancer.observer = lambda what, _partitions: told.append(
        f"{what} after {len(stage.client.commits)}"
    )
    stage.step()
    worker = stage.worker()
    worker.start()
    stage.on_wait = lambda: finish(worker)
    stage.client.callbacks["revoke"]([P0])
    assert stage.sent() == [1]
    assert told == ["revoked after 1"]
    assert stage.core.partitions == {}
    assert stage.work() == [], "the unstarted ones were taken back and forgotten"


def test_a_revoke_gives_up_at_its_deadline(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    stage = Stage(revoke_deadline=0.5)
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(record(0), record(1))
    stage.assign()
    stage.step()
    stage.worker().start()
    before = stage.now
    stage.client.callbacks["revoke"]([P0])
    assert 0.5 <= stage.now - before < 0.6
    assert stage.sent() in ([], [0])
    assert "past the deadline, may run again: 1 running (orders-0@0)" in caplog.text


@pytest.mark.parametrize(("how", "sent"), [("lost", []), ("revoke", [20])])
def test_lost_partitions_are_told_first_and_not_committed(
    stage: Stage, how: str, sent: list[int]
) -> None:
    """What a revoke would commit, since this member may: of lost ones another has read on."""
    told: list[tuple[str, bool]] = []

    def observe(what: str, partitions: Sequence[TopicPartition]) -> None:
        told.append((what, P0 in stage.core.partitions))

    stage.rebalancer.observer = observe
    stage.step()
    stage.work()
    stage.client.callbacks[how]([P0])
    stage.step()
    assert stage.sent() == sent
    assert stage.core.partitions == {}
    assert told == [("lost", True) if how == "lost" else ("revoked", False)]


def test_nothing_of_lost_partitions_starts_while_a_callback_is_told_or_after_it_has_raised(
    stage: Stage,
) -> None:
    """Another member may be running it by now, and a callback may take long."""
    started: list[int] = []

    def observe(what: str, partitions: Sequence[TopicPartition]) -> None:
        del what, partitions
        started.extend(stage.work())
        raise ValueError("callback")

    stage.rebalancer.observer = observe
    stage.step()
    assert [slice_ for worker in stage.pool.workers.values() for slice_ in worker.slices()]
    stage.client.callbacks["lost"]([P0])
    assert started + stage.work() == []


def test_after_a_callback_that_failed_nothing_is_committed_any_more(stage: Stage) -> None:
    stage.accept()
    stage.step()
    stage.work()

    def broken(_what: str, _partitions: Sequence[TopicPartition]) -> None:
        raise InvariantError("planted")

    def plan() -> list[Record]:
        stage.client.callbacks["assign"]([P1])
        stage.client.callbacks["revoke"]([P0])
        return []

    stage.rebalancer.observer = broken
    stage.client.plans.append(plan)
    stage.now += 10.0
    with pytest.raises(InvariantError, match="planted"):
        stage.step()
    assert stage.client.commits == []


# --- the stop ---


def test_a_stop_drains_commits_and_says_so(stage: Stage) -> None:
    stage.accept()
    stage.step()
    worker = stage.worker()
    worker.start()
    stage.on_wait = lambda: finish(worker)
    report = stop(stage.loop, 5.0, lambda: False)
    assert report.clean
    assert stage.sent() == [11]
    assert "drained; committed; 9 records received and left undone" in report.line()
    assert stage.client.paused == {P0}


@pytest.mark.parametrize("hurried", [False, True])
def test_a_stop_gives_up_at_its_deadline_or_at_the_second_signal(
    stage: Stage, hurried: bool
) -> None:
    stage.accept()
    stage.step()
    worker = stage.worker()
    worker.start()
    worker.finish()
    worker.start()
    before = stage.now
    report = stop(stage.loop, 5.0, lambda: hurried)
    assert not report.clean
    assert (stage.now - before >= 5.0) is not hurried
    assert stage.sent() == [11]
    assert "gave up on 1 running: orders-0@11; committed" in report.line()
    assert report.undone == 9, "what its slice has done is done, although the slice goes on"


def test_a_stop_survives_a_client_that_raises(stage: Stage) -> None:
    stage.accept()
    stage.step()
    worker = stage.worker()
    worker.start()
    raising(stage, RuntimeError("callback"))
    planless: list[bool] = []

    def wait() -> None:
        if stage.now > 1_000.5:
            planless.append(not stage.client.plans)
            finish(worker)

    stage.on_wait = wait
    report = stop(stage.loop, 5.0, lambda: False)
    assert report.clean
    assert planless[0], "it was not polled while it drained"
    assert stage.sent() == [11]


def test_while_a_stop_drains_the_client_is_polled_several_times_a_second(stage: Stage) -> None:
    """Or the group takes the member for dead, and what it drained runs again at another one."""
    stage.accept()
    stage.step()
    worker = stage.worker()
    worker.start()
    stage.on_wait = lambda: finish(worker) if stage.now > 1_008.0 else None
    began = stage.now
    report = stop(stage.loop, 20.0, lambda: False)
    assert report.clean
    polled = [at for _, at in stage.client.made("poll") if at >= began]
    gaps = [after - before for before, after in itertools.pairwise([began, *polled, stage.now])]
    assert stage.now - began >= 8.0
    assert max(gaps) < 0.3


@pytest.mark.parametrize("thrown_out", [False, True])
@pytest.mark.parametrize("way", ["stop", "revoke"])
def test_a_member_that_the_group_has_thrown_out_commits_nothing_at_its_end(
    stage: Stage, way: str, thrown_out: bool
) -> None:
    """Its partitions have another owner, whose positions it would set back."""
    stage.accept()
    stage.step()
    stage.work()
    if thrown_out:
        planned(stage, event(KafkaError._MAX_POLL_EXCEEDED))
        stage.step()
    if way == "stop":
        report = stop(stage.loop, 5.0, lambda: False)
        assert report.commit_accepted is not thrown_out
        assert report.clean is not thrown_out
    else:
        stage.client.callbacks["revoke"]([P0])
    assert stage.sent() == ([] if thrown_out else [20])


def test_a_stop_whose_last_commit_was_stored_before_the_one_under_way_sends_it_again(
    stage: Stage,
) -> None:
    """A coordinator that moves makes the client send one again by itself, behind the later one."""
    stage.step()
    worker = stage.worker()
    worker.start()
    worker.finish()
    worker.start()
    stage.loop.commit()
    assert stage.sent() == [11], "one is under way"
    stage.on_wait = lambda: finish(worker)
    poll = stage.client.poll

    def answered(timeout: float) -> Record | None:
        for commit in reversed(stage.client.commits):
            if len(stage.client.commits) > 1 and commit in stage.core.commits.in_flight:
                stage.mailbox.put(ev.CommitAnswer(commit, ev.CommitResult.ACCEPTED))
        return poll(timeout)

    stage.client.poll = answered  # type: ignore[method-assign]
    report = stop(stage.loop, 5.0, lambda: False)
    assert report.clean
    assert stage.sent() == [11, 12, 12]
    assert stage.core.commits.committed(P0) == 12


@pytest.mark.parametrize("heard", ["before", "after"])
def test_a_refusal_of_an_earlier_commit_says_nothing_of_the_last_one(heard: str) -> None:
    """The one before was of a generation that ended while it was under way."""
    stage = Stage()
    stage.client.stored[P1] = CommittedOffset(0, "")
    stage.fill(*(record(offset) for offset in range(20)))
    stage.assign(P0, P1)
    stage.step()
    stage.work()
    stage.loop.serve(0.0)
    assert stage.sent() == [0], "one is under way"
    poll = stage.client.poll

    def answered(timeout: float) -> Record | None:
        earlier, *later = stage.client.commits
        if later and earlier in stage.core.commits.in_flight:
            refused = ev.CommitAnswer(earlier, ev.CommitResult.LOST, "old generation")
            if heard == "before":
                stage.mailbox.put(refused)
                stage.client.callbacks["revoke"]([P1])
            for each in stage.client.commits[1:]:
                stage.mailbox.put(ev.CommitAnswer(each, ev.CommitResult.ACCEPTED))
            if heard == "after":
                stage.mailbox.put(refused)
        return poll(timeout)

    stage.client.poll = answered  # type: ignore[method-assign]
    report = stop(stage.loop, 5.0, lambda: False)
    assert stage.core.commits.committed(P0) == 20
    assert stage.sent() == [0, 20]
    assert report.commit_accepted
    assert report.clean


def test_a_stop_sends_again_what_an_earlier_commit_had_and_is_refused_for_its_generation(
    stage: Stage,
) -> None:
    """All of P0 is on its way already when the member stops, so the stop adds nothing to it."""
    stage.step()
    stage.work()
    stage.loop.serve(0.0)
    stage.loop.commit()
    assert stage.sent() == [20], "it is under way"
    earlier = stage.client.commits[0]

    def refused_once() -> None:
        if earlier in stage.core.commits.in_flight:
            stage.accept()
            stage.mailbox.put(ev.CommitAnswer(earlier, ev.CommitResult.LOST, "old generation"))

    stage.on_wait = refused_once
    report = stop(stage.loop, 5.0, lambda: False)
    assert stage.core.commits.committed(P0) == 20
    assert report.clean
    assert stage.sent() == [20, 20]


def test_a_stop_sends_again_what_is_only_to_be_confirmed_and_is_refused_for_its_generation(
    stage: Stage,
) -> None:
    """One commit was refused for now, the next accepted; the last one repeats it, to be sure."""
    stage.step()
    stage.work()
    stage.loop.serve(0.0)
    told = [ev.CommitResult.RETRY, ev.CommitResult.ACCEPTED, ev.CommitResult.LOST]
    answers = iter(told)
    stage.client.answer = lambda commit: ev.CommitAnswer(
        commit, next(answers, ev.CommitResult.ACCEPTED), "a round"
    )
    for _ in range(2):
        stage.loop.commit()
        stage.loop.serve(0.0)
    assert stage.core.commits.committed(P0) == 20
    report = stop(stage.loop, 5.0, lambda: False)
    assert stage.sent() == [20, 20, 20, 20]
    assert report.clean


@pytest.mark.parametrize("result", [ev.CommitResult.LOST, ev.CommitResult.DENIED])
def test_a_last_commit_that_is_refused_is_not_called_accepted(
    stage: Stage, result: ev.CommitResult
) -> None:
    stage.step()
    stage.work()
    stage.client.answer = lambda commit: ev.CommitAnswer(commit, result, "no")
    report = stop(stage.loop, 5.0, lambda: False)
    assert not report.commit_accepted
    if result is ev.CommitResult.LOST:
        assert stage.sent() == [20] * REFUSED_MOST
    else:
        assert set(stage.sent()) == {20}, "sent again, as it may be accepted later"


def test_a_stop_in_the_middle_of_many_rounds_sends_again_what_each_of_them_refuses(
    stage: Stage,
) -> None:
    """A cooperative group that is restarted member by member: one round ends, the next begins."""
    stage.step()
    stage.work()
    refused = iter([ev.CommitResult.LOST] * 3 + [ev.CommitResult.RETRY, ev.CommitResult.LOST])
    stage.client.answer = lambda commit: ev.CommitAnswer(
        commit, next(refused, ev.CommitResult.ACCEPTED), "a round"
    )
    report = stop(stage.loop, 25.0, lambda: False)
    assert report.clean
    assert stage.sent() == [20] * 6
    assert stage.core.commits.committed(P0) == 20


@pytest.mark.parametrize("lost", [False, True])
def test_what_is_refused_and_then_given_up_or_lost_in_a_stop_is_told_as_it_is(lost: bool) -> None:
    """What is given up is committed once more, with the generation of that round."""
    stage = Stage()
    stage.fill(*(record(offset) for offset in range(20)))
    stage.assign(P0, P1)
    stage.step()
    stage.mailbox.put(ev.CommitAnswer(stage.client.commits[0], ev.CommitResult.ACCEPTED))
    stage.work()
    poll = stage.client.poll

    def answered(timeout: float) -> Record | None:
        last = stage.client.commits[-1]
        if P0 in stage.core.partitions:
            stage.mailbox.put(ev.CommitAnswer(last, ev.CommitResult.LOST, "old generation"))
            stage.accept()
            stage.client.callbacks["lost" if lost else "revoke"]([P0])
        return poll(timeout)

    stage.client.poll = answered  # type: ignore[method-assign]
    report = stop(stage.loop, 5.0, lambda: False)
    assert stage.sent() == ([0, 20] if lost else [0, 20, 20])
    assert report.clean is not lost


@pytest.mark.parametrize("then", [ev.CommitResult.RETRY, ev.CommitResult.ACCEPTED])
def test_what_fails_for_now_and_is_given_up_meanwhile_is_told_as_it_is(
    stage: Stage, then: ev.CommitResult
) -> None:
    """Nobody sends it again for a partition that has gone."""
    stage.step()
    stage.work()
    answers = iter([ev.CommitResult.RETRY, then])
    stage.client.answer = lambda commit: ev.CommitAnswer(commit, next(answers), "a rebalance")
    poll = stage.client.poll

    def taken_away(timeout: float) -> Record | None:
        if P0 in stage.core.partitions:
            stage.client.callbacks["revoke"]([P0])
        return poll(timeout)

    stage.client.poll = taken_away  # type: ignore[method-assign]
    report = stop(stage.loop, 5.0, lambda: False)
    assert stage.sent() == [20, 20]
    assert report.commit_accepted is (then is ev.CommitResult.ACCEPTED)


@pytest.mark.parametrize(("hurried", "most"), [(False, 2.0), (True, 0.5)])
def test_a_last_commit_without_an_answer_is_not_clean(
    stage: Stage, hurried: bool, most: float
) -> None:
    stage.step()
    stage.work()
    poll = stage.client.poll

    def slow_poll(timeout: float) -> Record | None:
        stage.now += timeout
        return poll(timeout)

    stage.client.poll = slow_poll  # type: ignore[method-assign]
    stage.client.there = False
    before = stage.now
    report = stop(stage.loop, 25.0, lambda: hurried)
    assert not report.clean
    assert most <= stage.now - before < most + 0.5
    assert "last commit NOT acknowledged" in report.line()


class RefusedLetters:
    """A publisher whose letters never get an answer, or are refused at once."""

    def __init__(self, *, refused: bool) -> None:
        self.post: Callable[[ev.DeadLetterAnswer], None]
        self.refused = refused
        self.count = 0

    def publish(self, publish: cmd.Publish) -> None:
        if self.refused:
            self.post(ev.DeadLetterAnswer(publish, "no such topic"))
        else:
            self.count += 1

    def serve(self) -> None: ...

    def unanswered(self) -> int:
        return self.count

    def close(self, timeout: float) -> None: ...


@pytest.mark.parametrize("refused", [True, False])
def test_only_a_dead_letter_on_its_way_holds_up_a_stop(refused: bool) -> None:
    settings = SubscriptionSettings(on_exhausted="dead_letter", dlq=True)
    publisher = RefusedLetters(refused=refused)
    stage = Stage(settings, publisher=publisher)
    publisher.post = stage.mailbox.put
    stage.accept()
    stage.client.stored[P0] = CommittedOffset(0, None)
    stage.fill(record(0), record(1, "other"))
    stage.assign()
    stage.step()
    stage.work({0: failure(outcome=Disposition.DEAD_LETTER)})
    stage.step(2)
    before = stage.now
    report = stop(stage.loop, 10.0, lambda: False)
    assert report.clean is refused
    assert (stage.now - before < 1.0) is refused
    assert stage.sent()[-1] == 0, "the record is not settled"
    assert ("1 dead letter without an answer" in report.line()) is not refused
