"""Counters of rare record states: derived keys and deadly records.

Each class counts some of :data:`.coverage.RARE` in the counter that it is given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from typing import Any

from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import Books
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.keys import DerivedKey
from kafka_keyshared.lab.simulator.member_events import EndedByARecord, KeysAway
from kafka_keyshared.model import TopicPartition


class DerivedKeyCounts:
    """Counts the results of a key function other than a key.

    - *record ran once its schema was known*: it was delivered while its schema was unknown;
    - *record without a key under a key function*: the function finds none for it.
    """

    def __init__(self, history: History, books: Books, counts: Counter[str]) -> None:
        self._books, self._counts = books, counts
        # The own key of each record, and the times at which a schema became unknown or known.
        self._own: dict[tuple[TopicPartition, int], bytes | None] = {}
        self._unknown: list[float] = []
        listeners: dict[type[Any], Listener] = {
            happened.Appended: self._appended,
            KeysAway: self._keys_away,
            happened.Began: self._began,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)

    def _appended(self, told: happened.Appended) -> None:
        self._own[told.partition, told.offset] = told.key

    def _keys_away(self, told: KeysAway) -> None:
        if told.unknown == (len(self._unknown) % 2 == 0):
            self._unknown.append(self._books.now)

    def _began(self, told: happened.Began) -> None:
        function = self._books.settings[told.subscription].key_of
        each = self._books.delivery
        if each is None or not isinstance(function, DerivedKey) or function.header:
            return
        own = self._own.get((told.partition, told.offset))
        waited = bisect_right(self._unknown, each.first) % 2 == 1
        known = waited and function.has_new_schema(own)
        self._counts["record ran once its schema was known"] += known
        without = own is not None and each.lane.key is None
        self._counts["record without a key under a key function"] += without


class DeadlyRecords:
    """Counts unclean ends of processes, and the starts after them.

    - *process ended by a record*, *process ended by the same record again*: without notice;
    - *partition begun after an unclean end*: its start commit names running records;
    - *suspect begun again*: a record that such a commit names.
    """

    def __init__(self, history: History, books: Books, counts: Counter[str]) -> None:
        self._books, self._counts = books, counts
        self._deadly: set[tuple[TopicPartition, int]] = set()
        self._unclean: set[int] = set()
        history.listen(EndedByARecord, self._ended_by_a_record)
        history.listen(happened.Began, self._began)

    def _ended_by_a_record(self, told: EndedByARecord) -> None:
        place = told.partition, told.offset
        self._counts["process ended by a record"] += 1
        self._counts["process ended by the same record again"] += place in self._deadly
        self._deadly.add(place)

    def _began(self, _: happened.Began) -> None:
        each = self._books.delivery
        if each is None:
            return
        named = {
            offset
            for notes in each.assignment.notes
            for about in notes.values()
            for offset in about.running
        }
        if named and each.assignment.number not in self._unclean:
            self._unclean.add(each.assignment.number)
            self._counts["partition begun after an unclean end"] += 1
        self._counts["suspect begun again"] += each.offset in named and each.tries == 1
