"""Worker process in simulated time. The parent's side is real, except the pipe.

Between two messages from its parent the process is simulated. It runs the records of a batch one
after the other, and notes its progress on the real board. It may end in a record or between two.
Then the message that it was about to send is lost.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any, NamedTuple

from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import InvariantError
from kafka_keyshared.executors.processes import worker_main
from kafka_keyshared.executors.processes.shm_progress import (
    ENDED,
    MOST,
    STARTED,
    ProgressBoard,
    numbers_of,
)
from kafka_keyshared.executors.processes.worker_process import WorkerProcess
from kafka_keyshared.executors.thread_state import WorkerSpec
from kafka_keyshared.lab.simulator.handlers import CallDuration, Ending, Handlers
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.keys import key_by
from kafka_keyshared.lab.simulator.member_events import ReleaseFailed
from kafka_keyshared.lab.simulator.pool import AT_ONCE_MOST, outcome_of
from kafka_keyshared.lab.simulator.pool_probe import Place, PoolProbe
from kafka_keyshared.lab.simulator.states import States
from kafka_keyshared.lab.simulator.timeline import SimulatedProcess
from kafka_keyshared.model import Drop, Record


class Within(NamedTuple):
    """Values that all processes of a pool share. ``soon`` runs an action a moment later."""

    site: Site
    handlers: Handlers
    telling: PoolProbe
    states: States
    settings: Mapping[str, SubscriptionSettings]
    chance: Random
    release_fails: float
    soon: Callable[[Callable[[], None]], None]


class VirtualProcess:
    """The process and its end of the pipe. ``readable`` is called when it has sent something."""

    pid = 0

    def __init__(
        self,
        within: Within,
        place: Place,
        board: ProgressBoard,
        first: worker_main.Ready | worker_main.Raised,
        readable: Callable[[], None],
    ) -> None:
        self._within = within
        self._place = place
        self._places = numbers_of(board.shared.places)
        self._values = board.shared.values
        self._readable = readable
        self._said: deque[object] = deque([first])
        self._records: list[Record] = []
        self._number = 0
        # The record that it runs, or has run without a report.
        self._record: Record | None = None
        self.alive = isinstance(first, worker_main.Ready)
        self.past_its_time = False
        """Whether it is to be killed for its record."""

    # --- the process, as its parent uses it ---

    def kill(self) -> None:
        """End in the middle of its work."""
        if not self.alive:
            return
        self.alive = False
        within = self._within
        if self._record is not None:
            outcome = "failed" if self.past_its_time else "died"
            within.telling.comes_out(self._place, self._record, outcome)
        within.states.lost(*self._place, for_good=False)
        self._readable()

    def over(self, _seconds: float = 0.0) -> bool:
        """Return whether it has ended. Nothing waits here."""
        return not self.alive

    def reap(self) -> int:
        """Return its exit code."""
        return -9

    # --- the pipe, as its parent uses it ---

    def send(self, asked: object) -> None:
        """Take a request. All but batches are answered at once."""
        if not self.alive:
            raise BrokenPipeError
        if isinstance(asked, worker_main.ProcessBatch):
            self._records, self._number = self._sent(asked), 0
            self._within.soon(self._go_on)
        elif isinstance(asked, worker_main.CallRequest):
            self._said.append(self._answer(asked))
            self.alive = asked != worker_main.LAST

    def recv(self) -> object:
        """Return its next message; raises :class:`EOFError` when it has ended."""
        if self._said:
            return self._said.popleft()
        if self.alive:
            raise InvariantError("a simulation cannot wait for a process that says nothing")
        raise EOFError

    def close(self) -> None:
        """Do nothing: nothing is open."""

    def ready(self) -> bool:
        """Return whether there is something to read, if only the end."""
        return bool(self._said) or not self.alive

    # --- its work ---

    def _sent(self, batch: worker_main.ProcessBatch) -> list[Record]:
        """Return the records that were sent, as the parent's own objects."""
        mine = self._within.telling.slices[batch.share.id].records
        known = {_identity(each): each for each in mine}
        return [known[_identity(each)] for each in batch.columns.records(self._values)]

    def _go_on(self) -> None:
        """Run the next records of the batch, as the real process does."""
        for _ in range(AT_ONCE_MOST):
            if not self.alive or self._within.telling.ended:
                return
            if not self._starts():
                self._say(worker_main.BatchResult(self._number))
                return
            record = self._record = self._records[self._number]
            self._within.telling.began(self._place, record)
            call = self._within.handlers.call(record.partition(), record.offset())
            if call.seconds:
                timeline = self._within.site.process.timeline
                timeline.after(call.seconds, partial(self._come_out, record, call))
                return
            if not self._end(record, call):
                return
        self._within.soon(self._go_on)

    def _starts(self) -> bool:
        """Note the start of the next record, and return whether it may start."""
        places, number = self._places, self._number
        if number >= len(self._records):
            return False
        places[STARTED] = number + 1
        if places[MOST] > number:
            return True
        places[STARTED] = number
        return False

    def _come_out(self, record: Record, call: CallDuration) -> None:
        over = not self.alive or self._within.telling.ended
        if not over and self._end(record, call):
            self._go_on()

    def _end(self, record: Record, call: CallDuration) -> bool:
        """End a record; return whether the batch goes on."""
        within = self._within
        ending = within.handlers.ending(record.partition(), record.offset(), hung=call.hangs)
        if ending is None:
            self._number += 1
            self._places[ENDED] = self._number
            self._heard(None)
            settings = within.settings[self._place[0]]
            within.states.ran(*self._place, key_by(settings, record.key()))
            return True
        failure = ending if isinstance(ending, Failure) else None
        self._say(worker_main.BatchResult(self._number, isinstance(ending, Drop), failure), ending)
        return False

    def _heard(self, ending: Ending) -> None:
        """Report the end of a record, which can no longer be lost."""
        if self._record is not None:
            record, self._record = self._record, None
            self._within.telling.comes_out(self._place, record, outcome_of(ending))

    def _say(self, ran: worker_main.BatchResult, ending: Ending = None) -> None:
        """Send the result of the batch. That takes a moment, in which it can be lost."""

        def say() -> None:
            if self.alive and not self._within.telling.ended:
                self._heard(ending)
                self._said.append(ran)
                self._readable()

        self._within.soon(say)

    def _answer(self, call: worker_main.CallRequest) -> worker_main.CallAnswer | worker_main.Raised:
        """Call the handler other than for a record."""
        within, place = self._within, self._place
        if call.name == "adopt":
            within.states.adopt(*place, *call.given)  # type: ignore[arg-type]
        elif call.name == "release":
            if within.chance.random() < within.release_fails:
                within.site.history.tell(ReleaseFailed(within.site.member, *place))
                within.states.lost(*place, for_good=False)
                return worker_main.Raised("SimulatedError: on purpose", "")
            return worker_main.CallAnswer(within.states.release(*place, *call.given))  # type: ignore[arg-type]
        return worker_main.CallAnswer(None)


