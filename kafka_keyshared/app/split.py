"""``split``: one consumer divided into members, each for its own unchanged loop.

A member has the consumer calls that a loop uses (``poll``, ``consume``, ``commit``,
``store_offsets``, ``close``). All records of a key go to one member, in order. Only what all
members have settled without a gap is committed to the broker.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self, Unpack, overload

import confluent_kafka
from confluent_kafka import Message
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.app.keyshared import KeyShared
from kafka_keyshared.app.split_threads import Loops
from kafka_keyshared.config.option_types import HandlingOptions
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.executors.pull.pool import tell_late
from kafka_keyshared.executors.pull.pull_inflight import Cell
from kafka_keyshared.platform import forks
from kafka_keyshared.platform.green import refuse_green_threads
from kafka_keyshared.platform.reentry_guard import refuse_to_begin


class SplitMember:
    """Replaces the consumer for one loop; used by one thread at a time.

    :meth:`commit` of a message settles that record and all earlier ones of its partition that this
    member received. Without a message it settles everything received. A member holds the records of
    a partition in offset order, so a returned record waits until later ones are settled. With
    ``auto_ack`` the next poll settles the records that the previous one returned. With the client's
    ``enable.partition.eof`` each member gets the client's end-of-partition event once everything
    before that end has settled at all members.
    """

    def __init__(
        self, cell: Cell, fate: Callable[[float | None], BaseException | None], *, auto_ack: bool
    ):
        self.name = cell.name
        self._cell = cell
        self._fate = fate
        self._auto_ack = auto_ack
        self._told_to_end = False

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, or None after ``timeout`` seconds (None or below 0: no limit).

        Raises :class:`KeySharedError` when the instance behind the members has failed. After a
        clean stop it returns None at once. When a loop of :meth:`Split.run` has to end, it returns
        None once and raises :class:`KeyboardInterrupt` at the next call.
        """
        found = self._take(1, timeout)
        return found[0] if found else None

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[Message]:
        """Return up to ``num_messages`` records, after at most ``timeout`` seconds.

        Unlike the client's, it returns as soon as there is any record.
        """
        return self._take(num_messages, timeout)

    def _take(self, count: int, timeout: float | None) -> list[Message]:
        self._leave_late()
        if self._auto_ack:
            self.commit()
        waits = None if timeout is None or timeout < 0 else timeout
        if ends := self._cell.take_ends(count):
            return ends  # type: ignore[return-value]
        shares = self._cell.take(count, waits)
        if not shares and (ends := self._cell.take_ends(count)):
            return ends  # type: ignore[return-value]
        if self._cell.dismissed and not shares:
            self._end_loop()
        elif not shares and self._cell.over and (error := self._fate(waits)) is not None:
            raise KeySharedError(f"{self.name}: the instance has failed: {error}") from error
        return [slice_.records[0] for slice_ in shares]  # type: ignore[misc]

    def _end_loop(self) -> None:
        """Let a loop that checks a flag end by itself; end any other as Ctrl-C does."""
        if self._told_to_end:
            raise KeyboardInterrupt
        self._told_to_end = True

    def commit(
        self,
        message: Message | None = None,
        offsets: Sequence[ClientPartition] | None = None,
        asynchronous: bool = True,
    ) -> None:
        """Settle received records: up to the message, below the offsets, or everything.

        It never waits for the broker, also with ``asynchronous=False``. The broker gets the commit
        within the commit interval. The committed position also depends on the other members.
        """
        del asynchronous
        self._settle(message, offsets)

    def store_offsets(
        self, message: Message | None = None, offsets: Sequence[ClientPartition] | None = None
    ) -> None:
        """Settle as :meth:`commit` does: stored offsets are the ones committed next."""
        self._settle(message, offsets)

    def _settle(self, message: Message | None, offsets: Sequence[ClientPartition] | None) -> None:
        ends = _ends(message, offsets)
        self._leave_late()
        held = self._cell.held()
        if message is not None and not any(_is_of(slice_, message) for slice_ in held):
            # Settled or given up already. Held records below it were received later.
            held = []
        late = self._cell.settle(
            held if ends is None else [slice_ for slice_ in held if _is_below(slice_, ends)]
        )
        if late:
            self._cell.note_late(late)

    def close(self) -> None:
        """Leave: other members run this member's unsettled records again, in order.

        While an exception propagates, also by ``with`` or in ``finally``, leaving counts as a
        failed attempt of the records it holds. In a loop of :meth:`Split.run` the records are kept
        until the exception has left the loop. It ends the program, and the records must not run
        elsewhere first.
        """
        error = sys.exception()
        broken = isinstance(error, Exception)
        if error is not None and self._cell.in_loop and not self._cell.dismissed:
            self._cell.leaving = broken
        else:
            self._cell.leave(broken=broken)

    def _leave_late(self) -> None:
        """Leave if the exception that closed this member did not leave its loop."""
        if self._cell.leaving is not None:
            self._cell.leave(broken=self._cell.leaving)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _ends(
    message: Message | None, offsets: Sequence[ClientPartition] | None
) -> dict[tuple[str, int], int] | None:
    if message is not None and offsets is not None:
        raise ConfigError("commit: give a message or offsets, not both")
    if message is not None:
        topic, partition, offset = message.topic(), message.partition(), message.offset()
        if topic is None or partition is None or offset is None:
            raise ConfigError("commit: the message was not received from a topic")
        return {(topic, partition): offset + 1}
    if offsets is not None:
        return {(each.topic, each.partition): each.offset for each in offsets}
    return None


