"""Contents of replicas, read where they are and compared by `consistency.comparison`."""
