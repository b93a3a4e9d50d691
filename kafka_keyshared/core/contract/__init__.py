"""Values that cross the border of the core: events, commands, slices and outcomes."""
