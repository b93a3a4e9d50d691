"""Threads that gevent or eventlet has replaced by greenlets: nothing runs on those.

The Kafka client and the owner run on threads of the system. A lock of a greenlet does not wake
them, and a queue of greenlets cannot be shared with them: an instance would stand still without a
word, and SIGTERM would not end it. What is replaced is seen at the objects themselves. Debuggers
and profilers replace some of them too, which does no harm.
"""

from __future__ import annotations

import sys

from kafka_keyshared.errors import ConfigError

WITHOUT = {
    "gevent": "monkey.patch_all(thread=False, queue=False)",
    "eventlet": "eventlet.monkey_patch(thread=False)",
}
"""By the library: how a program replaces all else that it may want to have replaced."""

NEEDED = (
    ("_thread", "allocate_lock"),
    ("_thread", "start_new_thread"),
    ("threading", "Lock"),
    ("threading", "Condition"),
    ("threading", "Event"),
    ("threading", "Thread"),
    ("queue", "SimpleQueue"),
)
"""What the threads of an instance use, by module and name."""


def refuse_green_threads(call: str) -> None:
    """Raise :class:`ConfigError` where threads, locks or queues are those of greenlets."""
    for module, name in NEEDED:
        found = getattr(sys.modules.get(module), name, None)
        library = str(getattr(found, "__module__", "")).partition(".")[0]
        if library in WITHOUT:
            raise ConfigError(
                f"{call}: {library} has replaced {module}.{name}, on which the threads of the "
                "Kafka client would wait for ever; start without monkey patching, or with "
                f"{WITHOUT[library]}"
            )
