"""The kernel: protocol actions as pure functions, their exhaustive search, and formal traces."""
