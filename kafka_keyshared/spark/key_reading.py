"""Key reading for a batch of records in a Spark task.

The rules are those of a pod (:mod:`kafka_keyshared.core.failures.undecodable`). A pod holds a
partition. A batch cannot, so it fails with the reason.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from threading import Event

from kafka_keyshared.core.failures.undecodable import READ_AGAIN_AFTER, reason_of
from kafka_keyshared.core.keys.extraction import KeyOf
from kafka_keyshared.core.keys.unknown_formats import is_broken, look_around
from kafka_keyshared.errors import KeySharedError
from kafka_keyshared.model import Record, Retry, Undecodable, UnknownFormat, name_of

KEY_WAIT = 60.0
"""Seconds of retries for a key that is temporarily unreadable, before the batch fails."""


def read_keys(
    key_of: KeyOf,
    records: Sequence[Record],
    wait: Callable[[float], object] | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> list[tuple[bytes | None, str | None]]:
    """Return for each record its key, or the reason why its key is unreadable.

    A record whose key is temporarily unreadable holds back the records behind it, as in a pod. Here
    the task waits. ``wait`` takes a number of seconds. ``clock`` returns seconds. Raises
    :class:`KeySharedError` with the reason after :data:`KEY_WAIT` seconds. Raises it at once when
    the format of a record is unknown, waiting cannot help and the record is not an exception.
    """
    wait = wait or Event().wait
    found: list[tuple[bytes | None, str | None]] = []
    for at, record in enumerate(records):
        began = clock()
        while len(found) == at:
            try:
                found.append((key_of(record), None))
            except Retry as cannot:
                waited, after = clock() - began, cannot.delay()
                judged = None
                if isinstance(cannot, UnknownFormat):
                    read_before = any(reason is None for _, reason in found)
                    behind = islice(records, at + 1, None)
                    judged = _judge(key_of, cannot, behind, read_before=read_before, waited=waited)
                if judged is True:
                    found.append((None, str(cannot)))
                elif judged is False or waited >= KEY_WAIT:
                    raise KeySharedError(
                        f"the key of {name_of(record)} cannot be read, for {waited:.0f} s: "
                        f"{reason_of(cannot)}; the batch ends here: nothing of it is committed, "
                        "and no record becomes a dead letter for this"
                    ) from None
                else:
                    wait(READ_AGAIN_AFTER if after is None else after)
            except Undecodable as error:
                found.append((None, str(error)))
            except Exception as error:  # noqa: BLE001 - after any error this record has no key
                found.append((None, f"{type(error).__name__}: {error}"))
    return found


def _judge(
    key_of: KeyOf,
    error: UnknownFormat,
    behind: Iterable[Record],
    *,
    read_before: bool,
    waited: float,
) -> bool | None:
    """Return whether a record is broken; None while waiting may still decide it."""
    around = look_around(key_of, error, behind)
    if is_broken(error, around, read_before=read_before, waited=waited):
        return True
    return False if around.alike and not error.patience else None
