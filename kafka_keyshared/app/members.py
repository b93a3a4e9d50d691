"""Pull members: user code that receives and settles single records."""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any, Self

from kafka_keyshared.core.contract.outcomes import Disposition, Failure
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.errors import LeaseOverError
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.headers import ask_headers
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Record, Retry

log = log_of("kafka_keyshared.pool")


class PulledRecord:
    """A record received by a member, with the read methods of ``confluent_kafka.Message``.

    Exactly one of :meth:`ack`, :meth:`nack` and :meth:`dead_letter` ends its lease. Each raises
    :class:`LeaseOverError` when the lease was over already. Then its ack timeout had passed, or its
    partition had gone to another member of the group. The record runs again elsewhere.
    """

    def __init__(self, cell: Cell, slice_: Slice) -> None:
        self._cell = cell
        self._share = slice_
        self._record: Record = slice_.records[0]

    def ack(self) -> None:
        """Acknowledge the record."""
        self._refuse_late(not self._cell.settle([self._share]))

    def nack(self, delay: float | None = None) -> None:
        """Fail the attempt: the record runs again by the retry policy or after ``delay`` seconds.

        Raises :class:`ValueError` for a delay that is not a number of seconds from 0 to a year. The
        lease then goes on.
        """
        self._fail(Disposition.RETRY, "nack", "", Retry(delay).delay())

    def dead_letter(self, reason: str = "") -> None:
        """Send the record to the dead-letter topic."""
        self._fail(Disposition.DEAD_LETTER, "DeadLetter", reason, None)

    def _fail(self, disposition: Disposition, kind: str, message: str, after: float | None) -> None:
        failure = Failure(
            disposition,
            kind,
            message,
            stack="",
            at_ms=self._cell.clock.wall_ms(),
            jitter=self._cell.clock.jitter(),
            after=after,
        )
        self._refuse_late(self._cell.fail(self._share, failure))

    def _refuse_late(self, in_time: bool) -> None:
        if not in_time:
            raise LeaseOverError(
                f"{self.topic()}-{self.partition()}@{self.offset()}: {self._cell.name} no longer "
                "has it (settled, timed out, or its partition was revoked); it may run again "
                "elsewhere"
            )

    def topic(self) -> str:
        """Return the topic."""
        return self._record.topic()

    def partition(self) -> int:
        """Return the partition."""
        return self._record.partition()

    def offset(self) -> int:
        """Return the offset."""
        return self._record.offset()

    def key(self) -> Any:
        """Return the key."""
        return self._record.key()

    def value(self) -> Any:
        """Return the value."""
        return self._record.value()

    def headers(self) -> list[tuple[str, Any]] | None:
        """Return the headers."""
        headers: list[tuple[str, Any]] | None = ask_headers(self._record)
        return headers

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of the timestamp, and milliseconds since 1970."""
        return self._record.timestamp()

    def leader_epoch(self) -> int | None:
        """Return the epoch of the partition's leader."""
        return self._record.leader_epoch()

    def error(self) -> Any:
        """Return None: a member never receives an error."""
        return None

    def __len__(self) -> int:
        return len(self._record)

    def __bool__(self) -> bool:
        return True  # also without key and value, for `while record := member.receive()`


def _set_in(loop: asyncio.AbstractEventLoop, ready: asyncio.Event) -> None:
    try:
        loop.call_soon_threadsafe(ready.set)
    except RuntimeError:
        # The waiting task is gone. This is the owner's thread, which must not fail for it.
        log.debug("an event loop ended while a member waited in it")


class PullMember:
    """A member that asks for records. Any thread, or any task of one event loop, may use it."""

    def __init__(self, cell: Cell) -> None:
        self.name = cell.name
        self._cell = cell

    def receive(self, timeout: float | None = None) -> PulledRecord | None:
        """Return the next record; None after ``timeout`` seconds or when the instance stops."""
        return self._pulled(self._cell.take(1, timeout))

    async def receive_async(self, timeout: float | None = None) -> PulledRecord | None:
        """Return the next record as :meth:`receive` does, without blocking the event loop."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while True:
            taken = self._cell.take(1, 0)
            if taken or self._cell.closed:
                return self._pulled(taken)
            ready = asyncio.Event()
            wake = partial(_set_in, loop, ready)
            self._cell.when_ready(wake)
            try:
                # Not wait_for: in Python 3.11 that may swallow the cancellation of the task. The
                # task would then continue with a record that is never settled.
                async with asyncio.timeout_at(deadline):
                    await ready.wait()
            except TimeoutError:
                return None
            finally:
                self._cell.forget(wake)

    def _pulled(self, taken: list[Slice]) -> PulledRecord | None:
        return PulledRecord(self._cell, taken[0]) if taken else None

    def close(self) -> None:
        """Leave: other members run this member's unsettled records again, in order.

        While an exception propagates, also by ``with`` or in ``finally``, leaving counts as a
        failed attempt of the records it holds.
        """
        self._cell.leave(broken=isinstance(sys.exception(), Exception))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
