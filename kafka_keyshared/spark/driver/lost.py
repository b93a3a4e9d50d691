"""Classification of lost batches that can be planned and run again."""

from __future__ import annotations

from kafka_keyshared.errors import KeySharedError


class TornBatchError(KeySharedError):
    """The stored output of a batch differs from its tasks' reports, so nothing is committed."""


LOST_WITH_EXECUTOR = "an executor has died, and with it the output of a task that had ended there"
TORN = "Spark ran a task twice, and its output has parts of both runs"
CUT_OFF = "retention has removed records of the batch since it was planned"


def why_lost(error: Exception) -> str | None:
    """Return why a batch was lost if it can be planned and run again; None for any other failure.

    Spark has no exception class for a task result that is lost with its executor. It names the
    block: ``Checkpoint block rdd_15_0 not found``. It has none for records that are no longer in
    the log either.
    """
    if isinstance(error, TornBatchError):
        return TORN
    said = str(error)
    if "Checkpoint block rdd_" in said:
        return LOST_WITH_EXECUTOR
    return CUT_OFF if any(each in said for each in _NO_LONGER_IN_THE_LOG) else None


_NO_LONGER_IN_THE_LOG = (
    "Some data may have been lost because they are not available in Kafka any more",
    "OffsetOutOfRangeException",
)
