"""Systems of ``bench compare``, each a function that runs a job.

The job is a :class:`~kafka_keyshared.lab.bench.workloads.BenchJob`. Each system is imported only
for its own run, so that it needs its own packages and no other's.
"""
