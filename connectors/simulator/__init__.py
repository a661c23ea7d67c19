"""A simulated cluster: a second reading of Kafka's replication, independent of the rules."""
