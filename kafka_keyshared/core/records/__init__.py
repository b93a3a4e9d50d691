"""Records in memory: contents as fetched, lane identity, queues and the window."""
