"""Workers that have a thread each."""
