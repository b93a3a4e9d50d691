"""Simulation of the production instance with simulated cluster, workers and time.

It has one thread and one seed. Everything that depends on chance is drawn from the seed, so that a
run can be repeated step by step. Checkers receive every event, and keep their own books.
"""
