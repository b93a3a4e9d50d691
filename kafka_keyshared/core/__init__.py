"""The pure core: events in, commands out.

Nothing in this folder starts a thread, reads a clock, draws a random number, logs, or does I/O.
Time arrives as an argument, jitter inside the events that need it, and everything that leaves is a
value. One thread calls it, so it has no lock.

What can happen stands in :mod:`kafka_keyshared.core.contract.events`, what follows from it in
:mod:`kafka_keyshared.core.contract.commands`; which module decides what,
docs/internals/reading-order.md says.
"""
