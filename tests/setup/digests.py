"""Digests of simulated runs that stay the same while classes, fields and modules are renamed.

``python tests/setup/digests.py --seeds 200 [--first 1] [--steps 400]`` prints one line for each
seed: its digest, and how many rounds, events and happenings it had. Two commits with the same lines
behave alike in these runs.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kafka_keyshared.lab.simulator.history import History
from kafka_keyshared.lab.simulator.run import run_seed
from kafka_keyshared.lab.simulator.timeline import Timeline

NAMES = re.compile(r"[A-Za-z_][\w.]*(?=[(=])|<[\w.]+: ")
"""Names of classes and fields in the text of a value, and of the members of enumerations."""


class NamelessHistory(History):
    """A history whose digest is of texts without the names in them."""

    def __init__(self, timeline: Timeline, *, summed: bool = True) -> None:
        super().__init__(timeline, summed=False)
        self._nameless = hashlib.blake2b(digest_size=16)

    def tell(self, happening: Any) -> None:
        """Take note of a happening, and pass it on."""
        text = f"{self.timeline.now:.9f} {happening!r}"
        self._nameless.update(NAMES.sub("", text).encode())
        super().tell(happening)

    def digest(self) -> str:
        """Return the digest of all that has happened, and of when."""
        return self._nameless.hexdigest()


def line(steps: int, seed: int) -> str:
    """Run a seed; return its line."""
    with mock.patch("kafka_keyshared.lab.simulator.world.was.History", NamelessHistory):
        found = run_seed(seed, steps)
    return f"{seed} {found.digest} {found.steps} {found.events} {found.happenings}"


def main() -> int:
    """Print the lines, in the order of the seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--steps", type=int, default=400)
    arguments = parser.parse_args()
    seeds = range(arguments.first, arguments.first + arguments.seeds)
    with ProcessPoolExecutor() as processes:
        for found in processes.map(partial(line, arguments.steps), seeds):
            print(found, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
