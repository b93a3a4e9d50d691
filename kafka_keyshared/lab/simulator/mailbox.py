"""Mailbox of a simulated owner, which lets time pass while it waits."""

from __future__ import annotations

from queue import SimpleQueue

from kafka_keyshared.executors.command_interpreter import Mail
from kafka_keyshared.lab.simulator.timeline import Action, SimulatedProcess, nothing


class SimMailbox(SimpleQueue[Mail]):
    """A mailbox whose wait passes simulated time."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process
        self.wake: Action = nothing
        """Called when an item was put in."""

    def put(self, item: Mail, block: bool = True, timeout: float | None = None) -> None:
        """Append an item."""
        super().put(item, block, timeout)
        self.wake()

    def get(self, block: bool = True, timeout: float | None = None) -> Mail:
        """Take the oldest item, or wait for one if there is none; raises ``queue.Empty``."""
        if block and timeout and self.empty():
            self._process.wait(timeout, self._there)
        return super().get_nowait()

    def _there(self) -> bool:
        return not self.empty()
