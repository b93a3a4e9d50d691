"""What a program may order while its app runs, and ask of closed lanes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kafka_keyshared.app.named import those_of
from kafka_keyshared.app.pools import limit_to
from kafka_keyshared.config import Options
from kafka_keyshared.config.pooled import refuse_more
from kafka_keyshared.core.events import AssignRange, LaneAction, LaneOrder, SetFilters
from kafka_keyshared.core.metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.core.routing.filters import Filters
from kafka_keyshared.core.settings import worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.owner.flush import Positions, flush
from kafka_keyshared.owner.instance import Instance
from kafka_keyshared.owner.lane_orders import closed_lanes, give, lift_dlq_limit
from kafka_keyshared.owner.orders import OrderRefusedError, T
from kafka_keyshared.owner.pausing import pause, resume
from kafka_keyshared.owner.scaling import Moving, Ordered, assign, bring_to, set_filters
from kafka_keyshared.program.forks import refuse_in_child
from kafka_keyshared.program.importing import refuse_inside_handler
from kafka_keyshared.status import LaneStatus

ANSWERED_WITHIN = 10.0
"""Seconds: an owner that is in a rebalance gets to an order behind it."""

_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)@(?P<offset>\d+)")


class Orderable:
    """Lists closed lanes and decides about them, from any thread but a worker's.

    A lane is named by its key, or by the place of its first record as the log names it, such as
    ``orders-3@17``, and by its subscription. Each call says what was done. Where it is not,
    :class:`OrderRefusedError` says why: nothing runs, there is no such subscription, no such lane
    is closed, or what it waits for does not allow it.
    """

    instance: Instance | None
    options: Options
    conf: dict[str, Any]
    topics: list[str]

    def lanes(self) -> list[LaneStatus]:
        """Return every closed lane, those first that wait for somebody."""
        return self._running("lanes").ask("lanes", closed_lanes, ANSWERED_WITHIN)

    def release(
        self,
        key: bytes | str | None = None,
        *,
        at: str = "",
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> str:
        """Let a lane go on: what blocks it runs again, what was diverted is so no more."""
        return self._order(LaneAction.RELEASE, key, at, subscription)

    def drop(
        self,
        key: bytes | str | None = None,
        *,
        at: str = "",
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> str:
        """Give up the record that keeps a lane closed: settled, counted, not kept."""
        return self._order(LaneAction.DROP, key, at, subscription)

    def dead_letter(
        self,
        key: bytes | str | None = None,
        *,
        at: str = "",
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> str:
        """Send the record that keeps a lane closed to the dead-letter topic."""
        return self._order(LaneAction.DEAD_LETTER, key, at, subscription)

    def lift_dlq_limit(self) -> list[TopicPartition]:
        """Let the partitions go on that their dead-letter limit has stopped; return which."""
        name = "lift_dlq_limit"
        return self._running(name).ask(name, lift_dlq_limit, ANSWERED_WITHIN)

    def flush(self, timeout: float = 30.0) -> Positions:
        """Settle what is in the workers' hands now, commit, and return the committed positions.

        From any thread, but not in a handler or a callback. What has failed and waits for its next
        attempt is not waited for, nor what comes meanwhile, nor a partition that goes.

        Raises :class:`OrderRefusedError` when the app does not run, or stops meanwhile, and
        :class:`TimeoutError` after so many seconds, which says what is still running.
        """
        refuse_inside_handler("flush()")
        return flush(self._running("flush"), timeout)

    def pause(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> list[TopicPartition]:
        """Fetch nothing more from these topics and partitions, or without either from anything.

        From any thread, but not in a handler or a callback. What has been fetched runs to its end
        and is committed, and the app stays in its group. It lasts until :meth:`resume`, or to the
        end of the process: what comes back in a rebalance is paused still, and so is what comes for
        the first time. The last order that names a partition counts, however wide it is.

        Returns when the client fetches nothing from them any more, with the partitions of this
        process that are paused by hand then.

        Raises :class:`ConfigError` for what is no list of topics or partitions;
        :class:`OrderRefusedError` for a topic that the app does not read, for a partition that
        there is not, and when the app does not run or stops meanwhile; and :class:`TimeoutError`
        when that has not come about in 10 s: then it goes on by itself.
        """
        those = those_of("pause", self.topics, topics, partitions)
        order = pause(those)
        return self._running("pause").ask("pause", order, ANSWERED_WITHIN, follows=True)

    def resume(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> list[TopicPartition]:
        """Fetch again from these topics and partitions, or without either from everything.

        Takes, raises and returns what :meth:`pause` does. What is not paused stays as it is.
        """
        those = those_of("resume", self.topics, topics, partitions)
        order = resume(those)
        return self._running("resume").ask("resume", order, ANSWERED_WITHIN, follows=True)

    def scale(
        self, workers: int, timeout: float = 30.0, *, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> tuple[str, ...]:
        """Bring the running app to so many threads; return the names of its workers.

        Coroutines are all of one worker: so many records run at once from now on.

        From any thread, but not in a handler or a callback. Workers that share what waits begin at
        once, and leave with what they run. Of others keys change hands slot by slot: what
        runs ends where it is, what waits moves, and nothing is lost, repeated or reordered. It is
        over when the last record that ran in a slot that has moved has ended.

        Raises :class:`ConfigError` for no worker and for an app with members, which come and go by
        themselves; :class:`OrderRefusedError` when the app does not run or stops meanwhile; and
        :class:`TimeoutError` after so many seconds: it says what is still running where keys have
        moved from, and goes on by itself.
        """
        refuse_inside_handler("scale()")
        if workers < 1:
            raise ConfigError(f"scale({workers}): give at least 1 worker")
        refuse_more(self.options.pool, workers, f"scale({workers})")
        if self.options.coroutines is not None:
            order = limit_to(workers, subscription)
            return self._running("scale").ask(f"scale({workers})", order, ANSWERED_WITHIN)
        if not self.options.serial:
            raise ConfigError(f"scale({workers}): an app with members has those that join it")
        moving = Moving()
        order = bring_to(subscription, worker_names(workers), moving)
        return self._moved(f"scale({workers})", order, moving, timeout)

    def assign_range(
        self,
        first: int,
        last: int,
        worker: str | None,
        *,
        take_over: bool = False,
        timeout: float = 30.0,
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> dict[str, str]:
        """Give a worker of the running app the slots from one to another, both included.

        With ``routing="sticky"``. What others have of them is refused, with their names, unless it
        is to be taken over: then the worker gets nothing of a key until the last record has ended
        that whoever had it was running. Returns when that is so, with the ranges that all workers
        have then, as the option ``ranges`` takes them. From any thread, but not in a handler or a
        callback.

        ``worker=None`` makes them nobody's, whoever has them: what has not started goes by
        ``on_unmatched`` at once.

        Raises :class:`ConfigError` for an app whose routing has no ranges;
        :class:`OrderRefusedError` for a range that cannot be, and when the app does not run or
        stops meanwhile; and :class:`TimeoutError` after so many seconds: then it goes on by itself.
        """
        refuse_inside_handler("assign_range()")
        name = f"assign_range({first}, {last}, {worker!r})"
        if self.options.routing != "sticky":
            raise ConfigError(
                f"{name}: the app has routing={self.options.routing!r}; make it with "
                "routing='sticky'"
            )
        moving = Moving()
        order = assign(AssignRange(subscription, first, last, worker, take_over), moving)
        return self._moved(name, order, moving, timeout)

    def set_filters(
        self,
        worker: str,
        patterns: Sequence[str | bytes],
        *,
        timeout: float = 30.0,
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> dict[str, tuple[str, ...]]:
        """Have a worker of the running app take the keys that one of these patterns takes.

        An empty list is every key. Keys change hands as ranges do: who has a key now gets nothing
        of it until the last record has ended that the other was running. Returns when that is so,
        with what each worker takes then. From any thread, but not in a handler or a callback.

        Raises :class:`ConfigError` for what is no list of patterns; :class:`OrderRefusedError` for
        a worker that there is not, for filters that the subscription cannot have, and when the app
        does not run or stops meanwhile; and :class:`TimeoutError` after so many seconds: then it
        goes on by itself.
        """
        refuse_inside_handler("set_filters()")
        Filters({worker: patterns})  # refuses what is no pattern
        moving = Moving()
        order = set_filters(SetFilters(subscription, worker, tuple(patterns)), moving)
        return self._moved(f"set_filters({worker!r})", order, moving, timeout)

    def _moved(self, name: str, order: Ordered[T], moving: Moving, timeout: float) -> T:
        """Order that slots move, and wait for it; a time-out says for what."""
        try:
            instance = self._running(name.partition("(")[0])
            return instance.ask(name, order, timeout, follows=True)
        except TimeoutError as error:
            raise TimeoutError(f"{error}; {moving}") from None

    def _order(
        self, action: LaneAction, key: bytes | str | None, at: str, subscription: str
    ) -> str:
        name = action.value
        if (key is None) == (not at):
            raise ConfigError(f"{name}: give the key of a lane, or at='TOPIC-PARTITION@OFFSET'")
        raw = key.encode() if isinstance(key, str) else key
        order = LaneOrder(subscription, action, raw)
        if at:
            found = _PLACE.fullmatch(at)
            if found is None:
                raise ConfigError(f"{name}: at={at!r}: give a place such as 'orders-3@17'")
            partition = TopicPartition(found["topic"], int(found["partition"]))
            order = LaneOrder(subscription, action, None, partition, int(found["offset"]))
        return self._running(name).ask(name, give(order), ANSWERED_WITHIN)

    def _running(self, what: str) -> Instance:
        if self.instance is None:
            raise OrderRefusedError(f"{what}: the app does not run")
        refuse_in_child(self.instance.pid, what)
        return self.instance
