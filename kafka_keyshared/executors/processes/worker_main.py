"""The worker process: it makes the handler and runs batches of records.

It has no Kafka client and decides nothing. A batch ends early at the first record that does not end
with ``None``. The parent decides what follows for that record and the later ones.
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
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.slices import NO_RETRIES
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.executors import lease
from kafka_keyshared.executors.contexts import Contexts
from kafka_keyshared.executors.handling.call_record import DROPPED, FAILED, OK, Outcome
from kafka_keyshared.executors.handling.failure import ErrorRules, describe
from kafka_keyshared.executors.handling.handlers import Made
from kafka_keyshared.executors.handling.outcome_mapping import error_in
from kafka_keyshared.executors.handling.outputs import handing_out
from kafka_keyshared.executors.processes.frames import Outlet
from kafka_keyshared.executors.processes.log_forwarding import only, send_home
from kafka_keyshared.executors.processes.shm_progress import (
    ENDED,
    MOST,
    NO_LIMIT,
    STARTED,
    Shared,
    numbers_of,
    times_of,
)
from kafka_keyshared.executors.processes.wire_records import Columns, ProcessRecord
from kafka_keyshared.model import Ack, Attempt, Coordinates, Drop, Output, TopicPartition
from kafka_keyshared.platform import forks
from kafka_keyshared.platform.reentry_guard import handling, load_file
from kafka_keyshared.platform.stack_frames import standing


class Recipe(NamedTuple):
    """The first message to the process; ``make`` is the pickled factory of the handler.

    ``modules`` are modules that cannot be imported by name, with their files. ``outputs``: the
    parent takes the handler's outputs.
    """

    name: str
    make: bytes
    modules: tuple[tuple[str, str], ...]
    rules: ErrorRules
    outputs: bool = False


class BatchResult(NamedTuple):
    """The result of a batch: the number of records done, one after the other.

    The next record was dropped or has failed. If neither is set, the batch is complete or was
    frozen.
    """

    done: int
    dropped: bool = False
    failure: Failure | None = None

    def outcome(self) -> Outcome:
        """Return the outcome of the record behind the done ones."""
        return DROPPED if self.dropped else OK if self.failure is None else FAILED


class SlicePart(NamedTuple):
    """The slice that a batch belongs to."""

    id: int
    epoch: int
    attempts: Mapping[Coordinates, Attempt] = NO_RETRIES


class ProcessBatch(NamedTuple):
    """Records to run."""

    columns: Columns
    share: SlicePart


class OutputRequest(NamedTuple):
    """Outputs of the handler for a record of the batch; the process waits for the answer."""

    at: int
    outputs: Sequence[Output]


class OutputAnswer(NamedTuple):
    """Answer to outputs: they are written, or ``error`` says why not."""

    error: str | None = None


class CallRequest(NamedTuple):
    """Order to call ``release``, ``adopt`` or ``close`` of the handler.

    After ``close`` the process gets no further order.
    """

    name: str
    given: tuple[object, ...] = ()


LAST = CallRequest("close")


class Raised(NamedTuple):
    """An exception of a handler call that is not for a record."""

    text: str
    stack: str


class CallAnswer(NamedTuple):
    """The return value of such a call."""

    value: object


class WhereQuestion(NamedTuple):
    """Question where the handler is running now; the answer repeats ``number``."""

    number: int


class Lapsed(NamedTuple):
    """Notice that the leases of these partitions in these slices are over."""

    slices: Collection[int]
    partitions: Collection[TopicPartition]


class Ready(NamedTuple):
    """Notice that the handler is made; ``calls`` are the names of its methods."""

    calls: tuple[str, ...]


class PipeEnds(NamedTuple):
    """The process's ends of the pipes: batches and calls, side messages, log lines.

    ``token``: the prefix of every message that the process sends (:mod:`.frames`).
    """

    main: Connection
    aside: Connection
    log: Connection
    token: bytes


def main(ends: PipeEnds, shared: Shared, recipe: bytes, wanted: Mapping[str | None, int]) -> None:
    """Run as the process of a worker, until the parent closes the pipe.

    ``wanted`` has the log level of each logger in the parent.
    """
    end_with_parent()
    # A signal to the process group is for the parent. Running records end and are committed.
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
        except BaseException as error:  # noqa: BLE001 - the parent gets any exception
            connection.send(raised(error))
            return
        calls = {name: call for name, call in made._asdict().items() if call is not None}
        connection.send(Ready(tuple(calls)))
        child = ChildMain(connection, shared, made, found, log.flush)
        aside = Outlet(ends.aside, ends.token)
        beside = threading.Thread(target=child.listen, args=(aside,), name="keyshared-parent")
        beside.daemon = True
        beside.start()
        child.live()


PR_SET_PDEATHSIG = 1
"""Option of prctl(2): the signal that this process gets when the thread that started it ends."""


def end_with_parent() -> None:
    """Have the system kill this process when its parent ends, on Linux.

    :meth:`ChildMain.listen` ends the process too, on every system. It cannot do so while the
    process is stopped, or while a handler call lets no other thread run. The thread that started
    this process lives as long as the process is in use.
    """
    if sys.platform == "linux":
        import ctypes  # present, because the shared memory is made with it

        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def raised(error: BaseException) -> Raised:
    """Return the message for an exception."""
    failure = describe(error, Clock())
    return Raised(f"{failure.error_type}: {failure.message}", failure.stack)


def _load(name: str, file: str) -> None:
    """Import a module that the parent has loaded from a file; its name alone may not find it."""
    try:
        found = importlib.util.find_spec(name)
    except (ImportError, ValueError):
        found = None
    if name in sys.modules or (found is not None and found.origin == file):
        return
    load_file(name, Path(file))


class ChildSlice:
    """A slice of the current batch, as a handler sees its lease
    (:mod:`kafka_keyshared.executors.lease`)."""

    def __init__(self, share: SlicePart) -> None:
        self.slice = share
        self.gone: frozenset[TopicPartition] = frozenset()


class ChildMain:
    """The worker process: its handler, the pipe to the parent, and the board."""

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
        self.current: ChildSlice | None = None
        self._connection = connection
        self._places, self._mark = numbers_of(shared.places), shared.mark
        self._values = shared.values
        if recipe.outputs:
            made = made._replace(handle=handing_out(made.handle, self._hand_out))
        if shared.times is not None:
            made = made._replace(handle=self._timed(made.handle, times_of(shared.times)))
        self._made = made
        self._rules, self.attempts = recipe.rules, recipe.rules.attempts
        self._rows: deque[ProcessRecord] = deque()
        self._thread = threading.get_ident()
        self._contexts = Contexts(copy_context())
        forks.watch(self)

    def listen(self, aside: Outlet) -> None:
        """Read side messages in a thread of their own; end the process with the parent."""
        parent = parent_process()
        ends = [] if parent is None else [parent.sentinel]
        pipe = aside.fileno()
        while pipe in wait([pipe, *ends]):
            try:
                said = aside.recv()
            except (EOFError, OSError):
                break
            if isinstance(said, WhereQuestion):
                aside.send((said.number, standing(self._thread)))
            elif (held := self.current) is not None and held.slice.id in said.slices:
                held.gone |= frozenset(said.partitions)
        os._exit(1)

    def live(self) -> None:
        """Execute orders until the pipe is closed or the last order is done."""
        pid = os.getpid()
        lease.WORKER.set(self)
        self._contexts = Contexts(copy_context())
        while True:
            try:
                asked = self._connection.recv()
            except EOFError:
                return
            answer: object
            if isinstance(asked, ProcessBatch):
                self.current = ChildSlice(asked.share)
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
        """Return the call with its start and end times recorded."""
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
        """Send outputs to the parent and wait for its answer, before the record counts as done."""
        self._connection.send(OutputRequest((self._places[STARTED] ^ self._mark) - 1, outputs))
        if (why := self._connection.recv().error) is not None:
            raise KeySharedError(why)

    def _not_done(self, number: int, error: BaseException) -> BatchResult:
        """Return the result for a call that ended in a verdict or an error."""
        if isinstance(error, Drop):
            return BatchResult(number, dropped=True)
        return BatchResult(number, failure=describe(error, self._clock, self._rules))

    def forked(self) -> None:
        """Clear the remaining records in the child of a handler."""
        self._rows.clear()

    def _run(self, columns: Columns) -> BatchResult:
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
            except BaseException as error:  # noqa: BLE001 - any exception is a failed attempt
                if not isinstance(error, Ack):
                    return self._not_done(number, error)
            else:
                if returned is not None:
                    return self._not_done(number, returned)
            number += 1
            places[ENDED] = mark ^ number
        return BatchResult(number)


def _called(call: Callable[..., object] | None, *given: object) -> CallAnswer | Raised:
    if call is None:
        return CallAnswer(None)
    try:
        return CallAnswer(call(*given))
    except BaseException as error:  # noqa: BLE001 - the parent gets any exception
        return raised(error)
