"""A history that is told by hand: a small world in which each test says what happens."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kafka_keyshared.core.contract.events import CommitResult
from kafka_keyshared.core.offsets.commit_metadata import Runs, encode
from kafka_keyshared.lab.simulator import history as happened
from kafka_keyshared.lab.simulator.history import History, Stored
from kafka_keyshared.lab.simulator.timeline import Timeline
from kafka_keyshared.model import TopicPartition
from tests.support.commit_texts import here

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
SUB = "default"


def text(position: int, *runs: tuple[int, int], sub: str = SUB) -> str:
    """The metadata beside a position that says these runs to be settled."""
    sections: Mapping[str, Runs] = {sub: runs}
    return encode(here(position, T0), sections).text


class Told:
    """Tells of records of one subscription, as the cluster, a client and a pool would."""

    def __init__(self, sub: str = SUB) -> None:
        self.timeline = Timeline()
        self.history = History(self.timeline)
        self.sub = sub
        self.assigned: dict[tuple[int, TopicPartition], int] = {}
        self._numbers = 0
        self._commits = 0
        self.stored: dict[TopicPartition, tuple[int, str]] = {}

    def tell(self, *what: object) -> None:
        for each in what:
            self.history.tell(each)

    def later(self, seconds: float) -> None:
        self.timeline.now += seconds

    # --- logs and the group ---

    def write(
        self, *keys: str | None, at: TopicPartition = T0, start: int = 0, size: int = 0
    ) -> None:
        """Write a record for each key, from an offset on, of so many bytes."""
        for offset, key in enumerate(keys, start):
            self.tell(happened.Appended(at, offset, None if key is None else key.encode(), size))

    def join(self, *members: int) -> None:
        for member in members:
            self.tell(happened.Joined(member))

    def assign(
        self,
        member: int,
        at: TopicPartition = T0,
        position: int | None = 0,
        *,
        read: bool = True,
        too_late: bool = False,
    ) -> None:
        """Give a member a partition, with what is stored; it reads from there."""
        stored: Stored = {at: self.stored[at]} if at in self.stored else {}
        self.tell(happened.Owned(member, [at], stored, too_late))
        if read:
            self.read(member, at, position)

    def read(self, member: int, at: TopicPartition = T0, position: int | None = 0) -> None:
        """Begin to read a partition, under another number."""
        self._numbers += 1
        self.assigned[member, at] = self._numbers
        self.tell(happened.ReadingFrom(member, at, position, self._numbers))

    def seek(self, member: int, position: int | None, at: TopicPartition = T0) -> None:
        self.tell(happened.ReadingFrom(member, at, position, self.assigned[member, at]))

    def revoking(self, member: int, at: TopicPartition = T0, *, lost: bool = False) -> None:
        self.tell(happened.RevokeBegan(member, [at], lost))

    def released(self, member: int, at: TopicPartition = T0, *, lost: bool = False) -> None:
        self.tell(happened.PartitionsReleased(member, [at], lost))

    def revoke(self, member: int, at: TopicPartition = T0) -> None:
        self.revoking(member, at)
        self.released(member, at)

    def stop(self, member: int, *, clean: bool = True) -> None:
        self.tell(happened.StopRequested(member), happened.Gone(member, "stopped", clean))

    def kill(self, member: int) -> None:
        self.tell(happened.Gone(member, "killed", False))

    # --- records ---

    def deliver(self, member: int, *offsets: int, at: TopicPartition = T0) -> None:
        self.tell(happened.Delivered(member, at, offsets, self.assigned[member, at]))

    def _those(
        self, member: int, offsets: Sequence[int], at: TopicPartition
    ) -> list[tuple[TopicPartition, int, int]]:
        return [(at, offset, self.assigned[member, at]) for offset in offsets]

    def hand(self, member: int, *offsets: int, worker: int = 0, at: TopicPartition = T0) -> None:
        those = self._those(member, offsets, at)
        self.tell(happened.HandedOver(member, self.sub, worker, those))

    def take_back(
        self, member: int, *offsets: int, worker: int = 0, at: TopicPartition = T0
    ) -> None:
        self.tell(happened.TakenBack(member, self.sub, worker, self._those(member, offsets, at)))

    def begin(
        self,
        member: int,
        offset: int,
        worker: int = 0,
        at: TopicPartition = T0,
        *,
        number: int | None = None,
    ) -> None:
        number = self.assigned[member, at] if number is None else number
        self.tell(happened.Began(member, self.sub, worker, at, offset, number))

    def end(
        self,
        member: int,
        offset: int,
        outcome: str = "done",
        worker: int = 0,
        at: TopicPartition = T0,
        *,
        number: int | None = None,
    ) -> None:
        number = self.assigned[member, at] if number is None else number
        self.tell(happened.HandlerEnded(member, self.sub, worker, at, offset, number, outcome))

    def run(self, member: int, *offsets: int, worker: int = 0, at: TopicPartition = T0) -> None:
        """Hand over, begin and end records one after the other."""
        for offset in offsets:
            self.hand(member, offset, worker=worker, at=at)
            self.begin(member, offset, worker, at)
            self.end(member, offset, "done", worker, at)

    def letter(
        self,
        member: int,
        offset: int,
        *,
        stored: bool = True,
        error: str | None = "",
        at: TopicPartition = T0,
    ) -> None:
        """Send a dead letter; ``error`` None: nobody hears of it."""
        place = member, self.sub, at, offset, self.assigned[member, at]
        self.tell(happened.LetterSent(*place))
        if stored:
            self.tell(happened.LetterStored(*place))
        if error is not None:
            self.tell(happened.LetterTold(*place, error))

    # --- commits ---

    def send(
        self,
        member: int,
        position: int,
        *runs: tuple[int, int],
        at: TopicPartition = T0,
        words: str | None = None,
    ) -> int:
        """Send a commit with a settled set; return its number."""
        self._commits += 1
        metadata = text(position, *runs, sub=self.sub) if words is None else words
        self.sent = {at: (position, metadata)}
        self.tell(happened.CommitRequested(member, self._commits, self.sent))
        return self._commits

    def store(self, member: int, number: int, entries: Stored) -> None:
        self.stored.update(entries)
        self.tell(happened.CommitStored(member, number, entries))

    def commit(
        self, member: int, position: int, *runs: tuple[int, int], at: TopicPartition = T0
    ) -> None:
        """Send a commit that is stored and accepted."""
        number = self.send(member, position, *runs, at=at)
        self.store(member, number, self.sent)
        self.tell(happened.CommitTold(member, number, CommitResult.ACCEPTED.value))

    def finish(self) -> None:
        self.tell(happened.Finished())
