"""Dead letters: storage and replay of records that could not be processed."""
