"""One system of ``bench compare`` in a process of its own.

Run as ``python -m kafka_keyshared.lab.bench.peer`` with the job as JSON on standard input. The
result is one line of JSON on standard output.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

from kafka_keyshared.lab.bench.child import read_task, tell_parent
from kafka_keyshared.lab.bench.workloads import BenchJob, JobResult


def runner_of(family: str) -> Callable[[BenchJob], JobResult]:
    """Return the function that runs a system of this family."""
    if family == "keyshared":
        from kafka_keyshared.lab.bench.peers.ours import run_keyshared

        return run_keyshared
    if family in {"aiokafka", "faststream"}:
        from kafka_keyshared.lab.bench.peers import aio

        return aio.RUNNERS[family]
    if family.startswith("pyrallel-"):
        from kafka_keyshared.lab.bench.peers import pyrallel

        return pyrallel.RUNNERS[family]
    from kafka_keyshared.lab.bench.peers import plain

    return plain.RUNNERS[family]


def main() -> int:
    """Run the job on standard input."""
    job = read_task(BenchJob)
    tell_parent(runner_of(job.family)(job))
    return 0


if __name__ == "__main__":
    sys.exit(main())
