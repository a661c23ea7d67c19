"""What a connector could not do: what failed, where, and what to do next."""

from __future__ import annotations


class ConnectorError(Exception):
    """Base of every error a connector raises on input; anything else is a bug of ours.

    `reason` and `remedy` are told apart, because the health of a source is reported with both.
    """

    retriable = False

    def __init__(self, reason: str, remedy: str) -> None:
        super().__init__(f"{reason}: {remedy}")
        self.reason, self.remedy = reason, remedy


class OptionError(ConnectorError):
    """An option that is missing, unknown or wrong. Its value is not told: it may be a secret."""

    def __init__(self, name: str, found: str, remedy: str) -> None:
        super().__init__(f"option {name} {found}", remedy)
        self.name, self.found = name, found


class ClusterUnreachableError(ConnectorError):
    """No broker answers at all."""

    retriable = True

    def __init__(self, bootstrap_servers: str, cause: str) -> None:
        super().__init__(
            f"no broker of {bootstrap_servers} answers ({cause})",
            "see that one of them is up and can be reached from here, and that "
            "security.protocol is the one of that listener",
        )
        self.bootstrap_servers, self.cause = bootstrap_servers, cause


class BrokerSilentError(ConnectorError):
    """One broker does not answer; the others may."""

    retriable = True

    def __init__(self, broker: int, cause: str) -> None:
        super().__init__(
            f"broker {broker} does not answer ({cause})",
            f"see that broker {broker} is up and that its advertised listener can be reached "
            "from here",
        )
        self.broker, self.cause = broker, cause


class ControllerSilentError(ConnectorError):
    """A broker passed a question on to the controller, and nothing came back."""

    retriable = True

    def __init__(self, request: str) -> None:
        super().__init__(
            f"the controller does not answer {request}",
            "see which node leads the quorum and whether it is up",
        )
        self.request = request


class NotAuthorizedError(ConnectorError):
    """The cluster refuses a request for want of an ACL, which is named."""

    retriable = True

    def __init__(self, operation: str, resource: str, name: str) -> None:
        super().__init__(
            f"not authorised: ACL {operation} on {resource} {name} is missing",
            f"kafka-acls --add --allow-principal User:... --operation {operation} "
            + ("--cluster" if resource == "cluster" else f"--{resource} {name}"),
        )
        self.operation, self.resource, self.name = operation, resource, name


class AuthenticationRefusedError(ConnectorError):
    """The credentials are not accepted."""

    retriable = True

    def __init__(self, place: str, cause: str) -> None:
        super().__init__(
            f"{place} refuses the credentials ({cause})",
            "compare security.protocol, sasl.mechanism and the credentials with the listener's",
        )
        self.place, self.cause = place, cause


class MetadataNotOursError(ConnectorError):
    """What was read is understood, and is not the state of the cluster that is watched."""

    retriable = True


class UnsupportedRequestError(ConnectorError):
    """The broker is too old for a request."""

    def __init__(self, request: str) -> None:
        super().__init__(f"the broker does not know {request}", "what it tells stays unknown")
        self.request = request


class AnswerMalformedError(ConnectorError):
    """A broker's answer that lacks what the protocol says it has."""

    retriable = True

    def __init__(self, answer: str, cause: str) -> None:
        super().__init__(
            f"{answer} makes no sense ({cause})",
            "see that a broker listens there, and what stands between",
        )
        self.answer, self.cause = answer, cause


class VersionNotCoveredError(ConnectorError):
    """What the brokers say they are, under the options that were given, is nothing there are rules
    for. It may be another answer once they are upgraded."""

    retriable = True


class PropertiesFileError(ConnectorError):
    """A file of client properties that cannot be used; values are never told."""

    def __init__(self, place: str, found: str, remedy: str) -> None:
        super().__init__(f"{place}: {found}", remedy)
        self.place, self.found = place, found


class TokenError(ConnectorError):
    """No token for SASL/OAUTHBEARER could be had."""

    retriable = True

    def __init__(self, place: str, cause: str) -> None:
        super().__init__(
            f"no token from {place} ({cause})",
            "see that it can be reached from here and takes these credentials",
        )
        self.place, self.cause = place, cause


class TopicMissingError(ConnectorError):
    """The transport topic is not there, and making it was not asked for."""

    def __init__(self, topic: str, bootstrap_servers: str) -> None:
        super().__init__(
            f"topic {topic} does not exist on {bootstrap_servers}",
            f"make it: kafka-topics --bootstrap-server {bootstrap_servers} --create "
            f"--topic {topic} --partitions 6 --replication-factor 3 --config retention.ms=86400000"
            "; or let --create-topic do it",
        )
        self.topic, self.bootstrap_servers = topic, bootstrap_servers


class TransportAwayError(ConnectorError):
    """The transport topic takes no records now."""

    retriable = True

    def __init__(self, topic: str, bootstrap_servers: str, cause: str) -> None:
        super().__init__(
            f"topic {topic} on {bootstrap_servers} takes no records ({cause})",
            "see that its brokers are up and that enough replicas are in sync; it is tried again",
        )
        self.topic, self.cause = topic, cause
