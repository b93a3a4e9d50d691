"""A lost partition that comes straight back goes on where it was left; any other does not."""

from __future__ import annotations

import pytest

from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.offsets import commit_metadata
from kafka_keyshared.core.partitions.lost_progress import KEPT_SECONDS
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from tests.support.commit_texts import here
from tests.support.core_harness import Harness
from tests.support.records import ERROR, P0, record


def begun(*workers: str) -> Harness:
    """A member that has settled the first record, and has sent no commit yet."""
    made = Harness(SubscriptionSettings(workers=workers or ("worker-0",)))
    made.assign(P0, position=0)
    made.fetch(record(0, "a"))
    made.work()
    return made


def lost(*, accepted: bool = True, answered: CommitResult | None = None) -> Harness:
    """A member that has settled 0, 2 and 3, but not 1, and has lost the partition.

    Its commit of position 1 was accepted, unless told, before 2 and 3 had settled.
    """
    made = begun()
    if accepted or answered:
        (commit,) = made.commit()
        made.answer(commit, answered or CommitResult.ACCEPTED)
    made.fetch(record(1, "slow"), record(2, "b"), record(3, "b"))
    made.work({1: [ERROR]})
    made.revoke(P0, commit=False)
    return made


def back(
    made: Harness, position: int | None, text: str = "", *, end: int | None = 10
) -> tuple[int | None, list[int]]:
    """Assign it again; return where it starts and what it then runs of four records."""
    made.tell(ev.Assigned({P0: ev.StartPoint(position, text, 0 if end is not None else None, end)}))
    start = made.assigned[P0]
    made.fetch(*(record(at, f"key-{at}") for at in range(start or 0, 4)))
    return start, sorted(made.work())


def test_it_starts_where_it_was_left() -> None:
    made = lost()
    assert back(made, 1) == (1, [1])
    assert made.said("orders-0: assigned again, and no other member has committed")


def test_what_was_left_needs_not_fit_in_what_the_brokers_take() -> None:
    made = begun()
    made.tell(ev.TextLimitTold(1))
    (commit,) = made.commit()
    made.answer(commit, CommitResult.ACCEPTED)
    made.fetch(record(1, "slow"), record(2, "b"), record(3, "b"))
    made.work({1: [ERROR]})
    made.revoke(P0, commit=False)
    assert back(made, 1) == (1, [1]), "2 and 3 have settled here"


def test_what_was_left_is_committed_at_once() -> None:
    made = lost()
    made.tell(ev.Assigned({P0: ev.StartPoint(1, "", 0, 10)}))
    assert made.core.commit_wanted(made.now + made.core.commits.policy.interval)
    (commit,) = made.commit()
    entry = commit.entries[P0]
    assert (entry.position, commit_metadata.decode(entry.metadata, here(1)).sections) == (
        1,
        {"default": ((2, 4),)},
    )


def test_what_somebody_else_has_committed_meanwhile_counts() -> None:
    assert back(lost(), 2) == (2, [2, 3])


def test_a_text_that_is_not_ours_counts_too() -> None:
    text = commit_metadata.encode(here(1), {"default": ((3, 4),)}, {}).text
    assert back(lost(), 1, text) == (1, [1, 2])


@pytest.mark.parametrize("result", [CommitResult.RETRY, CommitResult.LOST])
def test_a_commit_that_failed_may_have_been_stored_and_is_ours(result: CommitResult) -> None:
    made = lost(answered=result)
    assert back(made, 1) == (1, [1])


def test_without_a_commit_of_ours_nobody_can_tell_who_was_there() -> None:
    assert back(lost(accepted=False), None, end=None) == (None, [0, 1, 2, 3])


def test_after_some_minutes_it_is_forgotten() -> None:
    made = lost()
    made.now += KEPT_SECONDS + 1
    assert back(made, 1) == (1, [1, 2, 3])


