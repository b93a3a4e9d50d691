"""Tables of a replay's plan and its outcome."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from kafka_keyshared.cli.dlq_options import cut, printable
from kafka_keyshared.cli.output import Justify, write_table
from kafka_keyshared.dlq.letter import LetterPlace
from kafka_keyshared.dlq.replay import Keeper

TELL_EVERY = 10.0
"""Seconds between two progress messages of a replay."""

KEY_SHOWN = 50
MOST_PLACES = 5
"""Characters of a key, and number of places, in a cell."""

_NOT_SENT: Mapping[str, str] = {
    "already_replayed": "replayed before",
    "copies": "another dead letter of the same record",
    "guarded": "replayed too often (--max-replays)",
    "foreign": "not a dead letter of this package",
    "unreadable": "unreadable dead letter",
}

_BECAME: Mapping[str, str] = {
    "replayed": "sent and acknowledged",
    "refused": "refused",
    "behind_refused": "not sent: behind a refused record of the same key",
    "gone": "no longer in the topic",
    "left": "left for the next replay",
}


def write_plan(told: Mapping[str, Any]) -> None:
    """Print the planned dead letters by target, and those not sent."""
    lanes = "keys" if "key" in told["order"] else "source partitions"
    if told["to"]:
        keyless: dict[str, Justify] = {"without a key": "right"} if told["without_order"] else {}
        _table(
            f"{told['topic']}: to replay",
            {"to": "left", "partitions": "right", "letters": "right", lanes: "right", **keyless},
            [
                (
                    to,
                    "none" if told["partitions"][to] is None else told["partitions"][to],
                    count,
                    told["lanes_to"][to],
                    *([told["keyless_to"][to]] if keyless else []),
                )
                for to, count in told["to"].items()
            ],
        )
    not_sent = [
        (words, told[why], _places(told["examples"].get(why, ())))
        for why, words in _NOT_SENT.items()
        if told[why]
    ]
    if not_sent:
        columns: dict[str, Justify] = {"why": "left", "letters": "right", "such as": "left"}
        _table(f"{told['topic']}: not sent", columns, not_sent)
    if told["most"]:
        rows = [
            (cut(str(next(iter(each["key"].values()))), KEY_SHOWN), each["letters"])
            for each in told["most"]
        ]
        _table("", {"keys with the most letters": "left", "letters": "right"}, rows)


def write_outcome(became: Mapping[str, Any]) -> None:
    """Print the outcome of the planned dead letters."""
    rows = [(words, became[what]) for what, words in _BECAME.items() if became[what]]
    if rows:
        _table("outcome", {"": "left", "letters": "right"}, rows)
    if became["why"]:
        places: dict[str, list[str]] = {}
        for at, why in became["refused_examples"].items():
            places.setdefault(why, []).append(at)
        _table(
            "refused",
            {"why": "left", "letters": "right", "such as": "left"},
            [(why, count, _places(places.get(why, ()))) for why, count in became["why"].items()],
        )


def _table(title: str, columns: Mapping[str, Justify], rows: Iterable[tuple[Any, ...]]) -> None:
    cells = (
        tuple(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row) for row in rows
    )
    write_table(title, columns, list(map(printable, cells)))


def _places(places: Iterable[str]) -> str:
    some = list(places)
    return ", ".join(some[:MOST_PLACES]) + (", …" if len(some) > MOST_PLACES else "")


class ReplayProgressLog:
    """Stores progress, and prints it from time to time."""

    def __init__(
        self,
        keeper: Keeper,
        wanted: int,
        note: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._keeper = keeper
        self._wanted = wanted
        self._note = note
        self._clock = clock
        self._kept = 0
        self._began = self._told_at = clock()

    def add(self, letters: Iterable[tuple[LetterPlace, int]]) -> None:
        """Store a batch."""
        batch = list(letters)
        self._keeper.add(batch)
        self._kept += len(batch)
        now = self._clock()
        if now - self._told_at >= TELL_EVERY and self._kept < self._wanted:
            self._told_at = now
            left = (now - self._began) * (self._wanted / self._kept - 1)
            self._note(
                f"replayed {self._kept:,} of {self._wanted:,} letters, about {left:.0f} s left"
            )
