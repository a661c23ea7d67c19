"""Agents beside log directories, each behind a port of its own."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tidestaff.connectors.agent_digester import BYTES_A_SECOND, Digester
from tidestaff.connectors.agent_server import Agent, AgentServer, Listen
from tidestaff.connectors.log_directories import LogDirectories

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def agents(
    brokers: list[Path], bytes_a_second: float = BYTES_A_SECOND, whole_s: float = 60.0
) -> Iterator[str]:
    servers = []
    try:
        for number, path in enumerate(brokers, 1):
            directories = LogDirectories([str(path)], lambda: 1)
            directories.read(frozenset(), log_ends=False)
            digester = Digester(directories.place_of, bytes_a_second=bytes_a_second)
            agent = Agent(number, directories, lambda: 1, digester)
            servers.append(AgentServer(Listen("127.0.0.1", 0), agent, whole_s=whole_s))
            threading.Thread(target=servers[-1].serve_forever, daemon=True).start()
        yield ",".join(
            f"{number}=http://127.0.0.1:{server.server_port}"
            for number, server in enumerate(servers, 1)
        )
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
