"""Where the jars are that let Spark read and write Kafka, and how they get there.

They do not come with pyspark. ``keyshared spark jars --fetch`` has Maven fetch them, once per
user, and so does ``python -m kafka_keyshared.spark.jars``. ``KEYSHARED_SPARK_JARS`` names a
directory that is used instead.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_keyshared.local.maven import JarSet

SPARK_VERSION = "4.0.0"
"""The Spark that the jars are made for; any 4.0 of pyspark goes with them."""
SCALA_VERSION = "2.13"
JARS_VARIABLE = "KEYSHARED_SPARK_JARS"

SPARK_JARS = JarSet(
    what=f"Spark {SPARK_VERSION} for Kafka",
    folder=f"spark-{SPARK_VERSION}",
    variable=JARS_VARIABLE,
    needed=(
        "spark-sql-kafka-0-10_*.jar",
        "spark-token-provider-kafka-0-10_*.jar",
        "kafka-clients-*.jar",
        "commons-pool2-*.jar",
    ),
    package=__package__,
    pom=f"spark-{SPARK_VERSION}.pom.xml",
    how_to_get=(
        "run `keyshared spark jars --fetch` (10 MB, needs Maven), or set "
        f"{JARS_VARIABLE} to a directory that holds them"
    ),
)


def needed_files() -> list[Path]:
    """The jars themselves, which a session is given, in a fixed order.

    Other jars in a directory that the variable names are left alone: what Spark has already must
    not come to it twice. Raises :class:`MissingPartError` when there are none yet.
    """
    directory = SPARK_JARS.require()
    return [file for pattern in SPARK_JARS.needed for file in sorted(directory.glob(pattern))]


if __name__ == "__main__":
    sys.exit(SPARK_JARS.fetch_and_tell())
