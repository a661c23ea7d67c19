"""The search itself: what it has kept must outlive a search that could not run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.fuzz import __main__ as search
from tests.fuzz.corpus import kept

if TYPE_CHECKING:
    from collections.abc import Sequence


def test_a_search_that_breaks_off_fails_and_keeps_the_corpus(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    written: list[set[bytes]] = []

    def keep(_: str, inputs: Sequence[bytes]) -> None:
        written.append(set(inputs))

    monkeypatch.setattr(search, "_run", lambda *_: 1)
    monkeypatch.setattr(search, "keep", keep)
    before = set(kept("znodes"))
    assert before
    assert not search.searched("znodes", 1)
    assert written == [before]


def test_without_atheris_nothing_is_searched_and_the_remedy_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    monkeypatch.setattr("sys.argv", ["fuzz", "znodes"])
    monkeypatch.setattr(search, "searched", lambda *_: pytest.fail("it was searched"))
    with pytest.raises(SystemExit) as ended:
        search.main()
    assert ended.value.code == 2
    assert "make fuzz" in capsys.readouterr().err
