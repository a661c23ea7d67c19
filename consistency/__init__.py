"""Kafka's replication rules as pure functions. Standard library only: no clock, no I/O, no
Spark."""
