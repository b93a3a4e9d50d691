"""The entry points of a program: ``KeyShared`` and ``split``."""
