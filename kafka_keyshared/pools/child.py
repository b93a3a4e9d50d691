"""The process of a worker: it makes the handler and runs what it is sent, batch by batch.

It has no Kafka client and decides nothing. A batch ends early at the first record that does not end
with ``None``: what becomes of that one and of those behind it is the parent's to say.
"""

from __future__ import annotations

import importlib.util
import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import copy_context
from multiprocessing import current_process, parent_process
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.dispositions import Failure
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.handling.called import DROPPED, FAILED, OK, Outcome
from kafka_keyshared.handling.failure import describe
from kafka_keyshared.handling.handlers import Made
from kafka_keyshared.handling.outputs import handing_out
from kafka_keyshared.handling.verdicts import error_in
from kafka_keyshared.model import Ack, Drop, Output, TopicPartition
from kafka_keyshared.pools import lease
from kafka_keyshared.pools.board import (
    ENDED,
    MOST,
    NO_LIMIT,
    STARTED,
    Shared,
    numbers_of,
    times_of,
)
from kafka_keyshared.pools.contexts import Contexts
from kafka_keyshared.pools.frames import Outlet
from kafka_keyshared.pools.log_lines import only, send_home
from kafka_keyshared.pools.received import Columns, ReceivedRecord
from kafka_keyshared.program import forks
from kafka_keyshared.program.importing import handling, load_file
from kafka_keyshared.program.whose import standing


class Recipe(NamedTuple):
    """What the process is sent first. ``make`` is pickled, and makes the handler.

    ``modules`` are those that are not found by their names, with the files that they are in.
    ``outputs``: what the handler hands out is taken by the parent.
    """

    name: str
    make: bytes
    modules: tuple[tuple[str, str], ...]
    dead_letter_on: tuple[type[BaseException], ...]
    outputs: bool = False


class Ran(NamedTuple):
    """What became of a batch: so many records have ended as done, one after the other.

    The next one was dropped, or has failed; where neither is so, the batch is over or was frozen.
    """

    done: int
    dropped: bool = False
    failure: Failure | None = None

    def outcome(self) -> Outcome:
        """Return what became of the record behind those that are done."""
        return DROPPED if self.dropped else OK if self.failure is None else FAILED


class Share(NamedTuple):
    """Of which slice a batch is."""

    id: int
    epoch: int


class Batch(NamedTuple):
    """Records to run."""

    columns: Columns
    share: Share


class HandedOut(NamedTuple):
    """What the handler has handed out for a record of the batch, which waits for the answer."""

    at: int
    outputs: Sequence[Output]


class Taken(NamedTuple):
    """It is written, or else why it is not."""

    error: str | None = None


class Call(NamedTuple):
    """The order to call the handler, other than for a record: ``release``, ``adopt``, ``close``.

    The last one is the process's last.
    """

    name: str
    given: tuple[object, ...] = ()


LAST = Call("close")


class Raised(NamedTuple):
    """What a call of the handler, other than for a record, has raised."""

    text: str
    stack: str


class Answered(NamedTuple):
    """What such a call has returned."""

    value: object


class Where(NamedTuple):
    """The question where the handler stands, which the answer gives the number of."""

    number: int


class Lapsed(NamedTuple):
    """Leases are over: those of these partitions in these slices."""

    slices: Collection[int]
    partitions: Collection[TopicPartition]


class Ready(NamedTuple):
    """The handler is made; these are the calls that it has beside ``handle``."""

    calls: tuple[str, ...]


class Ends(NamedTuple):
    """The ends of the pipes: for batches and calls, for what is said beside them, for the log.

    ``token``: what all that is sent begins with (:mod:`.frames`).
    """

    main: Connection
    aside: Connection
    log: Connection
    token: bytes


def main(ends: Ends, shared: Shared, recipe: bytes, wanted: Mapping[str | None, int]) -> None:
    """Live as the process of a worker, until the pipe is closed at its other end.

    ``wanted`` is from which levels the parent takes what is logged.
    """
    end_with_parent()
    # A signal to the group of processes is for the parent: what runs ends, and is committed.
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.current_thread().name = current_process().name
    log = send_home(ends.log, ends.token, wanted)
    connection = Outlet(ends.main, ends.token)
    found: Recipe = pickle.loads(recipe)
    for name, file in found.modules:
        _load(name, file)
    with handling(), forks.ends_here(f"a handler on {found.name}"):
        try:
            make = pickle.loads(found.make)
            only(log)
            made: Made = make()
        except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
            connection.send(raised(error))
            return
        calls = {name: call for name, call in made._asdict().items() if call is not None}
        connection.send(Ready(tuple(calls)))
        child = Child(connection, shared, made, found, log.flush)
        aside = Outlet(ends.aside, ends.token)
        beside = threading.Thread(target=child.listen, args=(aside,), name="keyshared-parent")
        beside.daemon = True
        beside.start()
        child.live()


PR_SET_PDEATHSIG = 1
"""Of prctl(2): the signal that this process gets when the thread that has started it ends."""


