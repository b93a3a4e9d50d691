"""Meaning of a handler's return value.

The core decides what follows from it.
"""

from __future__ import annotations

from typing import Any

from kafka_keyshared.executors.handling.handlers import deferred_work
from kafka_keyshared.executors.handling.outputs import outputs_in
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Ack, Verdict

log = log_of("kafka_keyshared.pool")

_warned_results: set[type] = set()


def error_in(result: Any) -> BaseException | None:
    """Return the exception that a returned value stands for; None if the record is done.

    A returned verdict means the same as a raised one. This function does not raise it: its
    traceback would hold frames that hold the verdict itself, until the cyclic garbage collector
    runs.
    """
    if isinstance(result, type) and issubclass(result, Verdict):
        result = result()  # "return Retry" means the same as "raise Retry"
    if isinstance(result, Ack):
        return None
    if isinstance(result, Verdict):  # an unknown verdict class is a failed attempt
        return result
    if (deferred := deferred_work(result)) is not None:
        return TypeError(
            f"the handler returned {deferred}: its work is not done. "
            "Do the work, or wait for it, before the handler returns"
        )
    if outputs_in(result):
        return TypeError(
            "the handler returned an Output, and nothing says where it is to go: give --outputs"
        )
    if type(result) not in _warned_results:
        _warned_results.add(type(result))
        log.warning(
            "the handler returned %.100r (%s), which counts as done; return None, or a verdict "
            "(Ack, Retry, DeadLetter, Drop)",
            result,
            type(result).__name__,
        )
    return None
