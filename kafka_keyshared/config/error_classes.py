"""Classes of errors and their retries, as the option ``retry_on`` names them."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from importlib import import_module
from typing import Any

import msgspec

from kafka_keyshared.config.options import Backoff, Options, RetryOptions
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Verdict

Classes = dict[str, type[BaseException]]
"""Exception classes by their import paths."""


def path_of(error_class: type[BaseException]) -> str:
    """Return the import path of a class: ``ValueError``, ``requests.exceptions.HTTPError``."""
    name = error_class.__qualname__
    return name if error_class.__module__ == "builtins" else f"{error_class.__module__}.{name}"


def by_path(given: Any) -> tuple[dict[str, Any], Classes]:
    """Return ``retry_on`` with an import path for each class, and the classes that were given.

    Raises :class:`ConfigError` for a key that is no exception class, and for a class given twice.
    """
    if not isinstance(given, Mapping):
        raise ConfigError(
            f"retry_on={given!r:.80}: give a mapping from exception classes to Backoff(...) or "
            "'never'"
        )
    named: dict[str, Any] = {}
    classes: Classes = {}
    for key, rule in given.items():
        for each in key if isinstance(key, tuple) else (key,):
            if isinstance(each, type) and issubclass(each, BaseException):
                path = path_of(each)
                classes[path] = each
            elif isinstance(each, str):
                path = each
            else:
                raise ConfigError(
                    f"retry_on: {each!r:.80} is not an exception class; give a class, a tuple of "
                    "classes, or an import path such as 'requests.ConnectionError'"
                )
            if path in named:
                raise ConfigError(f"retry_on has {path} twice; leave one of the two out")
            # As a table, so that its values are checked like those of a file.
            named[path] = _as_table(rule) if isinstance(rule, Backoff) else rule
    return named, classes


def _as_table(rule: Backoff) -> dict[str, Any]:
    given = msgspec.structs.asdict(rule)
    return {name: value for name, value in given.items() if value is not None}


def retry_policies(options: Options, given: Classes) -> dict[type[BaseException], RetryPolicy]:
    """Return the retry policy of each class of ``retry_on``.

    ``given`` are the classes that need no import. If two paths name one class, the later one
    counts, which is the one of a file over an app's own. Raises :class:`ConfigError` for a path
    that names no exception class, and for a back-off that cannot be.
    """
    found: dict[type[BaseException], RetryPolicy] = {}
    for path, rule in options.retry_on.items():
        error_class = given.get(path) or _class_at(path)
        if issubclass(error_class, Verdict):
            raise ConfigError(
                f"retry_on: {path} is a verdict, which says itself what follows; leave it out"
            )
        found.pop(error_class, None)
        found[error_class] = _policy(path, rule, options.retry)
    return found


def _policy(path: str, rule: Backoff | str, retry: RetryOptions) -> RetryPolicy:
    if isinstance(rule, str):
        rule = Backoff(attempts=1)
    if rule.forever and rule.attempts is not None:
        raise ConfigError(
            f"retry_on: {path} has attempts={rule.attempts} and is retried forever; leave one of "
            "the two out"
        )
    first = retry.backoff if rule.first is None else rule.first
    most = max(first, retry.backoff_max) if rule.max is None else rule.max
    if most < first:
        raise ConfigError(
            f"retry_on: {path} has a maximum delay of {most:g} s, and a first delay of {first:g} s;"
            " give max a value of at least that"
        )
    return RetryPolicy(
        attempts=rule.attempts or retry.attempts,
        backoff=first,
        factor=retry.factor if rule.factor is None else rule.factor,
        backoff_max=most,
        jitter=retry.jitter if rule.jitter is None else rule.jitter,
        forever=rule.forever,
    )


def _class_at(path: str) -> type[BaseException]:
    """Import the class of a path: ``package.module.Class`` or ``package.module:Class``."""
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        found = getattr(import_module(module) if module else builtins, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"retry_on: {path!r} cannot be imported ({type(error).__name__}: {error}); give the "
            "path of an exception class, such as 'ConnectionError' or 'requests.ConnectionError'"
        ) from error
    if not (isinstance(found, type) and issubclass(found, BaseException)):
        raise ConfigError(
            f"retry_on: {path!r} is {found!r:.80}, and not an exception class; give the path of one"
        )
    return found
