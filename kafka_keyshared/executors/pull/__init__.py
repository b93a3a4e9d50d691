"""Workers of the user, who ask for records."""
