"""Whether a compiled core would pay: this source, compiled into a copy, beside itself as it is.

    python tests/benchmarks/compiled.py build DIR --with mypyc|cython
    python tests/benchmarks/compiled.py core DIR... [--pairs N]
    python tests/benchmarks/compiled.py whole DIR... [--pairs N]

``build`` needs a C compiler, and Cython where that is asked for; with that ``--wide`` adds the
owner's loop, the client and the threads' pool. ``core`` takes the processor time of
``Dispatcher.handle`` for a record, without threads and a client; ``whole`` the empty handler of
``verify.py``, the bare loop, this source and each copy in turn. Tests run on a copy as well: put
``tests`` beside it, and run them from there.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import time
from contextlib import closing
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any

import msgspec
from confluent_kafka import Message

from kafka_keyshared.core.contract import commands as cmd
from kafka_keyshared.core.contract import events as ev
from kafka_keyshared.core.contract.slices import Slice
from kafka_keyshared.core.dispatch.dispatcher import Dispatcher
from kafka_keyshared.core.keys import extraction
from kafka_keyshared.core.subscription.settings import SubscriptionSettings
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.lab.bench import noop
from kafka_keyshared.lab.bench.common import group_of, open_cluster, topic_of_our_own
from kafka_keyshared.lab.bench.noop import NoopPlan
from kafka_keyshared.lab.bench.side import Task
from kafka_keyshared.model import TopicPartition

ROOT = Path(__file__).resolve().parents[2]

TAKEN_BY_MYPYC = """
    contract/slices dispatch/dispatcher dispatch/lease_step dispatch/report_intake
    failures/failed_attempts failures/undecodable keys/extraction keys/key_cache keys/selection
    lanes/single_inflight leasing/recall limits/blocked_quota limits/parked_records
    offsets/positions offsets/settled_set_codec partitions/offset_ceilings
    partitions/offset_snapshots records/backlog records/pristine records/window
    status/details telemetry/meters workers/run_queue workers/worker
"""
"""The modules of the core that a record passes through, without those that mypyc refuses."""

WIDE = """
    runtime/*.py client/*.py model.py hashing.py headers.py executors/command_interpreter.py
    executors/threads/thread_lifecycle.py executors/failed_lanes.py executors/mailbox.py
    executors/port.py executors/threads/handler_calls.py executors/threads/pool.py
    executors/thread_state.py
"""

SETUP = {
    "mypyc": "from mypyc.build import mypycify\n"
    "modules = mypycify(['--config-file=pyproject.toml', '--follow-imports=silent', *files])\n",
    "cython": "from Cython.Build import cythonize\n"
    "from setuptools import Extension\n"
    "each = [Extension(file[:-3].replace('/', '.'), [file]) for file in files]\n"
    "modules = cythonize(each, compiler_directives={'annotation_typing': False})\n",
}


def build(target: Path, compiler: str, *, wide: bool) -> None:
    """Copy the package, and compile what a record passes through in the copy."""
    package = target / "kafka_keyshared"
    shutil.copytree(
        ROOT / package.name, package, ignore=shutil.ignore_patterns("__pycache__", "*.so")
    )
    shutil.copy(ROOT / "pyproject.toml", target)
    if compiler == "mypyc":
        found = [package / "core" / f"{name}.py" for name in TAKEN_BY_MYPYC.split()]
    else:
        found = list(package.glob("core/**/*.py"))
        found += [path for each in WIDE.split() if wide for path in package.glob(each)]
    files = sorted(str(each.relative_to(target)) for each in found if each.stem != "__init__")
    script = f"files = {files}\n{SETUP[compiler]}"
    script += "from setuptools import setup\nsetup(name='x', packages=[], ext_modules=modules)\n"
    (target / "setup.py").write_text(script, encoding="utf-8")
    command = [sys.executable, "setup.py", "-q", "build_ext", "--inplace", "--parallel", "2"]
    subprocess.run(command, cwd=target, check=True)


# --- the core alone ---

PARTITIONS, WORKERS, KEYS, CHUNK, RECORDS = 8, 8, 10_000, 2_000, 1_000_000


class CoreSide(msgspec.Struct):
    """What one process has measured."""

    compiled: bool
    ns_a_record: float


def core_side(records: int = RECORDS) -> CoreSide:
    """Take chunks in, lease them, and report their slices as ended; a commit for each 50 of them.

    Only what the core does is counted, and freeing the records.
    """
    settings = SubscriptionSettings(workers=tuple(f"worker-{n}" for n in range(WORKERS)))
    core = Dispatcher([settings])
    partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    core.handle(ev.Assigned({each: ev.StartPoint(0) for each in partitions}), 0.0)
    cpu, chunks = 0.0, records // CHUNK
    for number in range(chunks):
        messages: list[Any] = [  # the stubs of Message promise less than a record
            Message(
                topic="orders",
                partition=at % PARTITIONS,
                offset=at // PARTITIONS,
                key=b"key-%d" % (at * 7919 % KEYS),
                value=b"x" * 100,
            )
            for at in range(number * CHUNK, (number + 1) * CHUNK)
        ]
        now, end = number * 0.002, (number + 1) * CHUNK // PARTITIONS
        began = time.process_time()
        said = core.handle(ev.Fetched(messages, dict.fromkeys(partitions, end)), now)
        del messages
        while leased := _slices(said):
            del said
            reports = [ev.SliceEnded(each.id, 0.001) for each in leased]
            del leased
            said = core.handle(ev.Reported(reports), now)
        if number % 50 == 49:
            for each in core.handle(ev.CommitDue({}), now):
                if isinstance(each, cmd.Commit):
                    core.handle(ev.CommitAnswer(each, ev.CommitResult.ACCEPTED), now)
        cpu += time.process_time() - began
    if core.unsettled_count():
        raise KeySharedError(f"{core.unsettled_count()} records are not settled")
    return CoreSide(
        compiled=str(extraction.__file__).endswith(tuple(EXTENSION_SUFFIXES)),
        ns_a_record=cpu / (chunks * CHUNK) * 1e9,
    )


