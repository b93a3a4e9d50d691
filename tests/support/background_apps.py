"""Apps that run beside a test, on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from kafka_keyshared import KeyShared


class Running:
    """A wrapped app in a thread."""

    def __init__(self, app: KeyShared) -> None:
        self.app = app
        self.status: int | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.status = self.app.run()

    def stop(self) -> int | None:
        self.app.stop()
        self._thread.join(60)
        return self.status


def running_apps() -> Iterator[Callable[[KeyShared], Running]]:
    """Run apps on threads of their own, and stop them at the end; to be made a fixture."""
    made: list[Running] = []

    def run(app: KeyShared) -> Running:
        made.append(Running(app))
        return made[-1]

    yield run
    for each in made:
        each.stop()
