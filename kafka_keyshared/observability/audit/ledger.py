"""The ledger: an append-only log of all events of a run.

Any thread appends without a lock. Times are ``time.monotonic_ns()``. All processes of one machine
read the same such clock (Linux, macOS, Windows), so the intervals of two processes are comparable.
Those of two machines are not. One ledger belongs to one *incarnation*: one start of one process, or
of one consumer in it. Two backings hold the same events. :class:`MemoryLedger` is a list.
:class:`FileLedger` passes each event to the operating system in one write. Therefore an event
survives a SIGKILL of the process, but not a power cut, because no write is synced to disk.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from threading import get_ident
from typing import Final, Literal

import msgspec

from kafka_keyshared.model import Record

Outcome = Literal["ok", "dropped", "failed"]
OK: Final = "ok"
DROPPED: Final = "dropped"
FAILED: Final = "failed"
"""The attempt settled nothing: it raised, asked for a retry, or asked for the dead-letter topic."""

Ownership = Literal["assigned", "revoked", "lost"]
Ranges = tuple[tuple[int, int], ...]
"""Offsets as inclusive (first, last) pairs."""

SUFFIX = ".ledger"


# gc=False, because no event can be part of a reference cycle. Repeated garbage collection over a
# million events would be the largest cost of a ledger.
class Produced(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="produced"):
    """The broker acknowledged this record to its producer."""

    topic: str
    partition: int
    offset: int
    key: bytes | None


class Started(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="start"):
    """A handler was called with this record; ``worker`` is the identifier of its thread."""

    attempt: int
    topic: str
    partition: int
    offset: int
    key: bytes | None
    worker: int
    at: int


class Ended(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="end"):
    """The handler call with this number returned or raised."""

    attempt: int
    outcome: Outcome
    at: int


class Dropped(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="dropped"):
    """The record was settled without a result of its handler: by a poison policy or a filter."""

    topic: str
    partition: int
    offset: int
    at: int


class DeadLettered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="dead"):
    """The dead letter of this source record was acknowledged (``at``) or read back (None)."""

    topic: str
    partition: int
    offset: int
    at: int | None


class CommitSent(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="commit"):
    """A commit of one partition was about to be handed to the client."""

    commit: int
    topic: str
    partition: int
    position: int
    settled: Ranges
    at: int


class CommitAnswered(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="answer"):
    """The broker accepted or refused the commit with this number."""

    commit: int
    accepted: bool
    at: int


class OwnershipChanged(msgspec.Struct, frozen=True, array_like=True, gc=False, tag="owner"):
    """This incarnation got the partition, or has given it up."""

    topic: str
    partition: int
    change: Ownership
    at: int


Event = (
    Produced
    | Started
    | Ended
    | Dropped
    | DeadLettered
    | CommitSent
    | CommitAnswered
    | OwnershipChanged
)


class LedgerError(Exception):
    """A ledger can no longer be written, or a file is not a valid ledger."""


class Ledger:
    """The reports of an incarnation; any thread may call any method at any time.

    The time of a call matters most. Report an action *before* it can have effects elsewhere, such
    as a commit before it is sent. Report a completion *after* it has happened, such as an
    acknowledgement. Report a lost ownership once no commit for it can follow. Then the judge, which
    trusts the times, never blames a correct run.
    """

    def __init__(self, put: Callable[[Event], None], incarnation: str | None = None) -> None:
        self.incarnation = incarnation or f"{os.getpid()}-{time.monotonic_ns():x}"
        self.key_of: Callable[[Record], bytes | None] = own_key
        self._put = put
        # next() on a count is one step of the interpreter. Two threads never get the same number.
        self._number = itertools.count(1).__next__

    def produced(self, topic: str, partition: int, offset: int, key: bytes | None) -> None:
        """Report an acknowledged record; call it from the producer's delivery report."""
        self._put(Produced(topic, partition, offset, key))

    def started(self, topic: str, partition: int, offset: int, key: bytes | None) -> int:
        """Report that a handler is about to run; return the number for :meth:`ended`."""
        attempt = self._number()
        worker = get_ident()
        self._put(Started(attempt, topic, partition, offset, key, worker, time.monotonic_ns()))
        return attempt

    def ended(self, attempt: int, outcome: Outcome) -> None:
        """Report that a handler call ended; ``"failed"`` is every outcome that settles nothing."""
        self._put(Ended(attempt, outcome, time.monotonic_ns()))

    def called(
        self, record: Record, began: float, ended: float, outcome: Outcome, worker: str
    ) -> None:
        """Report a finished handler call of another process, with its times in seconds.

        Any thread may report it for the worker.
        """
        del worker  # a thread id here would be that of the reporting thread
        attempt, key = self._number(), self.key_of(record)
        place = record.topic(), record.partition(), record.offset()
        self._put(Started(attempt, *place, key, get_ident(), in_ns(began)))
        self._put(Ended(attempt, outcome, in_ns(ended)))

    def dropped(self, topic: str, partition: int, offset: int) -> None:
        """Report that a poison policy or a filter settled a record instead of its handler."""
        self._put(Dropped(topic, partition, offset, time.monotonic_ns()))

    def dead_letter_acknowledged(self, topic: str, partition: int, offset: int) -> None:
        """Report that the broker acknowledged the dead letter of this *source* record now."""
        self._put(DeadLettered(topic, partition, offset, time.monotonic_ns()))

    def dead_lettered(self, topic: str, partition: int, offset: int) -> None:
        """Report a dead letter of this *source* record that was read back.

        Once one is reported for a topic, only records that were read back count as dead-lettered
        there. An acknowledged dead letter that cannot be found is then a lost record. So read back
        all of them. Leave out the archived copy of a record that stays blocked, because that record
        is not settled.
        """
        self._put(DeadLettered(topic, partition, offset, None))

    def commit_sent(self, topic: str, partition: int, position: int, settled: Ranges = ()) -> int:
        """Report that a commit is about to be sent; return the number for :meth:`commit_answered`.

        ``position`` is the next offset. ``settled`` has the inclusive ranges beyond it that the
        commit's metadata actually contains. Each attempt to commit is a separate commit.
        """
        commit = self._number()
        at = time.monotonic_ns()
        self._put(CommitSent(commit, topic, partition, position, settled, at))
        return commit

    def commit_answered(self, commit: int, *, accepted: bool) -> None:
        """Report the broker's answer to a commit; a commit without an answer stays unanswered."""
        self._put(CommitAnswered(commit, accepted, time.monotonic_ns()))

    def assigned(self, topic: str, partition: int) -> None:
        """Report an assignment; later starts may begin again at the partition's position."""
        self._put(OwnershipChanged(topic, partition, "assigned", time.monotonic_ns()))

    def revoked(self, topic: str, partition: int) -> None:
        """Report a revoked partition; call it when the revoke callback is about to return."""
        self._put(OwnershipChanged(topic, partition, "revoked", time.monotonic_ns()))

    def lost(self, topic: str, partition: int) -> None:
        """Report a lost partition; no commit for it may follow."""
        self._put(OwnershipChanged(topic, partition, "lost", time.monotonic_ns()))


