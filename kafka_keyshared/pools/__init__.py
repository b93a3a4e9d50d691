"""The pools that run handlers: their port, threads, and members that ask for records."""
