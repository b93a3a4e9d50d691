"""Orders that a program gives to its running app."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from kafka_keyshared.app.pools import limit_to
from kafka_keyshared.client.patterns import is_pattern, matching
from kafka_keyshared.config import Options
from kafka_keyshared.config.worker_options import refuse_more
from kafka_keyshared.core.contract.events import AssignRange, LaneAction, LaneOrder, SetFilters
from kafka_keyshared.core.offsets.commit_metadata import DEFAULT_SUBSCRIPTION
from kafka_keyshared.core.routing.filters import Filters
from kafka_keyshared.core.subscription.settings import worker_names
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.platform.forks import refuse_in_child
from kafka_keyshared.platform.reentry_guard import refuse_inside_handler
from kafka_keyshared.runtime.command_queue import OrderRefusedError, T
from kafka_keyshared.runtime.flush import Positions, flush
from kafka_keyshared.runtime.instance import Instance
from kafka_keyshared.runtime.lane_orders import closed_lanes, give, lift_dlq_limit
from kafka_keyshared.runtime.pause_commands import pause, resume
from kafka_keyshared.runtime.pauses import Those
from kafka_keyshared.runtime.scaling import Moving, Ordered, assign, bring_to, set_filters
from kafka_keyshared.status import LaneStatus

ANSWERED_WITHIN = 10.0
"""Seconds to wait for an answer. An owner in a rebalance reaches the order after it."""

_PLACE = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)@(?P<offset>\d+)")


class Orderable:
    """The orders of an app: about its closed keys, its fetching and its workers.

    Call the methods from any thread but a worker's. A closed key is one whose records wait for one
    record of it, its first. It is named by its subscription and itself, or by the coordinates of
    that record as in the log (``orders-3@17``). Each decision about a key returns its result as
    text.

    A refused call raises :class:`OrderRefusedError` with the reason:

    - the app does not run;
    - there is no such subscription, or no such key is closed;
    - the state of the key does not allow it.
    """

    instance: Instance | None
    options: Options
    conf: dict[str, Any]
    topics: list[str]

    def closed_keys(self) -> list[LaneStatus]:
        """Return the status of every closed key, the most urgent first."""
        name = "closed_keys"
        return self._running(name).ask(name, closed_lanes, ANSWERED_WITHIN)

    def unblock(
        self,
        key: bytes | str | None = None,
        *,
        at: str = "",
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> str:
        """Unblock a key: its blocked record runs again, or the key is no longer diverted."""
        return self._order(LaneAction.UNBLOCK, key, at, subscription)

    def drop(
        self,
        key: bytes | str | None = None,
        *,
        at: str = "",
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> str:
        """Drop the record that keeps a key closed. It is settled and counted, but not kept."""
        return self._order(LaneAction.DROP, key, at, subscription)

    def dead_letter(
        self,
        key: bytes | str | None = None,
        *,
        at: str = "",
        subscription: str = DEFAULT_SUBSCRIPTION,
    ) -> str:
        """Send the record that keeps a key closed to the dead-letter topic."""
        return self._order(LaneAction.DEAD_LETTER, key, at, subscription)

    def lift_dlq_limit(self) -> list[TopicPartition]:
        """Resume the partitions that their dead-letter limit stopped; return them."""
        name = "lift_dlq_limit"
        return self._running(name).ask(name, lift_dlq_limit, ANSWERED_WITHIN)

    def flush(self, timeout: float = 30.0) -> Positions:
        """Wait for all current leases, commit, and return the committed positions.

        Call it from any thread, but not in a handler or a callback. It does not wait for failed
        records that await their retry, for records leased later, or for partitions that are
        revoked.

        Raises :class:`OrderRefusedError` when the app does not run, or stops before the answer.
        Raises :class:`TimeoutError` after ``timeout`` seconds, which names the records still
        running.
        """
        refuse_inside_handler("flush()")
        return flush(self._running("flush"), timeout)

    def pause(
        self,
        *,
        topics: Sequence[str] | None = None,
        partitions: Iterable[tuple[str, int]] | None = None,
    ) -> list[TopicPartition]:
        """Pause fetching from these topics and partitions; from all when neither is given.

        Call it from any thread, but not in a handler or a callback. Fetched records still run and
        are committed, and the app stays in its group. The pause lasts until :meth:`resume` or the
        end of the process. It also holds for partitions assigned later, whether or not they were
        assigned before. The latest order that covers a partition counts, whether it names
        everything, the topic or the partition.

        Returns once the client has paused them, with the partitions of this process that are then
        paused by hand.

        Raises :class:`ConfigError` for an invalid list of topics or partitions. Raises
        :class:`OrderRefusedError` for a topic that the app does not consume and for a partition
        that does not exist. It is also raised when the app does not run or stops before the answer.
        Raises :class:`TimeoutError` after 10 s. An order that the owner has started then completes
        by itself.
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
        """Resume fetching from these topics and partitions; from all when neither is given.

        Parameters, errors and result are those of :meth:`pause`. A partition that is not paused
        stays as it is.
        """
        those = those_of("resume", self.topics, topics, partitions)
        order = resume(those)
        return self._running("resume").ask("resume", order, ANSWERED_WITHIN, follows=True)

    def scale(
        self, workers: int, timeout: float = 30.0, *, subscription: str = DEFAULT_SUBSCRIPTION
    ) -> tuple[str, ...]:
        """Change the number of workers of the running app; return the workers' names.

        With coroutines there is one worker, and ``workers`` is how many records run at once.

        Call it from any thread, but not in a handler or a callback. Workers that share a queue
        start at once and leave when their running records end. With other workers, keys move slot
        by slot. Running records end where they are, waiting records move, and nothing is lost,
        repeated or reordered. The call returns when no record runs in a moved slot any more.

        Raises :class:`ConfigError` for fewer than one worker, and for an app with members, which
        join and leave by themselves. Raises :class:`OrderRefusedError` when the app does not run or
        stops before the answer. Raises :class:`TimeoutError` after ``timeout`` seconds, with the
        records still running in moved slots. A change that the owner has started then completes by
        itself.
        """
        refuse_inside_handler("scale()")
        if workers < 1:
            raise ConfigError(f"scale({workers}): give at least 1 worker")
        refuse_more(self.options.pool, workers, f"scale({workers})")
        if self.options.coroutines is not None:
            order = limit_to(workers, subscription)
            return self._running("scale").ask(f"scale({workers})", order, ANSWERED_WITHIN)
        if not self.options.serial:
            raise ConfigError(f"scale({workers}): the members of an app join by themselves")
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
        """Assign the slots ``first`` to ``last``, both included, to a worker of the running app.

        It needs ``routing="sticky"``. Slots of other workers are refused, and the refusal names
        those workers, unless ``take_over`` is set. Then the new worker gets no record of a key
        while the previous owner still runs one. The call returns when that has ended, with the
        ranges of all workers in the form of the option ``ranges``. Call it from any thread, but not
        in a handler or a callback.

        ``worker=None`` takes the slots from their workers and leaves them without one. Records that
        have not started are then handled by ``on_unmatched`` at once.

        Raises :class:`ConfigError` for an app whose routing has no ranges. Raises
        :class:`OrderRefusedError` for an invalid range, and when the app does not run or stops
        before the answer. Raises :class:`TimeoutError` after ``timeout`` seconds. A change that the
        owner has started then completes by itself.
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
        """Set the key patterns that a worker of the running app accepts.

        An empty list accepts every key. Keys move as ranges do: the new worker gets no record of a
        key while the previous one still runs one. The call returns when that has ended, with the
        filters of each worker. Call it from any thread, but not in a handler or a callback.

        Raises :class:`ConfigError` for an invalid list of patterns. Raises
        :class:`OrderRefusedError` for an unknown worker and for filters that the subscription
        cannot have. It is also raised when the app does not run or stops before the answer. Raises
        :class:`TimeoutError` after ``timeout`` seconds. A change that the owner has started then
        completes by itself.
        """
        refuse_inside_handler("set_filters()")
        Filters({worker: patterns})  # raises for an invalid pattern
        moving = Moving()
        order = set_filters(SetFilters(subscription, worker, tuple(patterns)), moving)
        return self._moved(f"set_filters({worker!r})", order, moving, timeout)

    def _moved(self, name: str, order: Ordered[T], moving: Moving, timeout: float) -> T:
        """Order a move of slots and wait for it. A timeout names the records it waits for."""
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
            raise ConfigError(f"{name}: give a key, or at='TOPIC-PARTITION@OFFSET'")
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


def those_of(
    call: str,
    read: Sequence[str],
    topics: Sequence[str] | None,
    partitions: Iterable[tuple[str, int]] | None,
) -> Those:
    """Return the target of an order. ``read`` are names and patterns of the consumed topics.

    Raises :class:`ConfigError` for an invalid list of topics or partitions, and inside a handler.
    Raises :class:`OrderRefusedError` for a topic that is not consumed.
    """
    refuse_inside_handler(f"{call}()")
    if isinstance(topics, str):
        raise ConfigError(f"{call}(topics={topics!r}): give a list of names")
    named = None if topics is None else list(topics)
    found: list[TopicPartition] | None = None
    if partitions is not None:
        try:
            found = [_partition(topic, number) for topic, number in partitions]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{call}(partitions={partitions!r}): give pairs such as ('orders', 3)"
            ) from error
    for topic in dict.fromkeys([*(named or ()), *(each.topic for each in found or ())]):
        if not any(matching(each, [topic]) if is_pattern(each) else each == topic for each in read):
            raise OrderRefusedError(
                f"{call}: the app does not read {topic!r}; it reads {', '.join(map(repr, read))}"
            )
    return Those(named, found)


def _partition(topic: object, number: object) -> TopicPartition:
    if not isinstance(topic, str) or not isinstance(number, int) or number < 0:
        raise ValueError(f"({topic!r}, {number!r})")
    return TopicPartition(topic, number)
