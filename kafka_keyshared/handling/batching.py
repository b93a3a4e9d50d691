"""Handlers that take several records at a time: what they may be, and what their answers mean."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NamedTuple, TypeAlias
from weakref import WeakSet

from kafka_keyshared.errors import ConfigError
from kafka_keyshared.handling.handlers import awaits, maker
from kafka_keyshared.handling.verdicts import error_in
from kafka_keyshared.model import Ack, Verdict

Outcome: TypeAlias = BaseException | None
"""What becomes of one record of a call: None for done, or what its handler as good as raised."""


class BatchRule(NamedTuple):
    """When a worker calls its handler, and with what.

    With ``size`` records, or as soon as the first of them has waited for ``wait`` seconds. With
    ``same_key`` the records of a call have one key, and each key is counted and waited for alone.
    """

    size: int
    wait: float = 0.0
    same_key: bool = False


def check_batches(handler: Any, rule: BatchRule, pool: str) -> None:
    """Raise :class:`ConfigError` for what cannot be called with batches by such a rule."""
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
    """Note that a handler takes several records, for whoever names it in a place for one."""
    with suppress(TypeError):  # what nothing may refer to weakly
        _batched.add(handler)


def refuse_batched(handler: Any) -> None:
    """Raise :class:`ConfigError` for a handler of several records, where it would be given one."""
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
    """Return what the answer of a call means for each of its ``count`` records, in their order.

    A list is one answer for each: None, a verdict, or an exception that it is as good as raised.
    Anything else means what it means for one record, for all of them. Raises :class:`TypeError` for
    a list of another length: nobody could say whose answers those are.
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
    """Return what an answer means for a record."""
    if answer is None:
        return None
    if isinstance(answer, BaseException) and not isinstance(answer, Verdict):
        return answer
    try:
        return error_in(answer)
    except BaseException as error:  # noqa: BLE001 - the answer is an object that cannot be looked at
        return error


def for_all(error: BaseException) -> bool:
    """Say whether what a call raised is a verdict on each of its records; else on none of them."""
    return isinstance(error, Verdict)


def settles(outcome: Outcome) -> bool:
    """Say whether a record is done with it."""
    return outcome is None or isinstance(outcome, Ack)
