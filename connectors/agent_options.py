"""Options of the brokers' collector that are about agents."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Final, NamedTuple

from tidestaff.connectors.agent_client import AgentClient, AgentUrls, parse_agents
from tidestaff.connectors.agent_readings import Agents
from tidestaff.connectors.errors import OptionError
from tidestaff.connectors.pacing import Rest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidestaff.connectors.broker_options import BrokerOptions

AGENTS: Final = "agents"
_TIMEOUT: Final = "agents_timeout_ms"
_CA: Final = "agents_ca"
_TOKEN: Final = "agents_token"  # noqa: S105 - the name of it
_TIMEOUT_MS: Final = 3_000


class AgentOptions(NamedTuple):
    """Where agents are, and who asks them. The client holds the token and does not show it."""

    urls: AgentUrls
    client: AgentClient

    def agents(
        self,
        hosts: Callable[[], Mapping[int, str]],
        options: BrokerOptions,
        now_ms: Callable[[], int],
    ) -> Agents:
        chance = random.Random()  # noqa: S311 - spreads load, keeps no secret
        rest: Rest[int] = Rest(options.backoff_ms, options.backoff_max_ms, chance)
        return Agents(self.urls, self.client, hosts, rest, now_ms)


def agent_options(
    options: Mapping[str, object], secrets: Mapping[str, str]
) -> tuple[AgentOptions | None, dict[str, object], dict[str, str]]:
    """What is said of agents, and the options and secrets that are about something else."""
    rest, hidden = dict(options), dict(secrets)
    agents, ca = rest.pop(AGENTS, None), rest.pop(_CA, None)
    timeout_ms = rest.pop(_TIMEOUT, _TIMEOUT_MS)
    token = hidden.pop(_TOKEN, None)
    if _TOKEN in rest:
        raise OptionError(_TOKEN, "is a secret", "give it under secrets")
    if agents is None:
        for name in (_CA, _TIMEOUT, _TOKEN):
            if name in {**options, **secrets}:
                raise OptionError(name, "is of no use without agents", "name the agents, too")
        return None, rest, hidden
    if isinstance(timeout_ms, bool) or not isinstance(timeout_ms, int) or timeout_ms < 1:
        raise OptionError(_TIMEOUT, "is no whole number", "give 1 or more")
    if token is not None and not (token.isascii() and token.isprintable()):
        raise OptionError(
            _TOKEN, "holds what no header can carry", "make one of letters and digits"
        )
    client = AgentClient(
        token=token, timeout_ms=timeout_ms, ca_file=None if ca is None else str(ca)
    )
    return AgentOptions(parse_agents(str(agents)), client), rest, hidden
