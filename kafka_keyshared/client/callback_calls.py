"""Consumer calls made by a user's rebalance callback, and their effect.

An app assigns and commits by itself. Callbacks written for a plain consumer call ``assign``,
``seek``, ``commit`` and ``unassign`` all the same. A start position given in ``on_assign`` is used.
A commit or an unassignment has happened already, so the call does nothing. An assignment of other
partitions than those just assigned is impossible, and ends the run before anything is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from confluent_kafka import OFFSET_INVALID, OFFSET_STORED
from confluent_kafka import TopicPartition as ClientPartition

from kafka_keyshared.errors import ConfigError, KeySharedError
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition, some

log = log_of("kafka_keyshared.rebalance")

ON_ASSIGN = "on_assign"

NO_CHOICE = frozenset({OFFSET_INVALID, OFFSET_STORED})
"""Offsets that mean the committed position."""


class CallbackCalls:
    """The calls of the callback that runs now. One instance per client; owner thread only.

    ``positions`` returns the positions that were committed last, for answers of ``commit``.
    """

    HANDLED = frozenset(
        {
            *("assign", "incremental_assign", "seek", "commit", "store_offsets"),
            *("unassign", "incremental_unassign"),
        }
    )

    def __init__(self, positions: Callable[[], Mapping[TopicPartition, int]]) -> None:
        self._positions = positions
        self._partitions: list[TopicPartition] = []
        self._said: set[tuple[str, str]] = set()
        self.event = ""
        # Also logical offsets: the client's own OFFSET_BEGINNING, OFFSET_END and tails.
        self.chosen: dict[TopicPartition, int] = {}
        self.refused: ConfigError | None = None

    @contextmanager
    def during(self, event: str, partitions: Sequence[ClientPartition]) -> Iterator[None]:
        """Accept calls while the callback of this name runs."""
        self.event, self._partitions = event, [_own(each) for each in partitions]
        self.chosen, self.refused = {}, None
        try:
            yield
        finally:
            self.event = ""

    def takes(self, name: str) -> bool:
        """Return whether a call of this name is accepted now."""
        return bool(self.event) and name in self.HANDLED

    def assign(self, partitions: Sequence[ClientPartition]) -> None:
        """Use the offsets of an assignment as start positions.

        Raises :class:`ConfigError`, and ends the run, for other partitions than those just
        assigned.
        """
        given = [_own(each) for each in partitions]
        if self.event != ON_ASSIGN:
            raise KeySharedError(f"assign() in {self.event}: the app assigns by itself")
        if set(given) != set(self._partitions):
            self._refuse(
                f"assign({_names(given)}) in on_assign: the group gave this member "
                f"{_names(self._partitions)}, and an app reads all of them. Give each partition "
                "that came, with the offset to start at, or leave assign() out"
            )
        for each in partitions:
            self._choose(each)

    incremental_assign = assign

    def seek(self, partition: ClientPartition) -> None:
        """Use the offset of a seek as the partition's start position."""
        if self.event != ON_ASSIGN or _own(partition) not in self._partitions:
            self._refuse(
                f"seek({_own(partition)}) in {self.event}: an app can be sent elsewhere only in "
                "on_assign, and only in partitions that have just come"
            )
        self._choose(partition)

    def commit(
        self, message: Any = None, offsets: Any = None, asynchronous: bool = True
    ) -> list[ClientPartition] | None:
        """Do nothing: the app has committed all it safely can before it calls the callback.

        Returns the positions committed last for a synchronous call, as the client does.
        """
        del message, offsets
        self._tell("commit")
        if asynchronous:
            return None
        found = self._positions()
        return [ClientPartition(*each, found[each]) for each in self._partitions if each in found]

    def store_offsets(self, message: Any = None, offsets: Any = None) -> None:
        """Do nothing, as :meth:`commit` does."""
        del message, offsets
        self._tell("store_offsets")

    def unassign(self) -> None:
        """Do nothing: revoked and lost partitions are unassigned in any case."""
        if self.event == ON_ASSIGN:
            self._refuse(
                "unassign() in on_assign: an app reads all partitions that come; to read nothing "
                "for a while call pause() of the app"
            )

    def incremental_unassign(self, partitions: Sequence[ClientPartition]) -> None:
        """Do nothing, as :meth:`unassign` does."""
        del partitions
        self.unassign()

    def _choose(self, partition: ClientPartition) -> None:
        if partition.offset not in NO_CHOICE:
            self.chosen[_own(partition)] = partition.offset

    def _refuse(self, why: str) -> None:
        self.refused = ConfigError(why)
        raise self.refused

    def _tell(self, call: str) -> None:
        if (call, self.event) not in self._said:
            self._said.add((call, self.event))
            log.info(
                "%s() in %s does nothing: the app committed all safe positions before the callback",
                call,
                self.event,
            )


def _own(partition: ClientPartition) -> TopicPartition:
    return TopicPartition(partition.topic, partition.partition)


def _names(partitions: Sequence[TopicPartition]) -> str:
    return some(sorted(partitions), 8, none="nothing")
