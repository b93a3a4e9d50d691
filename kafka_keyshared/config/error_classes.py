"""Classes of errors, as the options ``retry_on`` and ``wait_on`` name them."""

from __future__ import annotations

import builtins
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any, TypeGuard

import msgspec

from kafka_keyshared.config.options import Backoff, Options, RetryOptions
from kafka_keyshared.core.contract.retry_policy import RetryPolicy
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.model import Verdict

Classes = dict[str, type[BaseException]]
"""Exception classes by their import paths."""


def is_error_class(given: object) -> TypeGuard[type[BaseException]]:
    """Return whether this is an exception class."""
    return isinstance(given, type) and issubclass(given, BaseException)


def path_of(error_class: type[BaseException]) -> str:
    """Return the import path of a class: ``ValueError``, ``requests.exceptions.HTTPError``."""
    name = error_class.__qualname__
    return name if error_class.__module__ == "builtins" else f"{error_class.__module__}.{name}"


def by_path(values: Mapping[str, Any]) -> tuple[dict[str, Any], Classes]:
    """Return options with an import path for each exception class, and the classes in them.

    Raises :class:`ConfigError` for what is no exception class, and for a class given twice.
    """
    found, classes = dict(values), Classes()
    if "retry_on" in found:
        given = found["retry_on"]
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"retry_on={given!r:.80}: give a mapping from exception classes to Backoff(...) or "
                "'never'"
            )
        rules: dict[str, Any] = {}
        for key, rule in given.items():
            for path in _paths("retry_on", key, rules, classes):
                # As a table, so that its values are checked like those of a file.
                rules[path] = _as_table(rule) if isinstance(rule, Backoff) else rule
        found["retry_on"] = rules
    if "wait_on" in found:
        given = found["wait_on"]
        if isinstance(given, str) or not isinstance(given, Sequence):
            raise ConfigError(
                f"wait_on={given!r:.80}: give a list of exception classes, or of their import paths"
            )
        paths: dict[str, None] = {}
        for each in given:
            paths |= dict.fromkeys(_paths("wait_on", each, paths, classes))
        found["wait_on"] = list(paths)
    return found, classes


def _paths(option: str, key: object, known: Collection[str], classes: Classes) -> Iterator[str]:
    """Yield the import paths of a class, of a tuple of classes, or of text."""
    for each in key if isinstance(key, tuple) else (key,):
        if is_error_class(each):
            path = path_of(each)
            classes[path] = each
        elif isinstance(each, str):
            path = each
        else:
            raise ConfigError(
                f"{option}: {each!r:.80} is not an exception class; give a class, a tuple of "
                "classes, or an import path such as 'requests.ConnectionError'"
            )
        if path in known:
            raise ConfigError(f"{option} has {path} twice; leave one of the two out")
        yield path


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
        error_class = _class("retry_on", path, given)
        found.pop(error_class, None)
        found[error_class] = _policy(path, rule, options.retry)
    return found


def waited_classes(options: Options, given: Classes) -> tuple[type[BaseException], ...]:
    """Return the classes of ``wait_on``; ``given`` are those that need no import.

    Raises :class:`ConfigError` for a path that names no exception class.
    """
    return tuple(_class("wait_on", path, given) for path in options.wait_on)


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


def _class(option: str, path: str, given: Classes) -> type[BaseException]:
    found = given.get(path) or _class_at(option, path)
    if issubclass(found, Verdict):
        raise ConfigError(
            f"{option}: {path} is a verdict, which says itself what follows; leave it out"
        )
    return found


def _class_at(option: str, path: str) -> type[BaseException]:
    """Import the class of a path: ``package.module.Class`` or ``package.module:Class``."""
    module, _, name = path.replace(":", ".").rpartition(".")
    try:
        found = getattr(import_module(module) if module else builtins, name)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(
            f"{option}: {path!r} cannot be imported ({type(error).__name__}: {error}); give the "
            "path of an exception class, such as 'ConnectionError' or 'requests.ConnectionError'"
        ) from error
    if not is_error_class(found):
        raise ConfigError(
            f"{option}: {path!r} is {found!r:.80}, and not an exception class; give the path of one"
        )
    return found
