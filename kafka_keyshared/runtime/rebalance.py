"""Handling of assigned, revoked and lost partitions inside the rebalance callbacks.

Inside a callback neither poll nor consume may be called, and no partition is fetched. The client
unassigns as soon as the callback returns. A revoke therefore serves the mailbox only and has one
deadline for everything. It commits asynchronously, because a synchronous commit would block up to
the session timeout when the coordinator is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from kafka_keyshared.client.port import CommittedOffset
from kafka_keyshared.core.backpressure.pause_reasons import Reason
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Progress
from kafka_keyshared.core.partitions.removal import held_of
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition, counted, names_of, some
from kafka_keyshared.runtime.loop import Loop
from kafka_keyshared.runtime.seeking import LAST_BOUNDS_TIMEOUT
from kafka_keyshared.runtime.start_points import COMMITTED_TIMEOUT, StartPoints
from kafka_keyshared.status import RebalanceStatus

log = log_of("kafka_keyshared.rebalance")

BOUNDS_TIMEOUT = 1.0
"""Seconds for each query of logs inside a callback, where every partition waits."""

NOTHING_AFTER = 10.0
"""Seconds without a partition before that is logged. A join may take two rounds."""

ASK_AGAIN_EVERY = 1.0
ASK_AGAIN_AT_LEAST_EVERY = 4.0
ASK_SHARE = 4.0
"""Ratio of the owner's other work to the time it spends on querying start positions."""

REVOKE_WAIT = 0.05

NOWHERE = CommittedOffset(None, None)
"""Committed position of a partition for which none is queried."""

T = TypeVar("T")

PartitionsCallback = Callable[[Sequence[TopicPartition]], None]


