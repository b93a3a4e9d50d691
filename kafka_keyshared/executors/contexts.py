"""Isolation of context variables (``contextvars``) between handler calls.

A variable that a handler sets is visible in that call and below it, and in no other call. Values
that the program has set before ``run()`` are seen in every call. So are values that the constructor
of a handler class sets.

A copy of a context shares the values. Two kinds of values are changed in place and are therefore
copied as well: the context of ``decimal`` (``getcontext().prec = 5``) and the scopes of the Sentry
SDK (``set_tag``). Sentry's own integrations fork a scope for each task in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextvars import Context, ContextVar
from functools import partial
from typing import Any, TypeAlias

from kafka_keyshared.executors.handling.outcome_mapping import error_in

CHANGED_IN_PLACE = {("decimal", "Context"): "copy", ("sentry_sdk.scope", "Scope"): "fork"}
"""By module and name of a class: the method that returns a copy of a value."""


class Contexts:
    """Makes contexts for calls, each a copy of ``base`` as it was at construction.

    ``new`` returns one. ``shares_nothing`` is False if the base has values that are changed in
    place. A context that looks unchanged may then have changed all the same.
    """

    __slots__ = ("_base", "_copied", "new")

    def __init__(self, base: Context) -> None:
        # No code runs in it, so it never changes.
        self._base = base.copy()
        self._copied: list[tuple[ContextVar[Any], Callable[[], Any]]] = [
            (variable, copy)
            for variable, value in base.items()
            if (copy := _copier(value)) is not None
        ]
        self.new: Callable[[], Context] = self._with_copies if self._copied else self._base.copy

    @property
    def shares_nothing(self) -> bool:
        """Return whether all values of the base may be shared between calls."""
        return not self._copied

    def call_each(self, handle: Callable[[Any], Any], todo: Iterable[Any]) -> Raised | None:
        """Call ``handle`` with each record; return the first whose call raised, and the exception.

        Return None when all calls are done. Calls share a context until one of them changes it: the
        comparison costs a third of a new context.
        """
        if self._copied:
            each = partial(_in_new, self.new, handle)
            return _in_one(each, todo, self._base, self._base)
        while True:
            ended = (context := self.new()).run(_in_one, handle, todo, context, self._base)
            if ended is not CHANGED:
                try:
                    return ended
                finally:
                    # The exception's traceback reaches this frame. If the frame kept the exception,
                    # only the cyclic collector could free both, and the records in the frames.
                    del ended

    def _with_copies(self) -> Context:
        context = self._base.copy()
        for variable, copy in self._copied:
            context.run(variable.set, copy())
        return context


Raised: TypeAlias = tuple[Any, BaseException]
"""A record, and the exception that its handler call raised."""

CHANGED: Raised = (None, BaseException("a call has changed its context"))


def _in_one(
    handle: Callable[[Any], Any], todo: Iterable[Any], context: Context, base: Context
) -> Raised | None:
    """Call within ``context`` until a call has changed it."""
    record: Any = None
    try:
        for record in todo:
            if (result := handle(record)) is not None and (error := error_in(result)) is not None:
                return record, error
            try:
                if context != base:
                    return CHANGED
            except Exception:  # noqa: BLE001 - values that cannot be compared are not the same
                return CHANGED
    except BaseException as error:  # noqa: BLE001 - SystemExit included: a failed attempt
        return record, error
    return None


def _in_new(new: Callable[[], Context], handle: Callable[[Any], Any], record: Any) -> Any:
    return new().run(handle, record)


def _copier(value: object) -> Callable[[], Any] | None:
    """Return the method that copies a value which is changed in place; None for any other."""
    for each in type(value).__mro__:
        if (name := CHANGED_IN_PLACE.get((each.__module__, each.__name__))) is not None:
            found: Callable[[], Any] | None = getattr(value, name, None)
            return found
    return None
