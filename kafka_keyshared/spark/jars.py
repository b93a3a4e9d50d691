"""Location and download of Spark's jars for Kafka.

They are not part of pyspark. ``keyshared spark jars --fetch`` fetches them with Maven, once per
user, and so does ``python -m kafka_keyshared.spark.jars``. ``KEYSHARED_SPARK_JARS`` names a
directory that is used instead.
"""

from __future__ import annotations

import sys
from pathlib import Path

from kafka_keyshared.testing.clusters.maven import JarSet

SPARK_VERSION = "4.0.0"
"""The Spark version that the jars are made for; any pyspark 4.0 works with them."""
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
    """Return the jars for a session, in a fixed order.

    Other jars in the directory that the variable names are ignored, because Spark must not get a
    jar twice. Raises :class:`MissingPartError` when the jars are missing.
    """
    directory = SPARK_JARS.require()
    return [file for pattern in SPARK_JARS.needed for file in sorted(directory.glob(pattern))]


if __name__ == "__main__":
    sys.exit(SPARK_JARS.fetch_and_tell())
