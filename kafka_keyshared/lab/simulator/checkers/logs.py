"""Logs of the checkers: every written record and its outcome."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers import restored_notes
from kafka_keyshared.lab.simulator.checkers.declared import Declared
from kafka_keyshared.lab.simulator.checkers.records import Lane, LogModel, RecordFate
from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.keys import DerivedKey
from kafka_keyshared.lab.simulator.topic_names import topic_id
from kafka_keyshared.model import TopicPartition


class HistoryError(Exception):
    """The history has an impossible event: the simulation is wrong, not an instance."""


class LogModels:
    """Every log. ``unfinished`` counts the records that are owed, by subscription."""

    def __init__(self, history: History, settings: Sequence[SubscriptionSettings]) -> None:
        self.settings = {each.name: each for each in settings}
        self.declared = {each.name: Declared(each) for each in settings}
        for each in settings:
            if not isinstance(each.key_of, DerivedKey | None):
                raise HistoryError(f"{each.name!r} has keys that checkers cannot work out")
        self.logs: dict[TopicPartition, LogModel] = {}
        # How often each log was created again.
        self._times_made: Counter[TopicPartition] = Counter()
        # The group's commits at the broker.
        self.stored: dict[TopicPartition, tuple[int, str]] = {}
        self.unfinished = dict.fromkeys(self.settings, 0)
        self.tracked = [name for name, each in self.settings.items() if each.at_least_once]
        self._lanes: dict[str, dict[object, Lane]] = {name: {} for name in self.settings}
        listeners: dict[type[Any], Any] = {
            happened.Appended: self._appended,
            happened.Removed: self._removed,
            happened.Remade: self._remade,
            happened.CutOff: self._cut_off,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)

    def _log(self, partition: TopicPartition) -> LogModel:
        log = self.logs.get(partition)
        if log is None:
            id_ = topic_id(partition.topic, 1 + self._times_made[partition])
            log = self.logs[partition] = LogModel(partition, iter(self.settings), id_)
        return log

    def _appended(self, told: happened.Appended) -> None:
        log = self._log(told.partition)
        if log.offsets and told.offset <= log.offsets[-1]:
            raise HistoryError(f"{told}: the log is at {log.offsets[-1]} already")
        log.offsets.append(told.offset)
        log.sizes[told.offset] = told.size
        for sub in self.settings:
            log.fates[sub][told.offset] = RecordFate(log, sub, told.offset, self._lane(sub, told))
            self.unfinished[sub] += 1

    def _lane(self, sub: str, told: happened.Appended) -> Lane:
        """Return the lane of a record: the unit of order by the settings."""
        settings = self.settings[sub]
        declared = self.declared[sub]
        own, refused = declared.read(told.key)
        if refused or declared.alone(own):
            return Lane(own, None, refused=refused)
        key = declared.key(own)
        topic, partition = told.partition
        scope = {
            "topic": (topic, -1, key),
            "partition": (topic, partition, key),
            "subscription": ("", -1, key),
        }["subscription" if settings.routing.mode == "exclusive" else settings.order_scope]
        lane = self._lanes[sub].get(scope)
        if lane is None:
            hash_ = restored_notes.hash_of(scope[0], scope[1], key)
            lane = self._lanes[sub][scope] = Lane(key, declared.slot(key), hash_)
        return lane

    def _hashes(self, sub: str, key: bytes | None, partition: TopicPartition) -> list[bytes]:
        """Return the hash of the lane of a key's records in a partition."""
        scope = self.settings[sub].order_scope
        topic = "" if scope == "subscription" else partition.topic
        return [
            restored_notes.hash_of(topic, partition.partition if scope == "partition" else -1, key)
        ]

    def _removed(self, told: happened.Removed) -> None:
        for fates in self._log(told.partition).fates.values():
            for offset in told.offsets:
                fates[offset].removed = True

    def _remade(self, told: happened.Remade) -> None:
        old = self.logs.pop(told.partition, None)
        self._times_made[told.partition] += 1
        self.stored.pop(told.partition, None)
        self._may_begin_with(told.partition, (0, ""))
        if old is not None:
            old.dead = True
            for sub, fates in old.fates.items():
                self.unfinished[sub] -= sum(not fate.finished for fate in fates.values())

    def _may_begin_with(self, partition: TopicPartition, entry: tuple[int, str]) -> None:
        """Handle a new entry at the broker, which is valid from now on."""

    def _cut_off(self, told: happened.CutOff) -> None:
        """Replace a truncated log by a new one. The removed offsets will be assigned again.

        The outcomes of the remaining records stay known.
        """
        old = self.logs.pop(told.partition, None)
        if old is None:
            return
        old.dead = True
        new = self._log(told.partition)
        new.left_of = old
        new.offsets = list(old.between(0, told.end))
        new.sizes = {each: old.sizes[each] for each in new.offsets}
        for sub, fates in old.fates.items():
            for offset, fate in fates.items():
                if offset < told.end:
                    new.fates[sub][offset] = fate
                    fate.log = new
                else:
                    self.unfinished[sub] -= not fate.finished
