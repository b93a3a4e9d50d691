"""What follows a failed attempt, a record without a readable key, and a refused dead letter."""

from __future__ import annotations

from typing import get_args

import pytest

from kafka_keyshared.core.contract.outcomes import NO_ATTEMPT, Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.failures.decision import (
    UNREADABLE,
    Decision,
    HeadState,
    decide,
    publish_delay,
)
from kafka_keyshared.core.keys.extraction import UndecodablePolicy

THREE = RetryPolicy(attempts=3, backoff=0.1, factor=2.0, jitter=0.0)
RETRY, DROP, BLOCK = Disposition.RETRY, Disposition.DROP, Disposition.BLOCK
LETTER, ARCHIVE, DIVERT = Disposition.DEAD_LETTER, Disposition.ARCHIVE, Disposition.DIVERT
BACK, PUT_OFF, ERROR = Disposition.GIVEN_BACK, Disposition.PUT_OFF, Disposition.ERROR
POLICIES: tuple[PoisonPolicy, ...] = get_args(PoisonPolicy)
ANY = HeadState()
KEYLESS = HeadState(keyless=True)
ARCHIVED = HeadState(archived=True)
FULL = HeadState(may_divert=False)


def after(disposition: Disposition, seconds: float | None = None) -> Failure:
    """Return a failure with this disposition, and the delay that its handler asked for."""
    return Failure(disposition, "ValueError", "no", "", 0, 0.0, seconds)


@pytest.mark.parametrize("poison", POLICIES)
@pytest.mark.parametrize(
    ("failure", "failures", "follows"),
    [
        (after(ERROR), 1, Decision(RETRY, 0.1)),
        (after(ERROR), 2, Decision(RETRY, 0.2)),
        (after(RETRY, 3.0), 1, Decision(RETRY, 3.0)),
        (after(RETRY), 2, Decision(RETRY, 0.2)),
        (after(PUT_OFF, 60.0), 0, Decision(RETRY, 60.0)),
        (after(PUT_OFF), 9, Decision(RETRY)),
        (after(BACK), 9, Decision(RETRY)),
        (after(LETTER), 1, Decision(LETTER)),
        (after(LETTER), 3, Decision(LETTER)),
    ],
)
def test_what_follows_before_the_poison_policy(
    failure: Failure, failures: int, follows: Decision, poison: PoisonPolicy
) -> None:
    for head in (ANY, KEYLESS, ARCHIVED, FULL):
        assert decide(failure, failures, THREE, poison, dlq=True, head=head) == follows


FOREVER = RetryPolicy(backoff=5.0, factor=2.0, backoff_max=60.0, jitter=0.0, forever=True)
ONE = RetryPolicy(attempts=1)


@pytest.mark.parametrize(
    ("retry", "failures", "in_row", "follows"),
    [
        (ONE, 1, 1, Decision(LETTER)),
        (RetryPolicy(attempts=9, backoff=1.0, jitter=0.0), 3, 3, Decision(RETRY, 4.0)),
        (RetryPolicy(attempts=9, backoff=1.0, jitter=0.0), 8, 1, Decision(RETRY, 1.0)),
        (RetryPolicy(attempts=9), 9, 1, Decision(LETTER)),
        (FOREVER, 2, 1, Decision(RETRY, 5.0)),
        (FOREVER, 1_000, 4, Decision(RETRY, 40.0)),
        (FOREVER, 1_000, 5_000, Decision(RETRY, 60.0)),
    ],
)
def test_the_delay_grows_with_the_failures_in_a_row_and_the_limit_counts_all(
    retry: RetryPolicy, failures: int, in_row: int, follows: Decision
) -> None:
    head = HeadState(in_row)
    assert decide(after(ERROR), failures, retry, "dead_letter", dlq=True, head=head) == follows


@pytest.mark.parametrize("asked", [after(ERROR), after(RETRY, 3.0)])
@pytest.mark.parametrize(
    ("poison", "head", "follows"),
    [
        ("drop", ANY, DROP),
        ("dead_letter", ANY, LETTER),
        ("block", ANY, BLOCK),
        ("block_and_dlq", ANY, ARCHIVE),
        ("block_and_dlq", ARCHIVED, BLOCK),
        ("divert", ANY, DIVERT),
        ("divert", KEYLESS, LETTER),
        ("divert", FULL, BLOCK),
        ("divert", HeadState(keyless=True, may_divert=False), LETTER),
        *((poison, KEYLESS, None) for poison in POLICIES if poison != "divert"),
        *((poison, FULL, None) for poison in POLICIES if poison != "divert"),
        *((poison, ARCHIVED, None) for poison in POLICIES if poison != "block_and_dlq"),
    ],
)
def test_what_follows_the_last_attempt(
    poison: PoisonPolicy, head: HeadState, follows: Disposition | None, asked: Failure
) -> None:
    """None: the state of the head makes no difference."""
    found = decide(asked, 3, THREE, poison, dlq=True, head=head)
    expected = decide(asked, 3, THREE, poison, dlq=True).disposition
    assert found == Decision(expected if follows is None else follows)


@pytest.mark.parametrize("poison", ["drop", "block"])
def test_a_dead_letter_without_a_topic_blocks(poison: PoisonPolicy) -> None:
    assert decide(after(LETTER), 1, THREE, poison, dlq=False) == Decision(BLOCK)


@pytest.mark.parametrize("disposition", Disposition)
def test_without_reliability_every_failure_is_a_drop(disposition: Disposition) -> None:
    """A record that was returned untried has not failed."""
    found = decide(after(disposition, 3.0), 1, THREE, "drop", dlq=False, at_least_once=False)
    assert found == Decision(RETRY if disposition is BACK else DROP)
    assert disposition in NO_ATTEMPT or found.disposition is DROP


def test_every_policy_for_unreadable_keys_has_a_consequence() -> None:
    assert UNREADABLE == {"null_key": RETRY, "drop": DROP, "dead_letter": LETTER, "block": BLOCK}
    assert set(UNREADABLE) == set(get_args(UndecodablePolicy))


def test_a_refused_dead_letter_is_written_again_after_a_growing_delay() -> None:
    assert [publish_delay(each) for each in (1, 2, 3, 5, 6, 1_000)] == [1, 2, 4, 16, 30, 30]
