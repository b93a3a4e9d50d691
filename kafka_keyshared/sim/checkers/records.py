"""What the books of a simulated run are made of: logs, lanes, records, and who reads them."""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterator, Sequence

from kafka_keyshared.model import TopicPartition, named_key
from kafka_keyshared.sim.commit_text import Notes, Whose

FAR = 1 << 62
"""Beyond every offset."""

SKIPPED = "skipped as nobody's"
"""How a record is settled that no worker was declared to take: here, when it is delivered."""

REFUSED = "dropped for its key"
"""How one is settled whose key cannot be read; behind one that cannot be read now it waits, too."""

DROPPED = "dropped without a worker"
"""How one is settled, without reliability, of whose lane a later one has begun."""

WRITTEN_OFF = "written off with its worker"
"""How one is settled that its worker had in hand and had not started when it was evicted."""


class Stage(enum.Enum):
    """What a delivered record waits for."""

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
"""Of what is in one of these it is not certain that its member has still to settle it."""


class Lane:
    """One lane of one subscription. ``slot`` is None for a lane of one record without a key.

    ``running`` are the deliveries whose handlers run, of any member; ``freed`` is when one of them
    ended last. ``hash`` is what stands for it in commit metadata. ``refused`` says that it is a
    record's whose key cannot be read, or is to be there and is not: no worker gets that.
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


class Fate:
    """What has become of one record in one subscription, whoever had it.

    ``settled_in`` is the assignment that vouches for it: the one in which it settled, later one
    that began with a commit that covers it. ``in_time`` says that the assignment was not over.
    ``known_to`` are the members in whose assignments it settled in time: they may know of it.
    ``letter`` says that the dead-letter topic has it, heard of or not; ``copied`` that a copy of it
    was acknowledged there, to whichever member.
    """

    __slots__ = (
        *("at", "copied", "delivered", "how", "in_time", "known_to", "lane", "letter", "log"),
        *("offset", "removed", "settled_in", "sub"),
    )

    def __init__(self, log: Log, sub: str, offset: int, lane: Lane) -> None:
        self.log = log
        self.sub = sub
        self.offset = offset
        self.lane = lane
        self.settled_in: Assignment | None = None
        self.in_time = False
        self.known_to: tuple[Member, ...] = ()
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
        """Say whether nothing is owed any more: it is settled, or its dead letter is there."""
        return self.settled_in is not None or self.letter

    def vouch(self, assignment: Assignment) -> None:
        """Note that it is settled in an assignment that is not over."""
        self.settled_in, self.in_time = assignment, True
        if assignment.member not in self.known_to:
            self.known_to += (assignment.member,)

    def story(self) -> str:
        """Return in words what has become of it so far."""
        if self.settled_in is not None:
            late = "" if self.in_time else ", too late for its assignment"
            return f"{self.how} at {self.at:.3f} {self.settled_in}{late}"
        if self.letter:
            return "its dead letter is stored, its member has not heard of that"
        return f"delivered {self.delivered} times, not settled" if self.delivered else "never read"


class Log:
    """A partition from its making to its end, and every record that was ever in it.

    ``covered`` is the last offset beyond all of them that a commit has called settled;
    ``left_of`` the log of which it is what was left when that was cut off.
    """

    __slots__ = ("covered", "dead", "fates", "left_of", "offsets", "partition", "sizes", "whose")

    def __init__(self, partition: TopicPartition, subs: Iterator[str], topic_id: str) -> None:
        self.partition = partition
        self.whose = Whose(partition, topic_id)
        self.offsets: list[int] = []
        self.sizes: dict[int, int] = {}
        self.fates: dict[str, dict[int, Fate]] = {sub: {} for sub in subs}
        self.dead = False
        self.left_of: Log | None = None
        self.covered = -1

    def has(self, fate: Fate) -> bool:
        """Say whether it is of a record that is, or was, in this log."""
        return self.fates[fate.sub].get(fate.offset) is fate

    def follows(self, log: Log) -> bool:
        """Say whether it is that log, or what is left of it."""
        return self is log or (self.left_of is not None and self.left_of.follows(log))

    def last_to_read(self) -> int | None:
        """Return the last offset at which there still is a record, None where there is none."""
        fates = next(iter(self.fates.values()))
        return next((each for each in reversed(self.offsets) if not fates[each].removed), None)

    @property
    def last(self) -> int:
        """Return the offset that was written last, -1 before there was any."""
        return self.offsets[-1] if self.offsets else -1

    def between(self, start: int, end: int) -> Iterator[int]:
        """Yield the offsets of the records from one position to another, the removed ones too."""
        offsets = self.offsets
        for index in range(bisect_left(offsets, start), len(offsets)):
            if offsets[index] >= end:
                return
            yield offsets[index]


class Delivery:
    """A record as one assignment delivered it to one subscription.

    ``worker`` has it in hand, running or not. ``since`` is when it came to stand first in its lane,
    or is due again; ``first`` when it was delivered. It was tried ``tries`` times at least and
    ``tries_most`` at most: one from before counts as the commit says with which it began.
    ``archived`` says that the commit knows of a copy of it, ``copying`` that its letter is one;
    ``posted`` says that there was one.
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

    def __init__(self, fate: Fate, assignment: Assignment, now: float) -> None:
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
    """Say whether it may be that its member has nothing to settle there any more."""
    assignment = each.assignment
    over = assignment.over is not None
    return over or each.stage in NOT_OWED or each in assignment.loose


