"""Refusal to run on threads that gevent or eventlet replaced by greenlets.

The Kafka client and the owner run on system threads. A greenlet lock does not wake them, and a
greenlet queue cannot be shared with them. An instance would silently stand still, and SIGTERM would
not end it. Replacements are detected at the objects themselves. Debuggers and profilers replace
some of them too, which is harmless.
"""

from __future__ import annotations

import sys

from kafka_keyshared.errors import ConfigError

WITHOUT = {
    "gevent": "monkey.patch_all(thread=False, queue=False)",
    "eventlet": "eventlet.monkey_patch(thread=False)",
}
"""How a program patches everything else that it may need, by library."""

NEEDED = (
    ("_thread", "allocate_lock"),
    ("_thread", "start_new_thread"),
    ("threading", "Lock"),
    ("threading", "Condition"),
    ("threading", "Event"),
    ("threading", "Thread"),
    ("queue", "SimpleQueue"),
)
"""The objects that the threads of an instance use, by module and name."""


def refuse_green_threads(call: str) -> None:
    """Raise :class:`ConfigError` where threads, locks or queues are greenlet versions."""
    for module, name in NEEDED:
        found = getattr(sys.modules.get(module), name, None)
        library = str(getattr(found, "__module__", "")).partition(".")[0]
        if library in WITHOUT:
            raise ConfigError(
                f"{call}: {library} has replaced {module}.{name}, on which the threads of the "
                "Kafka client would wait for ever; start without monkey patching, or with "
                f"{WITHOUT[library]}"
            )
