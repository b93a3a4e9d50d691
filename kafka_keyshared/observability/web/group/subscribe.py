"""The receiver of a group's reports.

It runs only while a client reads the group view.

Reports come from an :class:`Ear`: a topic, or the instances' own addresses. One thread listens. It
begins with the first read and ends a minute after the last.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from typing import NamedTuple, Protocol

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.logs import Seldom, log_of
from kafka_keyshared.observability.web.group.goodbye import Farewell
from kafka_keyshared.observability.web.group.report import InstanceReport, key_of
from kafka_keyshared.observability.web.group.view import (
    FORGOTTEN,
    GroupView,
    Heard,
    Looker,
    Source,
    group_view,
)

log = log_of("kafka_keyshared.web")

LISTENS_FOR = 60.0
"""Seconds after the last read for which the thread keeps listening."""
FIRST_WITHIN = 5.0
"""Seconds that the first read waits for the other instances' reports."""
TAKE = 0.5
"""Maximum seconds of one query for reports, and so of the delay of a stop."""
AGAIN_AFTER = 5.0
"""Seconds until listening is retried after a failure."""
SIZES_EVERY = 30.0
"""Seconds between two queries for the numbers of partitions of topics."""
RATE_OVER = 30.0
"""Seconds over which rates are computed."""
MOST = 1_000
"""Maximum number of instances: any writer to the topic could invent more."""

Sizes = Callable[[Sequence[str]], Mapping[str, int]]


class News(NamedTuple):
    """A report and its age in ``seconds``. The report is None after a clean stop."""

    key: bytes
    report: InstanceReport | None
    seconds: float = 0.0


class Ear(Protocol):
    """A source of reports, used by one thread. Any call may raise :class:`KeySharedError`."""

    @property
    def caught_up(self) -> bool:
        """Return whether all earlier reports have been received."""

    @property
    def troubles(self) -> tuple[str, ...]:
        """Return the problems with received or missing reports."""

    def hear(self, timeout: float) -> Iterable[News]:
        """Return new reports, after about ``timeout`` seconds at most."""

    def close(self) -> None:
        """Release the source's resources."""


class _Known:
    """The last report of an instance, its arrival, and earlier counts of settled records."""

    def __init__(self) -> None:
        self.report: InstanceReport | None = None
        self.heard_at = float("-inf")
        self._settled: deque[tuple[float, int]] = deque()

    def take(self, report: InstanceReport, heard_at: float) -> None:
        """Store a report, unless a later one is known: an instance's own arrives in two ways."""
        if self.report is not None and report.at < self.report.at:
            return
        self.report, self.heard_at = report, max(self.heard_at, heard_at)
        looks = self._settled
        if not looks or report.at > looks[-1][0]:
            looks.append((report.at, report.settled))
        while len(looks) > 2 and looks[-1][0] - looks[1][0] >= RATE_OVER:
            looks.popleft()

    @property
    def per_second(self) -> float | None:
        """Return the settled records per second; None after a single report."""
        if len(self._settled) < 2:
            return None
        (first, before), (last, now) = self._settled[0], self._settled[-1]
        return max(0, now - before) / (last - first)


class ReportSource(NamedTuple):
    """The source of a group's reports: its kind, its name, and a function that opens it."""

    source: Source
    name: str
    opened: Callable[[], Ear]


