"""Edges of forecast."""


def test_nothing_yet() -> None:
    assert True
