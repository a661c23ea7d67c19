"""Alerts have a life: findings come in, transitions go out.

`book` is pure and keeps the life of every alert in event time; `store` keeps the book in SQLite and
is the outbox that the sinks are fed from.
"""
