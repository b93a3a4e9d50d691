"""Worker pools that run handlers: threads, event loops, processes, pull members."""
