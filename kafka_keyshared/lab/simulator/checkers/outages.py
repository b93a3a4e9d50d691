"""Checker I13: the diagnosis names a dependency outage and its end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.checkers.checker import Checker, FreeSince, always
from kafka_keyshared.lab.simulator.checkers.records import Lane
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import DependencyAway, HealthLooked

Named = Callable[[int], Collection[str]]
"""Returns the subscriptions of a member for which its diagnosis says that most attempts fail."""

KEYS = 6
"""Different keys that must have failed: twice the rule's number, because some may be revoked."""
WITHIN = 5.0
GAPS = 5
"""Seconds without a success, or mean times between successes, after which it must be named."""
SLACK = 3.0
"""Extra seconds that a member may need: its owner rests, and checks twice a second."""
LATELY = 15.0
"""Seconds within which an attempt must have failed: an idle subscription is not failing."""
QUIET = 3.0
DONE = 5
"""Successes after the last failure, and seconds since then, after which the outage is over."""
SLICE = 15.0
"""Seconds that a slice may take. The core learns of its finished records only at its end."""
SETTLING = 6.0
"""Seconds after an outage in which successes do not count, because the rule starts again."""


class _OutageModel:
    """Attempts of one subscription of a member."""

    def __init__(self, now: float) -> None:
        self.began = now
        self.done = 0
        self.done_since = 0
        self.failed_at = now  # earlier failures are unknown
        self.fails_since: float | None = None
        self.lanes: set[Lane] = set()


class OutagesChecker(Checker):
    """I13, outages named: each member reports an outage of the dependency in time, and its end.

    A member must report that most attempts fail if many different keys failed for the first time
    and no attempt succeeded. It has :data:`WITHIN` seconds, or :data:`GAPS` times the mean time
    between two successes. The report ends once attempts have succeeded and none has failed for
    :data:`QUIET` seconds. The rule does not apply to a member whose owner is blocked, or that has
    lost partitions in that time. It does not apply where handlers fail all the time (``calm`` is
    False).
    """

    invariant = "I13 outages named"

    def __init__(
        self,
        history: History,
        settings: Sequence[SubscriptionSettings],
        books: Books | None = None,
        *,
        named: Named,
        calm: bool,
        awake_since: FreeSince = always,
        go_on: bool = False,
    ) -> None:
        super().__init__(history, settings, books, go_on=go_on)
        self._named, self._calm = named, calm
        self._awake_since = awake_since
        self._away = False
        self._seen: dict[tuple[int, str], _OutageModel] = {}

    def listeners(self) -> Mapping[type, Listener]:
        """Listen to ends of handlers, and check the diagnosis on request."""
        return {
            happened.HandlerEnded: self._ended,
            happened.PartitionsReleased: self._released,
            happened.StopRequested: self._over,
            happened.Gone: self._over,
            DependencyAway: self._is_away,
            HealthLooked: self._look,
        }

    def _ended(self, told: happened.HandlerEnded) -> None:
        each, now = self.books.delivery, self.books.now
        if each is None or told.outcome in ("given_back", "died"):
            return
        if each.assignment.member.stopping_at is not None:
            return  # the diagnosis learns of ends only when the stop processes the reports
        place = told.member, told.subscription
        seen = self._seen.get(place)
        if seen is None:
            seen = self._seen[place] = _OutageModel(now)
        if told.outcome in ("done", "dropped"):
            if seen.fails_since is not None and now - seen.fails_since >= QUIET:
                seen.began, seen.done = now + SETTLING, 0
            seen.done += now >= seen.began
            seen.done_since += 1
            seen.fails_since = None
            seen.lanes.clear()
            return
        seen.failed_at, seen.done_since = now, 0
        if each.assignment.over is None:
            seen.fails_since = now if seen.fails_since is None else seen.fails_since
            if each.tries_most <= 1:
                seen.lanes.add(each.lane)

    def _released(self, told: happened.PartitionsReleased) -> None:
        self._forget(told.member)

    def _over(self, told: happened.StopRequested | happened.Gone) -> None:
        self._forget(told.member)

    def _forget(self, member: int) -> None:
        for place in [each for each in self._seen if each[0] == member]:
            del self._seen[place]

    def _is_away(self, told: DependencyAway) -> None:
        self._away = told.away

    def _look(self, _: HealthLooked) -> None:
        if not self._calm:
            return
        now = self.books.now
        for (member, sub), seen in list(self._seen.items()):
            if now - self._awake_since(member) < SLACK:
                continue
            must, must_not = self._must(seen, now), self._must_not(seen, now)
            if not (must or must_not):
                continue
            named = sub in self._named(member)
            if must and not named:
                self.violated(
                    member,
                    f"{sub}: nothing has succeeded for {now - (seen.fails_since or now):.1f} s and "
                    f"{len(seen.lanes)} keys fail, and the diagnosis does not say so",
                )
            if must_not and named:
                self.violated(
                    member,
                    f"{sub}: {seen.done_since} records were done and none has failed for "
                    f"{now - seen.failed_at:.1f} s, and the diagnosis has an outage still",
                )

    def _must(self, seen: _OutageModel, now: float) -> bool:
        if not self._away or seen.fails_since is None or now - seen.failed_at > LATELY:
            return False
        if len(seen.lanes) < KEYS or seen.done < DONE:
            return False
        gap = (now - seen.began) / seen.done
        return now - seen.fails_since >= max(WITHIN, GAPS * gap) + SLACK

    def _must_not(self, seen: _OutageModel, now: float) -> bool:
        return seen.done_since >= DONE and now - seen.failed_at >= QUIET + SLICE
