"""Batch handlers: their rules, and the meaning of their results."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.handlers import awaits, maker
from kafka_keyshared.executors.handling.outcome_mapping import error_in
from kafka_keyshared.model import Ack, Verdict

Outcome: TypeAlias = BaseException | None
"""The result of one record of a call: None for done, otherwise an exception. The exception counts
as if the handler had raised it."""


class BatchRule(NamedTuple):
    """When a worker calls its batch handler, and with which records.

    The worker calls it with ``size`` records. It calls earlier when the first record has waited
    ``wait`` seconds. With ``same_key`` all records of a call have one key. Each key then has its
    own count and its own wait.
    """

    size: int
    wait: float = 0.0
    same_key: bool = False


def check_batches(handler: Any, rule: BatchRule, pool: str) -> None:
    """Raise :class:`ConfigError` if this handler, rule and pool cannot run batches."""
    if not isinstance(rule.size, int) or isinstance(rule.size, bool) or rule.size < 1:
        raise ConfigError(
            f"batch_handler(size={rule.size!r}): give the most records of a call, at least 1"
        )
    nan = isinstance(rule.wait, bool) or not isinstance(rule.wait, int | float)
    if nan or not 0 <= rule.wait <= 3_600:
        raise ConfigError(f"batch_handler(wait={rule.wait!r}): give seconds, from 0 to 3600")
    if not isinstance(rule.same_key, bool):
        raise ConfigError(f"batch_handler(same_key={rule.same_key!r}): give True or False")
    if pool in ("thread", "asyncio"):
        maker(handler, pool, takes="a list of records")
        return
    name = getattr(handler, "__qualname__", repr(handler))
    instead = "workers='asyncio:16'" if awaits(handler) else "a number of threads such as 16"
    if pool == "process":
        raise ConfigError(
            f"batch handler {name} and workers in processes: batches are for calls that wait, and "
            f"run on threads or as coroutines; give {instead}, or compute record by record with "
            "@app.handler"
        )
    raise ConfigError(
        f"batch handler {name} and members that ask for records: they take as many at a time as "
        f"they ask for; give {instead}, or leave the handler out"
    )


_batched: WeakSet[Any] = WeakSet()


def note_batched(handler: Any) -> None:
    """Remember a batch handler, so that :func:`refuse_batched` can reject it."""
    with suppress(TypeError):  # the handler does not support weak references
        _batched.add(handler)


def refuse_batched(handler: Any) -> None:
    """Raise :class:`ConfigError` if a batch handler would be called with one record."""
    try:
        batched = handler in _batched
    except TypeError:
        return
    if batched:
        name = getattr(handler, "__qualname__", repr(handler))
        raise ConfigError(
            f"handler {name} takes several records at a time, by @app.batch_handler, and would be "
            "called with one: run the app that it belongs to (file.py:app)"
        )


def outcomes_of(result: Any, count: int) -> Sequence[Outcome]:
    """Return the outcome of each of the ``count`` records of a call, in their order.

    A list holds one answer per record: None, a verdict, or an exception. An exception in the list
    counts as if raised. Any other value applies to all records, with the meaning that it has for
    one record.

    Raises :class:`TypeError` for a list of another length, because its answers cannot be matched to
    records.
    """
    if not isinstance(result, list | tuple):
        return [outcome_of(result)] * count
    if len(result) != count:
        raise TypeError(
            f"the batch handler returned {len(result)} verdicts for {count} records: return one "
            "for each, in their order, or a single one for all"
        )
    return [outcome_of(each) for each in result]


def outcome_of(answer: Any) -> Outcome:
    """Return the outcome that one answer stands for."""
    if answer is None:
        return None
    if isinstance(answer, BaseException) and not isinstance(answer, Verdict):
        return answer
    try:
        return error_in(answer)
    except BaseException as error:  # noqa: BLE001 - user code in the answer may raise anything
        return error


def for_all(error: BaseException) -> bool:
    """Return whether the error of a call applies to each record of the call.

    Only a verdict does. Any other error does not say which record caused it.
    """
    return isinstance(error, Verdict)


def settles(outcome: Outcome) -> bool:
    """Return whether this outcome settles the record."""
    return outcome is None or isinstance(outcome, Ack)
