"""The entry of the core: events in, commands out."""
