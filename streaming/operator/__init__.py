"""The stateful operator: rows in, findings out, the monitor's memory in Spark's state store.

`judging.judge` is the way in for Spark; everything else here runs without it.
"""
