"""``keyshared bench``."""

from __future__ import annotations

from kafka_keyshared.bench.noop import NoopPlan, measure_at
from kafka_keyshared.cli.output import Output, write_note, write_result
from kafka_keyshared.cli.reach import require_broker
from kafka_keyshared.config import make_options


def noop_verb(plan: NoopPlan, bootstrap: str | None, output: Output) -> int:
    """Measure and print."""
    plan.check()
    # Here and not in the process of its own that would find it out after everything is produced.
    make_options(
        {"workers": plan.workers, "max_leases_per_key": plan.max_leases_per_key}
    ).subscription()
    if bootstrap is not None:
        require_broker({"bootstrap.servers": bootstrap})
    result = measure_at(plan, bootstrap, write_note)
    for reason in result["suspect"]:
        write_note(f"suspect: {reason}")
    write_result(result, output, "bench noop")
    return 0
