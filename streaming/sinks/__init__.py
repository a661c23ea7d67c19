"""Where alerts go. Each sink is idempotent: what it is given twice it has once."""
