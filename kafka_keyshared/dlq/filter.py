"""The filter that selects dead letters."""

from __future__ import annotations

import re
from dataclasses import dataclass

from kafka_keyshared.dlq.letter import Letter, LetterFailure
from kafka_keyshared.dlq.selection import LetterSelection


@dataclass(frozen=True, slots=True)
class Choice:
    """Conditions that a selected dead letter meets; None means no condition.

    ``since`` and ``until`` bound the time at which the dead letter was written, in milliseconds
    since 1970, the second exclusive. ``error`` is searched for in ``TYPE: MESSAGE``. ``partition``
    and ``offset`` are those of the dead-letter topic. ``selection`` names places in that topic. A
    record that is no readable dead letter has neither source nor error. It never meets a condition
    on them.
    """

    source_topic: str | None = None
    source_group: str | None = None
    error: re.Pattern[str] | None = None
    key: bytes | None = None
    since: int | None = None
    until: int | None = None
    partition: int | None = None
    offset: int | None = None
    selection: LetterSelection | None = None

    def takes(self, letter: Letter) -> bool:
        """Return whether a dead letter meets the conditions."""
        return self._takes_place(letter) and self._takes_told(letter.told)

    def _takes_place(self, letter: Letter) -> bool:
        written = letter.written
        return (
            (self.selection is None or self.selection.takes(letter))
            and (self.partition is None or letter.at.partition == self.partition)
            and (self.offset is None or letter.at.offset == self.offset)
            and (self.key is None or letter.key == self.key)
            and (self.since is None or (written is not None and written >= self.since))
            and (self.until is None or (written is not None and written < self.until))
        )

    def _takes_told(self, told: LetterFailure | None) -> bool:
        if told is None:
            return (self.source_topic, self.source_group, self.error) == (None, None, None)
        return (
            (self.source_topic is None or told.source.topic == self.source_topic)
            and (self.source_group is None or told.group == self.source_group)
            and (self.error is None or self.error.search(told.error) is not None)
        )
