"""All errors that a user of the package can get.

Each message states the problem, its place and the remedy, so it can be shown as it is.
``exit_code`` is the exit status of the command line for the error: 0 ok, 1 failure, 2 usage, 3
unhealthy.
"""

from __future__ import annotations


class KeySharedError(Exception):
    """Base of all errors that this package raises on purpose."""

    exit_code = 1


class ConfigError(KeySharedError):
    """A setting, an argument or a handler is refused at start; nothing has been consumed."""

    exit_code = 2


class BrokerUnavailableError(KeySharedError):
    """No broker answered at the configured address within the time allowed."""


class TopicMissingError(ConfigError):
    """A requested topic does not exist on the cluster."""


class MissingPartError(KeySharedError):
    """A requirement outside Python is missing (Java, Maven, the Kafka jars)."""


class LeaseOverError(KeySharedError):
    """A pull member reported on a record that it no longer holds."""


class InvariantError(KeySharedError):
    """A rule of the contract was found broken; the instance stops without committing.

    It is raised with ``raise``, never by ``assert``, so that ``python -O`` keeps it.
    """
