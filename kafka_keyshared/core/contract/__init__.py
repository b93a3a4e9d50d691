"""Values at the border of the core, such as events and commands."""
