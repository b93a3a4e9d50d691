"""What concerns the process as a whole: forks, signals, whose code runs, threads left behind."""
