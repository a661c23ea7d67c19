"""Connections to brokers through kafka-python: who is asked, what its silence means.

The client library has no public call for replica -2, so requests are built by us and sent through
its connection manager.
"""

from __future__ import annotations

import copy
import logging
import re
import threading
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final

from kafka import errors as kafka_errors  # type: ignore[import-untyped]
from kafka.net.manager import KafkaConnectionManager  # type: ignore[import-untyped]
from kafka.net.sasl.oauth import AbstractTokenProvider  # type: ignore[import-untyped]
from kafka.net.selector import NetworkSelector  # type: ignore[import-untyped]
from tidestaff.connectors.errors import (
    AuthenticationRefusedError,
    BrokerSilentError,
    ClusterUnreachableError,
    ConnectorError,
    ControllerSilentError,
    OptionError,
    TokenError,
    UnsupportedRequestError,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tidestaff.connectors.oauth_tokens import TokenSource
    from tidestaff.consistency.model import BrokerId

# What the library has to say of connections is reported as the health of this source.
logging.getLogger("kafka").addHandler(logging.NullHandler())

_AUTHENTICATION: Final = (
    kafka_errors.SaslAuthenticationFailedError,
    kafka_errors.AuthorizationError,
)
_TOKEN: Final = "sasl_oauth_token_provider"  # noqa: S105 - a name

_KERBEROS: Final = "gssapi"
# A name or an address, with a port or not; IPv6 in brackets, or bare without a port.
_SERVER: Final = re.compile(
    r"(\[[^\s,\[\]]+\]|[^\s:,/\[\]]+)(:\d{1,5})?|[0-9A-Fa-f]*(:[0-9A-Fa-f.]*){2,}"
)
_TLS: Final = re.compile(r"\[SSL: (\w+)\]")
_EVERY_BROKER_KNOWS: Final = {
    *("ApiVersionsRequest", "FetchRequest", "ListOffsetsRequest", "MetadataRequest"),
}
_WITHOUT_THEM_SILENT: Final = {"ApiVersionsRequest", "MetadataRequest"}


class _LoggingInError(kafka_errors.SaslAuthenticationFailedError):  # type: ignore[misc]
    """The library passes its own errors on; the text is ours and holds no secret."""


class _TokenProvider(AbstractTokenProvider):  # type: ignore[misc]
    """Our source of tokens, as the library wants it."""

    def __init__(self, source: TokenSource) -> None:
        super().__init__()
        self._source = source

    def token(self) -> str:
        try:
            return self._source.token()
        except TokenError as error:
            raise _LoggingInError(error.reason) from None


class _Manager(KafkaConnectionManager):  # type: ignore[misc]
    """Every connection finds out what its broker speaks. The library holds all of them to what the
    bootstrap server spoke once: through an upgrade of the cluster that would be the old protocol
    until we are restarted, and nothing would say so."""

    def get_connection(self, *given: Any, **named: Any) -> Any:
        self.broker_version_data = None
        return super().get_connection(*given, **named)


def library_options(properties: Mapping[str, object]) -> dict[str, object]:
    """Options with what only the library's own classes can be."""
    found = dict(properties)
    if found.get("sasl_mechanism") == "GSSAPI" and find_spec(_KERBEROS) is None:
        raise OptionError(
            "sasl.mechanism",
            "is GSSAPI, for which the Python package gssapi is missing",
            "install gssapi beside tidestaff, or take another mechanism",
        )
    if _TOKEN in found:
        found[_TOKEN] = _TokenProvider(found[_TOKEN])  # type: ignore[arg-type]
    return found


def servers_of(bootstrap_servers: str) -> list[str]:
    """The brokers to ask first; an OptionError where one of them is no address."""
    servers = [each.strip() for each in bootstrap_servers.split(",") if each.strip()]
    ports = (each.rpartition(":")[2] for each in servers if not each.endswith("]"))
    if not servers or not all(map(_SERVER.fullmatch, servers)) or any(map(_is_no_port, ports)):
        raise OptionError(
            "bootstrap_servers", "is no list of host:port", "write broker-1:9092,broker-2:9092"
        )
    return servers


def _is_no_port(text: str) -> bool:
    return text.isdigit() and int(text) >= 1 << 16


class KafkaPythonClient:
    """Connects at the first question, and anew when nobody answers."""

    def __init__(
        self,
        bootstrap_servers: str,
        properties: Mapping[str, object],
        *,
        timeout_ms: int,
        pace: Callable[[], None] = lambda: None,
    ) -> None:
        self._bootstrap_servers, self.timeout_ms, self._pace = bootstrap_servers, timeout_ms, pace
        known = KafkaConnectionManager.DEFAULT_CONFIG
        for name in properties:
            if name not in known:
                raise OptionError(
                    name.replace("_", "."),
                    "is not a property of the client",
                    "take one of " + ", ".join(k.replace("_", ".") for k in sorted(known)),
                )
        self._config: dict[str, Any] = {
            "client_id": "tidestaff",
            "reconnect_backoff_max_ms": 2_000,
            "receive_message_max_bytes": 100_000_000,
            "socket_connection_setup_timeout_ms": timeout_ms,
            "socket_connection_setup_timeout_max_ms": timeout_ms,
            **library_options(properties),
            "bootstrap_servers": servers_of(bootstrap_servers),
            "request_timeout_ms": timeout_ms,
        }
        self._held: tuple[Any, Any] | None = None
        self._silent: set[BrokerId] = set()
        self._addresses: dict[BrokerId, Any] = {}
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            held, self._held = self._held, None
        if held is not None:
            net, manager = held
            net.run(_closing, manager)
            net.close()

    def manager(self) -> Any:
        with self._lock:
            if self._held is None:
                self._held = self._connected()
            return self._held[1]

    def _connected(self) -> tuple[Any, Any]:
        net = NetworkSelector(**self._config)
        manager = _Manager(net, **self._config)
        net.start()
        try:
            manager.bootstrap(self.timeout_ms)
        except BaseException as error:
            why = error
            if isinstance(error, kafka_errors.KafkaError):
                why = net.run(_refusal, manager, self.timeout_ms) or error
            net.run(_closing, manager)
            net.close()
            if isinstance(why, kafka_errors.KafkaError) or _of_kerberos(why):
                raise self._unreachable(why) from None
            raise
        return net, manager

    def _unreachable(self, error: BaseException) -> ConnectorError:
        refused = isinstance(error, _AUTHENTICATION) or _of_kerberos(error)
        kind = AuthenticationRefusedError if refused else ClusterUnreachableError
        return kind(self._bootstrap_servers, _cause(error))

    def _brokers(self, turn: int = 0) -> list[BrokerId]:
        """Beginning with the one whose turn it is. Who did not answer the last time comes last: it
        may cost a whole timeout again."""
        brokers = sorted(each.node_id for each in self.manager().cluster.brokers())
        first = turn % max(len(brokers), 1)
        return sorted(brokers[first:] + brokers[:first], key=self._silent.__contains__)

    def ask_controller(self, request: Any, name: str) -> Any:
        """One broker passes it on. Silence is not this broker's, so no other is asked."""
        for broker in self._brokers()[:1]:
            try:
                return self.ask(request, broker)
            except BrokerSilentError:
                self._silent.discard(broker)
        raise ControllerSilentError(name)

    def ask_any(self, request: Any, turn: int = 0) -> Any:
        """From the broker whose turn it is, or the next that answers."""
        failed: ConnectorError | None = None
        for broker in self._brokers(turn):
            try:
                # Sending gives a request its version; the next broker may speak another.
                return self.ask(copy.deepcopy(request), broker)
            except (BrokerSilentError, AuthenticationRefusedError) as error:
                failed = error
        # Everybody may have moved: begin with the bootstrap servers again.
        self.close()
        if isinstance(failed, AuthenticationRefusedError):
            raise failed
        cause = failed.cause if isinstance(failed, BrokerSilentError) else "none is known"
        raise ClusterUnreachableError(self._bootstrap_servers, cause)

    def ask(self, request: Any, broker: BrokerId) -> Any:
        manager = self.manager()
        self._pace()

        async def send() -> Any:
            future = manager.send(request, node_id=broker, request_timeout_ms=self.timeout_ms)
            return await manager.wait_for(future, self.timeout_ms + 500)

        try:
            answer = manager.run(send)
        except kafka_errors.IncompatibleBrokerVersion:
            raise self._not_known(manager, broker, request.name) from None
        except _AUTHENTICATION as error:
            # The manager would remember it for ever; whoever mends the ACL need not restart us.
            manager._auth_failures.pop(broker, None)  # noqa: SLF001
            raise AuthenticationRefusedError(f"broker {broker}", _cause(error)) from None
        except kafka_errors.KafkaError as error:
            self._silent.add(broker)
            raise BrokerSilentError(broker, type(error).__name__) from None
        except Exception as error:
            if not _of_kerberos(error):
                raise
            raise AuthenticationRefusedError(f"broker {broker}", _cause(error)) from None
        self._silent.discard(broker)
        return answer

    def _not_known(self, manager: Any, broker: BrokerId, name: str) -> ConnectorError:
        """What every broker knows, this one has denied: its answer on versions was damaged. The
        next connection asks for it anew."""
        if name in _EVERY_BROKER_KNOWS:
            manager.run(_hanging_up, manager, broker)
        if name not in _WITHOUT_THEM_SILENT:
            return UnsupportedRequestError(name)
        self._silent.add(broker)
        return BrokerSilentError(broker, f"it says it does not know {name}")


async def _refusal(manager: Any, timeout_ms: int) -> Exception | None:
    """Why no bootstrap server lets us in. The manager itself tries until its time is over, and then
    says no more than that it is."""
    for server in manager.cluster.bootstrap_brokers():
        manager.reset_backoff(server.node_id)
        try:
            connection = manager.get_connection(
                server.node_id, timeout_ms=timeout_ms, refresh_metadata_on_err=False
            )
            await connection
        except kafka_errors.KafkaError as error:
            if isinstance(error, _AUTHENTICATION) or _TLS.search(str(error)):
                return error  # type: ignore[no-any-return]
            # It has told its versions and then hung up; the library does not read its last words.
            if connection.broker_version_data is not None and manager.config["sasl_mechanism"]:
                return _LoggingInError("it hangs up while we log in")
        except Exception as error:
            if not _of_kerberos(error):
                raise
            return error
    return None


def _of_kerberos(error: BaseException) -> bool:
    """Whether there is no ticket, or none that counts: the library passes such errors on."""
    return type(error).__module__.partition(".")[0] == _KERBEROS


def _cause(error: BaseException) -> str:
    """Of the library's texts only what cannot hold a secret."""
    if _of_kerberos(error):
        return f"Kerberos: {type(error).__name__}"
    if isinstance(error, _LoggingInError):
        return str(error.args[0])
    tls = _TLS.search(str(error))
    return f"TLS: {tls[1]}" if tls else type(error).__name__


async def _closing(manager: Any) -> None:
    manager.close()


async def _hanging_up(manager: Any, broker: BrokerId) -> None:
    manager.close(broker)
