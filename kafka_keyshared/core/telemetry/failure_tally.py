"""Two rules that find a high failure rate.

They apply to one subscription, topic or partition:

- *attempts*: most attempts fail, or no attempt has succeeded while several keys fail.
- *given up*: many records settle without being done: dead-lettered, diverted, or dropped by the
  poison policy.

One poison record is no outage, however often it is tried. So a rule needs several keys. Where few
keys fail, it compares records instead of attempts.

One :class:`Outcomes` counts half a second. A :class:`Windows` keeps the last five minutes and three
running sums. So a heartbeat costs the same for any number of failures.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, TypeVar

from kafka_keyshared.core.contract.outcomes import Failure
from kafka_keyshared.core.records.lane_identity import Lane
from kafka_keyshared.core.telemetry.failure_kinds import KINDS_MAX, Kind, one_line
from kafka_keyshared.failure_status import FailureRate

COUNTS = 0.5
"""Seconds that one :class:`Outcomes` counts: from one heartbeat to the next."""

WINDOWS = (8.0, 30.0, 300.0)
"""Seconds of each window, the shortest first."""

LANES_MOST = 8
"""Different lanes that one count remembers: a rule needs a few, never all."""

SAMPLE = 20
"""Records that a window needs before its share is judged."""
SAMPLE_LEAST = 6
"""Records that the longest window needs, because slow traffic brings few."""
LANES_LEAST = 3
"""Different keys that have to fail. One or two are poison records."""
LANES_MANY = 8
"""Different keys from which attempts are compared: each record then has little weight."""
ALONE_LEAST = 10
"""Records in a row that have to fail where they are of one key or two."""

MOST = 0.5
MOST_OVER = 0.35
"""Share of failures from which most attempts fail, and below which this has ended."""
LASTING = 3.0
"""Seconds for which the share has to be that high: a short failure is no outage."""

NO_SUCCESS = 5.0
"""Minimum seconds without a success after which several failing keys are an outage."""
GAPS = 4
"""The same as a multiple of the mean time between two successes, for slow traffic."""

QUIET = 3.0
"""Seconds without a failure, after a success, that end an outage."""
IDLE = 30.0
"""Minimum seconds without an attempt, or a key that waits for one, that end an outage."""

GIVEN_UP_LEAST = 5
GIVEN_UP = 0.1
GIVEN_UP_MOST = 0.5
GIVEN_UP_OVER = 0.05
"""Share of given-up records among settled ones: for a warning, a failure, and the end."""
GIVEN_UP_QUIET = 10.0
"""Seconds without a given-up record, after successes, that end it."""

FORGET = WINDOWS[-1]

Level: TypeAlias = Literal["fail", "warn"]


@dataclass(slots=True)
class Outcomes:
    """How attempts ended in a span of time.

    ``ok`` records were done. ``records`` failed for the first time; ``failed`` counts all failed
    attempts. ``put_off`` records were postponed for the first time; ``put_off_again`` counts the
    later postponements. ``given_up`` records went to the dead-letter topic or were dropped by the
    policy. ``lanes`` failed or were postponed, ``given_up_lanes`` were given up. ``kinds`` and
    ``given_up_kinds`` count both by error and place.
    """

    ok: int = 0
    records: int = 0
    failed: int = 0
    put_off: int = 0
    put_off_again: int = 0
    given_up: int = 0
    lanes: Counter[Lane] = field(default_factory=Counter)
    given_up_lanes: Counter[Lane] = field(default_factory=Counter)
    kinds: Counter[Kind] = field(default_factory=Counter)
    given_up_kinds: Counter[Kind] = field(default_factory=Counter)

    @property
    def not_done(self) -> int:
        """Return how many attempts did not end well."""
        return self.failed + self.put_off + self.put_off_again

    def add(self, other: Outcomes, sign: int = 1) -> None:
        """Add another count to this one; subtract it if ``sign`` is -1."""
        self.ok += sign * other.ok
        if not (other.not_done or other.given_up):
            return
        self.records += sign * other.records
        self.failed += sign * other.failed
        self.put_off += sign * other.put_off
        self.put_off_again += sign * other.put_off_again
        self.given_up += sign * other.given_up
        _add(self.lanes, other.lanes, sign)
        _add(self.given_up_lanes, other.given_up_lanes, sign)
        _add(self.kinds, other.kinds, sign)
        _add(self.given_up_kinds, other.given_up_kinds, sign)


def note_lane(lanes: Counter[Lane], lane: Lane) -> None:
    """Count a lane, unless :data:`LANES_MOST` other lanes are counted already."""
    if lane in lanes or len(lanes) < LANES_MOST:
        lanes[lane] += 1


T = TypeVar("T")


def _add(mine: Counter[T], theirs: Counter[T], sign: int) -> None:
    for each, count in theirs.items():
        left = mine[each] + sign * count
        if left > 0:
            mine[each] = left
        else:
            del mine[each]


class Windows:
    """The last five minutes of outcomes, and the sum of each window. Times are monotonic."""

    def __init__(self) -> None:
        self.sums = tuple(Outcomes() for _ in WINDOWS)
        self._parts: tuple[deque[tuple[float, Outcomes]], ...] = tuple(deque() for _ in WINDOWS)

    def add(self, outcomes: Outcomes, now: float) -> None:
        """Add the outcomes since the last call, and drop those that have become too old."""
        something = outcomes.ok or outcomes.not_done or outcomes.given_up
        for seconds, total, parts in zip(WINDOWS, self.sums, self._parts, strict=True):
            if something:
                parts.append((now, outcomes))
                total.add(outcomes)
            while parts and parts[0][0] <= now - seconds:
                total.add(parts.popleft()[1], -1)

    def first_failure(self, window: int) -> float | None:
        """Return when the first attempt in a window failed, None if none did."""
        return next((at for at, each in self._parts[window] if each.not_done), None)


@dataclass(slots=True)
class _Streak:
    """Attempts since the last success; none of them succeeded.

    ``new_lanes`` are those of records that failed for the first time.
    """

    since: float | None = None
    attempts: int = 0
    records: int = 0
    lanes: Counter[Lane] = field(default_factory=Counter)
    new_lanes: Counter[Lane] = field(default_factory=Counter)

    def add(self, new: Outcomes, now: float) -> None:
        self.since = now if self.since is None else self.since
        self.attempts += new.not_done
        self.records += new.records + new.put_off
        self.lanes.update(new.lanes)
        if new.records or new.put_off:
            self.new_lanes.update(new.lanes)


@dataclass(slots=True)
class _Rule:
    """The state of a rule: since when it holds, and the counts since then."""

    since: float | None = None
    level: Level = "fail"
    window: int = 0
    total: int = 0
    last_at: float = 0.0
    ok_after: int = 0
    high_since: float | None = None
    by_streak: bool = False

    def note(self, bad: int, ok: int, now: float) -> None:
        self.total += bad
        if bad:
            self.last_at, self.ok_after = now, 0
        else:
            self.ok_after += ok

    def idle(self, count: int, now: float) -> bool:
        """Return whether no such event has happened for much longer than usual."""
        since = self.last_at if self.since is None else self.since
        usual = (self.last_at - since) / max(1, count - 1)
        return now - self.last_at >= min(FORGET, max(IDLE, 3 * usual))


class LastFailures:
    """The last failure of each kind."""

    def __init__(self) -> None:
        self._last: dict[Kind, Failure] = {}

    def note(self, kind: Kind, failure: Failure) -> None:
        """Note a failure; of too many kinds the oldest is forgotten."""
        if kind not in self._last and len(self._last) >= KINDS_MAX:
            self._last.pop(next(iter(self._last)))
        self._last[kind] = failure

    def message(self, kind: Kind) -> str:
        """Return the message of the last failure of the kind, in one line."""
        failure = self._last.get(kind)
        return "" if failure is None else one_line(failure.message)


class FailureTally:
    """Outcomes of one place, and the state of its rules. Times are monotonic, in seconds.

    ``waits`` says whether keys wait for another attempt, ``behind`` whether records wait behind
    keys that failed. A rule has to hold for ``patience`` seconds more than the constants say. A
    place inside another one has some, so that the wider place is named where both fail.
    """

    def __init__(
        self,
        now: float,
        waits: Callable[[], bool],
        behind: Callable[[], bool],
        patience: float = 0.0,
    ) -> None:
        self._waits, self._behind, self._patience = waits, behind, patience
        self._created = self._began = self.failed_at = now
        # Attempts are counted anew after each outage, settled records without a break.
        self._windows, self._settled = Windows(), Windows()
        self._streak = _Streak()
        self._attempts, self._given_up = _Rule(), _Rule()
        # The kinds that the status shows when the window has none any more.
        self._kinds: tuple[Counter[Kind], Counter[Kind]] = (Counter(), Counter())

    @property
    def over(self) -> bool:
        """Whether neither rule holds."""
        return self._attempts.since is None and self._given_up.since is None

    def add(self, new: Outcomes, now: float) -> None:
        """Add the outcomes since the last heartbeat, and judge them."""
        self._windows.add(new, now)
        self._settled.add(new, now)
        self._attempts.note(new.not_done, new.ok, now)
        self._given_up.note(new.given_up, new.ok, now)
        if new.ok:
            self._streak = _Streak()
        elif new.not_done:
            self._streak.add(new, now)
        if new.not_done or new.given_up:
            self.failed_at = now
            self._kinds = new.kinds or self._kinds[0], new.given_up_kinds or self._kinds[1]
        self._judge_attempts(now)
        self._judge_given_up(now)

    # --- attempts ---

    def _judge_attempts(self, now: float) -> None:
        rule = self._attempts
        window, share = self._share()
        total = self._windows.sums[window]
        rule.window = window
        rule.level = "warn" if total.put_off > total.failed + total.put_off_again else "fail"
        if rule.since is None:
            self._begin_attempts(window, share, now)
        elif self._attempts_over(total, share, now):
            self._windows, self._streak = Windows(), _Streak()
            self._attempts, self._began = _Rule(), now

    def _begin_attempts(self, window: int, share: float, now: float) -> None:
        rule, first = self._attempts, None
        # A place inside another one knows successes only since its first failure.
        known = not self._patience or now - self._began >= WINDOWS[0]
        if share < MOST or not known:
            rule.high_since = None
        elif rule.high_since is None:
            rule.high_since = now
        if self._nothing_succeeds(now):
            rule.by_streak, first = True, self._streak.since
            rule.total = self._streak.attempts
        elif rule.high_since is not None and now - rule.high_since >= LASTING + self._patience:
            first = self._windows.first_failure(window)
            rule.total = self._windows.sums[window].not_done
        else:
            return
        rule.since = now if first is None else first

    def _share(self) -> tuple[int, float]:
        """Return the shortest window that has enough records, and the share that failed."""
        sums = self._windows.sums
        for window, total in enumerate(sums):
            if _tried(total) >= SAMPLE:
                return window, _share_of(total)
        last = len(sums) - 1
        return last, _share_of(sums[last]) if _tried(sums[last]) >= SAMPLE_LEAST else 0.0

    def _nothing_succeeds(self, now: float) -> bool:
        """Return whether several keys fail and nothing has succeeded for longer than usual."""
        streak = self._streak
        if streak.since is None:
            return False
        done = self._windows.sums[-1].ok
        gap = min(FORGET, now - self._began) / done if done else 0.0
        if now - streak.since < max(NO_SUCCESS, GAPS * gap) + self._patience:
            return False
        if len(streak.new_lanes) >= LANES_LEAST or streak.records >= ALONE_LEAST:
            return True
        return len(streak.lanes) >= LANES_LEAST and self._behind()

    def _attempts_over(self, total: Outcomes, share: float, now: float) -> bool:
        rule = self._attempts
        least = 1 if rule.by_streak else LANES_LEAST
        if rule.ok_after >= least and now - rule.last_at >= QUIET:
            return True
        # Successes from before the outage prove nothing.
        if self._streak.since is None and _tried(total) >= SAMPLE and share < MOST_OVER:
            return True
        return rule.idle(self._windows.sums[-1].records, now) and not self._waits()

    # --- given up ---

    def _judge_given_up(self, now: float) -> None:
        rule, sums = self._given_up, self._settled.sums
        enough = (at for at, each in enumerate(sums) if each.ok + each.given_up >= SAMPLE)
        rule.window = next(enough, len(sums) - 1)
        total = sums[rule.window]
        share = _ratio(total.given_up, total.ok)
        rule.level = "fail" if share >= GIVEN_UP_MOST else "warn"
        if rule.since is None:
            several = len(total.given_up_lanes) >= LANES_LEAST
            if not (several and share >= GIVEN_UP and total.given_up >= GIVEN_UP_LEAST):
                rule.high_since = None
                return
            rule.high_since = now if rule.high_since is None else rule.high_since
            if now - rule.high_since >= self._patience:
                rule.since, rule.total = rule.high_since, total.given_up
            return
        few = total.ok + total.given_up >= SAMPLE and share < GIVEN_UP_OVER
        done = rule.ok_after >= LANES_LEAST and now - rule.last_at >= GIVEN_UP_QUIET
        if few or done or rule.idle(sums[-1].given_up, now):
            self._given_up = _Rule()

    # --- status ---

    @staticmethod
    def _looked_for(window: int, since: float, now: float) -> float:
        """Return the counted seconds of a window; its first outcomes are of a heartbeat before."""
        return min(WINDOWS[window], now - since + COUNTS)

    def shown(
        self, now: float, topic: str, partition: int | None, last: LastFailures
    ) -> Iterator[FailureRate]:
        """Yield a rate for each rule that holds."""
        if self._attempts.since is not None:
            rule, streak = self._attempts, self._streak
            total = self._windows.sums[rule.window]
            count, ok = total.not_done, total.ok
            seconds = self._looked_for(rule.window, self._began, now)
            if streak.since is not None and (not ok or now - streak.since >= NO_SUCCESS):
                count, ok, seconds = streak.attempts, 0, now - streak.since
            kind, share = _most(total.kinds or self._kinds[0])
            put_off = total.put_off + total.put_off_again
            yield FailureRate(
                what="attempts",
                level=rule.level,
                topic=topic,
                partition=partition,
                share=_ratio(count, ok),
                count=count,
                ok=ok,
                window_seconds=seconds,
                put_off=put_off > total.failed,
                total=rule.total,
                seconds=now - self._attempts.since,
                error=kind[0],
                where=kind[1],
                error_share=share,
                message=last.message(kind),
            )
        if self._given_up.since is not None:
            rule = self._given_up
            total = self._settled.sums[rule.window]
            kind, share = _most(total.given_up_kinds or self._kinds[1])
            yield FailureRate(
                what="given_up",
                level=rule.level,
                topic=topic,
                partition=partition,
                share=_ratio(total.given_up, total.ok),
                count=total.given_up,
                ok=total.ok,
                window_seconds=self._looked_for(rule.window, self._created, now),
                total=rule.total,
                seconds=now - self._given_up.since,
                error=kind[0],
                where=kind[1],
                error_share=share,
                message=last.message(kind),
            )


def _most(kinds: Counter[Kind]) -> tuple[Kind, float]:
    """Return the most frequent kind and its share."""
    if not kinds:
        return ("", ""), 0.0
    kind, times = kinds.most_common(1)[0]
    return kind, times / kinds.total()


def _tried(total: Outcomes) -> int:
    return total.ok + total.records + total.put_off_again


def _ratio(part: int, rest: int) -> float:
    return part / (part + rest) if part else 0.0


def _share_of(total: Outcomes) -> float:
    """Return the share that failed: of records, or of attempts where many keys fail."""
    lanes = len(total.lanes)
    if lanes < LANES_LEAST:
        return 0.0
    share = _ratio(total.records, total.ok)
    if lanes >= LANES_MANY:
        share = max(share, _ratio(total.failed + total.put_off_again, total.ok))
    return share
