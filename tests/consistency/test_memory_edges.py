"""Edges of memory."""


def test_nothing_yet() -> None:
    assert True
