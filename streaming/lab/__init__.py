"""A real cluster to learn and to test on: brokers as processes on this machine."""
