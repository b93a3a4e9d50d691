"""Data of the checkers' books: logs, lanes, records, assignments and members."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from kafka_keyshared.lab.simulator.commit_text import Notes, Whose
from kafka_keyshared.model import TopicPartition, named_key

FAR = 1 << 62
"""An offset beyond every offset."""

SKIPPED = "skipped as nobody's"
"""Settlement of a record that no worker was declared to take: here, when it is delivered."""

REFUSED = "dropped for its key"
"""Settlement of a record with an unreadable key. It too waits behind a key unreadable for now."""

DROPPED = "dropped without a worker"
"""Settlement, without reliability, of a record when a later one of its lane has begun."""

WRITTEN_OFF = "written off with its worker"
"""Settlement of a record that its worker had not started when it was evicted."""


class Stage(enum.Enum):
    """The next step of a delivered record."""

    OPEN = "it is to run"
    RETRYING = "it waits for its next attempt"
    UNSURE = "it runs again, or what the policy says: what it was tried before is not known"
    LETTERING = "it waits for its dead letter, and its lane may be diverted"
    LETTERING_ALONE = "it waits for its dead letter"
    ARCHIVING = "it waits for its copy, and is blocked then"
    BLOCKED = "it is blocked"
    SETTLED = "it is settled"
    AGAIN = "it was not used, and is read again"


NOT_OWED = (Stage.SETTLED, Stage.AGAIN, Stage.UNSURE)
"""In these stages it is uncertain whether the member still has to settle the record."""


class Lane:
    """One lane of one subscription. ``slot`` is None for a lane of one record without a key.

    ``running`` are the deliveries whose handlers run, at any member. ``freed`` is when the last of
    them ended. ``hash`` stands for the lane in commit metadata. ``refused`` says that the key of
    its one record cannot be read, or is required and missing. No worker gets that record.
    """

    __slots__ = ("freed", "hash", "key", "refused", "running", "slot")

    def __init__(
        self, key: bytes | None, slot: int | None, hash_: bytes = b"", *, refused: bool = False
    ) -> None:
        self.key = key
        self.refused = refused
        self.slot = slot
        self.hash = hash_
        self.running: list[Delivery] = []
        self.freed = float("-inf")


class RecordFate:
    """Outcome of one record in one subscription, at all members.

    ``settled_in`` is the assignment that vouches for it: the one in which it settled, later one
    that began with a commit that covers it. ``in_time`` says that the assignment was not over.
    ``known_to`` are the members in whose assignments it settled in time. They may know of it.
    ``letter`` says that the dead-letter topic has it, acknowledged or not. ``copied`` says that a
    copy was acknowledged there to any member.
    """

    __slots__ = (
        *("at", "copied", "delivered", "how", "in_time", "known_to", "lane", "letter", "log"),
        *("offset", "removed", "settled_in", "sub"),
    )

    def __init__(self, log: LogModel, sub: str, offset: int, lane: Lane) -> None:
        self.log = log
        self.sub = sub
        self.offset = offset
        self.lane = lane
        self.settled_in: Assignment | None = None
        self.in_time = False
        self.known_to: tuple[MemberModel, ...] = ()
        self.letter = False
        self.copied = False
        self.removed = False
        self.delivered = 0
        self.how = ""
        self.at = 0.0

    def __str__(self) -> str:
        return f"{self.log.partition}@{self.offset} ({named_key(self.lane.key)})"

    @property
    def finished(self) -> bool:
        """Whether nothing is owed: it is settled, or its dead letter is stored."""
        return self.settled_in is not None or self.letter

    def vouch(self, assignment: Assignment) -> None:
        """Record that it is settled in an assignment that is not over."""
        self.settled_in, self.in_time = assignment, True
        if assignment.member not in self.known_to:
            self.known_to += (assignment.member,)

    def story(self) -> str:
        """Return a description of its history."""
        if self.settled_in is not None:
            late = "" if self.in_time else ", too late for its assignment"
            return f"{self.how} at {self.at:.3f} {self.settled_in}{late}"
        if self.letter:
            return "its dead letter is stored, its member has not heard of that"
        return f"delivered {self.delivered} times, not settled" if self.delivered else "never read"


class LogModel:
    """A partition from its creation to its end, and every record that was ever in it.

    ``covered`` is the last offset beyond all records that a commit has called settled. ``left_of``
    is the log that was truncated to this one.
    """

    __slots__ = ("covered", "dead", "fates", "left_of", "offsets", "partition", "sizes", "whose")

    def __init__(self, partition: TopicPartition, subs: Iterator[str], topic_id: str) -> None:
        self.partition = partition
        self.whose = Whose(partition, topic_id)
        self.offsets: list[int] = []
        self.sizes: dict[int, int] = {}
        self.fates: dict[str, dict[int, RecordFate]] = {sub: {} for sub in subs}
        self.dead = False
        self.left_of: LogModel | None = None
        self.covered = -1

    def has(self, fate: RecordFate) -> bool:
        """Return whether the record is, or was, in this log."""
        return self.fates[fate.sub].get(fate.offset) is fate

    def follows(self, log: LogModel) -> bool:
        """Return whether it is that log, or a remainder of it."""
        return self is log or (self.left_of is not None and self.left_of.follows(log))

    def last_to_read(self) -> int | None:
        """Return the last offset that still has a record; None if there is none."""
        fates = next(iter(self.fates.values()))
        return next((each for each in reversed(self.offsets) if not fates[each].removed), None)

    @property
    def last(self) -> int:
        """Return the last written offset; -1 if there is none."""
        return self.offsets[-1] if self.offsets else -1

    def between(self, start: int, end: int) -> Iterator[int]:
        """Yield the offsets of the records from one position to another, including removed ones."""
        offsets = self.offsets
        for index in range(bisect_left(offsets, start), len(offsets)):
            if offsets[index] >= end:
                return
            yield offsets[index]


class Delivery:
    """A record as one assignment delivered it to one subscription.

    ``worker`` has it leased, running or not. ``since`` is when it became first in its lane, or is
    due again. ``first`` is when it was delivered. It was tried at least ``tries`` and at most
    ``tries_most`` times. Earlier attempts count as the start commit says. ``archived`` says that
    the commit knows a copy of it, ``copying`` that its dead letter is one, ``posted`` that there
    was one.
    """

    __slots__ = (
        *("archived", "assignment", "copying", "fate", "first", "lane", "offset"),
        *(
            "posted",
            "queued",
            "running",
            "since",
            "stage",
            "stray",
            "tries",
            "tries_most",
            "worker",
        ),
    )

    def __init__(self, fate: RecordFate, assignment: Assignment, now: float) -> None:
        self.fate = fate
        self.lane = fate.lane
        self.offset = fate.offset
        self.assignment = assignment
        self.first = self.since = now
        self.stage = Stage.OPEN
        self.queued = False
        self.running = False
        self.stray = False
        self.tries = 0
        self.tries_most = 0
        self.archived = False
        self.copying = False
        self.posted = False
        self.worker: int | None = None

    def __str__(self) -> str:
        return f"{self.fate} of {self.fate.sub!r}"


def not_owed(each: Delivery) -> bool:
    """Return whether its member may have nothing left to settle there."""
    assignment = each.assignment
    over = assignment.over is not None
    return over or each.stage in NOT_OWED or each in assignment.loose


class End(enum.Enum):
    """Ways in which an assignment ends."""

    REVOKED = "revoked"
    LOST = "lost"
    STOPPED = "stopped"
    KILLED = "killed"
    HALTED = "halted"
    REMADE = "made anew"


class Assignment:
    """A partition's time at a member.

    ``start`` is the position that it is read from, None until it is known. ``end`` is the received
    end. ``sure`` and ``perhaps`` are the offsets from there on that the start commit covers. There
    are two, because the commit may have changed while the member asked. ``notes`` are the notes
    that it may have begun with. ``diverted`` has the hashes of the diverted lanes by subscription,
    ``perhaps_diverted`` those of lanes that may be diverted.

    ``told_lost`` says that the member learned of a loss, not of a revoke. ``stolen`` says that the
    group gave the partition to another member, unknown to this one. ``outlived`` says that the log
    had been replaced when it ended. ``clean`` says that its process ended cleanly.

    ``misplaced`` says that delivered records may have to be read again. ``loose`` are the records
    that arrived since. ``unused`` are records that the client may have lost and that are gone from
    the log. ``left_to_begin`` says that the reset policy chose the first position. ``early`` are
    the records, with times, that arrived before the start was known. A member without a start uses
    none of them.
    """

    def __init__(
        self,
        number: int,
        member: MemberModel,
        log: LogModel,
        subs: Iterator[str],
        start: ReadingStart | None,
    ) -> None:
        self.number = number
        self.member = member
        self.log = log
        self.partition = log.partition
        self.begins = start
        # The assignment that read the partition before.
        self.previous: Assignment | None = None
        # The assignment that its member began in its place.
        self.anew: Assignment | None = None
        # The member's own previous assignment of it, whichever member has read it since.
        self.remembered: Assignment | None = None
        self.start: int | None = None
        self.end = 0
        self.sure: dict[str, set[int]] = {}
        self.perhaps: dict[str, set[int]] = {}
        self.found: tuple[int, str] | None = None
        self.notes: list[dict[str, Notes]] = []
        self.unsure: list[Delivery] = []
        self.failed: dict[str, dict[int, Delivery]] = {}
        self.diverted: dict[str, set[bytes]] = {}
        self.perhaps_diverted: dict[str, set[bytes]] = {}
        self.deliveries: dict[str, dict[int, Delivery]] = {}
        self.unused: dict[str, dict[int, Delivery]] = {}
        self.queues: dict[str, dict[Lane, deque[Delivery]]] = {}
        self.open: dict[str, int] = {}
        for sub in subs:
            self.deliveries[sub] = {}
            self.queues[sub] = {}
            self.open[sub] = 0
            self.failed[sub] = {}
            self.unused[sub] = {}
            self.diverted[sub] = set()
            self.perhaps_diverted[sub] = set()
        # Dead letters acknowledged until the limit was lifted.
        self.letters: Counter[str] = Counter()
        self.lifted_at = float("-inf")
        # When its first record arrived.
        self.first_at: float | None = None
        self.running = 0
        self.revoking_at: float | None = None
        self.told_lost = False
        self.stolen = False
        self.misplaced = False
        self.loose: list[Delivery] = []
        self.left_to_begin = False
        self.early: list[tuple[float, Sequence[int]]] = []
        self.over: End | None = None
        self.over_at = 0.0
        self.outlived = False
        self.clean = False
        self.sent: CommitModel | None = None

    def __str__(self) -> str:
        return f"in assignment {self.number} of member {self.member.number}"

    def is_not_given_back(self, sub: str, worker: int, deadline: float) -> bool:
        """Return whether a worker has not answered a recall that could not be awaited any longer.

        The partition was lost, or the deadline of its revoke (in seconds) was over. A worker may
        start leased records until the recall reaches it.
        """
        if not self.member.recalling[sub, worker]:
            return False
        if self.over is End.REVOKED and self.revoking_at is not None:
            return self.over_at >= self.revoking_at + deadline
        return self.over is End.LOST


class ReadingStart:
    """Commits at the broker, from a partition's assignment to its first read.

    ``stolen`` says that it has gone to another member since.
    """

    __slots__ = ("entries", "stolen")

    def __init__(self, entry: tuple[int, str] | None, *, stolen: bool) -> None:
        self.entries = [entry]
        self.stolen = stolen


class CommitModel:
    """A commit of one partition. ``sections`` is None if its text cannot be read."""

    __slots__ = ("at", "number", "position", "sections", "text")

    def __init__(
        self, number: int, position: int, text: str, sections: dict[str, set[int]] | None, at: float
    ) -> None:
        self.number = number
        self.position = position
        self.text = text
        self.sections = sections
        self.at = at

    def covers(self, sub: str, offset: int) -> bool:
        """Return whether the commit covers that record."""
        return offset < self.position or offset in (self.sections or {}).get(sub, ())


class MemberModel:
    """One process of the group, with its assignments and running records.

    ``bare`` says that brokers accept less metadata than it may have expected at its leases.
    """

    def __init__(self, number: int, subs: Iterator[str]) -> None:
        self.number = number
        self.bare = False
        self.live: dict[TopicPartition, Assignment] = {}
        # Its latest assignment of each partition, which it may remember.
        self.had: dict[TopicPartition, Assignment] = {}
        self.pending: dict[TopicPartition, ReadingStart] = {}
        self.revoking: set[TopicPartition] = set()
        # In the order of their start. A dict, because any of them may end first.
        self.running: dict[Delivery, None] = {}
        self.open: dict[str, int] = dict.fromkeys(subs, 0)
        # Recalls that workers have not answered.
        self.recalling: Counter[tuple[str, int]] = Counter()
        self.stopping_at: float | None = None
        # How many things block its owner, and since when none does.
        self.kept = 0
        self.free_since = float("-inf")

    def unsettled(self, sub: str) -> Iterator[Delivery]:
        """Yield the received records of a subscription that it has certainly not settled."""
        for assignment in self.live.values():
            for each in assignment.deliveries[sub].values():
                if not not_owed(each):
                    yield each

    def keep(self, now: float, by: int) -> None:
        """Change by ``by`` how many things keep the owner from its rounds."""
        self.kept += by
        self.free_since = now
