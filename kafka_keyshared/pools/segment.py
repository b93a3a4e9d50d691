"""Memory that two processes share and that has no name: large values go through it, not the pipe.

What crosses a pipe is copied into a message, into the pipe, a piece at a time while both ends take
turns, out of it, and out of the message. Here it is copied in and out, in one call each.

A file without a name is gone with the last process that has it open, however that ends: nothing is
left behind, and there is nothing to clean up. It is written and read by calls and not mapped,
because a page that there is no room for ends a process that writes to a map; a call says so.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Sequence
from multiprocessing import reduction
from pathlib import Path
from typing import Any

LARGE = 16 << 10
"""Bytes from which a value goes this way. From 4 KiB on it is as fast as the pipe at least, from
here more than twice as fast; below it a call per value would cost more than the copies."""

KEPT = 4 << 20
"""Bytes that stay allocated for the next batch."""


class Segment:
    """What one process writes and another reads, in turns; it can be given to one that starts."""

    def __init__(self) -> None:
        self._open(_without_name())
        self._size = 0

    def put(self, values: Sequence[bytes]) -> bool:
        """Write values one behind the other; False where there is no room for them."""
        total = sum(map(len, values))
        self._size = max(self._size, total)
        try:
            return os.pwritev(self.fd, values, 0) == total
        except OSError:  # no memory: it is for the pipe then, which needs little at a time
            return False

    def take(self, sizes: Sequence[int]) -> list[bytes]:
        """Read values of these sizes. Raises :class:`OSError` where they are not all there."""
        found, at = [], 0
        for size in sizes:
            value = os.pread(self.fd, size, at)
            if len(value) != size:
                raise OSError(f"{len(value)} of {size} bytes of a value are there")
            found.append(value)
            at += size
        return found

    def shrink(self) -> None:
        """Give back what a few large values have taken; nobody reads it any more."""
        if self._size > KEPT:
            os.ftruncate(self.fd, 0)
            self._size = 0

    def _open(self, fd: int) -> None:
        self.fd = fd
        weakref.finalize(self, os.close, fd)

    def __getstate__(self) -> Any:
        return reduction.DupFd(self.fd)

    def __setstate__(self, given: Any) -> None:
        self._open(given.detach())
        self._size = 0


def _without_name() -> int:
    if hasattr(os, "memfd_create"):
        return os.memfd_create("keyshared-values")
    fd, name = tempfile.mkstemp(prefix="keyshared-")
    Path(name).unlink()
    return fd
