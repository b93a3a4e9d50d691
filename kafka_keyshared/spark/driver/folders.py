"""Output folders of batches on any Hadoop file system, and their cleanup.

Each batch has its own folder, ``batch=NAME``. Notes of batches that are not committed yet are in
``_uncommitted``. Readers of Spark and Arrow skip names that begin with an underscore.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from kafka_keyshared.core.contract.events import StartPoint
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import TopicPartition
from kafka_keyshared.spark.driver.placing import java_of
from kafka_keyshared.spark.uncommitted_batches import Note, OutputFate, name_of_batch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = log_of("kafka_keyshared.spark")

NOTES = "_uncommitted"


class Files(Protocol):
    """Files below one folder, named by their path in it."""

    def texts(self, folder: str) -> Mapping[str, str]:
        """Return the files of a folder with their text; empty when there is no such folder."""

    def write(self, file: str, text: str) -> None:
        """Write a file, and return once others can read it."""

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all its contents; do nothing when it does not exist."""


class HadoopFiles:
    """Files accessed through Hadoop, as Spark itself writes output: local, HDFS, object stores."""

    def __init__(self, spark: SparkSession, place: str) -> None:
        self._jvm = java_of(spark.sparkContext, "_jvm")
        self._conf = java_of(spark.sparkContext, "_jsc").hadoopConfiguration()
        self._place = place.rstrip("/") or "/"

    def _of(self, path: str) -> tuple[Any, Any]:
        hadoop = self._jvm.org.apache.hadoop.fs.Path(f"{self._place}/{path}")
        return hadoop.getFileSystem(self._conf), hadoop

    def texts(self, folder: str) -> dict[str, str]:
        """Return the files of a folder with their text; empty when there is no such folder."""
        system, path = self._of(folder)
        if not system.exists(path):
            return {}
        found = {}
        for each in system.listStatus(path):
            stream = system.open(each.getPath())
            try:
                text = self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
            finally:
                stream.close()
            found[f"{folder}/{each.getPath().getName()}"] = text
        return found

    def write(self, file: str, text: str) -> None:
        """Write a file, and return once others can read it."""
        system, path = self._of(file)
        stream = system.create(path, True)
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()

    def remove(self, path: str) -> None:
        """Remove a file or a folder with all its contents; do nothing when it does not exist."""
        system, hadoop = self._of(path)
        system.delete(hadoop, True)


class WrittenBatches:
    """The batches of a group in a folder; removes batches that were written but not committed."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._looked = False

    def look(self, group: str, starts: Mapping[TopicPartition, StartPoint]) -> None:
        """Clean up after earlier runs at the first call; later calls do nothing."""
        if not self._looked:
            self._settle(group, starts)
            self._looked = True

    def begin(
        self, note: Note, starts: Mapping[TopicPartition, StartPoint], *, outputs: bool
    ) -> None:
        """Prepare the folder for the outputs of a batch, before they are written.

        Removes outputs of earlier attempts that were not committed, and writes a note of the batch.
        Without ``outputs`` nothing overwrites an earlier attempt of this batch, so that attempt is
        removed too. Later batches have its records.
        """
        self._settle(note.group, starts)
        if outputs:
            self._files.write(_file(note.batch), note.text())
        else:
            self._files.remove(f"batch={note.batch}")
            self.committed(note)

    def committed(self, note: Note) -> None:
        """Remove the note of a batch that is committed."""
        self._files.remove(_file(note.batch))

    def _settle(self, group: str, starts: Mapping[TopicPartition, StartPoint]) -> None:
        """Remove outputs of uncommitted batches, and notes of batches with a known fate.

        A batch that begins where the group stands now is left alone, because it will be
        overwritten.
        """
        name = name_of_batch(group, starts)
        for file, text in self._files.texts(NOTES).items():
            note = Note.of_text(text)
            if note is None or note.group != group or note.batch == name:
                continue
            fate = note.fate(starts)
            if fate is OutputFate.GO:
                log.warning(
                    "outputs of batch %s were written and not committed: removing them; their "
                    "records run again",
                    note.batch,
                )
                self._files.remove(f"batch={note.batch}")
            if fate is not OutputFate.UNKNOWN:
                self._files.remove(file)


def _file(name: str) -> str:
    return f"{NOTES}/{name}.json"
