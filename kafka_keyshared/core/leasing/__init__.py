"""Rules that decide which waiting records a worker is leased."""