class Rebalancer:
    """The three rebalance callbacks, and partitions with unknown start. Times are in seconds."""

    def __init__(self, loop: Loop, revoke_deadline: float) -> None:
        self._loop = loop
        self._revoke_deadline = revoke_deadline
        # With their committed positions, as far as they are known.
        self._unstarted: dict[TopicPartition, CommittedOffset | None] = {}
        self._starts = StartPoints(loop)
        self._ask_at = 0.0
        # Since when this member has no partition; None once that is logged.
        self._nothing_since: float | None = None
        self._patience = BOUNDS_TIMEOUT
        self.closing = False
        self.hurried: Callable[[], bool] = lambda: False
        self.failure: BaseException | None = None
        self.observer: Callable[[str, Sequence[TopicPartition]], None] | None = None
        # Called when a callback begins (True) and when it ends (False). The owner does nothing else
        # in between.
        self.turning: Callable[[bool], None] = lambda _: None

    def subscribe(self) -> None:
        """Join the group with these callbacks."""
        guard = self._guard
        self._loop.metadata_limit.ask()
        self._loop.ports.client.subscribe(
            guard(self.on_assign), guard(self.on_revoke), guard(self.on_lost)
        )

    def _guard(self, callback: Callable[[T], None]) -> Callable[[T], None]:
        """Catch exceptions of the callback; the loop raises them after the poll.

        Until then nothing is committed, because the core's state can no longer be trusted.
        """

        def guarded(partitions: T) -> None:
            if self.failure is not None:
                return
            self.turning(True)
            try:
                callback(partitions)
            except BaseException as error:  # for example SystemExit from a key function
                log.exception("%s failed", callback.__name__)
                self.failure = error
                self._loop.commits_stopped = True
            finally:
                self.turning(False)

        return guarded

    # --- assigned ---

    def on_assign(self, partitions: list[TopicPartition]) -> None:
        """Start the partitions at their committed positions, with their settled sets."""
        if self.closing:
            return  # given back before anything is read; a query would only delay the exit
        loop = self._loop
        loop.commits_stopped = False
        began = loop.ports.clock()
        loop.metadata_limit.wait()
        self._observe("assigned", partitions)
        loop.rights.assigned(partitions, began)
        asked: dict[TopicPartition, CommittedOffset | None] = dict.fromkeys(partitions)
        starts = self._starts.query(asked, BOUNDS_TIMEOUT)
        waiting = [partition for partition in partitions if partition not in starts]
        # Reading without the settled set could run settled records again, so these are held back.
        loop.core.holds.hold_back(Reason.UNSTARTED, waiting)
        loop.assign({**dict.fromkeys(waiting), **loop.start(starts)})
        if waiting:
            self._unstarted.update((partition, asked[partition]) for partition in waiting)
            self._patience = BOUNDS_TIMEOUT
            self._ask_later(began)
        loop.stats.joined = True
        self._nothing_since = None if loop.core.partitions or self._unstarted else began
        took = self._note("assigned", partitions, began)
        log.info(
            "assigned %s in %.3f s",
            _names(partitions),
            took,
            extra=_told("assigned", partitions, took, waiting=len(waiting)),
        )
        if waiting:
            log.warning(
                "start offsets unknown for %d of %d partitions (%s); they stay paused and the "
                "query is retried",
                len(waiting),
                len(partitions),
                _names(waiting),
            )

    def start_at(self, chosen: Mapping[TopicPartition, int]) -> None:
        """Start newly assigned partitions at the positions chosen by the user's ``on_assign``.

        Offsets are absolute, or logical as the client defines them (beginning, end, a tail).
        Earlier settled sets are ignored: every record from the chosen position on is delivered.
        Nothing of these partitions has been read yet, since the client is still inside the
        callback. A partition whose log bounds are unknown stays paused, and the query is retried as
        for any other start.
        """
        self._guard(self._start_at)(chosen)

    def _start_at(self, chosen: Mapping[TopicPartition, int]) -> None:
        if self.closing:
            return
        loop = self._loop
        began = loop.ports.clock()
        mine = [each for each in chosen if each in loop.core.partitions or each in self._unstarted]
        self._starts.chosen.update((each, chosen[each]) for each in mine)
        begun = [each for each in mine if each in loop.core.partitions]
        if begun:
            loop.tell(ev.Revoking(begun))
            loop.tell(ev.Forget(begun))
        loop.core.holds.hold_back(Reason.UNSTARTED, mine)
        self._unstarted.update(dict.fromkeys(mine, NOWHERE))
        starts = self._starts.query(dict.fromkeys(mine, NOWHERE), BOUNDS_TIMEOUT)
        self._ask_later(began)
        self._start_late(starts, began)
        log.info(
            "on_assign chose where to start: %s",
            some([f"{each} at {at.position}" for each, at in sorted(starts.items())], 8),
        )

    def withhold(self, partitions: Sequence[TopicPartition]) -> None:
        """Hold these partitions back: the user's ``on_assign`` cannot be honoured."""
        self._loop.core.holds.hold_back(Reason.UNSTARTED, partitions)

    def step(self) -> None:
        """Query the unknown start positions again."""
        loop = self._loop
        if self._nothing_since is not None:
            self._tell_nothing(self._nothing_since)
        if not self._unstarted or loop.ports.clock() < self._ask_at:
            return
        began = loop.ports.clock()
        self._patience = min(2 * self._patience, COMMITTED_TIMEOUT)
        starts = self._starts.query(self._unstarted, self._patience)
        self._ask_later(began)
        if starts:
            self._start_late(starts, began)
            log.info("started %s after the query was retried", _names(list(starts)))

    def _start_late(self, starts: Mapping[TopicPartition, ev.StartPoint], began: float) -> None:
        """Start assigned partitions whose positions became known later."""
        loop = self._loop
        for partition in starts:
            del self._unstarted[partition]
            self._starts.chosen.pop(partition, None)
        loop.core.holds.let_go(Reason.UNSTARTED, starts)
        loop.rights.assigned(starts, began)
        # No seek here: it may fail for now, and records that come before it must be dropped. This
        # applies without a position too. The client may have refused the pause and fetched on.
        loop.reseek.again(loop.start(starts))
        loop.pause_and_resume()

    def _tell_nothing(self, since: float) -> None:
        if self._loop.ports.clock() - since < NOTHING_AFTER:
            return
        self._nothing_since = None
        log.warning(
            "this member has no partition: most often the group has more members than there are "
            "partitions. It stays as a reserve; more workers in each member (--workers) need no "
            "more partitions. `keyshared doctor` counts both"
        )

    def _ask_later(self, began: float) -> None:
        """Set the time of the next query. The owner does nothing else while it queries."""
        now = self._loop.ports.clock()
        pause = min(ASK_SHARE * (now - began), ASK_AGAIN_AT_LEAST_EVERY)
        self._ask_at = now + max(pause, ASK_AGAIN_EVERY)

    # --- revoked ---

    def on_revoke(self, partitions: list[TopicPartition]) -> None:
        """Wait for running records of the partitions, commit, and forget the rest."""
        loop = self._loop
        if self.closing:
            return  # the stop has already drained and committed
        self._withdraw(partitions)
        mine = [partition for partition in partitions if partition in loop.core.partitions]
        started = loop.ports.clock()
        loop.tell(ev.Revoking(mine))
        held = held_of(loop.core.subscriptions.values(), frozenset(mine), loop.progress())
        left, running = await_running(loop, mine, started + self._revoke_deadline, self.hurried)
        progress = {} if loop.commits_stopped else self._last_commit(mine)
        before = loop.core.unsettled_count()
        self._release(partitions, ev.Forget(mine, progress=progress))
        # running records count as unsettled until they end
        back = before - loop.core.unsettled_count()
        self._observe("revoked", partitions)  # after this nothing is committed for them
        took = self._note("revoked", partitions, started, back + running, running)
        drained = max(0, held - back - running)
        log.info(
            "revoked %s in %.3f s: %s drained, %s taken back%s",
            _names(partitions),
            took,
            counted(drained, "record"),
            f"{back:,}",
            f"; {'given up' if self.hurried() else 'past the deadline'}, may run again: {left}"
            if left
            else "",
            extra=_told(
                "revoked", partitions, took, drained=drained, taken_back=back, left=running
            ),
        )

    def _last_commit(self, mine: Collection[TopicPartition]) -> Progress:
        loop = self._loop
        timeout = 0.0 if self.hurried() else LAST_BOUNDS_TIMEOUT
        doubtful = loop.reseek.doubtful(loop, mine, timeout)
        return loop.commit([each for each in mine if each not in doubtful], final=True)

    def on_lost(self, partitions: list[TopicPartition]) -> None:
        """Forget the partitions without a commit: they may have another owner already.

        The settled records are remembered, in case the partitions have no other owner and come
        back.
        """
        loop = self._loop
        if self.closing:
            return
        self._withdraw(partitions)
        began, held = loop.ports.clock(), loop.core.unsettled_count()
        mine = [partition for partition in partitions if partition in loop.core.partitions]
        # First of all: no further record of them may start, even if a callback takes long or
        # raises.
        loop.tell(ev.Revoking(mine))
        self._observe("lost", partitions)
        self._release(partitions, ev.Forget(mine, lost=True, progress=loop.progress()))
        let_go = held - loop.core.unsettled_count()
        took = self._note("lost", partitions, began, let_go)
        log.warning(
            "lost %s: nothing is committed for them, %d received records are dropped unsettled",
            _names(partitions),
            let_go,
            extra=_told("lost", partitions, took, let_go=let_go),
        )

    def _withdraw(self, partitions: Sequence[TopicPartition]) -> None:
        # A member that keeps some partitions stays joined. One that keeps none waits for the next
        # assignment.
        self._loop.stats.joined = not set(self._loop.core.partitions) <= set(partitions)
        self._nothing_since = None
        for partition in partitions:
            self._unstarted.pop(partition, None)
            self._starts.chosen.pop(partition, None)
        self._loop.core.holds.let_go(Reason.UNSTARTED, partitions)

    def _release(self, partitions: Sequence[TopicPartition], forget: ev.Forget) -> None:
        loop = self._loop
        loop.tell(forget)
        loop.ports.client.released(partitions)
        loop.released_in_call.update(partitions)
        loop.reseek.gone(set(partitions))

    def _note(
        self,
        event: str,
        partitions: Sequence[TopicPartition],
        since: float,
        let_go: int = 0,
        left: int = 0,
    ) -> float:
        """Record the event for statuses; return how many seconds it took."""
        clock = self._loop.ports.clock
        seconds = clock() - since
        self._loop.stats.rebalanced.append(
            RebalanceStatus(
                at=clock.wall(),
                event=event,
                partitions=tuple(sorted(partitions)),
                seconds=seconds,
                let_go=let_go,
                left=left,
            )
        )
        return seconds

    def _observe(self, what: str, partitions: Sequence[TopicPartition]) -> None:
        if self.observer is not None:
            self.observer(what, partitions)


