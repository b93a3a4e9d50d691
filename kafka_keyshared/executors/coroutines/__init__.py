"""Workers on an event loop: many records at once."""
