"""Shared memory without a name, for large values of a batch.

A pipe copies a value four times: into a message, into the pipe, out of it, and out of the message.
The pipe copies it a piece at a time while both ends take turns. The segment copies it in and out,
in one call each.

A file without a name is deleted when the last process that has it open ends, however it ends.
Nothing is left behind to clean up. The file is read and written by calls, not mapped. If memory is
short, a write to a map kills the process, while a call returns an error.
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
"""Bytes from which a value goes through the segment. From 4 KiB it is at least as fast as the pipe,
from 16 KiB over twice as fast. Below that a call per value would cost more than the copies."""

KEPT = 4 << 20
"""Bytes that stay allocated for the next batch."""


class Segment:
    """Memory that two processes write and read in turns; it can be passed to a new process."""

    def __init__(self) -> None:
        self._open(_without_name())
        self._size = 0

    def put(self, values: Sequence[bytes]) -> bool:
        """Write values one behind the other; return False if there is no room."""
        total = sum(map(len, values))
        self._size = max(self._size, total)
        try:
            return os.pwritev(self.fd, values, 0) == total
        except OSError:  # no memory: the value goes through the pipe, which needs little at a time
            return False

    def take(self, sizes: Sequence[int]) -> list[bytes]:
        """Read values of these sizes. Raises :class:`OSError` if they are not all there."""
        found, at = [], 0
        for size in sizes:
            value = os.pread(self.fd, size, at)
            if len(value) != size:
                raise OSError(f"{len(value)} of {size} bytes of a value are there")
            found.append(value)
            at += size
        return found

    def shrink(self) -> None:
        """Free the memory that a few large values have taken; there must be no pending reader."""
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
