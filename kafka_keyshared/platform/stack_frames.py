"""The origin of a source file: user, library, or this package."""

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
"""Most frames of a thread's stack that are returned."""


@functools.lru_cache(1_000)
def is_ours(file: str) -> bool:
    """Return whether the file belongs to this package."""
    return file.startswith(_OURS)


@functools.lru_cache(1_000)
def is_users(file: str) -> bool:
    """Return whether the file belongs to the user's program, not to a library."""
    return not file.startswith(("<", _OURS, *_LIBRARIES))


@functools.lru_cache(1_000)
def shown(file: str) -> str:
    """Return the file relative to the working directory, as the user would name it."""
    try:
        return file.removeprefix(f"{Path.cwd()}{os.sep}")
    except OSError:  # the working directory is gone
        return file


def standing(thread: int) -> str:
    """Return a thread's position in the user's program, and the inner call it is in.

    For example ``at app.py:14, in read (ssl.py:1167)``. The result is empty when no frame belongs
    to the user's code.
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
    """Return the innermost frames of a thread, below this package's, as lines of text."""
    calls = traceback.extract_stack(sys._current_frames().get(thread), STACK_FRAMES_MAX)
    below = max((at + 1 for at, each in enumerate(calls) if is_ours(each.filename)), default=0)
    return "".join(traceback.format_list(calls[below:]))
