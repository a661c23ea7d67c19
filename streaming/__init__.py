"""The streaming job and the command line. Nothing imports this package."""
