"""Workers that join and leave, and slots that move between workers."""
