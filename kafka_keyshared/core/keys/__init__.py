"""Keys of records, own and derived, and record selection by key."""
