"""A simulated cluster and the monitor that watches it."""