class End(enum.Enum):
    """How an assignment ended."""

    REVOKED = "revoked"
    LOST = "lost"
    STOPPED = "stopped"
    KILLED = "killed"
    HALTED = "halted"
    REMADE = "made anew"


class Assignment:
    """A partition's time at a member.

    ``start`` is where it is read from, None until that is known; ``end`` the position after what
    was delivered. ``sure`` and ``perhaps`` are the offsets from there on that the commit covers
    with which it began: more than one may have been there while the member asked. ``told_lost``
    says that the member heard that it was lost, not that it is to give it up; ``stolen`` says
    that the group has given the partition to another member, unheard by this one; ``misplaced``
    that what was delivered may have to be read again, and ``loose`` is what has come since;
    ``left_to_begin`` says that it was first read from where the reset policy says, and
    ``early`` is what came, and when, before it was said where to begin: a member that does not know
    that yet uses none of it. ``clean`` says that its process ended so. ``diverted`` has for each
    subscription the hashes of the lanes that are so there, ``perhaps_diverted`` of those that may
    be; ``notes`` are what it may have begun with. ``unused`` is what its client may have lost, and
    what is gone from the log; ``outlived`` says that the log was another one when it ended.
    """

    def __init__(
        self, number: int, member: Member, log: Log, subs: Iterator[str], start: Start | None
    ) -> None:
        self.number = number
        self.member = member
        self.log = log
        self.partition = log.partition
        self.begins = start
        # Who read the partition before.
        self.previous: Assignment | None = None
        # The one that its member has begun anew in its place.
        self.anew: Assignment | None = None
        # The member's own time at it before, whoever has read it since.
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
        # How many letters of it were acknowledged, until its limit was lifted.
        self.letters: Counter[str] = Counter()
        self.lifted_at = float("-inf")
        # When the first of its records came.
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
        self.sent: Sent | None = None

    def __str__(self) -> str:
        return f"in assignment {self.number} of member {self.member.number}"

    def is_not_given_back(self, sub: str, worker: int, deadline: float) -> bool:
        """Say whether a worker has not answered yet, for whose answer nobody could wait longer.

        The partition was lost, or the deadline of its revoke was over, in seconds: a worker that
        is to give back what it has not started may start that until it has heard of it.
        """
        if not self.member.recalling[sub, worker]:
            return False
        if self.over is End.REVOKED and self.revoking_at is not None:
            return self.over_at >= self.revoking_at + deadline
        return self.over is End.LOST


class Start:
    """What the broker had, from when a partition came to a member until it began to read it.

    ``stolen`` says that it is another member's since.
    """

    __slots__ = ("entries", "stolen")

    def __init__(self, entry: tuple[int, str] | None, *, stolen: bool) -> None:
        self.entries = [entry]
        self.stolen = stolen


class Sent:
    """A commit of one partition; ``sections`` is None where its text cannot be read."""

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
        """Say whether that record is settled by it."""
        return offset < self.position or offset in (self.sections or {}).get(sub, ())


class Member:
    """One process of the group, with what it reads and what runs in it.

    ``bare``: brokers take less metadata than it may have counted on when it leased records.
    """

    def __init__(self, number: int, subs: Iterator[str]) -> None:
        self.number = number
        self.bare = False
        self.live: dict[TopicPartition, Assignment] = {}
        # What it has last read of each partition, and may remember.
        self.had: dict[TopicPartition, Assignment] = {}
        self.pending: dict[TopicPartition, Start] = {}
        self.revoking: set[TopicPartition] = set()
        # In the order of their start; a dict, because what ends first may be any of them.
        self.running: dict[Delivery, None] = {}
        self.open: dict[str, int] = dict.fromkeys(subs, 0)
        # How often workers are asked for what they have not started, and have not answered.
        self.recalling: Counter[tuple[str, int]] = Counter()
        self.stopping_at: float | None = None
        # How many things keep its owner, and since when none has.
        self.kept = 0
        self.free_since = float("-inf")

    def unsettled(self, sub: str) -> Iterator[Delivery]:
        """Yield what it has received, for this subscription, and has certainly not settled."""
        for assignment in self.live.values():
            for each in assignment.deliveries[sub].values():
                if not not_owed(each):
                    yield each

    def keep(self, now: float, by: int) -> None:
        """Note that so many more things keep the owner from its rounds."""
        self.kept += by
        self.free_since = now
