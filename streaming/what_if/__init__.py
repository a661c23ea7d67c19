"""What a stop, a restart or a reassignment would do: where the state comes from, how it is told."""
