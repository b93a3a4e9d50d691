"""The owner's mailbox in a simulation: a wait in it is the others' time."""

from __future__ import annotations

from queue import SimpleQueue

from kafka_keyshared.pools.actor import Mail
from kafka_keyshared.sim.timeline import Action, Process, nothing


class SimMailbox(SimpleQueue[Mail]):
    """A mailbox whose wait passes made-up time."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.wake: Action = nothing
        """Called when something was put in."""

    def put(self, item: Mail, block: bool = True, timeout: float | None = None) -> None:
        """Put an item behind the others."""
        super().put(item, block, timeout)
        self.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Mail:
        """Take the oldest item, waiting for one if there is none; raises ``queue.Empty``."""
        if block and timeout and self.empty():
            self._process.wait(timeout, self._there)
        return super().get_nowait()

    def _there(self) -> bool:
        return not self.empty()
