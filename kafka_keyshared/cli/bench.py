"""``keyshared bench``."""

from __future__ import annotations

from kafka_keyshared.bench.noop import SUSPECT_BELOW, NoopPlan, measure
from kafka_keyshared.cli.output import Output, write_note, write_result


def noop_verb(plan: NoopPlan, bootstrap: str | None, output: Output) -> int:
    """Measure and print."""
    result = measure(plan, bootstrap, write_note)
    if result["suspect"]:
        write_note(
            f"suspect: the bare loop reached {result['bare_per_s']:,}/s, below "
            f"{SUSPECT_BELOW:,}/s; the machine is busy or slow, measure again when it is idle"
        )
    write_result(result, output, "bench noop")
    return 0
