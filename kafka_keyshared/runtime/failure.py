"""What is remembered of a failed attempt: for the log, the decision, and the dead letter."""

from __future__ import annotations

import linecache
import random
import time
import traceback
from types import FrameType
from typing import Any

from kafka_keyshared.core.events import Failure, Outcome
from kafka_keyshared.model import DeadLetter, Retry
from kafka_keyshared.runtime.places import is_ours, is_users, shown

STACK_FRAMES_MAX = 20
STACK_CHARS_MAX = 8_000
MESSAGE_CHARS_MAX = 2_000
CAUSES_MAX = 3

TEXTS_MAX = 2_000
"""Frames whose text is kept: what fails once mostly fails again, in the same place."""

Frames = list[tuple[FrameType, int]]


def _frames_of(error: BaseException) -> Frames:
    """Return the frames from the handler on; those above it are ours, and say nothing."""
    frames = list(traceback.walk_tb(error.__traceback__))
    for at, (frame, _) in enumerate(frames):
        if not is_ours(frame.f_code.co_filename):
            return frames[at:]
    return frames


def _place_in(frames: Frames) -> str:
    """Return where it was raised: in the handler's program, or else below it; as file and line.

    Nowhere, if only this package was running.
    """
    place = ""
    for frame, number in reversed(frames):
        file = frame.f_code.co_filename
        if is_users(file):
            return f"{shown(file)}:{number}"
        if not place and not is_ours(file):
            place = f"{shown(file)}:{number}"
    return place


def _stack_of(frames: Frames) -> str:
    """Return the innermost frames as text, in the layout of a Python traceback.

    The traceback module would look at every source file again for each failure, and parse the lines
    to underline parts of them: in a program whose threads are busy that costs milliseconds each.
    """
    lines = []
    for frame, number in frames[-STACK_FRAMES_MAX:]:
        code = frame.f_code
        place = code.co_filename, number, code.co_name
        text = _texts.get(place)
        if text is None:
            if len(_texts) >= TEXTS_MAX:
                _texts.clear()
            _texts[place] = text = _text_at(*place, frame.f_globals)
        lines.append(text)
    return "".join(lines)[-STACK_CHARS_MAX:]


_texts: dict[tuple[str, int, str], str] = {}


def _text_at(file: str, number: int, name: str, names: dict[str, Any]) -> str:
    source = linecache.getline(file, number, names).strip()
    return f'  File "{file}", line {number}, in {name}\n' + (f"    {source}\n" if source else "")


def _causes_of(error: BaseException) -> str:
    """Return what the error was raised from, or in the handling of, a line for each."""
    lines = []
    for _ in range(CAUSES_MAX):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None:
            break
        error = cause
        where = _place_in(_frames_of(error))
        at = f", at {where}" if where else ""
        lines.append(f"  because of {type(error).__qualname__}: {text_of(error)}{at}\n")
    return "".join(lines)


def text_of(error: BaseException) -> str:
    """Return what the error says; if that fails, that it does."""
    try:
        return str(error)[:MESSAGE_CHARS_MAX]
    except BaseException as broken:  # noqa: BLE001 - printing a user's exception runs user code
        return f"(no text: {type(broken).__name__})"


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
    message = text_of(error)
    frames = _frames_of(error)
    try:
        stack = _stack_of(frames) + _causes_of(error)
    except Exception as broken:  # noqa: BLE001 - a source may come from a loader of the user's
        stack = f"  (no source: {type(broken).__name__})\n"
    return Failure(
        outcome,
        type(error).__qualname__,
        message,
        stack,
        at_ms=time.time_ns() // 1_000_000,
        jitter=random.uniform(-1, 1),
        after=after,
        place=_place_in(frames),
    )
