"""Keys of records, own and derived, and the choice of records by key."""
