"""The callback that reports each handler call made in another process."""

from __future__ import annotations

from typing import Final, Literal, Protocol

from kafka_keyshared.model import Record

Outcome = Literal["ok", "dropped", "failed"]
OK: Final = "ok"
DROPPED: Final = "dropped"
FAILED: Final = "failed"


class Called(Protocol):
    """Callback for one ended call; it runs before the record counts as ended."""

    def __call__(
        self, record: Record, began: float, ended: float, outcome: Outcome, worker: str
    ) -> None:
        """Take one call. Times are seconds of a clock that all processes on this host share."""
