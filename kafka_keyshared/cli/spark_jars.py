"""``keyshared spark jars``: location and download of Spark's Kafka jars."""

from __future__ import annotations

from kafka_keyshared.cli.output import OutputFormat, write_note, write_result
from kafka_keyshared.spark.jars import SPARK_JARS, SPARK_VERSION, needed_files


def jars_verb(*, fetch: bool, output: OutputFormat) -> int:
    """Print the directory and the files; with ``fetch`` Maven fills it first.

    Raises :class:`MissingPartError` when the jars are missing, or Maven could not fetch them.
    """
    if fetch and SPARK_JARS.find() is None:
        write_note(f"Fetching the jars of {SPARK_JARS.what} (10 MB, once)")
        SPARK_JARS.fetch()
    files = needed_files()
    result = {"spark": SPARK_VERSION, "directory": str(files[0].parent)}
    names = [file.name for file in files]
    write_result(
        {**result, "jars": ", ".join(names) if output is OutputFormat.TABLE else names},
        *(output, "jars"),
    )
    return 0
