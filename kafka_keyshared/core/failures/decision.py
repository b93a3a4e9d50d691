"""Decisions about records that failed or cannot be routed.

Each function is pure: it decides from a failure, the attempts and the settings.
:mod:`.follow_up` carries the decisions out.

Used-up attempts are handled when the failure arrives; the heartbeat's second phase is the
backstop. The policies ``drop``, ``dead_letter`` and ``block`` are those of Danube's Key-Shared
dispatcher, ``block_and_dlq`` is Celeriant's; ``divert`` is this package's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kafka_keyshared.core.contract.outcomes import NO_ATTEMPT, Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import PoisonPolicy, RetryPolicy
from kafka_keyshared.core.keys.extraction import UndecodablePolicy

PUBLISH_BACKOFF = 1.0
PUBLISH_BACKOFF_MAX = 30.0
"""Seconds until a dead letter is written again: after its first refusal, and at most."""


class Decision(NamedTuple):
    """The decision, and for RETRY the delay in seconds."""

    disposition: Disposition
    delay: float = 0.0


class HeadState(NamedTuple):
    """The state of a failed head beside the number of its failures.

    ``in_row`` is the number of its last failures that follow one policy; the delay grows with it.
    0 stands for all its failures.
    ``keyless`` says that its lane is one record. ``archived`` says that the dead-letter topic has a
    copy of it. ``may_divert`` says that the commit metadata can name its lane.
    """

    in_row: int = 0
    keyless: bool = False
    archived: bool = False
    may_divert: bool = True


_POISON: Mapping[PoisonPolicy, Disposition] = {
    "drop": Disposition.DROP,
    "dead_letter": Disposition.DEAD_LETTER,
    "block": Disposition.BLOCK,
    "block_and_dlq": Disposition.ARCHIVE,
    "divert": Disposition.DIVERT,
}


def decide(
    failure: Failure,
    failures: int,
    retry: RetryPolicy,
    on_exhausted: PoisonPolicy,
    *,
    dlq: bool,
    at_least_once: bool = True,
    head: HeadState = HeadState(),  # noqa: B008 - an immutable value
) -> Decision:
    """Decide what follows the ``failures``-th failed attempt of a record.

    ``retry`` is the policy for this failure.
    A handler's own ``DeadLetter`` skips the remaining attempts. Without a dead-letter topic it
    blocks the lane, because the record must not be lost. ``Retry(after=...)`` sets the delay, not
    the number of attempts; with ``attempt=False`` it does not count as one. Without
    ``at_least_once`` each failed record is dropped.
    """
    if failure.disposition is Disposition.GIVEN_BACK:
        return Decision(Disposition.RETRY)
    if not at_least_once:
        return Decision(Disposition.DROP)
    if failure.disposition in NO_ATTEMPT:
        return Decision(Disposition.RETRY, failure.after or 0.0)
    if failure.disposition is Disposition.DEAD_LETTER:
        return Decision(Disposition.DEAD_LETTER if dlq else Disposition.BLOCK)
    if retry.used_up(failures):
        return Decision(_exhausted(on_exhausted, head))
    asked, own = failure.after, retry.delay(head.in_row or failures, failure.jitter)
    return Decision(Disposition.RETRY, own if asked is None else asked)


def _exhausted(on_exhausted: PoisonPolicy, head: HeadState) -> Disposition:
    """Return what the poison policy does with a head whose attempts are used up.

    A copy is written once. A keyless record has no later record to divert. A lane that the commit
    metadata cannot name is blocked, because the next owner would not go on diverting it.
    """
    follows = _POISON[on_exhausted]
    if follows is Disposition.ARCHIVE and head.archived:
        return Disposition.BLOCK
    if follows is Disposition.DIVERT:
        if head.keyless:
            return Disposition.DEAD_LETTER
        if not head.may_divert:
            return Disposition.BLOCK
    return follows


UNREADABLE: Mapping[UndecodablePolicy, Disposition] = {
    "null_key": Disposition.RETRY,
    "drop": Disposition.DROP,
    "dead_letter": Disposition.DEAD_LETTER,
    "block": Disposition.BLOCK,
}
"""What follows for a record whose key cannot be read; RETRY: it runs as one without a key."""


def publish_delay(refusals: int) -> float:
    """Return the seconds until a dead letter is written again after this many refusals.

    >>> [publish_delay(each) for each in (1, 2, 3, 9)]
    [1.0, 2.0, 4.0, 30.0]
    """
    return min(PUBLISH_BACKOFF * 2.0 ** min(refusals - 1, 16), PUBLISH_BACKOFF_MAX)
