"""Whose code a file is: the user's, a library's, or this package's own."""

from __future__ import annotations

import functools
import os
import sys
import sysconfig
import traceback
from pathlib import Path

_OURS = f"{Path(__file__).parent.parent}{os.sep}"
_LIBRARIES = tuple(
    sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")
)

STACK_FRAMES_MAX = 30
"""The most calls of a thread that are told."""


@functools.lru_cache(1_000)
def is_ours(file: str) -> bool:
    """Say whether the file belongs to this package."""
    return file.startswith(_OURS)


@functools.lru_cache(1_000)
def is_users(file: str) -> bool:
    """Say whether it belongs to the user's program, and to no library."""
    return not file.startswith(("<", _OURS, *_LIBRARIES))


@functools.lru_cache(1_000)
def shown(file: str) -> str:
    """Return the file as the user would name it: without the folder that the program runs in."""
    try:
        return file.removeprefix(f"{Path.cwd()}{os.sep}")
    except OSError:  # that folder is gone
        return file


def standing(thread: int) -> str:
    """Return where a thread is: in the user's program, and in which call below that, if in one.

    As ``at app.py:14, in read (ssl.py:1167)``. Nothing when it is in no code of the user's.
    """
    # GIL: its thread stands still while a frame is read, here and in stack_of().
    frame = innermost = sys._current_frames().get(thread)
    while frame is not None and not is_users(frame.f_code.co_filename):
        frame = frame.f_back
    if frame is None or innermost is None:
        return ""
    place = f"at {shown(frame.f_code.co_filename)}:{frame.f_lineno}"
    if frame is innermost:
        return place
    below = innermost.f_code
    return f"{place}, in {below.co_name} ({Path(below.co_filename).name}:{innermost.f_lineno})"


def stack_of(thread: int) -> str:
    """Return the innermost calls that a thread is in, below this package's, as lines of text."""
    calls = traceback.extract_stack(sys._current_frames().get(thread), STACK_FRAMES_MAX)
    below = max((at + 1 for at, each in enumerate(calls) if is_ours(each.filename)), default=0)
    return "".join(traceback.format_list(calls[below:]))