def await_running(
    loop: Loop,
    partitions: Sequence[TopicPartition] | None,
    deadline: float,
    hurried: Callable[[], bool],
) -> tuple[str, int]:
    """Serve the mailbox until no record of the partitions runs; return the rest.

    The result is a text, '' when nothing is left, and the number of records still running.

    :meth:`~.loop.Loop.awaited` defines which records and dead letters are waited for. ``hurried``
    turns true with the second signal, which gives up on running records.
    """
    while True:
        running, dead_letters = loop.awaited(partitions)
        if not running and not dead_letters:
            return "", 0
        remaining = deadline - loop.ports.clock()
        if remaining <= 0 or hurried():
            names = ", ".join(names_of(running[:5]))
            left = f"{len(running)} running ({names}), {counted(dead_letters, 'dead letter')}"
            return left, len(running)
        wait = REVOKE_WAIT if not dead_letters else REVOKE_WAIT / 10
        loop.serve(min(remaining, wait))


def _told(
    event: str, partitions: Sequence[TopicPartition], seconds: float, **counts: int
) -> dict[str, Any]:
    """Return a rebalance's log attributes: the event, all its partitions, and its cost."""
    names = [str(each) for each in sorted(partitions)]
    return {"event": event, "partitions": names, "seconds": round(seconds, 6), **counts}


def _names(partitions: Sequence[TopicPartition]) -> str:
    return some(sorted(partitions), 8, none="nothing")
