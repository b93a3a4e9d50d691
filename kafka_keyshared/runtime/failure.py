"""What is remembered of a failed attempt: for the log, the decision, and the dead letter."""

from __future__ import annotations

import linecache
import random
import time
import traceback

from kafka_keyshared.core.events import Failure, Outcome
from kafka_keyshared.model import DeadLetter, Retry

STACK_FRAMES_MAX = 20
STACK_CHARS_MAX = 8_000
MESSAGE_CHARS_MAX = 2_000


def _stack_of(error: BaseException) -> str:
    """Return the innermost frames as text, in the layout of a Python traceback.

    The traceback module would look at every source file again for each failure, and parse the lines
    to underline parts of them: in a program whose threads are busy that costs milliseconds each.
    """
    lines = []
    for frame, number in list(traceback.walk_tb(error.__traceback__))[-STACK_FRAMES_MAX:]:
        code = frame.f_code
        lines.append(f'  File "{code.co_filename}", line {number}, in {code.co_name}\n')
        if source := linecache.getline(code.co_filename, number, frame.f_globals).strip():
            lines.append(f"    {source}\n")
    return "".join(lines)[-STACK_CHARS_MAX:]


def describe(error: BaseException, dead_letter_on: tuple[type[BaseException], ...] = ()) -> Failure:
    """Return what a dead letter and the log will say about a failed attempt."""
    outcome, after = Outcome.ERROR, None
    if isinstance(error, Retry):
        try:
            outcome, after = Outcome.RETRY, error.delay()
        except ValueError as broken:
            error = broken
    # A SystemError is the interpreter's or an extension's own fault, and no attempt heals it. The
    # client's for a header name that is not UTF-8 must not be provoked twice: asked again for the
    # headers, it returns what ends the process as soon as it is unpacked.
    elif isinstance(error, (DeadLetter, SystemError, *dead_letter_on)):
        outcome = Outcome.DEAD_LETTER
    try:
        message = str(error)[:MESSAGE_CHARS_MAX]
        stack = _stack_of(error)
    except BaseException as broken:  # noqa: BLE001 - printing a user's exception runs user code
        message, stack = f"(no text: {type(broken).__name__})", ""
    return Failure(
        outcome,
        type(error).__qualname__,
        message,
        stack,
        at_ms=time.time_ns() // 1_000_000,
        jitter=random.uniform(-1, 1),
        after=after,
    )