class GroupListener:
    """A group as one of its instances sees it. Thread-safe.

    ``own`` returns this instance's report. ``place`` is None without a configured source. ``sizes``
    returns the numbers of partitions of topics, and ``trouble`` why this instance's reports cannot
    be written. ``seldom`` logs that the other instances' reports cannot be read. ``clock`` is
    monotonic, ``wall`` is in seconds since 1970.
    """

    def __init__(
        self,
        own: Callable[[], InstanceReport | None],
        place: ReportSource | None,
        looker: Looker,
        *,
        sizes: Sizes = lambda _topics: {},
        trouble: Callable[[], str] = lambda: "",
        seldom: Seldom | None = None,
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._own = own
        self._place = place
        if place is not None:
            looker = looker._replace(source=place.source, place=place.name)
        self._looker = looker
        self._sizes = sizes
        self._trouble = trouble
        self._seldom = Seldom(log) if seldom is None else seldom
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._known: dict[bytes, _Known] = {}
        self._counts: Mapping[str, int] = {}
        self._sized: list[str] = []
        self._sizes_at = float("-inf")
        self._troubles: tuple[str, ...] = ()
        self._looked_at = float("-inf")
        self._caught_up = threading.Event()
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._farewell = Farewell(clock)

    def report(self, asker: str = "") -> InstanceReport | None:
        """Return this instance's report; None before there is a status.

        ``asker`` is the querying instance, if the client is one.
        """
        own = self._own()
        if asker != self._looker.here:
            self._farewell.answered(asker, own)
        return own

    def part(self, over: Callable[[], bool]) -> None:
        """Wait briefly until all askers have received the last report, unless ``over``."""
        self._farewell.wait(over)

    def view(self) -> GroupView:
        """Return the group as it is known now. The first read waits briefly for the others."""
        if self._place is not None:
            self._listen_on(self._place)
            self._caught_up.wait(FIRST_WITHIN)
            own = self._own()
            if own is not None:
                self._note(News(key_of(own.group, own.instance), own))
        with self._lock:
            now = self._clock()
            heard = [
                Heard(each.report, now - each.heard_at, each.per_second)
                for each in self._known.values()
                if each.report is not None
            ]
            trouble = self._trouble()
            troubles = ((trouble,) if trouble else ()) + self._troubles
        looker = self._looker._replace(taken_at=self._wall(), troubles=troubles)
        return group_view(heard, self._counts, looker)

    def close(self) -> None:
        """Stop listening."""
        self._closing.set()
        self._caught_up.set()

    # --- the listening thread ---

    def _listen_on(self, place: ReportSource) -> None:
        with self._lock:
            self._looked_at = self._clock()
            if self._thread is not None or self._closing.is_set():
                return
            self._caught_up.clear()
            self._thread = threading.Thread(
                target=self._listen, args=(place,), name="keyshared-group-view", daemon=True
            )
            self._thread.start()

    def _wanted(self) -> bool:
        """Return whether a client has read recently. If not, the next read begins again."""
        with self._lock:
            if self._thread is not threading.current_thread():
                return False
            over = self._clock() - self._looked_at > LISTENS_FOR or self._closing.is_set()
            if over:
                self._thread = None
                self._known.clear()
            return not over

    def _listen(self, place: ReportSource) -> None:
        while self._wanted():
            try:
                self._hear(place)
            except Exception as error:
                # A reader of the view sees the error, and nothing else is affected.
                said = str(error) if isinstance(error, KeySharedError) else repr(error)
                log.debug("the group is not heard: %s", said, exc_info=True)
                self._seldom.warning(said, f"the group cannot be looked at from here: {said}")
                self._troubles = (said,)
                self._caught_up.set()
                self._closing.wait(AGAIN_AFTER)

    def _hear(self, place: ReportSource) -> None:
        with closing(place.opened()) as ear:
            while self._wanted():
                for each in ear.hear(TAKE):
                    self._note(each)
                self._troubles = ear.troubles
                if ear.caught_up:
                    self._look_for_sizes()
                    self._caught_up.set()

    def _note(self, news: News) -> None:
        with self._lock:
            if news.report is None:
                self._known.pop(news.key, None)
                return
            heard_at = self._clock() - news.seconds
            self._known.setdefault(news.key, _Known()).take(news.report, heard_at)
            if len(self._known) > MOST:
                longest = min(self._known, key=lambda key: self._known[key].heard_at)
                del self._known[longest]

    def _look_for_sizes(self) -> None:
        now = self._clock()
        with self._lock:
            for key in [k for k, each in self._known.items() if now - each.heard_at > FORGOTTEN]:
                del self._known[key]
            reports = [each.report for each in self._known.values() if each.report is not None]
        topics = sorted({topic for report in reports for topic in report.topics})
        if topics == self._sized and now - self._sizes_at < SIZES_EVERY:
            return
        self._sized, self._sizes_at = topics, now
        self._counts = self._sizes(topics)
