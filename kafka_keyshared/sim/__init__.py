"""A simulation of everything: the production instance against a made-up cluster, workers and time.

One thread and one seed: whatever could go one way or the other is drawn from the seed, so that a
run can be had again, step by step. What happened is told to checkers, which keep their own books.
"""
