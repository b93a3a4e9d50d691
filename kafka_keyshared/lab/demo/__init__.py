"""The demo: a year of real flights through a key-shared consumer.

The judge checks every record. ``data`` is the input, ``flights`` the handler. ``expected`` computes
the answer without this package's dispatch code.
"""
