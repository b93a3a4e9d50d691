"""What ``executors/port.py`` promises, held against all that a pool does with one worker.

Nothing here knows how a pool works: it has a model of its own, made of what the worker was given,
what it started, and what was posted, in the order in which that happened.
"""

from __future__ import annotations

import enum
from collections import Counter, deque
from collections.abc import Iterable, Mapping

from kafka_keyshared.core.contract.commands import Fence, Recall, TimeOut
from kafka_keyshared.core.contract.events import (
    Failed,
    FencePassed,
    Recalled,
    Released,
    Report,
    SetAside,
    SliceEnded,
    SomeEnded,
)
from kafka_keyshared.core.contract.slices import Progress, Slice
from kafka_keyshared.core.records.lane_identity import Lane, is_keyless, lane_of
from kafka_keyshared.model import Record

Name = tuple[int, int]
"""A record as reports name it: the id of its slice, and its index there."""


class At(enum.Enum):
    """How far a record has got."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILING = "failed, which is not posted yet"
    FAILED = "failed"
    ASIDE = "set aside"
    BACK = "given back"
    WRITTEN_OFF = "written off with its worker"


OVER = {At.DONE, At.FAILED, At.ASIDE, At.BACK, At.WRITTEN_OFF}


class Fate(enum.Enum):
    """What a pool has to make of a record that runs past its time."""

    ENDS = "it is ended: a failed attempt"
    RUNS_ON = "it is told to end, and has not yet"
    BESIDE = "it is stuck, and its worker goes on beside it"
    WAITED_FOR = "it is stuck, and its worker waits for it"


class Rules:
    """Hears what happens at one worker; fails at once where that cannot be.

    ``serial``: its worker runs one record after the other. At one that does not, a record that was
    received may still be handed back. ``in_order``: records start as they were given, not only
    those of a lane. ``by_key``: of a lane one runs at a time.
    """

    def __init__(self, *, serial: bool, in_order: bool, by_key: bool = True) -> None:
        self.said: list[str] = []
        """What was started and posted, oldest first, in words."""
        self.posted: list[Report | Recalled] = []
        self.answers: list[Recalled] = []
        self.asked: deque[Recall] = deque()
        self.failed: set[Lane] = set()
        self.met: Counter[str] = Counter()
        """How often there was what is out of the ordinary."""
        self._serial = serial
        self._in_order = in_order
        self._by_key = by_key
        self._slices: dict[int, Slice] = {}
        self._lanes: dict[Name, Lane] = {}
        self._at: dict[Name, At] = {}
        self._over: set[int] = set()
        self._dropped: set[Name] = set()
        # Those of whose end a part of their slice was reported.
        self._told: set[Name] = set()
        self._fences: deque[tuple[Fence, set[Name]]] = deque()
        # Time-outs: what was asked for, and what is to come of it; the stuck ones beside which the
        # worker goes on, and the one that it waits for.
        self._past: tuple[TimeOut, Fate] | None = None
        self._apart: set[Name] = set()
        self._waits: Name | None = None
        self.shut: set[Lane] = set()
        """Lanes of which the core gives nothing: that of each stuck record, and those that had
        failed when another went on in a worker's place, until their fences."""

    # --- what it is told to do ---

    def given(self, slice_: Slice) -> None:
        """Note that the worker is given a slice."""
        assert not self.asked, "whoever has not answered a recall is given nothing"
        assert not self.waits, "whoever waits for a stuck record is given nothing"
        closed = [each for each in slice_.records if lane_of(each) in self.shut]
        assert not closed, f"{closed} are given and their lanes are closed"
        self._slices[slice_.id] = slice_
        for index, record in enumerate(slice_.records):
            self._at[slice_.id, index] = At.WAITING
            self._lanes[slice_.id, index] = lane_of(record)

    def fenced(self, fence: Fence) -> None:
        """Note that a fence is put behind what the worker has."""
        before = {name for name, lane in self._lanes.items() if self._serial or lane in fence.lanes}
        self._fences.append((fence, before))

    def recalling(self, recall: Recall) -> None:
        """Note that the worker is asked for what it has not started."""
        self.asked.append(recall)
        self.met["asked before the last answer"] += len(self.asked) > 1

    def timing_out(self, past: TimeOut, fate: Fate) -> None:
        """Note that the worker is asked to end records, and what has to become of those that run.

        Of several in a lane only the first has failed; the others are behind it.
        """
        assert self._past is None, "a time-out is answered before the next"
        self._past = past, fate
        self.met["timed out too late"] += any(self._at[e] is not At.RUNNING for e in past.running)
        failing: set[Lane] = set()
        for name in past.running if fate is Fate.ENDS else ():
            if self._at[name] is At.RUNNING and self._lanes[name] not in failing:
                failing.add(self._lanes[name])
                self._at[name] = At.FAILING

    def abandoned(self, *, settle: bool) -> None:
        """Note that a worker that is lost is given up, with all that it has but stuck records."""
        for name in self._in(At.WAITING):
            assert settle, f"{self._say(name)} has not started, and was not asked back"
            self._at[name] = At.WRITTEN_OFF
            self._dropped.add(name)
        self._fences.clear()

    def stopped(self) -> None:
        """Note that nothing may start any more, and that nobody asks what becomes of it."""
        for name in self._in(At.WAITING):
            self._at[name] = At.BACK

    # --- what it does ---

    def started(self, record: Record) -> None:
        """Note that a record has started, or that a member has received it."""
        name = self.name_of(record)
        lane = self._lanes[name]
        assert self._at[name] is At.WAITING, f"{self._say(name)} starts and is {self._at[name]}"
        waiting = self._in(At.WAITING)
        first = next(each for each in waiting if self._in_order or self._lanes[each] == lane)
        assert name == first, f"{self._say(name)} starts before {self._say(first)}"
        assert lane not in self.failed, f"{self._say(name)} starts in a failed lane"
        self._no_failure_unposted(lane)
        if self._serial:
            assert not self.running(), "two records run at once"
        if self._by_key and not is_keyless(lane):
            beside = [each for each in self._in(At.RUNNING) if self._lanes[each] == lane]
            assert not beside, f"{self._say(name)} starts while {self._names(beside)} runs"
        self._at[name] = At.RUNNING
        self.said.append(f"start {record.offset()}")

    def ended(self, record: Record, *, failed: bool, dropped: bool = False) -> None:
        """Note that a record's run has ended, or that its member has said so."""
        name = self.name_of(record)
        assert self._at[name] is At.RUNNING, f"{self._say(name)} ends and is {self._at[name]}"
        self._at[name] = At.FAILING if failed else At.DONE
        if dropped:
            self._dropped.add(name)

    def heard(self, report: Report | Recalled) -> None:
        """Take what was posted."""
        self.posted.append(report)
        if isinstance(report, Recalled):
            if self._past is not None:  # nothing else is answered before it
                self._timed_out(report, *self._past)
            else:
                self.answered(report)
            return
        if isinstance(report, Released):
            return
        if isinstance(report, FencePassed):
            self._passed(report)
        else:
            assert report.slice in self._slices, f"{report} is of no slice that was given"
            assert report.slice not in self._over, f"{report} comes after the end of its slice"
            if isinstance(report, SliceEnded):
                self._ended(report)
            elif isinstance(report, SomeEnded):
                self._some_ended(report)
            elif isinstance(report, Failed):
                self._failed(report)
            else:
                self._set_aside(report)
        self.said.append(self._in_words(report))

    def answered(self, answer: Recalled) -> None:
        """Take the answer to a recall: what has not started of what is asked for, and that once."""
        assert self.asked, "a recall is answered that was not asked for, or twice"
        recall = self.asked.popleft()
        assert (answer.subscription, answer.worker) == (recall.subscription, recall.worker)
        assert not answer.stuck, "nobody asked for the end of what runs"
        got, waiting = self._given_back(answer)
        if recall.only is None:
            wanted = waiting
        else:
            wanted = {(id_, i) for id_, those in recall.only.items() for i in those} & waiting
            odd = {name for name in got if name[0] not in recall.only}
            assert not odd, f"{self._names(odd)} came back and are of no slice that was named"
        assert wanted <= got, f"{self._names(wanted - got)} had not started and stay"
        self.met["given back"] += bool(got)
        self.met["some given back, some not"] += bool(got) and got != waiting
        self.met["nothing given back"] += not got
        for name in got:
            self._at[name] = At.BACK
        self.answers.append(answer)

    def _given_back(self, answer: Recalled) -> tuple[set[Name], set[Name]]:
        """Return what came back and what could have: what has not started, once and in order."""
        ids = [id_ for id_, _ in answer.slices]
        assert ids == [id_ for id_ in self._slices if id_ in ids], "not in the order of the leases"
        got = {(id_, index) for id_, back in answer.slices for index in back}
        assert sum(len(back) for _, back in answer.slices) == len(got), "given back twice"
        assert all(list(back) == sorted(back) for _, back in answer.slices), "not in order"
        waiting = set(self._in(At.WAITING))
        assert got <= waiting, f"{self._names(got - waiting)} came back and had started or ended"
        return got, waiting

    def _timed_out(self, answer: Recalled, past: TimeOut, fate: Fate) -> None:
        """Take the answer to a time-out: what runs has met its fate, and what follows from that."""
        self._past = None
        assert (answer.subscription, answer.worker) == (past.subscription, past.worker)
        got, waiting = self._given_back(answer)
        failing = [name for name in past.running if self._at[name] is At.FAILING]
        assert not failing, f"the end of {self._names(failing)} is not posted before the answer"
        runs = [name for name in past.running if self._at[name] is At.RUNNING]
        stuck = {(each.slice, each.index): each for each in answer.stuck}
        assert len(stuck) == len(answer.stuck), "stuck twice"
        if fate not in (Fate.BESIDE, Fate.WAITED_FOR) or not runs:
            assert not stuck, f"{self._names(stuck)} are stuck, and are not"
            assert not runs or fate is Fate.RUNS_ON, f"{self._names(runs)} run on: {fate.value}"
        else:
            assert list(stuck) == runs, f"{self._names(runs)} run, stuck are {self._names(stuck)}"
            assert got == waiting, f"{self._names(waiting - got)} stay behind a stuck record"
        for name in got:
            self._at[name] = At.BACK
        for name, each in stuck.items():
            assert list(each.dropped) == self._dropped_of(name[0]), "what it has dropped so far"
            assert each.goes_on is (fate is Fate.BESIDE), fate.value
            self._stuck(name, goes_on=each.goes_on)

    def _stuck(self, name: Name, *, goes_on: bool) -> None:
        self.met["went on beside a stuck record" if goes_on else "waited for a stuck record"] += 1
        self.met["went on after a while"] += goes_on and self._waits == name
        self.shut.add(self._lanes[name])
        if goes_on:
            # The other thread knows of no failed lane, and gets nothing of one before its fence.
            self.shut |= self.failed
            self.failed.clear()
            self._apart.add(name)
        self._waits = None if goes_on else name

    # --- what can be asked of it ---

    @property
    def waits(self) -> bool:
        """Whether the worker waits for a stuck record."""
        return self._waits is not None

    @property
    def reports(self) -> list[Report]:
        """What was reported, oldest first."""
        return [each for each in self.posted if not isinstance(each, Recalled)]

    def at_rest(self, progress: Progress) -> None:
        """See that progress tells what is so, at a moment at which nothing moves."""
        here = [id_ for id_ in self._slices if id_ not in self._over]
        assert sorted(progress) == sorted(here), "progress is of what is given and has not ended"
        for id_ in here:
            count = len(self._slices[id_].records)
            at = [self._at[id_, index] for index in range(count)]
            running = [index for index in range(count) if at[index] is At.RUNNING]
            left = {index for index in range(count) if at[index] in (At.RUNNING, At.WAITING)}
            back = {index for index in range(count) if at[index] is At.BACK}
            said = set(progress[id_].outstanding(count))
            assert list(progress[id_].running()) == running, f"slice {id_}: what runs"
            assert said - back == left, f"slice {id_}: what is outstanding"

    def running(self) -> list[Record]:
        """Return the records that run, in the order in which they were given; no stuck ones beside
        which the worker goes on."""
        return [self._record(name) for name in self._in(At.RUNNING) if name not in self._apart]

    def beside(self) -> list[Record]:
        """Return the stuck records beside which the worker goes on."""
        return [self._record(name) for name in self._in(At.RUNNING) if name in self._apart]

    def slice_of(self, record: Record) -> Slice:
        """Return the slice that has the record."""
        return self._slices[self.name_of(record)[0]]

    def at(self, state: At) -> list[int | None]:
        """Return the offsets of the records that have got that far."""
        return [self._slices[id_].records[index].offset() for id_, index in self._in(state)]

    def given_now(self) -> list[Slice]:
        """Return the slices that have not ended."""
        return [slice_ for id_, slice_ in self._slices.items() if id_ not in self._over]

    def waits_to_start(self, slice_: Slice) -> bool:
        """Say whether the first record of a slice has not started, as far as anybody has heard."""
        return self._at[slice_.id, 0] is At.WAITING

    def all_over(self) -> bool:
        """Say whether every slice that was given has been reported as ended."""
        return self._over == self._slices.keys()

    # --- inside ---

    def name_of(self, record: Record) -> Name:
        """Return how reports name a record."""
        for id_, slice_ in self._slices.items():
            for index, each in enumerate(slice_.records):
                if each is record:
                    return id_, index
        raise AssertionError(f"{record} starts and was not given")

    def _record(self, name: Name) -> Record:
        return self._slices[name[0]].records[name[1]]

    def _dropped_of(self, id_: int) -> list[int]:
        return sorted(index for each, index in self._dropped if each == id_)

    def _in(self, state: At) -> list[Name]:
        return [name for name, at in self._at.items() if at is state]

    def _say(self, name: Name) -> str:
        return str(self._record(name))

    def _names(self, names: Iterable[Name]) -> str:
        return ", ".join(self._say(name) for name in sorted(names))

    def _no_failure_unposted(self, lane: Lane) -> None:
        serial = self._serial
        failing = [
            name
            for name in self._in(At.FAILING)
            if self._lanes[name] == lane or (serial and name not in self._apart)
        ]
        assert not failing, f"the failure of {self._names(failing)} is not posted before this"

    def _ended(self, report: SliceEnded) -> None:
        mine = {name: at for name, at in self._at.items() if name[0] == report.slice}
        left = [name for name, at in mine.items() if at not in OVER]
        assert not left, f"slice {report.slice} ends before {self._names(left)}"
        apart = {id_ for id_, _ in self._apart}
        if self._serial and report.slice not in apart:
            before = [id_ for id_ in self._slices if id_ not in self._over | apart]
            assert before[0] == report.slice, "slices end in the order of the leases"
        if self._serial:
            dropped = self._dropped_of(report.slice)
            assert sorted(report.dropped) == dropped, f"slice {report.slice}: what was dropped"
        again = {(report.slice, index) for index in report.dropped} & self._told
        assert not again, f"{self._names(again)} were said to be dropped before"
        self._over.add(report.slice)
        for name in mine:
            if self._waits == name or (name in self._apart and self._at[name] is At.DONE):
                self.shut.discard(self._lanes[name])
                self._waits = None if self._waits == name else self._waits

    def _some_ended(self, report: SomeEnded) -> None:
        """Some of a slice are over, each of which is said once, and what of them was dropped."""
        assert not self._serial, f"{report} of a worker that does one after the other"
        names = {(report.slice, index) for index in report.indices}
        assert len(names) == len(report.indices) > 0
        left = [name for name in names if self._at[name] not in OVER - {At.BACK}]
        assert not left, f"{self._names(left)} are said to have ended"
        again = names & self._told
        assert not again, f"the end of {self._names(again)} is said twice"
        dropped = {(report.slice, index) for index in report.dropped}
        assert dropped == names & self._dropped, "what was dropped of those"
        self._told |= names
        self.met["some of a slice ended"] += 1

    def _failed(self, report: Failed) -> None:
        name = report.slice, report.index
        assert self._at[name] is At.FAILING, f"{self._say(name)} fails and is {self._at[name]}"
        self._at[name] = At.FAILED
        if self._past is not None and name in self._past[0].running:
            assert report.failure.timed_out, f"{self._say(name)} was ended, which is not said"
        if not is_keyless(self._lanes[name]) and name not in self._apart:
            self.failed.add(self._lanes[name])

    def _set_aside(self, report: SetAside) -> None:
        name = report.slice, report.index
        unrun = {At.WAITING} if self._serial else {At.WAITING, At.RUNNING}
        assert self._at[name] in unrun, f"{self._say(name)} is set aside and {self._at[name]}"
        lane = self._lanes[name]
        assert lane in self.failed, f"{self._say(name)} is set aside and its lane has not failed"
        mine = [each for each, other in self._lanes.items() if other == lane]
        left = [each for each in mine[: mine.index(name)] if self._at[each] in unrun]
        assert not left, f"{self._say(name)} is set aside before {self._names(left)}"
        self.met["set aside"] += 1
        self.met["set aside in hand"] += self._at[name] is At.RUNNING
        self._at[name] = At.ASIDE

    def _passed(self, report: FencePassed) -> None:
        assert self._fences, f"{report} and there is no fence"
        fence, before = self._fences.popleft()
        assert (report.subscription, report.worker) == (fence.subscription, fence.worker)
        assert report.lanes == fence.lanes, "fences come back in order, with their lanes"
        left = [
            name
            for name in before
            if self._at[name] not in OVER
            and (name not in self._apart or self._lanes[name] in fence.lanes)
        ]
        assert not left, f"the fence has passed before {self._names(left)}"
        self.failed.difference_update(fence.lanes)
        self.shut.difference_update(fence.lanes)

    def _in_words(self, report: SliceEnded | SomeEnded | Failed | SetAside | FencePassed) -> str:
        if isinstance(report, FencePassed):
            return "FencePassed"
        records = self._slices[report.slice].records
        if isinstance(report, SliceEnded):
            those = records
        elif isinstance(report, SomeEnded):
            those = [records[index] for index in report.indices]
        else:
            those = [records[report.index]]
        return f"{type(report).__name__} {'+'.join(str(each.offset()) for each in those)}".rstrip()


def selecting(slices: Iterable[Slice]) -> Mapping[int, list[int]]:
    """Name every record of these slices, as a recall names those that are to come back."""
    return {slice_.id: list(range(len(slice_.records))) for slice_ in slices}
