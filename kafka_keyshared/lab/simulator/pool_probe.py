"""Reports to the history about one of the package's own pools.

They are made from the pool's reports on their way to the owner, and from its handler calls. So
there is no second account of the pool.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kafka_keyshared.core.contract.events import Recalled, Report, SetAside, SliceEnded
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.lab.simulator import history as was
from kafka_keyshared.lab.simulator.identity import Site
from kafka_keyshared.lab.simulator.pool import where_from
from kafka_keyshared.model import Record

Place: TypeAlias = tuple[str, int]
"""A worker: its subscription, and its number there."""


class PoolProbe:
    """Reports on the pool of one process; ``post`` passes reports on to its owner.

    ``runs`` are the running records by worker, in the order of their starts. Once ``ended`` is set
    the process has gone, and nothing of it is reported.
    """

    def __init__(self, site: Site, post: Callable[[Report | Recalled], None]) -> None:
        self._member, _, self._history = site
        self._post = post
        self.ended = False
        self.slices: dict[int, Slice] = {}
        self.runs: defaultdict[Place, list[Record]] = defaultdict(list)
        self._waits: defaultdict[Place, dict[int, Record]] = defaultdict(dict)

    def put(self, report: Report | Recalled) -> None:
        """Pass on a report of the pool to its owner."""
        if self.ended:
            return
        if isinstance(report, SetAside):
            slice_ = self.slices[report.slice]
            place = slice_.subscription, slice_.worker
            self.came_back(place, [slice_.records[report.index]])
        elif isinstance(report, SliceEnded):
            del self.slices[report.slice]
        elif isinstance(report, Recalled):
            self._answered(report)
        self._post(report)

    def _answered(self, answer: Recalled) -> None:
        place = answer.subscription, answer.worker
        self.taken_back(answer)
        self._history.tell(was.RecallAnswered(self._member, *place))
        for each in answer.stuck:
            record = self.slices[each.slice].records[each.index]
            self._history.tell(was.WentOn(self._member, place[0], place[1], *where_from(record)))

    # --- leases and returns ---

    def handed_over(self, slice_: Slice) -> None:
        """Report that a worker is leased a slice."""
        place = slice_.subscription, slice_.worker
        self.slices[slice_.id] = slice_
        self._waits[place].update((id(record), record) for record in slice_.records)
        records = [where_from(record) for record in slice_.records]
        self._history.tell(was.HandedOver(self._member, *place, records))

    def recalling(self, place: Place) -> None:
        """Report that a worker is recalled, and answers later."""
        self._history.tell(was.Recalling(self._member, *place))

    def taken_back(self, answer: Recalled) -> None:
        """Report the records that a worker gives back."""
        back = [self.slices[id_].records[at] for id_, those in answer.slices for at in those]
        if back:
            self.came_back((answer.subscription, answer.worker), back)

    def came_back(self, place: Place, records: Iterable[Record]) -> None:
        """Report records that come back unrun."""
        self._back(place, list(records), written_off=False)

    def written_off(self, place: Place) -> None:
        """Report the unstarted records of a worker as done, because it is given up."""
        if left := list(self._waits[place].values()):
            self._back(place, left, written_off=True)

    def _back(self, place: Place, records: list[Record], *, written_off: bool) -> None:
        for record in records:
            self._waits[place].pop(id(record), None)
        told = [where_from(record) for record in records]
        self._history.tell(was.TakenBack(self._member, *place, told, written_off))

    def given_up(self, place: Place) -> None:
        """Forget the unstarted records of a worker that is given up."""
        self._waits.pop(place, None)

    # --- handler calls ---

    def began(self, place: Place, record: Record) -> None:
        """Report that the handler is called with a record."""
        self._history.tell(was.Began(self._member, place[0], place[1], *where_from(record)))
        self._waits[place].pop(id(record), None)
        self.runs[place].append(record)

    def comes_out(self, place: Place, record: Record, outcome: str) -> None:
        """Report the end of a call, with an outcome of :data:`~.history.OUTCOMES`."""
        self.runs[place].remove(record)
        self._history.tell(
            was.HandlerEnded(self._member, place[0], place[1], *where_from(record), outcome)
        )

    def died(self, place: Place) -> None:
        """Report that the worker's thread or process has ended without notice."""
        self._history.tell(was.WorkerDied(self._member, *place))
