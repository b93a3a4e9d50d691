"""Workers in the thread of the caller."""