def _identity(record: Any) -> tuple[object, ...]:
    return record.topic(), record.partition(), record.offset(), record.key(), record.value()


class ParentsEnd(WorkerProcess):
    """The parent's side of a worker's processes; ``there`` is the last one."""

    def __init__(self, spec: WorkerSpec, spawn: Callable[[ParentsEnd], VirtualProcess]) -> None:
        super().__init__(spec)
        self.board = ProgressBoard(until_seen=0.0)
        self._made_up = spawn
        self.there: VirtualProcess | None = None

    def lives(self) -> bool:
        """Return whether there is a process that has not ended."""
        return self.there is not None and self.there.alive

    def readable(self) -> bool:
        """Return whether a waiting reader has something to read."""
        return self.there is None or self.there.ready()

    def kill(self) -> None:
        """Kill the process for the record that it is in."""
        if self.there is not None:
            self.there.past_its_time = True
        super().kill()

    def _spawn(self) -> tuple[Any, Any, Any]:
        self.there = there = self._made_up(self)
        return there, there, _Beside()


class _Beside:
    """Pipe for messages beside the batches, which a simulated process ignores."""

    def send(self, said: object) -> None:
        """Discard the message."""

    def recv(self, _timeout: float) -> object:
        """Raise :class:`TimeoutError`: there is no answer."""
        raise TimeoutError

    def close(self) -> None:
        """Do nothing: nothing is open."""


class SimThread(threading.Thread):
    """A worker's thread as a part of the timeline: only its end is observed."""

    def __init__(self, process: SimulatedProcess, name: str) -> None:
        super().__init__(name=name, daemon=True)
        self._process = process
        self.lives = True

    def is_alive(self) -> bool:
        """Return whether it has not ended."""
        return self.lives

    def join(self, timeout: float | None = None) -> None:
        """Let time pass until it has ended, at most ``timeout`` seconds."""
        if self.lives:
            self._process.wait(timeout or 0.0, lambda: not self.lives)
