"""Make an archive of Spark's classes, once for each environment: Java starts in half the time then.

``python -m tests.setup.spark_classes``; tests start a dozen Javas that load the same classes. It
takes as long as two of them.
"""

from __future__ import annotations

import sys

from kafka_keyshared.spark import session
from kafka_keyshared.spark.session import SparkOptions, start
from tests.support.spark_cluster import CLASSES

WRITTEN_WITHIN = 180.0


def main() -> int:
    """Make it, unless it is there."""
    if CLASSES.is_file():
        return 0
    print("Making an archive of Spark's classes, so that tests start it faster …", file=sys.stderr)
    partial = CLASSES.with_suffix(".partial")
    session._END_TIMEOUT = WRITTEN_WITHIN  # Java writes it at its end
    conf = {"spark.driver.extraJavaOptions": f"-XX:ArchiveClassesAtExit={partial}"}
    with start(SparkOptions("local[2]", conf=conf)) as running:
        numbers = running.spark.range(10).selectExpr("id % 3 as key", "id")
        numbers.repartition(2, "key").groupBy("key").count().collect()
    if partial.is_file():
        partial.rename(CLASSES)
    return 0


if __name__ == "__main__":
    sys.exit(main())