def end_with_parent() -> None:
    """Have the system end this process with its parent, where it can.

    :meth:`Child.listen` does so too, and on every system; but not while a handler is in a call that
    lets no other thread run, or while the process is stopped. The thread that has started it lives
    for as long as the process is used.
    """
    if sys.platform == "linux":
        import ctypes  # it is there: the memory that is shared is made with it

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def raised(error: BaseException) -> Raised:
    """Return what is told of an exception."""
    failure = describe(error, Clock())
    return Raised(f"{failure.error_type}: {failure.message}", failure.stack)


def _load(name: str, file: str) -> None:
    """Import a module that the parent has loaded from a file, which its name may not lead to."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if name in sys.modules or (found is not None and found.origin == file):
        return
    load_file(name, Path(file))


class Held:
    """A slice of which a batch is here, as a handler sees its lease (:mod:`.lease`)."""

    def __init__(self, share: Share) -> None:
        self.slice = share
        self.gone: frozenset[TopicPartition] = frozenset()


class Child:
    """A handler, the pipe to the parent, and the board."""

    def __init__(
        self,
        connection: Outlet,
        shared: Shared,
        made: Made,
        recipe: Recipe,
        flush: Callable[[], None] = lambda: None,
    ) -> None:
        self._clock = Clock()
        self._flush = flush
        self.name = recipe.name
        self.current: Held | None = None
        self._connection = connection
        self._places, self._mark = numbers_of(shared.places), shared.mark
        self._values = shared.values
        if recipe.outputs:
            made = made._replace(handle=handing_out(made.handle, self._hand_out))
        if shared.times is not None:
            made = made._replace(handle=self._timed(made.handle, times_of(shared.times)))
        self._made = made
        self._dead_letter_on = recipe.dead_letter_on
        self._rows: deque[ReceivedRecord] = deque()
        self._thread = threading.get_ident()
        self._contexts = Contexts(copy_context())
        forks.watch(self)

    def listen(self, aside: Outlet) -> None:
        """Hear what is said beside the batches, in a thread of its own; end with the parent."""
        parent = parent_process()
        ends = [] if parent is None else [parent.sentinel]
        pipe = aside.fileno()
        while pipe in wait([pipe, *ends]):
            try:
                said = aside.recv()
            except (EOFError, OSError):
                break
            if isinstance(said, Where):
                aside.send((said.number, standing(self._thread)))
            elif (held := self.current) is not None and held.slice.id in said.slices:
                held.gone |= frozenset(said.partitions)
        os._exit(1)

    def live(self) -> None:
        """Do what comes, until nothing can come any more; then close the handler."""
        pid = os.getpid()
        lease.WORKER.set(self)
        self._contexts = Contexts(copy_context())
        while True:
            try:
                asked = self._connection.recv()
            except EOFError:
                return
            answer: object
            if isinstance(asked, Batch):
                self.current = Held(asked.share)
                answer = self._run(asked.columns)
            else:
                call = getattr(self._made, asked.name)
                answer = self._contexts.new().run(_called, call, *asked.given)
            if os.getpid() != pid:
                return
            self._send(answer)
            if asked == LAST:
                return

    def _send(self, answer: object) -> None:
        self._flush()
        try:
            self._connection.send(answer)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            self._connection.send(raised(error))

    def _timed(
        self, handle: Callable[[Any], Any], times: memoryview[float]
    ) -> Callable[[Any], Any]:
        """Return the call so that it notes when it begins and ends."""
        places, mark, now = self._places, self._mark, self._clock.monotonic

        def call(record: Any) -> Any:
            at = 2 * (places[STARTED] ^ mark) - 2
            times[at] = now()
            try:
                return handle(record)
            finally:
                times[at + 1] = now()

        return call

    def _hand_out(self, _record: Any, outputs: Sequence[Output]) -> None:
        """Have the parent take them, before the record counts as done."""
        self._connection.send(HandedOut((self._places[STARTED] ^ self._mark) - 1, outputs))
        if (why := self._connection.recv().error) is not None:
            raise KeySharedError(why)

    def _not_done(self, number: int, error: BaseException) -> Ran:
        """Return what is said of a call that ended in a verdict or an error."""
        if isinstance(error, Drop):
            return Ran(number, dropped=True)
        return Ran(number, failure=describe(error, self._clock, self._dead_letter_on))

    def forked(self) -> None:
        """Leave nothing to run in the child of a handler."""
        self._rows.clear()

    def _run(self, columns: Columns) -> Ran:
        handle, places, context = self._made.handle, self._places, self._contexts.new
        mark = self._mark
        self._rows = left = deque(columns.records(self._values))
        number = 0
        while left:
            places[STARTED] = mark ^ (number + 1)
            if not number < places[MOST] ^ mark <= NO_LIMIT:  # or it is garbled
                places[STARTED] = mark ^ number
                break
            record = left.popleft()
            try:
                result = context().run(handle, record)
                returned = None if result is None else error_in(result)
            except BaseException as error:  # noqa: BLE001 - a failed attempt, whatever it is
                if not isinstance(error, Ack):
                    return self._not_done(number, error)
            else:
                if returned is not None:
                    return self._not_done(number, returned)
            number += 1
            places[ENDED] = mark ^ number
        return Ran(number)


def _called(call: Callable[..., object] | None, *given: object) -> Answered | Raised:
    if call is None:
        return Answered(None)
    try:
        return Answered(call(*given))
    except BaseException as error:  # noqa: BLE001 - told to the parent, whatever it is
        return raised(error)
