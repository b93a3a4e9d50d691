"""Workers that have a process each, and what crosses to it."""
