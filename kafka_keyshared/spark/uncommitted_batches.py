"""Names and notes of batches that are written but not yet committed.

The outputs of a batch in a folder are written before the group's positions are committed. A batch
that is killed in between is run again, and its outputs must replace the existing ones.

The name of a batch depends on the positions and metadata of *all* partitions of the group. Only a
commit changes those. Therefore a batch that is run again has the same name, wherever it ends. The
group's state may still change before that. Examples: an operator adds a partition, a topic joins
the subscription, or a tool commits a position. Then the name differs. A note beside the outputs
lists the partitions that the batch's commit would have moved, with their positions before and
after. From the note the next run knows whether the batch was committed. If not, it removes the
batch's outputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafka_keyshared.core.contract.commands import CommitEntry
from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.model import TopicPartition


class GroupPosition(NamedTuple):
    """The position of a group in a partition.

    Without ``stored`` the group has no position, and this one comes from the reset policy. The next
    query may return another one.
    """

    position: int
    metadata: str
    stored: bool = True


class OutputFate(Enum):
    """The fate of the outputs of a written batch."""

    STAY = "stay"
    GO = "go"
    UNKNOWN = "unknown"


def name_of_batch(group: str, starts: Mapping[TopicPartition, StartPoint]) -> str:
    """Return the name of the batch that begins at these positions.

    ``starts`` has every partition of the group. Batches that begin at the same positions and
    metadata have the same name, regardless of their ends. All others have different names.
    """
    at = [(*each, *_stand(starts[each])[:2]) for each in sorted(starts)]
    return hashlib.blake2b(repr((group, at)).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Note:
    """A batch whose outputs are about to be written.

    ``moves`` has each partition that the commit of the batch changes, with the group's position
    before and after it.
    """

    group: str
    batch: str
    moves: Mapping[str, tuple[GroupPosition, GroupPosition]]

    def fate(self, starts: Mapping[TopicPartition, StartPoint]) -> OutputFate:
        """Return the fate of the batch's outputs, given the group's current positions.

        A commit moves all of its partitions or none. One partition at the position of the commit
        shows that the batch was committed. Otherwise one partition at its old position shows that
        it was not, even if another tool has moved others. The same is true if no partition has
        passed the begin of the batch, for example after a commit of other metadata. All records of
        the batch then run again. Otherwise pods or a tool have advanced, and the outputs stay.
        ``UNKNOWN`` means that the group has none of the partitions at the moment.
        """
        now = {str(each): _stand(point) for each, point in starts.items()}
        seen = [(now[each], *move) for each, move in self.moves.items() if each in now]
        if not seen:
            return OutputFate.UNKNOWN
        if any(stands == after for stands, _, after in seen):
            return OutputFate.STAY
        if any(_same(stands, before) for stands, before, _ in seen):
            return OutputFate.GO
        moving = [(stands, before) for stands, before, after in seen if after[0] > before[0]]
        none_past = all(stands.position <= before.position for stands, before in moving)
        return OutputFate.GO if moving and none_past else OutputFate.STAY

    def text(self) -> str:
        """Return the note as JSON."""
        return json.dumps({"group": self.group, "batch": self.batch, "moves": self.moves})

    @classmethod
    def of_text(cls, text: str) -> Note | None:
        """Parse a note; return None for one that was cut off while it was written.

        The outputs of such a batch were not begun.
        """
        try:
            told = json.loads(text)
            moves = {
                each: (GroupPosition(*a), GroupPosition(*b))
                for each, (a, b) in told["moves"].items()
            }
            return cls(told["group"], told["batch"], moves)
        except (ValueError, KeyError, TypeError):
            return None


def note_of(
    group: str,
    starts: Mapping[TopicPartition, StartPoint],
    entries: Mapping[TopicPartition, CommitEntry],
) -> Note:
    """Return the note of a batch that begins at ``starts``; ``entries`` are its commit entries."""
    moves: dict[str, tuple[GroupPosition, GroupPosition]] = {}
    for each, entry in entries.items():
        before, after = _stand(starts[each]), GroupPosition(entry.position, entry.metadata)
        if before != after:
            moves[str(each)] = before, after
    return Note(group, name_of_batch(group, starts), moves)


def _stand(point: StartPoint) -> GroupPosition:
    return GroupPosition(point.position or 0, point.metadata or "", point.stored)


def _same(one: GroupPosition, other: GroupPosition) -> bool:
    return one[:2] == other[:2] or not (one.stored or other.stored)
