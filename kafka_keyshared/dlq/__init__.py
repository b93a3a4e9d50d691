"""Dead letters: how a record that could not be processed is kept."""
