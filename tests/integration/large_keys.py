"""A program whose handler waits while records with large keys or headers come, and its memory.

``python -m tests.integration.large_keys SETTINGS`` takes a JSON object: ``conf`` and ``topic``. It
prints, in MiB, how much more was ever resident than before its instance ran.
"""

from __future__ import annotations

import json
import sys
import threading
from typing import Any

from kafka_keyshared import KeyShared
from kafka_keyshared.app.hooks import Hooks
from kafka_keyshared.lab.bench.memory_side import peak_mib, resident_mib
from kafka_keyshared.runtime.instance_view import InstanceView

ROUNDS = 20
"""So many more rounds of the owner, of up to half a second each, after nothing is fetched."""


def main() -> int:
    settings: dict[str, Any] = json.loads(sys.argv[1])
    full = threading.Event()
    rounds = 0

    def stepped(_view: InstanceView) -> None:
        nonlocal rounds
        assert app.instance is not None
        rounds += bool(app.instance.loop.paused())
        if rounds == ROUNDS:
            full.set()
            app.stop()

    app = KeyShared(settings["conf"], [settings["topic"]], workers=2, hooks=Hooks(stepped=stepped))

    @app.handler
    def wait(_record: object) -> None:
        full.wait()

    before = resident_mib()
    status = app.run()
    sys.stdout.write(f"{peak_mib() - before}\n")
    return status


if __name__ == "__main__":
    sys.exit(main())
