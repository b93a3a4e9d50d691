"""The ledger: every event of a run, appended as it happens, by any thread, without a lock.

Times are ``time.monotonic_ns()``. All processes of one machine read the same such clock (Linux,
macOS, Windows), so the intervals of two processes can be compared; those of two machines cannot.

One ledger belongs to one *incarnation*: one start of one process, or of one consumer in it. Two
backings hold the same events. :class:`MemoryLedger` is a list. :class:`FileLedger` hands each event
to the operating system in one write, so that it outlives a SIGKILL of the process (not a power cut:
nothing is synced to disk).
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


# gc=False: none of these can be part of a reference cycle, and a collector that walks a million of
# them again and again would be the most expensive part of keeping a ledger.
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
    """The record was settled without its handler saying so: by a poison policy or a filter."""

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
    """A ledger cannot be written any more, or a ledger file is not what this module writes."""


class Ledger:
    """What an incarnation reports; any thread may call any method at any time.

    When to call matters more than what: report a thing *before* it can have effects elsewhere (a
    commit before it is sent) and a completion *after* it (an acknowledgement once it is there, an
    ownership given up once nothing will be committed for it). Then the judge, which believes the
    times, never accuses a run that was right.
    """

    def __init__(self, put: Callable[[Event], None], incarnation: str | None = None) -> None:
        self.incarnation = incarnation or f"{os.getpid()}-{time.monotonic_ns():x}"
        self.key_of: Callable[[Record], bytes | None] = own_key
        self._put = put
        # next() on a count is one step of the interpreter: two threads never get the same number.
        self._number = itertools.count(1).__next__

    def produced(self, topic: str, partition: int, offset: int, key: bytes | None) -> None:
        """The broker acknowledged a record; call it from the producer's delivery report."""
        self._put(Produced(topic, partition, offset, key))

    def started(self, topic: str, partition: int, offset: int, key: bytes | None) -> int:
        """A handler is about to run; returns the number that :meth:`ended` wants."""
        attempt = self._number()
        worker = get_ident()
        self._put(Started(attempt, topic, partition, offset, key, worker, time.monotonic_ns()))
        return attempt

    def ended(self, attempt: int, outcome: Outcome) -> None:
        """The handler call ended; ``"failed"`` is every outcome that settles nothing."""
        self._put(Ended(attempt, outcome, time.monotonic_ns()))

    def called(
        self, record: Record, began: float, ended: float, outcome: Outcome, worker: str
    ) -> None:
        """A handler was called in another process, and has ended, at these moments in seconds.

        Any thread may say so, for the worker that it was.
        """
        del worker  # the number of a thread would be that of whoever says it
        attempt, key = self._number(), self.key_of(record)
        place = record.topic(), record.partition(), record.offset()
        self._put(Started(attempt, *place, key, get_ident(), in_ns(began)))
        self._put(Ended(attempt, outcome, in_ns(ended)))

    def dropped(self, topic: str, partition: int, offset: int) -> None:
        """A record was settled by a poison policy or a filter instead of its handler."""
        self._put(Dropped(topic, partition, offset, time.monotonic_ns()))

    def dead_letter_acknowledged(self, topic: str, partition: int, offset: int) -> None:
        """The broker acknowledged the dead letter of this *source* record, just now."""
        self._put(DeadLettered(topic, partition, offset, time.monotonic_ns()))

    def dead_lettered(self, topic: str, partition: int, offset: int) -> None:
        """A dead letter of this *source* record was read back from the dead-letter topic.

        Once one is reported for a topic, only records that were read back count as dead-lettered
        there: an acknowledged letter that cannot be found is a lost record. So read back all,
        but not the archived copy of a record that stays blocked: that one is not settled.
        """
        self._put(DeadLettered(topic, partition, offset, None))

    def commit_sent(self, topic: str, partition: int, position: int, settled: Ranges = ()) -> int:
        """A commit is about to be sent; returns the number that :meth:`commit_answered` wants.

        ``position`` is the next offset; ``settled`` the inclusive ranges beyond it that the
        commit's metadata really carries. Each attempt to commit is a commit of its own.
        """
        commit = self._number()
        at = time.monotonic_ns()
        self._put(CommitSent(commit, topic, partition, position, settled, at))
        return commit

    def commit_answered(self, commit: int, *, accepted: bool) -> None:
        """The broker answered; one whose answer never comes stays unanswered."""
        self._put(CommitAnswered(commit, accepted, time.monotonic_ns()))

    def assigned(self, topic: str, partition: int) -> None:
        """The partition was assigned; what starts from now on may begin anew at its position."""
        self._put(OwnershipChanged(topic, partition, "assigned", time.monotonic_ns()))

    def revoked(self, topic: str, partition: int) -> None:
        """The partition was given up; call it when the revoke callback is about to return."""
        self._put(OwnershipChanged(topic, partition, "revoked", time.monotonic_ns()))

    def lost(self, topic: str, partition: int) -> None:
        """The partition was taken away; from now on nothing may be committed for it."""
        self._put(OwnershipChanged(topic, partition, "lost", time.monotonic_ns()))


def in_ns(seconds: float) -> int:
    """Return a time of ``time.monotonic()`` as one of ``time.monotonic_ns()``."""
    return round(seconds * 1e9)


def own_key(record: Record) -> bytes | None:
    """Return the key by which a record is in order, unless a run says it is another."""
    key: bytes | None = record.key()
    return key


class LineFile:
    """A new file that lines are added to by any thread, each in one write to the system.

    So it outlives a SIGKILL of the process, and what threads add stands there line by line.

    :raises FileExistsError: there is such a file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._process = os.getpid()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_BINARY", 0)
        self._file = os.open(path, flags, 0o644)

    def write(self, line: bytes) -> None:
        """Add a line that has no end yet; raise :class:`LedgerError` when it is not all there."""
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

    Open one in each process: a fork would number its events like its parent.

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

    :raises LedgerError: something else in the file is not an event.
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
