"""What becomes of a record whose attempt did not settle it, and the failed attempt itself."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Disposition(enum.Enum):
    """What becomes of a record whose attempt did not settle it, says who has tried or the policy.

    One that is added here is decided on in :func:`kafka_keyshared.core.retry_policy.decide`, and
    acted on in :func:`kafka_keyshared.core.failures.follow_up`. What a handler says, its verdict
    (:mod:`kafka_keyshared.model`), becomes one of these in
    :func:`kafka_keyshared.handling.failure.describe`.
    """

    ERROR = "error"
    """Nothing is said: the handler raised, and the policy decides."""
    RETRY = "retry"
    """It runs again."""
    DEAD_LETTER = "dead_letter"
    """It goes to the dead-letter topic."""
    DROP = "drop"
    """It is settled without having been done."""
    BLOCK = "block"
    """It keeps its lane closed until somebody releases it, or the process is started anew."""
    GIVEN_BACK = "given_back"
    """That was no attempt at all: whoever had the record has not tried."""
    PUT_OFF = "put_off"
    """It runs again later, and that was no attempt: its handler has asked for both."""
    ARCHIVE = "archive"
    """A copy of it goes to the dead-letter topic, once, and it keeps its lane closed."""
    DIVERT = "divert"
    """It and all that follows in its lane go to the dead-letter topic."""


NO_ATTEMPT = frozenset({Disposition.GIVEN_BACK, Disposition.PUT_OFF})
"""What is said of a record that has not been tried."""


@dataclass(frozen=True, slots=True)
class Failure:
    """One failed attempt, as the worker saw it.

    ``at_ms`` is wall-clock time in milliseconds (it ends in a header); ``jitter`` is drawn in
    [-1, 1] where the failure was seen, so that the core needs no random source; ``after`` is the
    delay in seconds that the handler asked for; ``where`` is the file and line of the user's
    program that it came from, empty where there is none; ``timed_out`` says that the attempt was
    ended because the ack timeout was over; ``trace`` is the ``traceparent`` of the attempt's span,
    empty where there is none.
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
