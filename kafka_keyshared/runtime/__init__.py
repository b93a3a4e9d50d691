"""The thin runtime that owns the world: the client, the clock, threads, signals, the log."""
