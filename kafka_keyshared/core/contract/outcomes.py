"""Dispositions of records that an attempt did not settle, and failed attempts."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from kafka_keyshared.core.contract.retry_policy import RetryPolicy


class Disposition(enum.Enum):
    """The handler's or the policy's decision on a record that its attempt did not settle.

    A new disposition needs a decision in :func:`kafka_keyshared.core.failures.decision.decide` and
    an action in :func:`kafka_keyshared.core.failures.follow_up.follow_up`.
    :func:`kafka_keyshared.executors.handling.failure.describe` turns a handler's verdict
    (:mod:`kafka_keyshared.model`) into a disposition.
    """

    ERROR = "error"
    """The handler raised without a verdict, and the policy decides."""
    RETRY = "retry"
    """The record runs again."""
    DEAD_LETTER = "dead_letter"
    """The record goes to the dead-letter topic."""
    DROP = "drop"
    """The record is settled without having been done."""
    BLOCK = "block"
    """The record keeps its lane closed until an operator releases it or the process restarts."""
    GIVEN_BACK = "given_back"
    """This was no attempt at all: the record was returned untried."""
    PUT_OFF = "put_off"
    """The record runs again later, and its handler has asked that this be no attempt."""
    ARCHIVE = "archive"
    """A copy of the record goes to the dead-letter topic, once, and it keeps its lane closed."""
    DIVERT = "divert"
    """The record and all later ones of its lane go to the dead-letter topic."""


NO_ATTEMPT = frozenset({Disposition.GIVEN_BACK, Disposition.PUT_OFF})
"""Dispositions that are no attempt."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as the worker saw it.

    ``at_ms`` is wall-clock time in milliseconds (it ends in a header). ``jitter`` is drawn in [-1,
    1] where the failure was seen, so that the core needs no random source. ``after`` is the delay
    in seconds that the handler asked for. ``where`` is the file and line of the user's program that
    it came from, empty where there is none. ``timed_out`` says that the ack timeout ended the
    attempt. ``trace`` is the ``traceparent`` of the attempt's span, empty where there is none.
    ``retry`` is the policy of the error's class, None where the class has none of its own.
    ``waits`` says that a dependency is the cause, so the record waits for it.
    """

    disposition: Disposition
    error_type: str
    message: str
    stack: str
    at_ms: int
    jitter: float = 0.0
    after: float | None = None
    where: str = ""
    timed_out: bool = False
    trace: str = ""
    retry: RetryPolicy | None = None
    waits: bool = False
