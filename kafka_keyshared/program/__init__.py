"""The program that we run in: its forks, signals and imports, whose code runs, threads left behind.

It runs no workers. What does stands in :mod:`kafka_keyshared.pools`, and what crosses to a worker
in :mod:`kafka_keyshared.core.slices`.
"""
