"""Counters of rare commit states: missing rights, foreign texts, lack of room.

Each class counts some of :data:`.coverage.RARE` in the counter that it is given.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.checkers.books import METADATA_USUAL, Books
from kafka_keyshared.lab.simulator.checkers.records import CommitModel
from kafka_keyshared.lab.simulator.checkers.rights import FOR_RIGHTS
from kafka_keyshared.lab.simulator.history import History, Listener
from kafka_keyshared.lab.simulator.member_events import LimitHeard, RightsChanged, TextCopied
from kafka_keyshared.model import TopicPartition


class MissingRights:
    """Counts the states in which a right is missing.

    - *fetch refused, then read on*: a partition delivers again whose topic could not be read;
    - *commit denied, then accepted*: as *commit failed, then recovered*, for a missing right;
    - *group refused, then assigned*: a member gets partitions from a group that was refused;
    - *revoke while a right is missing*, *stop while a right is missing*: on a topic or the group;
    - *process ended for missing rights*: after its timeout.
    """

    def __init__(self, history: History, books: Books, counts: Counter[str]) -> None:
        self._books, self._counts = books, counts
        # Topics that may not be read, and topics that may again and have not delivered since.
        # Whether any right is missing, or the group was refused. Assignments with a denied commit.
        self._unread: set[str] = set()
        self._readable: set[str] = set()
        self._missing = self._group_refused = self._group_was_refused = False
        self._denied: set[int] = set()
        listeners: dict[type[Any], Listener] = {
            RightsChanged: self._changed,
            happened.Delivered: self._delivered,
            happened.RevokeBegan: self._revoking,
            happened.StopRequested: self._stopping,
            happened.Owned: self._owned,
            happened.CommitTold: self._told,
            happened.PartitionsReleased: self._over,
            happened.Gone: self._gone,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)

    def _changed(self, told: RightsChanged) -> None:
        unread = set(told.fetches)
        self._readable = (self._readable | (self._unread - unread)) - unread
        self._unread = unread
        self._missing = bool(told.fetches or told.commits or told.group)
        self._group_was_refused = self._group_was_refused or told.group
        self._group_refused = told.group

    def _delivered(self, told: happened.Delivered) -> None:
        if told.partition.topic in self._readable:
            self._readable.discard(told.partition.topic)
            self._counts["fetch refused, then read on"] += 1

    def _revoking(self, _: happened.RevokeBegan) -> None:
        self._counts["revoke while a right is missing"] += self._missing

    def _stopping(self, _: happened.StopRequested) -> None:
        self._counts["stop while a right is missing"] += self._missing

    def _owned(self, _: happened.Owned) -> None:
        if self._group_was_refused and not self._group_refused:
            self._group_was_refused = False
            self._counts["group refused, then assigned"] += 1

    def _told(self, told: happened.CommitTold) -> None:
        for assignment, _ in self._books.commits.get(told.number, {}).values():
            if assignment is None or assignment.over is not None:
                continue
            if told.result == CommitResult.DENIED:
                self._denied.add(assignment.number)
            elif told.result == CommitResult.ACCEPTED:
                self._counts["commit denied, then accepted"] += assignment.number in self._denied
                self._denied.discard(assignment.number)

    def _over(self, _: object) -> None:
        self._denied.difference_update(each.number for each in self._books.ended)

    def _gone(self, told: happened.Gone) -> None:
        self._counts["process ended for missing rights"] += told.reason.startswith(FOR_RIGHTS)
        self._over(told)


class CommitTexts:
    """Counts the outcomes of the texts beside positions.

    - *metadata dropped for size*: after a refusal for its size a commit goes without its set;
    - *metadata shortened for size*: after a refusal for its size a commit has a shorter text;
    - *brokers told that they take less metadata*: than usual, to a member that asks;
    - *began beside a text for another position*, *of another topic id*, *partition*, *topic name*:
      a tool has left it there, and the position is good.
    """

    def __init__(self, history: History, books: Books, counts: Counter[str]) -> None:
        self._books, self._counts = books, counts
        # Commits that were refused for their size, by assignment, until one is sent again.
        self._refused: dict[int, CommitModel] = {}
        # The kind of each text of another log, by partition, position and text.
        self._copied: dict[tuple[TopicPartition, int, str], str] = {}
        listeners: dict[type[Any], Listener] = {
            LimitHeard: self._limit_heard,
            TextCopied: self._text_copied,
            happened.ReadingFrom: self._reading,
            happened.CommitRequested: self._sent,
            happened.CommitTold: self._told,
            happened.PartitionsReleased: self._over,
            happened.Gone: self._over,
        }
        for kind, listener in listeners.items():
            history.listen(kind, listener)

    def _limit_heard(self, told: LimitHeard) -> None:
        self._counts["brokers told that they take less metadata"] += told.most < METADATA_USUAL

    def _text_copied(self, told: TextCopied) -> None:
        self._copied[told.partition, told.position, told.text] = told.kind

    def _reading(self, told: happened.ReadingFrom) -> None:
        assignment = self._books.assignments[told.assignment]
        if assignment.found is not None:
            kind = self._copied.pop((told.partition, *assignment.found), None)
            if kind is not None:
                self._counts[kind] += 1

    def _sent(self, _: happened.CommitRequested) -> None:
        for assignment, sent in self._books.sent.values():
            if assignment is None or assignment.number not in self._refused:
                continue
            before = self._refused.pop(assignment.number)
            if not sent.text:
                self._counts["metadata dropped for size"] += bool(before.text)
            else:
                self._counts["metadata shortened for size"] += len(sent.text) < len(before.text)

    def _told(self, told: happened.CommitTold) -> None:
        if told.result != CommitResult.TOO_LARGE:
            return
        for assignment, sent in self._books.commits.get(told.number, {}).values():
            if assignment is not None and assignment.over is None:
                self._refused[assignment.number] = sent

    def _over(self, _: object) -> None:
        for each in self._books.ended:
            self._refused.pop(each.number, None)
