"""The package itself, with the workers that the system's name gives."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafka_keyshared.lab.bench.child import (
    ReadTask,
    StallDetector,
    Stalled,
    conf_for,
    run_app,
    settled,
)
from kafka_keyshared.lab.bench.workloads import BenchJob, JobResult, by_method, handler_of, later_of

if TYPE_CHECKING:
    from kafka_keyshared.app.keyshared import KeyShared
    from kafka_keyshared.runtime.instance_view import InstanceView


def run_keyshared(job: BenchJob) -> JobResult:
    """Run the package until every record is settled or the time is up, and it has committed."""
    answered_at = 0.0
    patience = StallDetector()
    began = 0.0

    def answered(error: object, _partitions: object) -> None:
        nonlocal answered_at
        if error is None:
            answered_at = time.monotonic()

    def stepped(app: KeyShared, view: InstanceView) -> None:
        nonlocal began
        done = settled(view)
        if not began and app.instance is not None:
            began = app.instance.loop.stats.first_record_at or 0.0
        late = began and time.monotonic() - began > job.limit
        if done >= job.records or late:
            app.stop()
        else:
            patience.check(done, "settled")

    reading = ReadTask(
        side="keyshared",
        bootstrap=job.bootstrap,
        topic=job.topic,
        group=job.group,
        workers=job.size,
    )
    later = job.size.startswith("asyncio")
    handler: Callable[[Any], Any]
    handler = later_of(job, by_method) if later else handler_of(job, by_method)
    loop = run_app(reading, {**conf_for(reading), "on_commit": answered}, handler, stepped)
    started = loop.stats.first_record_at
    if started is None:
        raise Stalled("no record came")
    return JobResult(seconds=answered_at - started, records=settled(loop.core))
