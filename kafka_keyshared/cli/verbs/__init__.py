"""What each verb takes: its options and its help. What it does stands beside this folder."""
