"""What a batch takes, and what is committed of what its tasks tell."""

from __future__ import annotations

import pickle

import pytest

from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.core.offsets.commit_metadata import SET_BUDGET, decode, encode
from kafka_keyshared.core.offsets.metadata_sections import LaneNotes, Tried
from kafka_keyshared.core.offsets.positions import OffsetSnapshot
from kafka_keyshared.core.subscription.settings import SubscriptionSettings, worker_names
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.batch_plan import leaves_nothing, outcome, plan
from kafka_keyshared.spark.task import Settled, TaskReport
from tests.support.commit_texts import here

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
BLOCK = SubscriptionSettings(workers=worker_names(2))
LETTERS = SubscriptionSettings(workers=worker_names(2), on_exhausted="dead_letter", dlq=True)


def at(position: int, end: int, metadata: str | None = None, start: int = 0) -> StartPoint:
    return StartPoint(position, metadata, start, end)


def test_a_batch_goes_to_the_end_where_nothing_can_stay_behind() -> None:
    made = plan({P0: at(10, 500_000), P1: at(7, 7)}, LETTERS)
    assert {each: (share.begin, share.end) for each, share in made.shares.items()} == {
        P0: (10, 500_000)
    }
    assert made.offsets == 499_990
    assert plan({P0: at(10, 500_000)}, LETTERS, 1_000).shares[P0].end == 1_010


@pytest.mark.parametrize("position", [0, 1_000_000_000_000])
def test_whatever_stays_behind_of_a_batch_that_may_block_fits_in_the_metadata(
    position: int,
) -> None:
    """Every second offset settled is the longest set that there is."""
    share = plan({P0: at(position, position + 500_000)}, BLOCK).shares[P0]
    assert 10_000 < share.end - share.begin < 17_000
    runs = tuple((offset, offset + 1) for offset in range(share.begin + 1, share.end, 2))
    written = encode(here(position, P0), {"default": runs})
    assert not written.truncated
    assert written.set_chars <= 0.76 * SET_BUDGET


def test_a_set_that_reaches_far_is_kept_within_its_room() -> None:
    """Pods have left a set of runs beyond what a bitmap could say."""
    runs = tuple((1_000 * n, 1_000 * n + 900) for n in range(1, 200))
    text = encode(here(5, P0), {"default": runs}).text
    share = plan({P0: at(5, 500_000, text)}, BLOCK).shares[P0]
    settled = {offset for low, high in runs for offset in range(low, high)}
    settled.update(range(share.begin + 1, share.end, 2))
    told: list[tuple[int, int]] = []
    for offset in sorted(settled):
        if told and told[-1][1] == offset:
            told[-1] = (told[-1][0], offset + 1)
        else:
            told.append((offset, offset + 1))
    assert not encode(here(5, P0), {"default": tuple(told)}).truncated


def test_only_policies_that_give_a_record_up_leave_nothing_behind() -> None:
    assert leaves_nothing(LETTERS)
    assert leaves_nothing(SubscriptionSettings(on_exhausted="drop", undecodable="drop"))
    assert not leaves_nothing(BLOCK)
    assert not leaves_nothing(SubscriptionSettings(on_exhausted="divert", dlq=True))
    derived = SubscriptionSettings(
        on_exhausted="dead_letter",
        dlq=True,
        undecodable="block",
        key_of=lambda record: record.key(),
    )
    assert not leaves_nothing(derived)
    # What goes by its own key has one, or none: without a place for letters nothing blocks either.
    assert leaves_nothing(SubscriptionSettings(on_exhausted="drop"))
    assert not leaves_nothing(SubscriptionSettings(on_exhausted="drop", null_keys="reject"))


def test_what_retention_has_removed_is_not_read() -> None:
    made = plan({P0: at(10, 100, start=40)}, LETTERS)
    assert (made.shares[P0].begin, made.shares[P0].end) == (40, 100)
    assert "retention has removed the log up to 40" in made.notices[0]


def told(worker: int, runs: tuple[tuple[int, int], ...], **notes: object) -> TaskReport:
    return TaskReport(worker, {P0: Settled(runs, LaneNotes(**notes))})  # type: ignore[arg-type]


def test_of_what_tasks_tell_the_least_is_committed() -> None:
    made = plan({P0: at(0, 10)}, BLOCK)
    reports = [told(0, ((0, 3), (4, 10)), tried={3: Tried(5)}), told(1, ((0, 7), (8, 10)))]
    entry = outcome(made, reports, "default")[P0]
    found = decode(entry.metadata, here(entry.position, P0))
    assert entry.position == 3
    assert found.sections["default"] == ((4, 7), (8, 10))
    assert found.notes["default"].tried == {3: Tried(5)}


def test_what_others_have_said_in_the_metadata_is_handed_on() -> None:
    theirs = encode(here(0, P0), {"other": ((5, 9),), "default": ((2, 4), (12, 14))}).text
    made = plan({P0: at(0, 10, theirs)}, BLOCK)
    entry = outcome(made, [told(0, ((0, 10), (12, 14))), told(1, ((0, 10), (12, 14)))], "default")[
        P0
    ]
    found = decode(entry.metadata, here(entry.position, P0), ["default"])
    assert (entry.position, found.sections) == (10, {"default": ((12, 14),)})
    assert "other" in found.unknown


def test_what_a_task_sends_of_positions_can_be_pickled() -> None:
    snapshot = OffsetSnapshot(
        5, {"default": ((6, 7),)}, notes={"default": LaneNotes(tried={5: Tried(2)})}
    )
    assert pickle.loads(pickle.dumps(snapshot)) == snapshot