def in_ns(seconds: float) -> int:
    """Return a time of ``time.monotonic()`` as one of ``time.monotonic_ns()``."""
    return round(seconds * 1e9)


def own_key(record: Record) -> bytes | None:
    """Return the record's own key, the default for a ledger's ``key_of``."""
    key: bytes | None = record.key()
    return key


class LineFile:
    """A new file of lines from any thread, each written in one system call.

    Therefore it survives a SIGKILL of the process, and lines of several threads never mix.

    :raises FileExistsError: the file exists already.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o644)

    def write(self, line: bytes) -> None:
        """Add a line without its line end; raise :class:`LedgerError` if it is written in part."""
        if os.getpid() != self._process:
            raise LedgerError(
                f"{self.path} belongs to process {self._process}, this is {os.getpid()}; "
                "open one in each process, after the fork"
            )
        line += b"\n"
        if os.write(self._file, line) != len(line):
            raise LedgerError(
                f"{self.path}: an event was written in part, most likely because the disk is "
                "full; make room and repeat the run"
            )

    def close(self) -> None:
        """Close the file; any later line raises OSError."""
        os.close(self._file)


class MemoryLedger(Ledger):
    """A ledger in memory: ``events`` in the order in which they were appended."""

    def __init__(self, incarnation: str | None = None) -> None:
        self.events: list[Event] = []
        super().__init__(self.events.append, incarnation)


def together(*takers: Callable[[Event], None]) -> Ledger:
    """Return a ledger whose events go to each of these, in turn."""

    def put(event: Event) -> None:
        for take in takers:
            take(event)

    return Ledger(put)


class FileLedger(Ledger):
    """A ledger in the file ``<incarnation>.ledger`` of ``directory``, for runs with kills in them.

    Open one in each process, because a forked process would reuse the event numbers of its parent.

    :raises FileExistsError: that incarnation already has a file there.
    """

    def __init__(self, directory: Path, incarnation: str | None = None) -> None:
        super().__init__(self._write, incarnation)
        self.path = directory / f"{self.incarnation}{SUFFIX}"
        self._encode = msgspec.json.Encoder().encode
        self._file = LineFile(self.path)

    def _write(self, event: Event) -> None:
        self._file.write(self._encode(event))

    def close(self) -> None:
        """Close the file; any later event raises OSError."""
        self._file.close()


def read_ledger(path: Path) -> MemoryLedger:
    """Read one file ledger; a last line that a kill cut short is left out.

    :raises LedgerError: another part of the file is not an event.
    """
    data = path.read_bytes()
    ledger = MemoryLedger(path.name.removesuffix(SUFFIX))
    try:
        whole = data[: data.rfind(b"\n") + 1]
        ledger.events += msgspec.json.Decoder(Event).decode_lines(whole)
    except msgspec.DecodeError as error:
        raise LedgerError(
            f"{path}: not a ledger, or damaged before its end ({error}); "
            "judge only files that FileLedger wrote"
        ) from error
    return ledger


def read_ledgers(directory: Path) -> list[MemoryLedger]:
    """Read every ``*.ledger`` file in ``directory``, by name.

    :raises LedgerError: one of them is damaged.
    """
    return [read_ledger(path) for path in sorted(directory.glob(f"*{SUFFIX}"))]
