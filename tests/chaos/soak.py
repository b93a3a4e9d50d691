"""A long run under every kind of disturbance, judged: ``make soak``.

``python -m tests.chaos.soak --minutes 10 --seed 7``. The seed decides everything that is done; the
exit status is 1 when the judge found something, 2 when the soak itself could not be carried out.
"""

from __future__ import annotations

import argparse
import pickle
import secrets
import shutil
import sys
import tempfile
import traceback
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.testing.clusters.broker import RealCluster
from tests.chaos.soak_evidence import Evidence
from tests.chaos.soak_judge import STAND_STILL, context, judged
from tests.chaos.soak_run import Soak
from tests.chaos.soak_schedule import scenario_of
from tests.chaos.soak_table import opening, table

OK, FOUND, BROKEN = 0, 1, 2
EVIDENCE = "evidence.pickle"


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make soak", description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--minutes", type=float, default=10.0, help="how long (default: 10)")
    parser.add_argument("--seed", type=int, help="what is done (default: another every time)")
    parser.add_argument(
        "--protocol", choices=["eager", "cooperative", "consumer"], help="in place of the seed's"
    )
    parser.add_argument("--brokers", type=int, choices=[1, 3], help="in place of the seed's")
    parser.add_argument(
        "--still",
        type=float,
        default=STAND_STILL,
        help=f"seconds that a partition may stand still (default: {STAND_STILL:g})",
    )
    parser.add_argument("--keep", action="store_true", help="keep ledgers and logs in any case")
    parser.add_argument("--judge", type=Path, help="judge what an earlier soak kept there")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a soak and print what was found."""
    options = _parser().parse_args(arguments)
    if options.judge is not None:
        # Written by this module below; a pickle of anybody else's is not for reading.
        evidence = pickle.loads((options.judge / EVIDENCE).read_bytes())
        return _judge(evidence, options.still, f"kept in {options.judge}")
    seed = secrets.randbelow(100_000) if options.seed is None else options.seed
    seconds = options.minutes * 60.0
    scenario = scenario_of(seed, seconds, protocol=options.protocol, brokers=options.brokers)
    again = f"make soak MINUTES={options.minutes:g} SEED={seed}"
    again += f" PROTOCOL={options.protocol}" if options.protocol else ""
    again += f" BROKERS={options.brokers}" if options.brokers else ""
    _say(f"{again}\n{opening(scenario)}")
    directory = Path(tempfile.mkdtemp(prefix="keyshared-soak-"))
    try:
        with RealCluster(scenario.brokers, settings=scenario.broker_settings()) as cluster:
            evidence = Soak(scenario, cluster, directory, say=_say).run()
    except (AssertionError, KeySharedError, KafkaException, OSError):
        traceback.print_exc()
        _say(f"the soak could not be carried out; {directory} has logs and ledgers; {again}")
        return BROKEN
    (directory / EVIDENCE).write_bytes(pickle.dumps(evidence))
    status = _judge(evidence, options.still, f"Ledgers and logs: {directory}\nAgain: {again}")
    if status == OK and not options.keep:
        shutil.rmtree(directory)
    return status


def _judge(evidence: Evidence, still: float, where: str) -> int:
    verdict = judged(evidence, still=still)
    _say(table(evidence, verdict))
    if verdict.clean:
        return OK
    first = verdict.violations[0]
    _say(f"\nFirst: {first.rule}: {first.text}")
    for line in context(evidence, first):
        _say(line)
    _say(f"\n{where}")
    return FOUND


if __name__ == "__main__":
    sys.exit(main())