def _slices(said: list[cmd.Command]) -> list[Slice]:
    return [each.slice for each in said if isinstance(each, cmd.LeaseSlice)]


def side_of(where: Path, records: int) -> CoreSide:
    """Measure the core of the package in this folder, in a process of its own."""
    done = subprocess.run(
        [sys.executable, __file__, "side", "--records", str(records)],
        env={**os.environ, "PYTHONPATH": str(where)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found = msgspec.json.decode(done.stdout, type=CoreSide)
    if found.compiled != (where != ROOT):
        raise KeySharedError(f"{where}: compiled is {found.compiled}, which is not what was asked")
    return found


def in_turn(copies: list[Path], number: int) -> list[Path]:
    """Return this source and the copies in the order of this pair, which another begins."""
    sides = [ROOT, *copies]
    at = number % len(sides)
    return sides[at:] + sides[:at]


def measure_core(copies: list[Path], pairs: int, records: int = RECORDS) -> dict[str, Any]:
    """Return the processor time of a record: the source's, and each copy's as a ratio to that."""
    found: dict[Path, list[float]] = {}
    for number in range(pairs):
        for where in in_turn(copies, number):
            found.setdefault(where, []).append(side_of(where, records).ns_a_record)
    return {
        "pure_ns": round(statistics.median(found[ROOT])),
        **{str(each): _beside(found[each], found[ROOT], "ns") for each in copies},
    }


def _beside(these: list[float], pure: list[float], unit: str) -> dict[str, Any]:
    ratios = [mine / other for mine, other in zip(these, pure, strict=True)]
    return {
        unit: round(statistics.median(these), 2 if unit == "s" else None),
        "to_pure": round(statistics.median(ratios), 3),
        "each": [round(ratio, 3) for ratio in ratios],
    }


# --- the whole path ---


def measure_whole(copies: list[Path], pairs: int, records: int) -> dict[str, Any]:
    """Return the seconds of each run, as ratios to the bare loop, and of a copy to the source."""
    plan = NoopPlan(records=records)
    found: dict[Path | None, list[float]] = {}
    with closing(open_cluster(None)) as cluster:
        plan = plan.that_fits(cluster)
        with topic_of_our_own(cluster, plan.partitions, _note) as topic:
            noop.fill(cluster.bootstrap, topic, plan)
            for number in range(pairs):
                for where in (None, *in_turn(copies, number)):
                    side = "bare" if where is None else "keyshared"
                    task = Task(
                        side="bare" if where is None else "keyshared",
                        bootstrap=cluster.bootstrap,
                        topic=topic,
                        group=group_of(side),
                        records=plan.records,
                        workers=plan.workers,
                    )
                    with contextlib.chdir(where or ROOT):  # what is here is what a child imports
                        took = noop.run_side(task).seconds
                    found.setdefault(where, []).append(took)
                    _note(f"{number + 1}: {where or 'bare'} {took:.2f} s")
    bare = found[None]
    ratios = {
        str(where): [round(b / mine, 3) for b, mine in zip(bare, found[where], strict=True)]
        for where in (ROOT, *copies)
    }
    return {
        "records": plan.records,
        "kafka": cluster.kind,
        "to_bare": {where: statistics.median(each) for where, each in ratios.items()},
        "each_to_bare": ratios,
        **{str(each): _beside(found[each], found[ROOT], "s") for each in copies},
    }


def _note(text: str) -> None:
    sys.stderr.write(f"{text}\n")


def main(arguments: list[str] | None = None) -> int:
    """Build or measure; return the exit status."""
    parser = argparse.ArgumentParser(description="Measure a compiled core beside this one.")
    parser.add_argument("what", choices=("build", "core", "whole", "side"))
    parser.add_argument("dirs", nargs="*", type=Path, metavar="DIR")
    parser.add_argument("--with", dest="compiler", choices=tuple(SETUP), default="mypyc")
    parser.add_argument("--wide", action="store_true", help="with Cython: more than the core")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--records", type=int, default=RECORDS)
    options = parser.parse_args(arguments)
    copies = [each.resolve() for each in options.dirs]
    if options.what == "side":
        sys.stdout.buffer.write(msgspec.json.encode(core_side(options.records)) + b"\n")
    elif options.what == "build":
        for each in copies:
            build(each, options.compiler, wide=options.wide)
    else:
        measure = measure_core if options.what == "core" else measure_whole
        found = measure(copies, options.pairs, options.records)
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