def _is_of(slice_: Slice, message: Message) -> bool:
    record: Any = slice_.records[0]
    if record is message:
        return True
    place = (record.offset(), slice_.came.partition_of(0))
    return place == (message.offset(), (message.topic(), message.partition()))


def _is_below(slice_: Slice, ends: Mapping[tuple[str, int], int]) -> bool:
    return slice_.records[0].offset() < ends.get(slice_.came.partition_of(0), -1)


class Split(Sequence[SplitMember]):
    """The members of a split consumer, and the instance behind them. Close it at the end.

    ``app`` is the instance (its status, its metrics).
    """

    def __init__(self, app: KeyShared, members: int, *, auto_ack: bool) -> None:
        self.app = app
        self._error: BaseException | None = None
        self.status: int | None = None
        self._ended = threading.Event()
        self._cells = [app.join_cell(name) for name in worker_names(members)]
        self._members = [SplitMember(cell, self._fate, auto_ack=auto_ack) for cell in self._cells]
        self._loops: Loops | None = None
        self._thread = threading.Thread(target=self._run, name="keyshared-owner", daemon=True)
        self._thread.start()
        forks.watch(self)

    def forked(self) -> None:
        """Fail in the child of a fork: the instance stays with the parent."""
        self._error = KeySharedError("it belongs to the parent of this forked process")
        self._ended = threading.Event()
        self._ended.set()

    def _run(self) -> None:
        try:
            self.status = self.app.run()
            if self.app.instance is not None and self.app.instance.halted is not None:
                self._error = KeySharedError(f"it had to halt: {self.app.instance.halted}")
        except BaseException as error:  # noqa: BLE001 - raised at the members
            self._error = error
        finally:
            for cell in self._cells:
                cell.end()
            self._ended.set()

    @property
    def over(self) -> bool:
        """Whether the instance behind the members has ended."""
        return self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """The error that the instance failed with, or None."""
        return self._error

    def run(self, loop: Callable[[SplitMember], object]) -> int:
        """Run ``loop(member)`` for each member on its own thread; return the exit status.

        It ends when every loop has returned, at SIGTERM and SIGINT, or when a loop raises. In the
        last case this method raises the exception, so that the program ends as it did with one
        loop. In each case the other loops get up to the stop timeout to settle the records they
        hold. Then the settled records are committed and the group is left. A loop is ended in its
        next ``poll``, which returns None and then raises :class:`KeyboardInterrupt`, as Ctrl-C does
        in a plain loop.

        - 0: everything received was settled and committed, or handed back.
        - 1: see :meth:`KeyShared.run`, or a loop did not end.

        Raises :class:`ConfigError` the second time.
        """
        refuse_green_threads("run()")
        if self._loops is not None:
            raise ConfigError("run(): the members of a split consumer run once; split another one")
        pairs = zip(self._cells, self._members, strict=True)
        work = {cell: partial(loop, member) for cell, member in pairs}
        self._loops = Loops(work, self)
        return self._loops.run()

    def stop(self) -> float:
        """Request the stop, from any thread; return its timeout in seconds. Again: hurry."""
        self.app.stop()
        return self.app.options.stop_timeout

    def _fate(self, timeout: float | None) -> BaseException | None:
        """Wait for the end of the instance, which members notice first; return its error."""
        self._ended.wait(timeout)
        return self._error

    @overload
    def __getitem__(self, index: int) -> SplitMember: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[SplitMember]: ...

    def __getitem__(self, index: int | slice) -> SplitMember | Sequence[SplitMember]:
        return self._members[index]

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[SplitMember]:
        return iter(self._members)

    def close(self, timeout: float | None = None) -> int:
        """Stop: commit settled records, leave the group, and return the exit status.

        Received records that members have not settled are not awaited. They run again at the next
        start. Raises the error that the instance failed with.
        """
        for cell in self._cells:
            cell.leave()
        self.app.stop()
        return self.result(timeout)

    def result(self, timeout: float | None = None) -> int:
        """Wait for the end and return the exit status, or raise the instance's error."""
        self._thread.join(timeout)
        tell_late(self._cells)
        if self._error is not None:
            raise self._error
        return 1 if self.status is None else self.status

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def split(
    consumer: confluent_kafka.Consumer,
    members: int,
    *,
    auto_ack: bool = False,
    conf: Mapping[str, Any] | None = None,
    topics: Sequence[str] | None = None,
    on_assign: Callable[..., Any] | None = None,
    on_revoke: Callable[..., Any] | None = None,
    on_lost: Callable[..., Any] | None = None,
    **options: Unpack[HandlingOptions],
) -> Split:
    """Return ``members`` running members over a consumer that has not polled yet.

    The consumer is given and checked as for :meth:`KeyShared.wrap`. ``options`` are those of
    :class:`kafka_keyshared.config.Options` that are not about handlers.

    Raises :class:`ConfigError` for a consumer that would commit unfinished records.

    Example::

        if __name__ == "__main__":
            sys.exit(split(consumer, 16).run(my_loop))
    """
    refuse_to_begin("split()")
    if members < 1:
        raise ConfigError(f"split into {members} members: give at least 1")
    app = KeyShared.wrap(
        consumer,
        conf=conf,
        topics=topics,
        on_assign=on_assign,
        on_revoke=on_revoke,
        on_lost=on_lost,
        workers=f"split:{members}",
        **options,
    )
    return Split(app, members, auto_ack=auto_ack)