@pytest.mark.parametrize("end", [None, 0])
def test_it_is_held_to_the_end_of_the_log(end: int | None) -> None:
    """A log that was cut off below it, or of which the end is not known, may have other records."""
    made = lost()
    made.tell(ev.Assigned({P0: ev.StartPoint(1, "", None if end is None else 0, end)}))
    assert made.core.partitions[P0].restored == {}


def test_it_is_remembered_for_one_assignment_only() -> None:
    made = lost()
    made.tell(ev.Assigned({P0: ev.StartPoint(1, "", 0, 10)}))
    made.revoke(P0)
    assert back(made, 1) == (1, [1, 2, 3])


def test_what_still_ran_is_not_settled() -> None:
    """Its handler may end well after all; nobody can know when the partition is lost."""
    made = begun()
    (commit,) = made.commit()
    made.answer(commit)
    item = record(1, "a")
    made.fetch(item)
    worker = made.owner_of(item)
    worker.start()
    made.revoke(P0, commit=False)
    worker.finish()
    assert back(made, 1) == (1, [1, 2, 3])


def test_an_answer_settles_nothing_about_a_commit_that_was_sent_after_it() -> None:
    """Both were on the way when the partition was lost; the broker may have stored either."""
    made = begun()
    (first,) = made.commit()
    made.fetch(record(1, "a"), record(2, "slow"), record(3, "b"))
    made.work({2: [ERROR]})
    (second,) = made.commit()
    assert (first.entries[P0].position, second.entries[P0].position) == (1, 2)
    made.answer(first)
    made.fetch(record(4, "c"))
    made.work()
    made.revoke(P0, commit=False)
    made.tell(ev.Assigned({P0: ev.StartPoint(2, second.entries[P0].metadata, 0, 10)}))
    assert made.core.partitions[P0].restored == {"default": ((3, 5),)}


def lost_without_progress() -> tuple[Harness, CommitEntry]:
    """A member and what the broker has of it: 0 and 2 have settled, and 4 since; 1 has failed.

    That 2 had ended was known by the progress of its slice alone, which the loss does not tell.
    """
    made = begun("worker-0", "worker-1")
    made.fetch(record(1, "slow"))
    made.work({1: [ERROR]})
    item = record(2, "b")
    made.fetch(item, record(3, "b"))
    worker = made.owner_of(item)
    worker.start()
    worker.finish()
    worker.start()  # and 3 runs
    (commit,) = made.commit()
    made.answer(commit)
    item = next(each for key in "cdefgh" if made.owner_of(each := record(4, key)) is not worker)
    made.fetch(item)
    made.owner_of(item).start()
    made.owner_of(item).finish()
    made.owner_of(item).step()  # it reports the end
    made.deliver()
    made.tell(ev.Revoking([P0]))
    made.tell(ev.Forget([P0], lost=True))
    return made, commit.entries[P0]


def test_what_is_committed_is_settled_also_where_the_loss_knew_less() -> None:
    made, stored = lost_without_progress()
    assert (stored.position, commit_metadata.decode(stored.metadata, here(1)).sections) == (
        1,
        {"default": ((2, 3),)},
    )
    made.tell(ev.Assigned({P0: ev.StartPoint(1, stored.metadata, 0, 10)}))
    assert made.assigned[P0] == 1
    assert made.core.partitions[P0].restored == {"default": ((2, 3), (4, 5))}


def test_it_never_starts_before_what_is_committed() -> None:
    """Or it would be ended behind the broker's position, and what it did there be forgotten."""
    made = begun()
    item = record(1, "a")
    made.fetch(item, record(2, "a"))
    worker = made.owner_of(item)
    worker.start()
    worker.finish()
    worker.start()  # 2 runs: that 1 has ended is known by its progress alone
    (commit,) = made.commit()
    made.answer(commit)
    made.tell(ev.Revoking([P0]))
    made.tell(ev.Forget([P0], lost=True))
    worker.finish()
    assert commit.entries[P0].position == 2
    assert back(made, 2) == (2, [2, 3])
