"""A monitor with the ACLs of docs/permissions.md, on every authorizer: they suffice, and each that
is taken away is named."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from tests.field.field_inject import Fault, Injected
from tests.field.field_report import Row
from tests.field.field_watch import Watch
from tests.field.secured import Acl, needed, secured, write_properties
from tests.field.secured_settings import numbers

if TYPE_CHECKING:
    from pathlib import Path

    from tests.field.field_report import Keep
    from tests.field.lab import Kind
    from tests.field.secured import SecuredLab


def play(folder: Path, kind: Kind, keep: Keep) -> None:
    """With the ACLs of docs/permissions.md, each of which is taken away in turn.

    0.10.2 answers for a topic that may not be described as if there were none, and logs no refusal:
    there only Read can be missed, and only where Describe is left.
    """
    hides = numbers(kind.version) < (0, 11)
    with secured(folder, *kind) as lab:
        lab.lab.clients.create_topic("secret")
        lab.lab.clients.create_topic("open")
        lab.lab.clients.produce("secret", [b"a record"] * 20)
        every = Acl("Read", "topic", "*")
        mine = [
            *(acl for acl in needed(kind.version) if acl != every),
            *(Acl("Read", "topic", name) for name in ("secret", "open")),
        ]
        lab.allow(*mine)
        if hides:
            lab.allow(Acl("Describe", "topic", "secret"))
        if lab.zookeeper_tls:
            lab.let_read({"/config/brokers": True})
        listener, lines = lab.login()
        write_properties(folder / "client.properties", lines)
        options: dict[str, Any] = {
            "bootstrap_servers": lab.listeners[listener],
            "command_config": str(folder / "client.properties"),
            "log_dirs_refresh_ms": 1,
            "settings_refresh_ms": 1,
            "missed_rounds": 2,
        }
        with Watch(lab.lab, **options) as watch:
            injected = Injected(lab.lab, watch, kind, keep)
            watch.wait_until(lambda: watch.partition("secret") is not None)
            watch.wait_rounds(2)
            if not hides:
                _nothing_refused(injected, lab, mine)
            for acl in mine:
                if acl.name != "open":
                    injected.expect(_without(lab, acl, ", Describe is left" if hides else ""))


def _nothing_refused(injected: Injected, lab: SecuredLab, mine: list[Acl]) -> None:
    began, before = time.monotonic(), len(lab.denied())
    injected.watch.wait_rounds(5)
    seen = injected.watch.partition("secret")
    watermarks = [each.high_watermark for each in seen.replicas] if seen is not None else []
    told = [each.reason for each in injected.watch.health] + lab.denied()[before:]
    granted = ", ".join(map(str, mine))
    injected.keep(
        Row(
            "injected",
            "the ACLs of docs/permissions.md and no more",
            str(injected.kind),
            "every round is whole: nothing is refused, by the authorizer's own log",
            f"{granted}: 5 rounds, high watermark {watermarks}; "
            f"refused: {'; '.join(told) or 'nothing'}",
            not told and not injected.watch.alerts and watermarks == [20],
            time.monotonic() - began,
        )
    )


def _without(lab: SecuredLab, acl: Acl, left: str) -> Fault:
    """Where each is missed, and what is said of it."""
    place = {
        ("Describe", "cluster"): "health/log directories",
        ("DescribeConfigs", "cluster"): "health/settings of brokers",
        ("Read", "topic"): "health/topic secret",
        ("DescribeConfigs", "topic"): "health/settings of topic secret",
    }[acl[:2]]
    what = {"cluster": "the cluster", "topic": "a topic"}[acl.resource]
    name = "secret" if acl.resource == "topic" else acl.name
    return Fault(
        f"ACL taken away: {acl.operation} on {what}{left}",
        "SRC002",
        place,
        lambda: lab.take_away(acl),
        mend=lambda: lab.allow(acl),
        says=f"ACL {acl.operation} on {acl.resource} {name} is missing",
    )
