"""What a handler's return value means; what follows from it is decided in the core."""

from __future__ import annotations

from typing import Any

from kafka_keyshared.handling.handlers import deferred_work
from kafka_keyshared.handling.outputs import outputs_in
from kafka_keyshared.logs import log_of
from kafka_keyshared.model import Ack, Verdict

log = log_of("kafka_keyshared.pool")

_warned_results: set[type] = set()


def error_in(result: Any) -> BaseException | None:
    """Return the exception that a returned value stands for; None where the record is done.

    A verdict that is returned means what it means when it is raised. It is not raised here: its
    traceback would hold the frames that hold it, until the cyclic collector comes.
    """
    if isinstance(result, type) and issubclass(result, Verdict):
        result = result()  # "return Retry" means what "raise Retry" means
    if isinstance(result, Ack):
        return None
    if isinstance(result, Verdict):  # one of a kind that nobody knows is a failed attempt
        return result
    if (deferred := deferred_work(result)) is not None:
        return TypeError(
            f"the handler returned {deferred}: what it stands for has not been done. "
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
