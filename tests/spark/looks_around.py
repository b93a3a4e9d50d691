"""Run as a program: start Spark as it is told, and print what its executors see as JSON."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.spark.packaging import probe
from kafka_keyshared.spark.session import SparkOptions, start


def main() -> None:
    told = json.loads(sys.argv[1])
    options = SparkOptions(
        told.get("master", "local[*]"),
        conf=told.get("conf", {}),
        log=Path(told["log"]),
        py_files=tuple(map(Path, told["py_files"])),
        archives=tuple(told.get("archives", ())),
        executor_memory="512m",
    )
    handler = told["handler"]

    def see(numbers: Iterable[int]) -> Iterator[dict[str, Any]]:
        import importlib

        import kafka_keyshared

        module = importlib.import_module(handler)
        yield {
            "place": str(Path.cwd()),
            "package": kafka_keyshared.__file__,
            "came_by": os.environ.get("CAME_BY"),
            "handled": [module.handle(number) for number in numbers],
        }

    with start(options) as session:
        context = session.spark.sparkContext
        probe(context, (handler,))
        seen = context.parallelize(range(4), 2).mapPartitions(see).collect()
        result = {"master": context.master, "name": context.appName, "ui": session.ui, "seen": seen}
    json.dump(result, sys.stdout)


if __name__ == "__main__":
    try:
        main()
    except KeySharedError as error:
        sys.exit(f"{type(error).__name__}: {error}")
