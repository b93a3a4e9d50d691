"""The rules of an app for classes of errors."""

from __future__ import annotations

from itertools import combinations

from kafka_keyshared.config import Options
from kafka_keyshared.config.error_classes import (
    Classes,
    is_error_class,
    path_of,
    retry_policies,
    waited_classes,
)
from kafka_keyshared.errors import ConfigError
from kafka_keyshared.executors.handling.failure import ErrorRules


def error_rules(
    options: Options, dead_letter_on: tuple[type[BaseException], ...], classes: Classes
) -> ErrorRules:
    """Return the rules for classes of errors; ``classes`` are those that were given in Python.

    Raises :class:`ConfigError` for what is no exception class, and for a class with two rules.
    Refuses ``dead_letter_on`` where order is required: later records would go on.
    """
    if not (isinstance(dead_letter_on, tuple) and all(map(is_error_class, dead_letter_on))):
        raise ConfigError(
            f"dead_letter_on={dead_letter_on!r:.80}: give a tuple of exception classes, such as "
            "(ValueError,)"
        )
    retry_on, wait_on = retry_policies(options, classes), waited_classes(options, classes)
    rules = {"dead_letter_on": dead_letter_on, "retry_on": retry_on, "wait_on": wait_on}
    for (one, some), (other, others) in combinations(rules.items(), 2):
        if twice := [path_of(each) for each in some if each in others]:
            raise ConfigError(
                f"{one} and {other} both have {', '.join(twice)}; leave it out of one"
            )
    if dead_letter_on and options.dlq is not False and options.routing == "exclusive":
        raise ConfigError(
            f"dead_letter_on={tuple(each.__name__ for each in dead_letter_on)} goes on behind a "
            "record that was not done, and the routing 'exclusive' requires order; leave it out, "
            "and such a record blocks when its attempts are used up"
        )
    return ErrorRules(dead_letter_on, retry_on, options.retry.attempts, wait_on)
