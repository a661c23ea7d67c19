"""Live updates: a page that is open is told when there is something new, and asks for it."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from tidestaff.streaming.web.stores import Stores

MOST_LISTENERS: Final = 100
_LOOK_S: Final = 0.5
_HEARTBEAT_S: Final = 10.0


class Listeners:
    """The pages that are open."""

    def __init__(self, stores: Stores) -> None:
        self._stores = stores
        self.count = 0
        self.ending = False

    @property
    def full(self) -> bool:
        return self.count >= MOST_LISTENERS

    async def stream(self, gone: Callable[[], Awaitable[bool]]) -> AsyncIterator[str]:
        """`change` whenever a store or the job has changed; a comment now and then, so that a dead
        connection is noticed."""
        self.count += 1
        try:
            yield "retry: 2000\n\n"
            told, quiet_s = None, 0.0
            while not self.ending and not await gone():
                running = self._stores.job() is not None
                now = (self._stores.version(), running)
                if now != told:
                    told, quiet_s = now, 0.0
                    data = json.dumps({"version": now[0], "running": running})
                    yield f"event: change\ndata: {data}\n\n"
                elif quiet_s >= _HEARTBEAT_S:
                    quiet_s = 0.0
                    yield ": still here\n\n"
                await asyncio.sleep(_LOOK_S)
                quiet_s += _LOOK_S
        finally:
            self.count -= 1
