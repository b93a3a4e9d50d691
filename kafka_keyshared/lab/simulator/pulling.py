"""Pull members in a simulation: the package's own pool, with simulated callers.

A member receives a few records and works on all of them at once. It settles each when its time has
come, in any order, even after its lease has ended. Unsettled records come back when it leaves.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from types import SimpleNamespace
from typing import Any

from kafka_keyshared.clock import Clock
from kafka_keyshared.core.contract.commands import Recall, StartWorker, TimeOut
from kafka_keyshared.core.contract.events import Failed, Recalled, Report, SetAside, SliceEnded
from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.executors.pull.pool import PullPool
from kafka_keyshared.lab.simulator.handlers import CallDuration, Handlers
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.member_events import WorkerJoined, WorkerLeft
from kafka_keyshared.lab.simulator.pool import PoolHabits, WorkerObservation, outcome_of
from kafka_keyshared.lab.simulator.pool_probe import Place, PoolProbe
from kafka_keyshared.lab.simulator.states import States
from kafka_keyshared.lab.simulator.wakeups import Turns
from kafka_keyshared.model import Record

BROKEN = 0.5
"""The share of members that leave by an exception."""


class SimMembers(PullPool):
    """The members of one process, of its one subscription."""

    leaves = True
    """Whether a worker may leave by itself."""

    def __init__(
        self,
        site: Site,
        core: Dispatcher,
        handlers: Handlers,
        chance: Random,
        habits: PoolHabits,
        *,
        post: Callable[[Report | Recalled], None],
        clock: Clock,
    ) -> None:
        self._member, self._process, self._history = site
        self._handlers = handlers
        self._chance = chance
        self._habits = habits
        self.replaceable = True
        """Not used: a member is never replaced."""
        (sub,) = core.subscriptions.values()
        self._states = States(site, [sub.settings])
        self._telling = PoolProbe(site, post)
        self._turns = Turns(self._process, self._telling, chance, habits, self._turn)
        self._gone: set[Place] = set()
        mailbox: Any = SimpleNamespace(put=self._tell_owner)
        super().__init__(mailbox, clock, subscription=sub.name)
        for worker in sub.workers.values():
            self.join(worker.name)

    # --- the port, in addition to the pool ---

    def submit(self, slice_: Slice) -> None:
        """Let the record wait for its member."""
        self._telling.handed_over(slice_)
        super().submit(slice_)
        self._turns.wake((slice_.subscription, slice_.worker))

    def recall(self, recall: Recall) -> Recalled:
        """Take back the records that the member has not received."""
        known = dict(self._telling.slices)  # the slices of returned records end in the call
        answer = super().recall(recall)
        records = [known[id_].records[at] for id_, those in answer.slices for at in those]
        if records:
            self._telling.came_back((recall.subscription, recall.worker), records)
        return answer

    def time_out(self, past: TimeOut) -> None:
        """End these leases."""
        self._telling.recalling((past.subscription, past.worker))
        super().time_out(past)

    def add(self, worker: StartWorker) -> None:
        """Make room for one more member."""
        super().add(worker)
        told = WorkerJoined(self._member, worker.subscription, worker.worker, worker.name)
        self._history.tell(told)

    def abandon(self, subscription: str, worker: int, *, settle: bool = False) -> None:
        """Give up a member that has left. It has already given its records back."""
        super().abandon(subscription, worker, settle=settle)
        self._telling.given_up((subscription, worker))
        self._gone.add((subscription, worker))
        self._states.lost(subscription, worker, for_good=True)

    def end(self, subscription: str, worker: int) -> None:
        """Signal the member that no further records come."""
        super().end(subscription, worker)
        self._gone.add((subscription, worker))
        self._states.ended(subscription, worker)

    # --- actions on the timeline ---

    @property
    def workers(self) -> dict[Place, Any]:
        """Return the existing members."""
        return dict(self.cells)

    def seen(self) -> dict[Place, WorkerObservation]:
        """Return the members as seen from outside."""
        found = {}
        for place, cell in self.cells.items():
            runs, given_up = self._telling.runs[place], place in self._gone
            there = not (given_up or cell.closed)
            found[place] = WorkerObservation(there, runs[0] if runs else None, given_up, cell.left)
        return found

    def kill(self, subscription: str, worker: int) -> None:
        """Make the member's code raise an exception, unless it is the last one."""
        there = [place for place, seen in self.seen().items() if seen.there]
        if len(there) > 1 and (subscription, worker) in there:
            self.dismiss(subscription, worker)

    def dismiss(self, subscription: str, worker: int) -> None:
        """Make a member leave, with or without an exception."""
        if self.ended:
            return
        place = subscription, worker
        self._history.tell(WorkerLeft(self._member, *place))
        self._states.left(*place)
        self.cells[place].leave(broken=self._chance.random() < BROKEN)

    @property
    def ended(self) -> bool:
        """Whether the process has gone. Nothing of it is reported then."""
        return self._telling.ended

    @ended.setter
    def ended(self, ended: bool) -> None:
        self._telling.ended = ended

    # --- the members' code ---

    def _turn(self, place: Place) -> None:
        """Receive as many records as there is room for, and work on them at once."""
        cell = self.cells[place]
        room = self._habits.at_once - len(cell.held())
        for slice_ in cell.take(room, 0.0) if room > 0 else ():
            record = slice_.records[0]
            self._telling.began(place, record)
            call = self._handlers.call(record.partition(), record.offset())
            done = partial(self._settle, place, slice_, call)
            self._process.timeline.after(call.seconds, done)

    def _settle(self, place: Place, slice_: Slice, call: CallDuration) -> None:
        """Report the outcome of a record, whether or not it is still this member's."""
        if self.ended or not self._process.alive:
            return
        cell, record = self.cells[place], slice_.records[0]
        ending = self._handlers.ending(record.partition(), record.offset(), hung=call.hangs)
        if isinstance(ending, Failure):
            cell.fail(slice_, ending)
        else:  # a member has no outcome for a dropped record
            cell.settle([slice_])
        self._turns.wake(place)

    # --- reports ---

    def _tell_owner(self, report: Report | Recalled) -> None:
        if isinstance(report, Failed):
            place, record = self._of(report)
            self._telling.comes_out(place, record, outcome_of(report.failure))
        elif isinstance(report, SetAside) and self._runs(*self._of(report)):
            place, record = self._of(report)
            self._telling.comes_out(place, record, "given_back")
        elif isinstance(report, SliceEnded):
            self._ended(self._telling.slices.get(report.slice))
        self._telling.put(report)

    def _ended(self, slice_: Slice | None) -> None:
        if slice_ is None:
            return
        place, record = (slice_.subscription, slice_.worker), slice_.records[0]
        if self._runs(place, record):
            self._telling.comes_out(place, record, "done")

    def _of(self, report: Failed | SetAside) -> tuple[Place, Record]:
        slice_ = self._telling.slices[report.slice]
        return (slice_.subscription, slice_.worker), slice_.records[report.index]

    def _runs(self, place: Place, record: Record) -> bool:
        return any(each is record for each in self._telling.runs[place])
