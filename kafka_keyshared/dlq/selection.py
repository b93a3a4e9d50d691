"""A selection file: dead letters named one by one.

It has JSON lines. A line is an object with the dead letter's place ``at`` (``"0:12"``). It also has
the ``topic`` and the ``mark`` (:func:`.replay_plan.mark_of`, in hexadecimal digits) if they are
known. All other fields are ignored. Therefore the output of ``dlq export`` is also a selection, as
is any part of it that other tools have kept.
"""

from __future__ import annotations

import re
import struct
from bisect import bisect_left
from pathlib import Path

import msgspec

from kafka_keyshared.dlq.envelope import INT_MAX, LONG_MAX
from kafka_keyshared.dlq.letter import Letter
from kafka_keyshared.dlq.replay_plan import digest_of, mark_of
from kafka_keyshared.errors import ConfigError

ANY = 0
"""Value in place of a mark: any dead letter at that place is selected."""

# Big-endian, so that sorting the bytes sorts the offsets.
_ROW = struct.Struct(">QQ")
_OFFSET = slice(0, 8)
_AT = re.compile(r"(\d{1,10}):(\d{1,19})")


class _SelectionLine(msgspec.Struct):
    at: str
    topic: str = ""
    mark: str = ""


class LetterSelection:
    """The dead letters that a file names; each takes some 70 bytes of memory.

    Raises :class:`ConfigError` for a file that cannot be read, or that is no selection.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        self._topic = ""
        self._rows: dict[int, list[bytes]] = {}
        self.met = 0
        """Number of selected dead letters that were found at their place."""
        decode = msgspec.json.Decoder(_SelectionLine).decode
        number = 0
        try:
            with file.open("rb") as lines:
                for number, line in enumerate(lines, start=1):  # noqa: B007 - told in the errors
                    if line.strip():
                        self._add(decode(line))
        except OSError as error:
            raise ConfigError(f"--selection {file}: {error.strerror}") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
            raise ConfigError(
                f"--selection {file}: line {number}: {error}; give what `keyshared spark dlq "
                '--select` or `keyshared dlq export` wrote: an object with "at" in each line'
            ) from error
        for partition, rows in self._rows.items():
            self._rows[partition] = sorted(set(rows))
        if not self._rows:
            raise ConfigError(f"--selection {file}: the file has no letters")

    def _add(self, line: _SelectionLine) -> None:
        place = _AT.fullmatch(line.at)
        partition, offset = (int(place[1]), int(place[2])) if place else (-1, -1)
        if not (0 <= partition <= INT_MAX and 0 <= offset <= LONG_MAX):
            raise ValueError(f"{line.at!r:.40} is no place of a letter, such as 0:12")
        if line.topic and line.topic != self._topic:
            if self._topic:
                raise ValueError(f"a letter of {line.topic!r:.80}, and others of {self._topic!r}")
            self._topic = line.topic
        mark = int(line.mark, 16) if line.mark else ANY
        if not 0 <= mark < 1 << 64:
            raise ValueError(f"the mark {line.mark!r:.40} is none")
        self._rows.setdefault(partition, []).append(_ROW.pack(offset, mark))

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))

    def require(self, topic: str) -> None:
        """Raise :class:`ConfigError` if the selection is of another topic."""
        if self._topic not in ("", topic):
            raise ConfigError(
                f"--selection {self._file} is of letters in {self._topic!r}, and these are in "
                f"{topic!r}: give --dlq {self._topic}"
            )

    def within(self, partition: int, low: int, high: int) -> tuple[int, int]:
        """Return the part of the given bounds that has selected dead letters of a partition."""
        rows = self._rows.get(partition)
        if not rows:
            return high, high
        first, last = (_ROW.unpack(row)[0] for row in (rows[0], rows[-1]))
        return max(low, first), min(high, last + 1)

    def takes(self, letter: Letter) -> bool:
        """Return whether this dead letter is selected, and count it.

        Another dead letter at its place, in a recreated topic, is not selected.
        """
        rows = self._rows.get(letter.at.partition, ())
        offset = _ROW.pack(letter.at.offset, 0)
        at = bisect_left(rows, offset)
        if at == len(rows) or rows[at][_OFFSET] != offset[_OFFSET]:
            return False
        mark = _ROW.unpack(rows[at])[1]
        meant = mark in (ANY, mark_of(letter, digest_of(letter)))
        self.met += meant
        return meant
