"""What concerns the process as a whole: forks, signals, whose code runs, threads left behind.

It runs no workers. What does stands in :mod:`kafka_keyshared.pools`, and what crosses to a worker
in :mod:`kafka_keyshared.core.slices`.
"""
