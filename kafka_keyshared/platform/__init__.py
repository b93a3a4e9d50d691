"""The host program: its forks, signals, imports, code and abandoned threads.

It runs no workers. Those are in :mod:`kafka_keyshared.executors`, and the values passed to a worker
are in :mod:`kafka_keyshared.core.contract.slices`.
"""
