"""Names of batches, and notes of batches that are written and not yet committed.

The outputs of a batch in a folder are written before the group's positions are committed. A batch
that is killed in between is run again, and its outputs must replace the ones that are there.

The name of a batch depends on the positions and metadata of *all* partitions of the group: only a
commit moves those, so a batch that is run again has its name again, wherever it ends. Another tool
may still change what a group has before the batch is run again: somebody adds a partition, a topic
joins the subscription, a tool commits a position. Then the name is another one. A note beside the
outputs says which partitions a commit of the batch would have moved, and from where to where. From
that the next run tells whether the batch was committed; if not, it removes its outputs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from kafka_keyshared.core.commands import CommitEntry
from kafka_keyshared.core.events import StartPoint
from kafka_keyshared.model import TopicPartition


class Stand(NamedTuple):
    """Where a group stands in a partition.

    Without ``stored`` it has no position, and this one is the reset policy's: the next look may
    find another one.
    """

    position: int
    metadata: str
    stored: bool = True


class Fate(Enum):
    """What becomes of the outputs of a batch that was written."""

    STAY = "stay"
    GO = "go"
    UNKNOWN = "unknown"


def name_of_batch(group: str, starts: Mapping[TopicPartition, StartPoint]) -> str:
    """Return the name of the batch that begins where the group stands.

    ``starts`` has every partition of the group. Batches that begin at the same positions and
    metadata have one name, whatever they take; all others have different names.
    """
    at = [(*each, *_stand(starts[each])[:2]) for each in sorted(starts)]
    return hashlib.blake2b(repr((group, at)).encode(), digest_size=8).hexdigest()


@dataclass(frozen=True, slots=True)
class Note:
    """A batch whose outputs are about to be written.

    ``moves`` has each partition that the commit of the batch changes, with what the group has
    before and after it.
    """

    group: str
    batch: str
    moves: Mapping[str, tuple[Stand, Stand]]

    def fate(self, starts: Mapping[TopicPartition, StartPoint]) -> Fate:
        """Return what becomes of the batch's outputs, given where the group stands now.

        A commit moves all of its partitions or none. One partition that stands where the commit
        would have put it shows that the batch was committed. Otherwise one that stands where it
        stood before shows that it was not, even if another tool has moved others. The same is true
        if no partition has got past where the batch begins, as where somebody has committed other
        metadata: all records of the batch run again. Otherwise pods or a tool have gone on, and the
        outputs stay. ``UNKNOWN``: the group has none of the partitions at the moment.
        """
        now = {str(each): _stand(point) for each, point in starts.items()}
        seen = [(now[each], *move) for each, move in self.moves.items() if each in now]
        if not seen:
            return Fate.UNKNOWN
        if any(stands == after for stands, _, after in seen):
            return Fate.STAY
        if any(_same(stands, before) for stands, before, _ in seen):
            return Fate.GO
        moving = [(stands, before) for stands, before, after in seen if after[0] > before[0]]
        none_past = all(stands.position <= before.position for stands, before in moving)
        return Fate.GO if moving and none_past else Fate.STAY

    def text(self) -> str:
        """Return the note as JSON."""
        return json.dumps({"group": self.group, "batch": self.batch, "moves": self.moves})

    @classmethod
    def of_text(cls, text: str) -> Note | None:
        """Return the note that a text is; None for one that was cut off as it was written.

        The outputs of such a batch were not begun.
        """
        try:
            told = json.loads(text)
            moves = {each: (Stand(*a), Stand(*b)) for each, (a, b) in told["moves"].items()}
            return cls(told["group"], told["batch"], moves)
        except (ValueError, KeyError, TypeError):
            return None


def note_of(
    group: str,
    starts: Mapping[TopicPartition, StartPoint],
    entries: Mapping[TopicPartition, CommitEntry],
) -> Note:
    """Return the note of a batch that begins at ``starts``; ``entries`` is what it commits."""
    moves: dict[str, tuple[Stand, Stand]] = {}
    for each, entry in entries.items():
        before, after = _stand(starts[each]), Stand(entry.position, entry.metadata)
        if before != after:
            moves[str(each)] = before, after
    return Note(group, name_of_batch(group, starts), moves)


def _stand(point: StartPoint) -> Stand:
    return Stand(point.position or 0, point.metadata or "", point.stored)


def _same(one: Stand, other: Stand) -> bool:
    return one[:2] == other[:2] or not (one.stored or other.stored)
