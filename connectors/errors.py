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


class UnsupportedRequestError(ConnectorError):
    """The broker is too old for a request."""

    def __init__(self, request: str) -> None:
        super().__init__(f"the broker does not know {request}", "what it tells stays unknown")
        self.request = request
