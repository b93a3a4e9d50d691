"""The systems of ``bench compare``, each as a function that runs a :class:`~..workloads.Job`.

None of them is imported before its own run, so that a system needs its own packages and no other's.
"""
