"""What the history hears of a pool that is the package's own: what it tells its owner, on the way.

And what its made-up handlers go through. So nothing of the pool is told by a second account of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import TypeAlias

from kafka_keyshared.core.events import Ended, Recalled, Report, SetAside
from kafka_keyshared.core.slices import Slice
from kafka_keyshared.model import Record
from kafka_keyshared.sim import history as was
from kafka_keyshared.sim.pool import where_from
from kafka_keyshared.sim.site import Site

Place: TypeAlias = tuple[str, int]
"""A worker: its subscription, and its number there."""


class Telling:
    """Tells of the pool of one process; ``post`` is the way to its owner.

    ``runs`` are the records that run, by worker and in the order in which they began. Once
    ``ended`` is set the process has gone, and nobody hears anything of it.
    """

    def __init__(self, site: Site, post: Callable[[Report | Recalled], None]) -> None:
        self._member, _, self._history = site
        self._post = post
        self.ended = False
        self.slices: dict[int, Slice] = {}
        self.runs: defaultdict[Place, list[Record]] = defaultdict(list)
        self._waits: defaultdict[Place, dict[int, Record]] = defaultdict(dict)

    def put(self, report: Report | Recalled) -> None:
        """Pass on what the pool tells its owner."""
        if self.ended:
            return
        if isinstance(report, SetAside):
            slice_ = self.slices[report.slice]
            place = slice_.subscription, slice_.worker
            self.came_back(place, [slice_.records[report.index]])
        elif isinstance(report, Ended):
            del self.slices[report.slice]
        elif isinstance(report, Recalled):
            self._answered(report)
        self._post(report)

    def _answered(self, answer: Recalled) -> None:
        place = answer.subscription, answer.worker
        self.taken_back(answer)
        self._history.tell(was.Recalled(self._member, *place))
        for each in answer.stuck:
            record = self.slices[each.slice].records[each.index]
            self._history.tell(was.WentOn(self._member, place[0], place[1], *where_from(record)))

    # --- what a worker is given, and gives back ---

    def handed_over(self, slice_: Slice) -> None:
        """A worker is given a slice."""
        place = slice_.subscription, slice_.worker
        self.slices[slice_.id] = slice_
        self._waits[place].update((id(record), record) for record in slice_.records)
        records = [where_from(record) for record in slice_.records]
        self._history.tell(was.HandedOver(self._member, *place, records))

    def recalling(self, place: Place) -> None:
        """A worker is asked for what it has not started, and answers later."""
        self._history.tell(was.Recalling(self._member, *place))

    def taken_back(self, answer: Recalled) -> None:
        """A worker gives that back."""
        back = [self.slices[id_].records[at] for id_, those in answer.slices for at in those]
        if back:
            self.came_back((answer.subscription, answer.worker), back)

    def came_back(self, place: Place, records: Iterable[Record]) -> None:
        """Records come back unrun."""
        self._back(place, list(records), written_off=False)

    def written_off(self, place: Place) -> None:
        """What a worker has not begun counts as done, since the worker is given up."""
        if left := list(self._waits[place].values()):
            self._back(place, left, written_off=True)

    def _back(self, place: Place, records: list[Record], *, written_off: bool) -> None:
        for record in records:
            self._waits[place].pop(id(record), None)
        told = [where_from(record) for record in records]
        self._history.tell(was.TakenBack(self._member, *place, told, written_off))

    def given_up(self, place: Place) -> None:
        """A worker is given up: of what it had not begun nothing more is told."""
        self._waits.pop(place, None)

    # --- what handlers go through ---

    def began(self, place: Place, record: Record) -> None:
        """The handler is called with a record."""
        self._history.tell(was.Began(self._member, place[0], place[1], *where_from(record)))
        self._waits[place].pop(id(record), None)
        self.runs[place].append(record)

    def comes_out(self, place: Place, record: Record, outcome: str) -> None:
        """It comes out of it; the outcome is one of :data:`~.history.OUTCOMES`."""
        self.runs[place].remove(record)
        self._history.tell(
            was.Ended(self._member, place[0], place[1], *where_from(record), outcome)
        )

    def died(self, place: Place) -> None:
        """The worker's thread or process has ended without a word."""
        self._history.tell(was.WorkerDied(self._member, *place))
