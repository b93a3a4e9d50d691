"""Descriptions of failed attempts, for logs, retry policy and dead letters."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import Any, NamedTuple

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.model import DeadLetter, Retry
from kafka_keyshared.platform.stack_frames import is_ours, is_users, shown

STACK_FRAMES_MAX = 20
STACK_CHARS_MAX = 8_000
MESSAGE_CHARS_MAX = 2_000
CAUSES_MAX = 3

TEXTS_MAX = 2_000
"""Most frames whose text is cached: most failures repeat in the same place."""

TRACE = "__keyshared_trace__"
"""Key in the ``__dict__`` of an error for the ``traceparent`` of its span."""

Frames = list[tuple[FrameType, int]]


def _frames_of(error: BaseException) -> Frames:
    """Return the frames from the handler on; the frames of this package above it are left out."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for at, (frame, _) in enumerate(frames):
        if not is_ours(frame.f_code.co_filename):
            return frames[at:]
    return frames


def _where_and_stack(frames: Frames) -> tuple[str, str]:
    """Return the place of the error (file and line), and the innermost frames as text.

    The place is in the user's program if possible, otherwise in a library below it. It is empty if
    only this package was running.

    The text has the layout of a Python traceback. The traceback module would check every source
    file again for each failure. It would also parse source lines to underline parts of them. In a
    program with busy threads that costs milliseconds each.
    """
    users = others = ""
    lines = []
    for frame, number in frames[-STACK_FRAMES_MAX:]:
        code = frame.f_code
        at = code.co_filename, number, code.co_name
        known = _known.get(at)
        if known is None:
            if len(_known) >= TEXTS_MAX:
                _known.clear()
            _known[at] = known = _line_at(*at, frame.f_globals)
        lines.append(known.text)
        if known.users:
            users = known.users
        elif known.others:
            others = known.others
    if not users:
        # The innermost frames are all in a library: look for the user's code above them.
        for frame, number in reversed(frames[:-STACK_FRAMES_MAX]):
            if is_users(frame.f_code.co_filename):
                users = f"{shown(frame.f_code.co_filename)}:{number}"
                break
    return users or others, "".join(lines)[-STACK_CHARS_MAX:]


class _FrameLine(NamedTuple):
    """The text of a frame's line, and its place, as the user's program or as a library."""

    text: str
    users: str
    others: str


_known: dict[tuple[str, int, str], _FrameLine] = {}


def _line_at(file: str, number: int, name: str, names: dict[str, Any]) -> _FrameLine:
    try:
        source = linecache.getline(file, number, names).strip()
    except Exception as broken:  # noqa: BLE001 - the source may come from a loader of the user's
        source = f"(no source: {type(broken).__name__})"
    text = f'  File "{file}", line {number}, in {name}\n' + (f"    {source}\n" if source else "")
    where = f"{shown(file)}:{number}"
    if is_users(file):
        return _FrameLine(text, where, "")
    return _FrameLine(text, "", "" if is_ours(file) else where)


def _causes_of(error: BaseException) -> str:
    """Return the chain of causes and contexts of an error, one line for each."""
    lines = []
    for _ in range(CAUSES_MAX):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            break
        error = cause
        where, _ = _where_and_stack(_frames_of(error))
        at = f", at {where}" if where else ""
        lines.append(f"  because of {type(error).__qualname__}: {text_of(error)}{at}\n")
    return "".join(lines)


def text_of(error: BaseException) -> str:
    """Return the message of the error, or a placeholder if ``str()`` fails."""
    try:
        return str(error)[:MESSAGE_CHARS_MAX]
    except BaseException as broken:  # noqa: BLE001 - printing a user's exception runs user code
        return f"(no text: {type(broken).__name__})"


class ErrorRules(NamedTuple):
    """The rules of an app for classes of errors.

    ``dead_letter_on`` are classes whose errors make a dead letter at once. ``retry_on`` has the
    policies of classes. The class of an error that is nearest to it in its ``__mro__`` decides. An
    error without a policy that was raised ``from`` another follows the policy of that one.
    ``attempts`` is the number of attempts where no policy applies. ``wait_on`` are classes whose
    errors show that a dependency is away, also as the cause of another error.
    """

    dead_letter_on: tuple[type[BaseException], ...] = ()
    retry_on: Mapping[type[BaseException], RetryPolicy] = {}
    attempts: int | None = None
    wait_on: tuple[type[BaseException], ...] = ()

    def waits(self, error: BaseException) -> bool:
        """Return whether an error shows that a dependency is away."""
        return bool(self.wait_on) and any(isinstance(e, self.wait_on) for e in _with_causes(error))

    def policy_of(self, error: BaseException) -> RetryPolicy | None:
        """Return the retry policy for an error; None if no class of it has one."""
        for cause in _with_causes(error) if self.retry_on else ():
            for each in type(cause).__mro__:
                if (policy := self.retry_on.get(each)) is not None:
                    return policy
        return None


def _with_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it was raised ``from``."""
    cause: BaseException | None = error
    for _ in range(1 + CAUSES_MAX):
        if cause is None:
            return
        yield cause
        cause = cause.__cause__


NO_RULES = ErrorRules()


def describe(error: BaseException, clock: Clock, rules: ErrorRules = NO_RULES) -> Failure:
    """Return the description of an attempt that has just failed."""
    disposition, after = Disposition.ERROR, None
    if isinstance(error, Retry):
        try:
            after = error.delay()
            disposition = Disposition.RETRY if error.attempt else Disposition.PUT_OFF
        except ValueError as broken:
            error = broken
    # A SystemError is a fault of the interpreter or of an extension, so no retry heals it. The
    # client raises one for a header name that is not UTF-8. It must not be provoked twice: on the
    # second read of the headers, the client returns a value that crashes the process when it is
    # unpacked.
    elif isinstance(error, (DeadLetter, SystemError, *rules.dead_letter_on)):
        disposition = Disposition.DEAD_LETTER
    message = text_of(error)
    where, stack = _where_and_stack(_frames_of(error))
    return Failure(
        disposition,
        type(error).__qualname__,
        message,
        stack + _causes_of(error),
        at_ms=clock.wall_ms(),
        jitter=clock.jitter(),
        after=after,
        where=where,
        trace=str(error.__dict__.get(TRACE, "")),
        retry=rules.policy_of(error) if disposition is Disposition.ERROR else None,
        waits=disposition is Disposition.ERROR and rules.waits(error),
    )
