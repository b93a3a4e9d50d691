"""What is told of a handler's calls in another process, to whoever writes them down."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from kafka_keyshared.model import Record

Outcome = Literal["ok", "dropped", "failed"]
OK: Final = "ok"
DROPPED: Final = "dropped"
FAILED: Final = "failed"


class Called(Protocol):
    """Is told of a call that has ended, before anybody else learns that it has."""

    def __call__(
        self, record: Record, began: float, ended: float, outcome: Outcome, worker: str
    ) -> None:
        """Take a call; the times are seconds of the clock that all processes here read."""
